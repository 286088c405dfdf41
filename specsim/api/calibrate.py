"""`specsim.calibrate`: an engine profile from benchmarks of one server, or a hardware profile from
records of `specsim measure`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specsim.api.calibrate_bench import fit_from
from specsim.api.functions import python_function
from specsim.api.results import Documented, flat
from specsim.calibrate import records_fit
from specsim.calibrate.records import RunHeader
from specsim.calibrate.write import engine_path, profile_name, report, write_outcome
from specsim.errors import ProfileError, UsageError
from specsim.files import check_writable, write_whole
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile
from specsim.jsonable import json_text
from specsim.latency.engine import find_engine
from specsim.options.measured import CalibrateFunctionOptions, CalibrateOptions
from specsim.options.values import TextPath, paths_of, profile_folder
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
            from specsim.report.calibrations import fewshot_section

            return fewshot_section(Doc(self.document))
        from specsim.report.calibrations import records_section

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


DECODER = "specsim"  # engine profile of the decoder that makes the records


def fit_records(
    files: Sequence[Path], asked: CalibrateOptions,
    tell: Callable[[str, int, int], None] | None = None,
) -> dict[str, object]:
    """Fits a profile to `files` and writes what was asked for; what was found, as `--json` prints
    it. Raises SpecSimError for what cannot be read, fitted or written. tell: told how far it is."""
    out = None if asked.out is None else Path(asked.out)
    report_file = None if asked.report is None else Path(asked.report)
    name = "calibrated" if out is None else profile_name(out)
    check_writable(out, "--out", files)
    if out is not None:
        check_writable(engine_path(out), "the engine beside --out", files)
    check_writable(report_file, "--report", [*files, out])
    data = records_fit.read_all(files)
    start = base_profile(asked.base, data.headers[-1], asked.profiles)
    outcome = records_fit.calibrate(
        data, start, find_engine(DECODER), name, statistic=asked.statistic, tell=tell
    )
    written = [] if out is None else write_outcome(outcome, out)
    if report_file is not None:
        write_whole(report_file, json_text(report(outcome), indent=2) + "\n")
        written.append(report_file)
    return report(outcome, points=False) | {"files": [str(path) for path in written]}


def base_profile(name: str, run: RunHeader, profiles: TextPath | None) -> HardwareProfile:
    """The profile named, or the one that fits the records' device."""
    folder = profile_folder(profiles)
    if name:
        return load_profile(name, folder)
    if run.device.get("kind") != "cuda":
        return load_profile("cpu-generic", folder)
    device = str(run.device.get("name", ""))
    try:
        return load_profile(device, folder)
    except ProfileError as error:
        raise ProfileError(
            f"no profile is known for the records' device; give one like it with --base: {error}"
        ) from None
