"""A hardware profile from records of `specsim measure`: which profile the fit starts from, the fit,
the files."""

from collections.abc import Callable, Sequence
from pathlib import Path

from specsim.calibrate.records import RunHeader
from specsim.calibrate.records_fit import calibrate, read_all
from specsim.calibrate.write import engine_path, profile_name, report, write_outcome
from specsim.errors import ProfileError
from specsim.files import check_writable, write_whole
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile
from specsim.jsonable import json_text
from specsim.latency.engine import find_engine
from specsim.options.measured import CalibrateOptions
from specsim.options.values import TextPath, profile_folder

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
    data = read_all(files)
    start = base_profile(asked.base, data.headers[-1], asked.profiles)
    outcome = calibrate(
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
