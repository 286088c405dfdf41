"""`specsim validate records`: measured kernels, steps and serving against a profile."""

import json
import sys
from pathlib import Path
from typing import Any

from specsim.commands.bind import Ended, command
from specsim.commands.output import write
from specsim.options.measured import ValidateRecordsCommand

MAX_REPORT_BYTES = 100_000_000


@command(ValidateRecordsCommand)
def records(options: ValidateRecordsCommand) -> None:
    """Predict every record of FILES; points the profile was fitted on are shown apart."""
    from specsim.accuracy.records import compare_records
    from specsim.calibrate.records_fit import read_all
    from specsim.calibrate.write import engine_path
    from specsim.errors import UsageError
    from specsim.files import check_writable
    from specsim.hardware.store import find_profile, load_profile
    from specsim.latency.engine import find_engine
    from specsim.options.values import profile_folder
    from specsim.report.tables import printable

    check_writable(options.out, "--out", [*options.files, options.report])
    if not options.gpu:
        raise UsageError("no profile is given; name one with --gpu (a name or a .toml)")
    folder = profile_folder(options.profiles)
    profile = load_profile(options.gpu, folder)
    beside = engine_path(find_profile(options.gpu, folder))
    name = options.engine or (str(beside) if beside.is_file() else "specsim")
    data = read_all(options.files)
    run = data.headers[-1]
    found = compare_records(
        data.records, profile, find_engine(name), statistic=options.statistic,
        keys_fitted=_fitted_steps(options.report),
        provenance={
            "files": [path.name for path in options.files], "profile": options.gpu, "engine": name,
            "device": dict(run.device), "software": dict(run.software),
            "dates": sorted({h.date for h in data.headers}), "statistic": options.statistic,
        },
    )
    result = found.to_dict()
    write(options, lambda: result, lambda: printable(text(result, options.rows_out)))
    if options.out is not None:
        sys.stdout.flush()
        found.write(options.out)
    over = found.over(options.max_error) if options.max_error is not None else ()
    if over:
        sys.stdout.flush()
        words = f"median error above {options.max_error:g} in {', '.join(over)}"
        sys.stderr.write(f"specsim: {words}\n")
        raise Ended(1)


def _fitted_steps(report: Path | None) -> list[str]:
    """Keys of the steps that a calibration used for the engine's host time."""
    from specsim.errors import FormatError
    from specsim.files import read_limited

    if report is None:
        return []
    try:
        raw = json.loads(read_limited(report, MAX_REPORT_BYTES))
        return [str(key) for key in raw["ledger"]["fitted_host_time"]]
    except OSError as error:
        raise FormatError(f"cannot read {report}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FormatError(
            f"{report} is no report of `specsim calibrate`; it must hold a ledger"
        ) from None


def text(result: dict[str, Any], rows_out: bool = False) -> str:
    """Errors per metric, held-out apart from fitted, and the rows asked for."""
    from specsim.report.tables import table

    lines = [result["title"], ""]
    rows = []
    for label, key in (("held out", "summary"), ("fitted", "fitted_summary")):
        for metric, item in result[key].items():
            rows.append((
                f"{label}: {metric}", str(item["count"]), f"{100 * item['median_abs_error']:.1f} %",
                f"{100 * item['p90_abs_error']:.1f} %", f"{100 * item['bias']:+.1f} %",
                f"{100 * item['worst']:+.1f} %",
            ))
    lines.append(table(("", "points", "median", "p90", "bias", "worst"), rows))
    if rows_out:
        lines += ["", table(
            ("point", "metric", "measured", "predicted", "error", "split"),
            [(row["name"], row["metric"], f"{row['measured']:.5g}", f"{row['predicted']:.5g}",
              "-" if row["error"] is None else f"{100 * row['error']:+.1f} %", row["split"])
             for row in result["rows"]],
            left=2,
        )]
    lines += [f"note: {warning}" for warning in result["warnings"]]
    return "\n".join(lines)
