"""Request traces of serving systems as `Request` streams: the formats of `_LAYOUTS`
(docs/simulate.md).

vLLM's `timed_trace` data set is the Mooncake format. sharegpt, vidur, lengths and requests are read
from JSON lines with the same names too, so that what `specsim simulate --records` writes can be
sent again. Of `requests`, `session` keeps conversations together for routers; all with one `prefix`
begin with the same `prefix_tokens`, all with one `prompt` go on alike. Sessions of Mooncake's
format follow from its hash ids. Times come out as seconds from the first request and must not fall
(sort_times allows it). A broken line is a FormatError with its number. Readers stream.
"""

import heapq
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from specsim.errors import FormatError, UsageError
from specsim.formats.trace_rows import (
    MAX_LINE,
    Chains,
    csv_rows,
    hash_spans,
    id_at,
    json_rows,
    moment_at,
    shared_spans,
    time_at,
    tokens_at,
)
from specsim.sim.request import Request

MOONCAKE_BLOCK = 512  # tokens that one hash id stands for
OUT_OF_ORDER_ROWS = 10_000  # with sort_times: how far a row may be out of place
FORMATS = ("azure", "burstgpt", "mooncake", "sharegpt", "vidur", "lengths", "requests")


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """limit: first so many requests. time_scale: multiplies times (0.5: twice the rate).
    sort_times: accept rows that are slightly out of order."""

    limit: int | None = None
    time_scale: float = 1.0
    sort_times: bool = False

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"trace limit is {self.limit}; it must be 1 or more requests")
        if not (self.time_scale > 0 and math.isfinite(self.time_scale)):
            raise UsageError(f"time_scale is {self.time_scale!r}; it must be above 0")


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
    return _selected(path, kind, options)


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
        known = [kind for kind, layout in _LAYOUTS.items() if layout.files == "both"]
    else:
        columns = {name.strip() for name in first.split(",")}
        known = [kind for kind, layout in _LAYOUTS.items() if layout.files != "json"]
    for kind in known:
        if _LAYOUTS[kind].needed <= columns:
            return kind
    if first.startswith("{"):
        return "mooncake"
    raise FormatError(
        f"{path.name}: line 1 is no known trace header ({first[:80]!r}); known are "
        + "; ".join(f"{kind}: {', '.join(sorted(_LAYOUTS[kind].needed))}" for kind in known)
    )


class Layout(NamedTuple):
    """The columns of a format. time: None where lengths have none; scale: seconds of its unit.
    files: 'csv', 'json' (lines) or 'both' with the same names. least: of a prompt's tokens."""

    time: str | None
    scale: float
    prompt: str
    output: str
    files: str = "both"
    least: int = 1

    @property
    def needed(self) -> set[str]:
        return {name for name in (self.time, self.prompt, self.output) if name}


# In the order in which a header is told: a format whose columns are others' too comes later.
_LAYOUTS = {
    "azure": Layout("TIMESTAMP", 1.0, "ContextTokens", "GeneratedTokens", "csv"),
    "burstgpt": Layout("Timestamp", 1.0, "Request tokens", "Response tokens", "csv", 0),
    "mooncake": Layout("timestamp", 1e-3, "input_length", "output_length", "json"),
    "sharegpt": Layout("arrival_time_ns", 1e-9, "input_toks", "output_toks"),
    "requests": Layout("arrival_s", 1.0, "prompt_tokens", "output_tokens"),
    "vidur": Layout("arrived_at", 1.0, "num_prefill_tokens", "num_decode_tokens"),
    "lengths": Layout(None, 1.0, "num_prefill_tokens", "num_decode_tokens"),
}


def _selected(path: Path, kind: str, options: TraceOptions) -> Iterator[Request]:
    rows = _requests(path, kind)
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
                f"{path.name}: line {line} has the {_LAYOUTS[kind].time} {now}, earlier than the "
                f"{before} of line {previous_line}; sort the trace by time, or accept a small "
                "disorder with --sort-trace"
            )
        previous, previous_line = time_s, line
        yield request._replace(arrival_s=time_s * options.time_scale)
        kept += 1
        if kept == options.limit:
            return
    if kept == 0:
        raise FormatError(f"{path.name} holds no request")


def _time_as_written(path: Path, kind: str, line: int) -> str:
    """The time that stands in a line that was read before, for an error message."""
    name = _LAYOUTS[kind].time or ""
    text = next((row.get(name) for at, row in _rows(path, _LAYOUTS[kind]) if at == line), None)
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


# --- readers ----------------------------------------------------------------------------


def _rows(path: Path, layout: Layout) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Rows of a CSV or of JSON lines with the same names."""
    with path.open("rb") as file:
        is_json = file.readline(MAX_LINE).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    if layout.files == "csv" or (layout.files == "both" and not is_json):
        yield from csv_rows(path, layout.needed)
        return
    needed = ", ".join(filter(None, (layout.time, layout.prompt, layout.output)))
    wanted = (
        f"a trace has a line per request with {needed}; `specsim simulate --help` names the other "
        "forms that --trace reads"
    )
    for line, row in json_rows(path):
        for key in (layout.time, layout.prompt, layout.output):
            if key and key not in row:
                raise FormatError(f"{path.name}: line {line} lacks {key!r}; {wanted}")
        yield line, row


def _requests(path: Path, kind: str) -> Iterator[tuple[int, Request]]:
    """(line, request) in the trace's own time, in seconds."""
    layout = _LAYOUTS[kind]
    sessions: dict[str, int] = {}
    chains = Chains()
    epoch: datetime | None = None
    for line, row in _rows(path, layout):
        time_s = 0.0
        if kind == "azure":
            moment, part_s = moment_at(str(row["TIMESTAMP"]).strip(), path, line)
            epoch = epoch or moment
            time_s = (moment - epoch).total_seconds() + part_s
        elif layout.time is not None:
            time_s = time_at(row[layout.time], layout.time, path, line) * layout.scale
        output = tokens_at(row[layout.output], layout.output, path, line)
        if kind == "burstgpt" and output == 0:
            continue  # failed: without a response
        prompt = max(1, tokens_at(row[layout.prompt], layout.prompt, path, line, layout.least))
        spans: tuple[tuple[int, int], ...] = ()
        session = -1
        if kind == "mooncake":
            ids = row.get("hash_ids", [])
            spans = hash_spans(ids, prompt, MOONCAKE_BLOCK, path, line)
            session = chains.session(spans, MOONCAKE_BLOCK)
        elif kind == "requests":
            session = id_at(row, "session", path, line)
            spans = shared_spans(row, prompt, path, line)
        elif kind == "burstgpt" and (name := str(row.get("Session ID", "")).strip()):
            session = sessions.setdefault(name, len(sessions))
        yield line, Request(time_s, prompt, output, session=session, spans=spans)
