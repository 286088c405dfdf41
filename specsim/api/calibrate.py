"""`specsim.calibrate`: an engine profile from benchmarks of one server, or a hardware profile from
records of `specsim measure`."""

from dataclasses import dataclass
from typing import Any

from specsim.api.calibrate_bench import fit_from
from specsim.api.calibrate_records import fit_records
from specsim.api.functions import python_function
from specsim.api.results import flat, frame, page_of
from specsim.errors import UsageError
from specsim.options.measured import CalibrateFunctionOptions
from specsim.options.values import paths_of


@dataclass(frozen=True)
class Calibration:
    """What a fit found. document: as `specsim calibrate --json` prints it."""

    document: dict[str, Any]

    @property
    def parameters(self) -> list[dict[str, Any]]:
        """Each fitted parameter with its value before and after and its uncertainty."""
        return list(self.document["parameters"])

    @property
    def written(self) -> tuple[str, ...]:
        """The profiles and reports that were written."""
        if "files" in self.document:
            return tuple(self.document["files"])
        return (self.document["written"],) if self.document["written"] else ()

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self.document.get("warnings", ()))

    @property
    def command(self) -> str:
        """A prediction with the new engine profile; empty for a hardware profile."""
        return str(self.document.get("command", ""))

    def to_dict(self) -> dict[str, Any]:
        return dict(self.document)

    def to_rows(self) -> list[dict[str, Any]]:
        """One flat row per parameter."""
        return [flat(row) for row in self.parameters]

    def to_frame(self, library: str | None = None) -> Any:
        """The parameters as a data frame of pandas or, without it, polars."""
        return frame(self.to_rows(), library)

    def __str__(self) -> str:
        if self.document.get("what") == "engine":
            from specsim.report.fewshot import fewshot_text

            return fewshot_text(self.document)
        from specsim.report.records import records_text

        return records_text(self.document)

    def __repr__(self) -> str:
        return f"<specsim.Calibration: {len(self.parameters)} parameters>"

    def _repr_html_(self) -> str:
        return page_of(repr(self), self.to_rows(), self.warnings)


def run(options: CalibrateFunctionOptions) -> Calibration:
    """Fit the engine's overheads to benchmark results of one server that ran `model` (`from_`,
    `plain`, `spec`), or a hardware profile to `records` of `specsim measure`.

    out: the profile to write (.toml). report: the whole report as JSON. base, statistic: for
    records, see `specsim calibrate --help`."""
    records = paths_of(options.records)
    measured = [*paths_of(options.from_), *paths_of(options.plain), *paths_of(options.spec)]
    if records and (options.model is not None or measured):
        raise UsageError("records and benchmark results are fitted apart; give one of them")
    if records:
        return Calibration(fit_records(records, options))
    if not measured:
        raise UsageError("nothing to fit; give from_=FILES with the model served, or records=FILES")
    if options.model is None:
        raise UsageError("benchmark results need the model that was served; give it first")
    return Calibration(fit_from(str(options.model), options))


calibrate = python_function(CalibrateFunctionOptions, run)
