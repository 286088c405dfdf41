"""Request traces of serving systems, one reader per format, as `Request` streams.

    azure      TIMESTAMP,ContextTokens,GeneratedTokens       Azure LLM inference 2023 and 2024
    burstgpt   Timestamp,[Session ID,...],Model,Request tokens,Response tokens,...   seconds
    mooncake   {"timestamp": ms, "input_length", "output_length", "hash_ids"}        JSON lines
    sharegpt   arrival_time_ns,input_toks,output_toks        LLMServingSim's ShareGPT lengths
    vidur      arrived_at,num_prefill_tokens,num_decode_tokens,...
    lengths    num_prefill_tokens,num_decode_tokens,...      Vidur; no times
    requests   arrival_s,prompt_tokens,output_tokens         our own and anybody's CSV

vLLM's `timed_trace` data set is the Mooncake format. sharegpt, vidur, lengths and requests are
read from JSON lines with the same names too, so that what `specsim simulate --records` writes can
be sent again. A `session` column of `requests` keeps conversations together for routers. Times come
out as seconds from the trace's first request. A broken line is a FormatError with its number; times
must not fall (sort_times allows it: some published traces are out of order by a little). Readers
stream: a file is never held in memory as a whole.
"""

import csv
import heapq
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from specsim.errors import FormatError, UsageError
from specsim.sim.request import Request

MOONCAKE_BLOCK = 512  # tokens that one hash id stands for
MAX_TOKENS = 20_000_000
MAX_LINE = 10_000_000  # characters
OUT_OF_ORDER_ROWS = 10_000  # with sort_times: how far a row may be out of place
FORMATS = ("azure", "burstgpt", "mooncake", "sharegpt", "vidur", "lengths", "requests")


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """limit: first so many requests. time_scale: multiplies times (0.5: twice the rate).
    request_rate: times rescaled to this mean rate (reads the trace twice). start_s: skip what
    comes earlier. skip_failed: leave out BurstGPT rows without a response. sort_times: accept rows
    that are slightly out of order. hash_block: tokens per Mooncake hash id."""

    limit: int | None = None
    time_scale: float = 1.0
    request_rate: float | None = None
    start_s: float = 0.0
    skip_failed: bool = True
    sort_times: bool = False
    hash_block: int = MOONCAKE_BLOCK

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"trace limit is {self.limit}; it must be 1 or more requests")
        if not (self.time_scale > 0 and math.isfinite(self.time_scale)):
            raise UsageError(f"time_scale is {self.time_scale!r}; it must be above 0")
        if self.request_rate is not None and not self.request_rate > 0:
            raise UsageError(f"request_rate is {self.request_rate!r}; it must be above 0")
        if self.hash_block < 1:
            raise UsageError(f"hash_block is {self.hash_block}; it must be 1 token or more")


def read_trace(
    path: Path | str, trace_format: str | None = None, options: TraceOptions | None = None
) -> Iterator[Request]:
    """Requests of a trace file, in order of time, the first at 0 s.

    trace_format: one of FORMATS, None: told from the first line. UsageError for a missing file or
    unknown format, FormatError with the line number for what is broken.
    """
    options = options or TraceOptions()
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"trace {str(path)!r} is not a file")
    kind = detect_format(path) if trace_format is None else trace_format
    if kind not in FORMATS:
        raise UsageError(f"trace format {kind!r} is not known; formats are {', '.join(FORMATS)}")
    scale = options.time_scale
    if options.request_rate is not None:
        scale = _scale_for_rate(path, kind, options)
    return _selected(path, kind, options, scale)


