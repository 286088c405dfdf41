"""What the functions that hold predictions against measurements return."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specsim.accuracy.compare import AccuracyReport
from specsim.accuracy.live import JUDGED
from specsim.api.results import Result, flat
from specsim.jsonable import Key
from specsim.report.blocks import Section
from specsim.report.doc import Doc


@dataclass(frozen=True, repr=False)
class Validation(Result):
    """Measured beside predicted figures: `rows`, and the errors of them by metric as `summary`.

    judged: metrics that an error limit is about, () for all. partial: Ctrl-C ended the
    measurement. stopped: what ended it early, '' for nothing."""

    comparison: AccuracyReport
    command: str = ""
    judged: tuple[str, ...] = JUDGED
    partial: bool = False
    stopped: str = ""
    rows_shown: bool = field(default=False, kw_only=True)

    format = Key[int]()
    what = title = Key[str]()
    summary = fitted_summary = provenance = Key[dict[str, Any]]()
    rows = reasons = split = Key[list[dict[str, Any]]]()
    pinned = Key[dict[str, Any] | None]()

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.comparison.warnings

    def over(self, max_error: float) -> list[str]:
        """Judged metrics whose median error is above a limit."""
        names = self.comparison.over(max_error)
        return [name for name in names if not self.judged or name in self.judged]

    def values_judged(self) -> int:
        """Held-out values of judged metrics that `over` rests on."""
        return sum(
            item["count"] for name, item in self.comparison.summary().items()
            if not self.judged or name in self.judged
        )

    def write(self, path: Path) -> None:
        self.comparison.write(path)

    def to_dict(self) -> dict[str, object]:
        return self.comparison.to_dict()

    def to_rows(self) -> list[dict[str, object]]:
        """One flat row per judged value."""
        return [flat(row.to_dict()) for row in self.comparison.rows]

    def section(self) -> Section:
        from specsim.report.live import validated_section, validation_section

        doc = Doc(self.to_dict())
        if self.comparison.what == "records":
            return validated_section(doc, self.rows_shown)
        return validation_section(doc)
