"""`specsim validate records`: measured kernels, steps and serving against a profile."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from specsim.commands import options as o
from specsim.commands import validate_deployment as d

MAX_REPORT_BYTES = 100_000_000


def records(
    files: Annotated[list[Path], typer.Argument(help="Files of `specsim measure`.")],
    gpu: Annotated[
        str, typer.Option("--gpu", help="Profile to judge: a name from `specsim gpus` or a .toml.")
    ] = "",
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            help="Engine profile of the decoder that was measured. Default: the one written beside "
            "the profile, else the shipped one.",
        ),
    ] = "",
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", help="Report of `specsim calibrate`: steps it used judge nothing."
        ),
    ] = None,
    statistic: Annotated[
        str, typer.Option("--statistic", help="Time of a record: median, p10 or min.")
    ] = "median",
    rows_out: Annotated[
        bool, typer.Option("--rows", help="Also list every point with its error.")
    ] = False,
    profiles: o.Profiles = None,
    max_error: d.MaxError = None,
    out: d.Out = None,
    json_out: o.JsonOut = False,
) -> None:
    """Predict every record of FILES; points the profile was fitted on are shown apart."""
    from specsim.accuracy.records import compare_records
    from specsim.calibrate.records_fit import read_all
    from specsim.calibrate.write import engine_path
    from specsim.errors import UsageError
    from specsim.files import check_writable
    from specsim.hardware.store import find_profile, load_profile
    from specsim.latency.engine import find_engine
    from specsim.report.tables import printable, to_json

    d.check_max_error(max_error)
    check_writable(out, "--out", [*files, report])
    if not gpu:
        raise UsageError("no profile is given; name one with --gpu (a name or a .toml)")
    folder = o.profile_folder(profiles)
    profile = load_profile(gpu, folder)
    beside = engine_path(find_profile(gpu, folder))
    name = engine or (str(beside) if beside.is_file() else "specsim")
    data = read_all(files)
    run = data.headers[-1]
    found = compare_records(
        data.records, profile, find_engine(name), statistic=statistic,
        keys_fitted=_fitted_steps(report),
        provenance={
            "files": [path.name for path in files], "profile": gpu, "engine": name,
            "device": dict(run.device), "software": dict(run.software),
            "dates": sorted({h.date for h in data.headers}), "statistic": statistic,
        },
    )
    result = found.to_dict()
    shown = to_json(result) if json_out else printable(text(result, rows_out))
    sys.stdout.write(shown + "\n")
    if out is not None:
        sys.stdout.flush()
        found.write(out)
    over = found.over(max_error) if max_error is not None else ()
    if over:
        sys.stdout.flush()
        sys.stderr.write(f"specsim: median error above {max_error:g} in {', '.join(over)}\n")
        raise typer.Exit(1)


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