def detect_format(path: Path) -> str:
    """The format that the first line of a trace shows. UsageError where there is no file."""
    if not path.is_file():  # a pipe would wait for a writer
        raise UsageError(f"trace {str(path)!r} is not a file")
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            first = file.readline(MAX_LINE).strip()
    except OSError as error:
        raise UsageError(f"trace {str(path)!r} cannot be read: {error.strerror}") from None
    if first.startswith("{"):
        try:
            columns = set(json.loads(first))
        except (ValueError, RecursionError):
            return "mooncake"  # its reader says what is wrong with the line
        known = {kind: _COLUMNS[kind] for kind in _JSON_LINES}
        if not any(needed <= columns for needed in known.values()):
            return "mooncake"
    else:
        columns = {name.strip() for name in first.split(",")}
        known = _COLUMNS
    for kind, needed in known.items():
        if needed <= columns:
            return kind
    raise FormatError(
        f"{path.name}: line 1 is no known trace header ({first[:80]!r}); known are "
        + "; ".join(f"{kind}: {', '.join(sorted(needed))}" for kind, needed in _COLUMNS.items())
    )


_COLUMNS: dict[str, set[str]] = {
    "azure": {"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
    "burstgpt": {"Timestamp", "Request tokens", "Response tokens"},
    "sharegpt": {"arrival_time_ns", "input_toks", "output_toks"},
    "requests": {"arrival_s", "prompt_tokens", "output_tokens"},
    "vidur": {"arrived_at", "num_prefill_tokens", "num_decode_tokens"},
    "lengths": {"num_prefill_tokens", "num_decode_tokens"},
}
_JSON_LINES = ("sharegpt", "requests", "vidur", "lengths")
_TIME_NAMES = {"azure": "TIMESTAMP", "burstgpt": "Timestamp", "mooncake": "timestamp",
               "sharegpt": "arrival_time_ns", "requests": "arrival_s",
               "vidur": "arrived_at", "lengths": "arrived_at"}


def _selected(path: Path, kind: str, options: TraceOptions, scale: float) -> Iterator[Request]:
    rows: Iterator[tuple[int, Request]] = _READERS[kind](path, options)
    if options.sort_times:
        rows = _sorted(rows)
    origin: float | None = None
    previous, previous_line = -math.inf, 0
    kept = 0
    for line, request in rows:
        if origin is None:
            origin = request.arrival_s
        time_s = request.arrival_s - origin
        if time_s < previous:
            now, before = (_time_as_written(path, kind, at) for at in (line, previous_line))
            raise FormatError(
                f"{path.name}: line {line} has the {_TIME_NAMES[kind]} {now}, earlier than the "
                f"{before} of line {previous_line}; sort the trace by time, or accept a small "
                "disorder with --sort-trace"
            )
        previous, previous_line = time_s, line
        if time_s < options.start_s:
            continue
        yield request._replace(arrival_s=(time_s - options.start_s) * scale)
        kept += 1
        if kept == options.limit:
            return
    if kept == 0:
        raise FormatError(f"{path.name} holds no request (after start_s {options.start_s:g} s)")


def _time_as_written(path: Path, kind: str, line: int) -> str:
    """The time that stands in a line that was read before, for an error message."""
    name = _TIME_NAMES[kind]
    rows = _rows(path, _COLUMNS[kind]) if kind in _COLUMNS else _json_rows(path)
    text = next((row.get(name) for at, row in rows if at == line), None)
    return str(text).strip()[:40]


def _sorted(rows: Iterator[tuple[int, Request]]) -> Iterator[tuple[int, Request]]:
    """Rows in order of time, if none is further out of place than the buffer holds."""
    waiting = [(request.arrival_s, line, request) for line, request in
               islice(rows, OUT_OF_ORDER_ROWS)]
    heapq.heapify(waiting)
    for line, request in rows:
        _, first_line, first = heapq.heapreplace(waiting, (request.arrival_s, line, request))
        yield first_line, first
    while waiting:
        _, first_line, first = heapq.heappop(waiting)
        yield first_line, first


def _scale_for_rate(path: Path, kind: str, options: TraceOptions) -> float:
    count, last = 0, 0.0
    for request in _selected(path, kind, options, 1.0):
        count, last = count + 1, request.arrival_s
    if last <= 0.0:
        raise UsageError(
            f"{path.name} spans no time, so it has no rate to change; leave request_rate out"
        )
    assert options.request_rate is not None
    return count / options.request_rate / last


# --- readers: (line number, request with the trace's own time in seconds) -----------------------


def _csv_rows(path: Path, needed: set[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            names = {name.strip() for name in reader.fieldnames or ()}
            missing = needed - names
            if missing:
                raise FormatError(
                    f"{path.name}: line 1 lacks the column {sorted(missing)[0]!r}; needed are "
                    f"{', '.join(sorted(needed))}"
                )
            for row in reader:
                if None in row or None in row.values():
                    raise FormatError(
                        f"{path.name}: line {reader.line_num} has another number of columns than "
                        "line 1"
                    )
                yield reader.line_num, {key.strip(): value for key, value in row.items()}
        except (csv.Error, UnicodeDecodeError) as error:
            raise FormatError(f"{path.name}: line {reader.line_num + 1}: {error}") from None


def _rows(path: Path, needed: set[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Rows of a CSV or of JSON lines with the same names."""
    with path.open("rb") as file:
        is_json = file.readline(MAX_LINE).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    if not is_json:
        yield from _csv_rows(path, needed)
        return
    for line, row in _json_rows(path):
        for key in needed:
            if key not in row:
                raise FormatError(f"{path.name}: line {line} lacks {key!r}")
        yield line, row


def _json_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open("rb") as file:
        for line, raw in enumerate(file, start=1):
            if line == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")  # noqa: PLW2901
            if not raw.strip():
                continue
            if len(raw) > MAX_LINE:
                raise FormatError(f"{path.name}: line {line} is longer than {MAX_LINE} characters")
            try:
                row = json.loads(raw)
            except (ValueError, RecursionError) as error:
                raise FormatError(f"{path.name}: line {line} is not JSON: {error}") from None
            if not isinstance(row, dict):
                raise FormatError(f"{path.name}: line {line} is not a JSON object")
            yield line, row


def _tokens(text: object, name: str, path: Path, line: int, low: int = 0) -> int:
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        value = math.nan
    else:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
    if not (low <= value <= MAX_TOKENS and value == int(value)):
        raise FormatError(
            f"{path.name}: line {line}: {name} is {text!r}; it must be a whole number of tokens "
            f"from {low} to {MAX_TOKENS}"
        )
    return int(value)


def _time(text: object, name: str, path: Path, line: int) -> float:
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        value = math.nan
    else:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
    if not math.isfinite(value):
        raise FormatError(f"{path.name}: line {line}: {name} is {text!r}; it must be a number")
    return value


def _azure(path: Path, options: TraceOptions) -> Iterator[tuple[int, Request]]:
    epoch: datetime | None = None
    for line, row in _csv_rows(path, _COLUMNS["azure"]):
        text = row["TIMESTAMP"].strip()
        # 100 ns digits, sometimes with a zone: the standard library reads microseconds.
        whole, _, fraction = text.removesuffix("+00:00").removesuffix("Z").partition(".")
        try:
            moment = datetime.fromisoformat(whole)
            part = int(fraction) / 10 ** len(fraction) if fraction else 0.0
        except ValueError:
            raise FormatError(
                f"{path.name}: line {line}: TIMESTAMP is {text!r}; it must look like "
                "2023-11-16 18:17:03.9799600"
            ) from None
        if epoch is None:
            epoch = moment
        yield line, Request(
            (moment - epoch).total_seconds() + part,
            _tokens(row["ContextTokens"], "ContextTokens", path, line, 1),
            _tokens(row["GeneratedTokens"], "GeneratedTokens", path, line),
        )


def _burstgpt(path: Path, options: TraceOptions) -> Iterator[tuple[int, Request]]:
    sessions: dict[str, int] = {}
    for line, row in _csv_rows(path, _COLUMNS["burstgpt"]):
        output = _tokens(row["Response tokens"], "Response tokens", path, line)
        if output == 0 and options.skip_failed:
            continue
        prompt = _tokens(row["Request tokens"], "Request tokens", path, line, 0)
        session = -1
        name = row.get("Session ID", "").strip()
        if name:
            session = sessions.setdefault(name, len(sessions))
        yield line, Request(
            _time(row["Timestamp"], "Timestamp", path, line), max(1, prompt), output,
            session=session,
        )


def _sharegpt(path: Path, options: TraceOptions) -> Iterator[tuple[int, Request]]:
    for line, row in _rows(path, _COLUMNS["sharegpt"]):
        yield line, Request(
            _time(row["arrival_time_ns"], "arrival_time_ns", path, line) * 1e-9,
            _tokens(row["input_toks"], "input_toks", path, line, 1),
            _tokens(row["output_toks"], "output_toks", path, line),
        )


def _own(path: Path, options: TraceOptions) -> Iterator[tuple[int, Request]]:
    for line, row in _rows(path, _COLUMNS["requests"]):
        yield line, Request(
            _time(row["arrival_s"], "arrival_s", path, line),
            _tokens(row["prompt_tokens"], "prompt_tokens", path, line, 1),
            _tokens(row["output_tokens"], "output_tokens", path, line),
            session=_session(row.get("session"), path, line),
        )


def _session(value: object, path: Path, line: int) -> int:
    """-1 (none) where the column is missing or empty."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return -1
    try:
        number = int(value) if isinstance(value, str | int) and len(str(value)) < 18 else None
    except ValueError:
        number = None
    if number is None or number < -1 or isinstance(value, bool):
        raise FormatError(
            f"{path.name}: line {line}: session is {str(value)[:40]!r}; it must be a whole number "
            "from 0, or -1 for none"
        )
    return number


def _vidur(path: Path, options: TraceOptions) -> Iterator[tuple[int, Request]]:
    for line, row in _rows(path, _COLUMNS["vidur"]):
        yield line, _of_lengths(row, _time(row["arrived_at"], "arrived_at", path, line), path, line)


def _lengths(path: Path, options: TraceOptions) -> Iterator[tuple[int, Request]]:
    """Lengths without times: all at 0 s, for closed loops or arrivals drawn apart."""
    for line, row in _rows(path, _COLUMNS["lengths"]):
        yield line, _of_lengths(row, 0.0, path, line)


def _of_lengths(row: Mapping[str, Any], time_s: float, path: Path, line: int) -> Request:
    prompt = _tokens(row["num_prefill_tokens"], "num_prefill_tokens", path, line, 1)
    return Request(
        time_s, prompt, _tokens(row["num_decode_tokens"], "num_decode_tokens", path, line)
    )


def _mooncake(path: Path, options: TraceOptions) -> Iterator[tuple[int, Request]]:
    for line, row in _json_rows(path):
        for key in ("timestamp", "input_length", "output_length"):
            if key not in row:
                raise FormatError(f"{path.name}: line {line} lacks {key!r}")
        prompt = _tokens(row["input_length"], "input_length", path, line, 1)
        yield line, Request(
            _time(row["timestamp"], "timestamp", path, line) * 1e-3,
            prompt,
            _tokens(row["output_length"], "output_length", path, line),
            spans=_hash_spans(row.get("hash_ids", []), prompt, options.hash_block, path, line),
        )


def _hash_spans(
    ids: object, prompt: int, block: int, path: Path, line: int
) -> tuple[tuple[int, int], ...]:
    """One piece per hash id; the last one covers what is left of the prompt."""
    if not isinstance(ids, list):
        raise FormatError(f"{path.name}: line {line}: hash_ids is {ids!r}; it must be a list")
    spans, left = [], prompt
    for key in ids:
        if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < 1 << 61:
            raise FormatError(
                f"{path.name}: line {line}: hash id {key!r} must be a whole number below 2**61"
            )
        if left <= 0:
            break
        spans.append((key, min(block, left)))
        left -= block
    return tuple(spans)


_READERS: dict[str, Callable[[Path, TraceOptions], Iterator[tuple[int, Request]]]] = {
    "azure": _azure,
    "burstgpt": _burstgpt,
    "mooncake": _mooncake,
    "sharegpt": _sharegpt,
    "vidur": _vidur,
    "lengths": _lengths,
    "requests": _own,
}
