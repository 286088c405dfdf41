"""Measured points as JSON lines: what `specsim measure` writes and calibration reads.

A file holds one or more runs. A run is a header line (what machine, which software, which models)
followed by its points, one line each, flushed one by one, so that a run that was cut short is a
valid file. An `end` line closes a run that was not cut. All times are seconds, sizes bytes.

    {"record": "header", "format": 1, "date": ..., "device": {...}, "software": {...}, ...}
    {"record": "point", "part": "B", "kind": "gemm", "shape": {...}, "median_s": ..., ...}
    {"record": "end", "elapsed_s": ..., "measured": ..., "skipped": ..., "device": {...}}

catalog/measure.toml says which kinds there are, and which keys their shape must have.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from specsim.checked import LooseShape, Rule, check, json_value
from specsim.data import data_table
from specsim.errors import FormatError, closest
from specsim.files import bytes_of
from specsim.jsonable import json_text, picked
from specsim.summary import quantile

FORMAT = 1
MAX_FILE_BYTES = 200_000_000
MAX_LINE = 5_000_000  # characters; a serving record keeps its requests in one line

Value = int | float | str

# The keys that the shape of a kind must have.
KINDS: dict[str, list[str]] = data_table("catalog", "measure.toml")["kinds"]
PARTS = "ABCDEFGH"


class RunHeader(LooseShape):
    """Where a run's points come from, as it stands in a file.

    device: kind ('cpu' | 'cuda'), name, memory_bytes, and what else is known (cores, driver,
    clocks, temperature). software: package -> version. models: name -> {"config": Hugging Face
    config, "weights": 'real' | 'random'}. git_sha: of the code that measured; '' when unknown.
    """

    device: Annotated[dict[str, object], Rule("an object")]
    software: Annotated[dict[str, str], Rule("an object of versions")]
    models: Annotated[dict[str, object], Rule("an object")]
    seed: int
    threads: int
    git_sha: str = ""
    date: str = ""  # ISO 8601, UTC
    grid: str = ""
    format: int = FORMAT

    def identity(self) -> dict[str, object]:
        """What must agree between runs that share a file: the date and the git sha may differ."""
        return {
            "format": self.format, "device_name": self.device.get("name", ""),
            "device_kind": self.device.get("kind", ""),
            **picked(self, "software seed threads grid models"),
        }

    def to_dict(self) -> dict[str, object]:
        return {"record": "header", **picked(
            self, "format date git_sha seed threads grid device software models")}


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

    def to_dict(self) -> dict[str, object]:
        t = self.timing
        out: dict[str, object] = {
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
    return f"{kind} {json_text(dict(shape), sort_keys=True)}"


@dataclass(frozen=True, slots=True)
class RecordFile:
    """All of a file. truncated: the last line was cut short (a killed run) and is left out.
    good_bytes: length of the file up to the last whole line."""

    headers: tuple[RunHeader, ...]
    points: tuple[Measurement, ...]
    ends: tuple[Mapping[str, object], ...]
    truncated: bool
    good_bytes: int


def read_records(path: Path) -> RecordFile:
    """Read a file of records. Raises FormatError with the line's number and what was expected."""
    data = bytes_of(path, MAX_FILE_BYTES, "give its runs as several files")
    whole = data.rfind(b"\n") + 1
    headers: list[RunHeader] = []
    points: list[Measurement] = []
    ends: list[Mapping[str, object]] = []
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
        raise FormatError(
            f"{path} holds no header line; it is no file of `specsim measure`; a benchmark's "
            "result is fitted with `specsim calibrate --from FILE MODEL`"
        )
    return RecordFile(tuple(headers), tuple(points), tuple(ends), whole < len(data), whole)


def _lines(path: Path, data: bytes) -> Iterator[tuple[str, dict[str, object]]]:
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        if len(line) > MAX_LINE:
            raise FormatError(f"{where} has {len(line)} characters; at most {MAX_LINE}")
        raw = json_value(line, where)
        if not isinstance(raw, dict):
            raise FormatError(f"{where} must be a JSON object, not {type(raw).__name__}")
        yield where, raw


# Refuses inf, nan and integers too long for a float.
Number = Annotated[float, Field(gt=-1e30, lt=1e30), Rule("a number")]
Size = Annotated[float, Field(ge=0, lt=1e30), Rule("a number of 0 or more")]
Numbers = Annotated[dict[str, Number], Field(default_factory=dict), Rule("an object of numbers")]


class PointLine(LooseShape):
    """A point as it stands in a file: the timing's figures beside the rest."""

    kind: str = ""
    part: str = ""
    shape: Annotated[dict[str, Value], Rule("an object")]
    median_s: Size
    p10_s: Size
    p90_s: Size
    min_s: Size
    n: Annotated[float, Field(ge=1, lt=1e30), Rule("a number of 1 or more")]
    cpu_over_wall: Size
    stream_bytes_per_s: Size
    at_s: Size
    phases_s: Numbers
    values: Numbers
    series: Annotated[
        dict[str, Annotated[tuple[Number, ...], Field(strict=False), Rule("a list of numbers")]],
        Field(default_factory=dict), Rule("an object of lists of numbers"),
    ]

    @model_validator(mode="after")
    def known_kind_and_order(self) -> Self:
        """Kind, keys of its shape, part, and quantiles that do not fall."""
        if self.kind not in KINDS:
            hint = f"{closest(self.kind, KINDS)}known: {', '.join(KINDS)}"
            raise ValueError(f"unknown kind {self.kind[:40]!r}; {hint}")
        if not all(isinstance(v, str) or abs(v) < 1e30 for v in self.shape.values()):
            raise ValueError("shape must hold names, and numbers below 1e30")
        missing = [name for name in KINDS[self.kind] if name not in self.shape]
        if missing:
            raise ValueError(f"the shape of a {self.kind} point lacks {', '.join(missing)}")
        if not self.min_s <= self.p10_s <= self.median_s <= self.p90_s:
            raise ValueError("min_s, p10_s, median_s, p90_s must not fall")
        if len(self.part) != 1 or self.part not in PARTS:
            raise ValueError(f"part {self.part[:10]!r} must be one of {', '.join(PARTS)}")
        return self


def _header(where: str, raw: Mapping[str, object]) -> RunHeader:
    version = raw.get("format")
    if version != FORMAT:
        raise FormatError(
            f"{where}: format {str(version)[:20]!r} is not the {FORMAT} this version reads; use "
            "the version of specsim that wrote it"
        )
    return check(RunHeader, raw, where)


def _point(where: str, raw: Mapping[str, object], run: RunHeader) -> Measurement:
    found = check(PointLine, raw, where)
    return Measurement(
        found.part, found.kind, found.shape,
        Timing(found.median_s, found.p10_s, found.p90_s, found.min_s, int(found.n)),
        found.cpu_over_wall, found.stream_bytes_per_s, found.phases_s, found.values, found.series,
        found.at_s, run,
    )
