"""AccuracyReport: measured beside predicted, row by row, as one self-contained record.

What every form of `specsim validate` returns, prints and can write to a file. A row is one
quantity of one situation. Its `split` says whether the prediction had seen it: 'fitted' rows show
how well a fit describes its own data and are never part of a judgement; 'held-out' rows are.

Relative error = predicted / measured - 1. Summaries per metric, over held-out rows: median and
90th percentile of its size, bias (median with sign), worst, and count.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from specsim.accuracy.split import GapSplit
from specsim.errors import UsageError
from specsim.files import write_whole
from specsim.jsonable import json_text, jsonable, picked
from specsim.summary import ErrorSummary, error_summary

FORMAT = 1
SPLITS = ("fitted", "held-out")


@dataclass(frozen=True, slots=True)
class Row:
    """One judged quantity. name: the situation ('decode B=8 k=3', 'c=4 ngram'); metric: what was
    measured ('step_s', 'ttft_p95_s', 'output_tok_s', ...), its unit in the name; low, high: a
    90 % interval of the prediction where there is one; spread: relative standard deviation of the
    measured value over repeats, where there were any; note: one sentence."""

    name: str
    metric: str
    measured: float
    predicted: float
    split: str = "held-out"
    low: float | None = None
    high: float | None = None
    spread: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise UsageError(f"split is {self.split!r}; it must be one of {', '.join(SPLITS)}")
        for value in (self.measured, self.predicted):
            if not math.isfinite(value):
                raise UsageError(f"{self.name}, {self.metric}: {value} cannot be compared")

    @property
    def error(self) -> float | None:
        """predicted / measured - 1; None where nothing was measured (0)."""
        return self.predicted / self.measured - 1 if self.measured else None

    def to_dict(self) -> dict[str, object]:
        return picked(self, "name metric measured predicted error split low high spread note")


@dataclass(frozen=True)
class AccuracyReport:
    """All rows of one validation. what: records, run, live, bench or published. provenance: what
    is needed to repeat it (command, date, device, software, model, seed, sources of the
    prediction). reasons: what explains a gap, largest first, each {'cause', 'evidence'}. split: the
    gap of each point as factors. pinned: the acceptance that the server was told to have."""

    what: str
    title: str
    rows: tuple[Row, ...]
    provenance: Mapping[str, object] = field(default_factory=dict)
    reasons: tuple[Mapping[str, object], ...] = ()
    warnings: tuple[str, ...] = ()
    split: tuple[GapSplit, ...] = ()
    pinned: Mapping[str, object] | None = None

    def metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.metric for row in self.rows))

    def summary(self, split: str = "held-out") -> dict[str, ErrorSummary]:
        """Errors per metric over the rows of a split."""
        errors: dict[str, list[float]] = {metric: [] for metric in self.metrics()}
        for row in self.rows:
            if row.split == split and row.error is not None:
                errors[row.metric].append(row.error)
        return {name: item for name, found in errors.items() if (item := error_summary(found))}

    def over(self, max_error: float) -> tuple[str, ...]:
        """Metrics whose median held-out error is above `max_error`."""
        return tuple(
            name for name, item in self.summary().items()
            if item["median_abs_error"] > max_error
        )

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": "validation", "format": FORMAT, "what": self.what, "title": self.title,
            "summary": self.summary(), "fitted_summary": self.summary("fitted"),
            "rows": [row.to_dict() for row in self.rows],
            "reasons": [dict(reason) for reason in self.reasons],
            "split": [point.to_dict() for point in self.split], "pinned": jsonable(self.pinned),
            "warnings": list(self.warnings), "provenance": dict(self.provenance),
        }

    def write(self, path: Path) -> None:
        """The record as JSON, complete or not at all. FormatError where it cannot be written."""
        write_whole(path, json_text(self.to_dict(), indent=1) + "\n")
