"""`specsim.validate_records`: measured kernels, steps and serving against a profile."""

import json
from pathlib import Path

from specsim.accuracy.records import compare_records
from specsim.api.functions import named_function
from specsim.api.validation import Validation
from specsim.calibrate.records_fit import read_all
from specsim.calibrate.write import engine_path
from specsim.errors import FormatError, UsageError
from specsim.files import bytes_of
from specsim.hardware.store import find_profile, load_profile
from specsim.latency.engine import find_engine
from specsim.options.declare import repeat
from specsim.options.measured import ValidateRecordsOptions
from specsim.options.values import FilePath, paths_of, profile_folder

MAX_REPORT_BYTES = 100_000_000


def run(options: ValidateRecordsOptions) -> Validation:
    """Predict every record of `files`; points that the profile was fitted on are shown apart."""
    if not options.gpu:
        raise UsageError("no profile is given; name one with --gpu (a name or a .toml)")
    files = paths_of(options.files)
    folder = profile_folder(options.profiles)
    profile = load_profile(options.gpu, folder)
    beside = engine_path(find_profile(options.gpu, folder))
    name = options.engine or (str(beside) if beside.is_file() else "specsim")
    data = read_all(files)
    last = data.headers[-1]
    found = compare_records(
        data.records, profile, find_engine(name), statistic=options.statistic,
        keys_fitted=_fitted_steps(options.report),
        provenance={
            "files": [path.name for path in files], "profile": options.gpu, "engine": name,
            "device": dict(last.device), "software": dict(last.software),
            "dates": sorted({h.date for h in data.headers}), "statistic": options.statistic,
        },
    )
    return Validation(found, repeat(options), judged=(), rows_shown=options.rows_out)


validate_records = named_function(ValidateRecordsOptions, run)


def _fitted_steps(given: FilePath | None) -> list[str]:
    """Keys of the steps that a calibration used for the engine's host time."""
    if given is None:
        return []
    report = Path(given)
    text = bytes_of(report, MAX_REPORT_BYTES)
    try:
        return [str(key) for key in json.loads(text)["ledger"]["fitted_host_time"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FormatError(
            f"{report} is no report of `specsim calibrate`; it must hold a ledger"
        ) from None
