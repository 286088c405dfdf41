"""Measured points as JSON lines: what `specsim measure` writes and calibration reads.

A file holds one or more runs. A run is a header line (what machine, which software, which models)
followed by its points, one line each, flushed one by one, so that a run that was cut short is a
valid file. An `end` line closes a run that was not cut. All times are seconds, sizes bytes.

    {"record": "header", "format": 1, "date": ..., "device": {...}, "software": {...}, ...}
    {"record": "point", "part": "B", "kind": "gemm", "shape": {...}, "median_s": ..., ...}
    {"record": "end", "elapsed_s": ..., "measured": ..., "skipped": ..., "device": {...}}

Kinds, and the keys their shape must have (others may follow):

stream       bytes, op ('read' | 'copy'): values.bytes_per_s counts what is read plus written
gemm_peak    m, n, k, dtype: one large square product; values.flop_per_s
launch       nodes: an empty chain of that many small kernels (a CUDA graph, or eager calls)
gemm         model, matrix, m, n, k, dtype: [m, k] x [n, k]^T; `matrix` names the layer's product
attention    model, seqs, q_len, ctx, heads, kv_heads, head_dim, dtype: what one layer does between
             its qkv and output products (rotary embedding, cache write, attention); each of `seqs`
             rows has `ctx` tokens in the cache before its q_len new ones
sample       rows, k, vocab, mode ('greedy' | 'temperature' | 'top_p'), draft_probs (0 | 1):
             verification of k drafts and the draw, logits in fp32
step         model, method, k, seqs, ctx, dtype: one whole engine step, host included; phases_s has
             draft, verify, sample; draft_model names the drafter where there is one
moe          model, tokens, hidden, inter, experts, top_k, dtype: one layer's routed experts
prefill      model, new, cached, dtype: the pass over one prompt chunk, `new` tokens after `cached`
             ones, of a prompt of prompt_len; the last chunk also draws the first token
serving      model, method, k, max_num_seqs, prompt_len, output_len, load (share of the capacity at
             which Poisson arrivals came; 0: all at once), acceptance (i.i.d. rate per draft): a
             run against the clock; median_s etc. are of the requests' end-to-end latency, values
             has rate_req_s and the results, series one value per request
"""

import difflib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specsim.errors import FormatError
from specsim.files import read_limited

FORMAT = 1
MAX_FILE_BYTES = 200_000_000
MAX_LINE = 5_000_000  # characters; a serving record keeps its requests in one line

Value = int | float | str

KINDS: dict[str, tuple[str, ...]] = {
    "stream": ("bytes", "op"),
    "gemm_peak": ("m", "n", "k", "dtype"),
    "launch": ("nodes",),
    "gemm": ("model", "matrix", "m", "n", "k", "dtype"),
    "attention": ("model", "seqs", "q_len", "ctx", "heads", "kv_heads", "head_dim", "dtype"),
    "sample": ("rows", "k", "vocab", "mode", "draft_probs"),
    "step": ("model", "method", "k", "seqs", "ctx", "dtype"),
    "moe": ("model", "tokens", "hidden", "inter", "experts", "top_k", "dtype"),
    "prefill": ("model", "new", "cached", "dtype"),
    "serving": ("model", "method", "k", "max_num_seqs", "prompt_len", "output_len", "load",
                "acceptance"),
}
PARTS = "ABCDEFGH"

# What two runs must share for one to continue the other's file: the same machine, software and
# models. The date and the git sha may differ, and each point's own header says which it had.
_SAME = ("format", "device_name", "device_kind", "software", "seed", "threads", "grid", "models")


@dataclass(frozen=True, slots=True)
class RunHeader:
    """Where a run's points come from.

    device: kind ('cpu' | 'cuda'), name, memory_bytes, and what else is known (cores, driver,
    clocks, temperature). software: package -> version. models: name -> {"config": Hugging Face
    config, "weights": 'real' | 'random'}. git_sha: of the code that measured; '' when unknown.
    """

    device: Mapping[str, Any]
    software: Mapping[str, str]
    models: Mapping[str, Any]
    git_sha: str
    date: str  # ISO 8601, UTC
    seed: int
    threads: int
    grid: str
    format: int = FORMAT

    def identity(self) -> dict[str, Any]:
        """What must agree between runs that share a file."""
        values = {
            "format": self.format, "device_name": self.device.get("name", ""),
            "device_kind": self.device.get("kind", ""), "software": dict(self.software),
            "seed": self.seed, "threads": self.threads, "grid": self.grid,
            "models": dict(self.models),
        }
        return {name: values[name] for name in _SAME}

    def to_dict(self) -> dict[str, Any]:
        return {
            "record": "header", "format": self.format, "date": self.date, "git_sha": self.git_sha,
            "seed": self.seed, "threads": self.threads, "grid": self.grid,
            "device": dict(self.device), "software": dict(self.software),
            "models": dict(self.models),
        }


