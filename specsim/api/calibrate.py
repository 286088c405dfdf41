"""`specsim.calibrate`: an engine profile from benchmarks of one server, or a hardware profile from
records of `specsim measure`."""

from dataclasses import dataclass

from specsim.api.calibrate_bench import fit_from
from specsim.api.calibrate_records import fit_records
from specsim.api.functions import python_function
from specsim.api.results import Documented, flat
from specsim.errors import UsageError
from specsim.options.measured import CalibrateFunctionOptions
from specsim.options.values import paths_of
from specsim.report.blocks import Section
from specsim.report.doc import Doc
from specsim.rows import rows_at, texts_at


@dataclass(frozen=True, repr=False)
class Calibration(Documented):
    """What a fit found. document: as `specsim calibrate --json` prints it. command: a prediction
    with the new engine profile; empty for a hardware profile."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "command", str(self.document.get("command", "")))

    @property
    def parameters(self) -> list[dict[str, object]]:
        """Each fitted parameter with its value before and after and its uncertainty."""
        return rows_at(self.document, "parameters")

    @property
    def written(self) -> tuple[str, ...]:
        """The profiles and reports that were written."""
        return texts_at(self.document, "files" if "files" in self.document else "written")

    def to_rows(self) -> list[dict[str, object]]:
        """One flat row per parameter."""
        return [flat(row) for row in self.parameters]

    def section(self) -> Section:
        if self.document.get("what") == "engine":
            from specsim.report.fewshot import fewshot_section

            return fewshot_section(Doc(self.document))
        from specsim.report.records import records_section

        return records_section(Doc(self.document))

    def __repr__(self) -> str:
        return f"<specsim.Calibration: {len(self.parameters)} parameters>"


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