@dataclass(frozen=True, slots=True)
class Timing:
    """Repeated timings of one thing, seconds. n: repeats. On a shared machine min_s is the
    robust one; on a quiet one the median."""

    median_s: float
    p10_s: float
    p90_s: float
    min_s: float
    n: int

    @classmethod
    def of(cls, samples: Iterable[float]) -> "Timing":
        """Raises FormatError without samples."""
        ordered = sorted(samples)
        if not ordered:
            raise FormatError("a timing needs at least one sample")
        return cls(quantile(ordered, 0.5), quantile(ordered, 0.1), quantile(ordered, 0.9),
                   ordered[0], len(ordered))

    @property
    def spread(self) -> float:
        """(p90 - p10) / median: how disturbed the samples are."""
        return (self.p90_s - self.p10_s) / self.median_s if self.median_s > 0 else 0.0


def quantile(ordered: Sequence[float], q: float) -> float:
    """Linear interpolation between the order statistics of a sorted sequence."""
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured point.

    part: A ceilings .. H serving, the order in which a run measures. phases_s: medians of a step's
    phases. values: further results by name, units in the name. series: one value per request.
    cpu_over_wall: CPU seconds of this process per wall second while timing; well below the thread
    count on a CPU means that others had the cores. stream_bytes_per_s: the memory read rate probed
    last before this point, because a shared host's rate drifts.
    """

    part: str
    kind: str
    shape: Mapping[str, Value]
    timing: Timing
    cpu_over_wall: float
    stream_bytes_per_s: float
    phases_s: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    at_s: float = 0.0  # since the start of its run
    run: RunHeader | None = None  # set by the reader

    @property
    def key(self) -> str:
        return point_key(self.kind, self.shape)

    def to_dict(self) -> dict[str, Any]:
        t = self.timing
        out: dict[str, Any] = {
            "record": "point", "part": self.part, "kind": self.kind, "shape": dict(self.shape),
            "median_s": t.median_s, "p10_s": t.p10_s, "p90_s": t.p90_s, "min_s": t.min_s,
            "n": t.n, "spread": round(t.spread, 4), "cpu_over_wall": round(self.cpu_over_wall, 3),
            "stream_bytes_per_s": self.stream_bytes_per_s, "at_s": round(self.at_s, 2),
        }
        for name in ("phases_s", "values", "series"):
            value = getattr(self, name)
            if value:
                out[name] = dict(value)
        return out


def point_key(kind: str, shape: Mapping[str, Value]) -> str:
    """The same for the same point, whatever order its shape was written in."""
    return f"{kind} {json.dumps(dict(shape), sort_keys=True)}"


@dataclass(frozen=True, slots=True)
class RecordFile:
    """All of a file. truncated: the last line was cut short (a killed run) and is left out.
    good_bytes: length of the file up to the last whole line."""

    headers: tuple[RunHeader, ...]
    points: tuple[Measurement, ...]
    ends: tuple[Mapping[str, Any], ...]
    truncated: bool
    good_bytes: int

    def of_kind(self, kind: str) -> tuple[Measurement, ...]:
        return tuple(p for p in self.points if p.kind == kind)


def read_records(path: Path) -> RecordFile:
    """Read a file of records. Raises FormatError with the line's number and what was expected."""
    try:
        data = read_limited(path, MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FormatError(f"cannot read {path}: {reason}") from None
    if len(data) > MAX_FILE_BYTES:
        raise FormatError(
            f"{path} has more than {MAX_FILE_BYTES} bytes; no file of records is as large, give "
            "its runs as several files"
        )
    whole = data.rfind(b"\n") + 1
    headers: list[RunHeader] = []
    points: list[Measurement] = []
    ends: list[Mapping[str, Any]] = []
    for where, raw in _lines(path, data[:whole]):
        record = raw.get("record")
        if record == "header":
            headers.append(_header(where, raw))
        elif record not in ("point", "end"):
            raise FormatError(f"{where}: record {str(record)[:40]!r} must be header, point or end")
        elif not headers:
            raise FormatError(f"{where}: a {record} before any header; the file lost its beginning")
        elif record == "point":
            points.append(_point(where, raw, headers[-1]))
        else:
            ends.append(raw)
    if not headers:
        raise FormatError(f"{path} holds no header line; it is no file of `specsim measure`")
    return RecordFile(tuple(headers), tuple(points), tuple(ends), whole < len(data), whole)


def _lines(path: Path, data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        if len(line) > MAX_LINE:
            raise FormatError(f"{where} has {len(line)} characters; at most {MAX_LINE}")
        try:
            raw = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{where} is not valid JSON: {str(error)[:100]}") from None
        if not isinstance(raw, dict):
            raise FormatError(f"{where} must be a JSON object, not {type(raw).__name__}")
        yield where, raw


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number a record may hold")


def _header(where: str, raw: Mapping[str, Any]) -> RunHeader:
    version = raw.get("format")
    if version != FORMAT:
        raise FormatError(
            f"{where}: format {str(version)[:20]!r} is not the {FORMAT} this version reads; use "
            "the version of specsim that wrote it"
        )

    def mapping(name: str) -> Mapping[str, Any]:
        value = raw.get(name)
        if not isinstance(value, dict):
            raise FormatError(f"{where}: {name} must be an object")
        return value

    def whole(name: str) -> int:
        value = raw.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise FormatError(f"{where}: {name} must be a whole number")
        return value

    return RunHeader(
        device=mapping("device"), software=mapping("software"), models=mapping("models"),
        git_sha=str(raw.get("git_sha", "")), date=str(raw.get("date", "")), seed=whole("seed"),
        threads=whole("threads"), grid=str(raw.get("grid", "")),
    )


def _point(where: str, raw: Mapping[str, Any], run: RunHeader) -> Measurement:
    kind = str(raw.get("kind", ""))
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(KINDS)}"
        raise FormatError(f"{where}: unknown kind {kind[:40]!r}; {hint}")
    shape = raw.get("shape")
    if not isinstance(shape, dict) or not all(
        isinstance(v, str) or _is_number(v) for v in shape.values()
    ):
        raise FormatError(f"{where}: shape must be an object of numbers and names")
    missing = [name for name in KINDS[kind] if name not in shape]
    if missing:
        raise FormatError(f"{where}: the shape of a {kind} point lacks {', '.join(missing)}")

    def number(name: str, least: float) -> float:
        value = raw.get(name)
        if not _is_number(value) or value < least:  # type: ignore[operator]
            raise FormatError(
                f"{where}: {name} = {str(value)[:40]} must be a number of {least:g} or more"
            )
        return float(value)  # type: ignore[arg-type]

    timing = Timing(number("median_s", 0), number("p10_s", 0), number("p90_s", 0),
                    number("min_s", 0), int(number("n", 1)))
    if not timing.min_s <= timing.p10_s <= timing.median_s <= timing.p90_s:
        raise FormatError(f"{where}: min_s, p10_s, median_s, p90_s must not fall")
    part = str(raw.get("part", ""))
    if len(part) != 1 or part not in PARTS:
        raise FormatError(f"{where}: part {part[:10]!r} must be one of {', '.join(PARTS)}")
    return Measurement(
        part=part, kind=kind, shape=shape, timing=timing,
        cpu_over_wall=number("cpu_over_wall", 0),
        stream_bytes_per_s=number("stream_bytes_per_s", 0),
        phases_s=_numbers(where, raw, "phases_s"), values=_numbers(where, raw, "values"),
        series=_series(where, raw), at_s=number("at_s", 0), run=run,
    )


def _is_number(value: object) -> bool:
    return (isinstance(value, int | float) and not isinstance(value, bool)
            and abs(value) < 1e30)  # refuses inf and nan, and integers too long for a float


def _numbers(where: str, raw: Mapping[str, Any], name: str) -> dict[str, float]:
    value = raw.get(name, {})
    if not isinstance(value, dict) or not all(_is_number(v) for v in value.values()):
        raise FormatError(f"{where}: {name} must be an object of numbers")
    return {key: float(v) for key, v in value.items()}


def _series(where: str, raw: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    value = raw.get("series", {})
    if not isinstance(value, dict) or not all(
        isinstance(v, list) and all(_is_number(x) for x in v) for v in value.values()
    ):
        raise FormatError(f"{where}: series must be an object of lists of numbers")
    return {key: tuple(float(x) for x in v) for key, v in value.items()}
