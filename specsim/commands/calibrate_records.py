"""`specsim calibrate RECORDS...`: fit, write the files asked for, print what was found."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specsim.calibrate.records import RunHeader
    from specsim.hardware.profile import HardwareProfile

DECODER = "specsim"  # engine profile of the decoder that makes the records
SHOWN = 8  # left-out shapes and reasons that the text lists


def run_records(
    files: list[Path], base: str, out: Path | None, report_file: Path | None,
    profiles: str | None, json_out: bool, statistic: str = "median",
) -> None:
    """Fit a profile to `files`. Raises SpecSimError for what cannot be read, fitted or written."""
    from specsim.calibrate.records_fit import calibrate, read_all
    from specsim.calibrate.write import profile_name, report, write_outcome, write_text
    from specsim.latency.engine import find_engine
    from specsim.report.tables import to_json

    name = "calibrated" if out is None else profile_name(out)
    data = read_all(files)
    start = base_profile(base, data.headers[-1], profiles)
    with _progress() as tell:
        outcome = calibrate(data, start, find_engine(DECODER), name, statistic=statistic,
                            tell=tell)
    written = [] if out is None else write_outcome(outcome, out)
    if report_file is not None:
        write_text(report_file, to_json(report(outcome)) + "\n")
        written.append(report_file)
    result = report(outcome, points=False) | {"files": [str(path) for path in written]}
    sys.stdout.write((to_json(result) if json_out else text(result)) + "\n")


def base_profile(name: str, run: "RunHeader", profiles: str | None) -> "HardwareProfile":
    """The profile named, or the one that fits the records' device."""
    from specsim.commands.options import profile_folder
    from specsim.errors import ProfileError
    from specsim.hardware.store import load_profile

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


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """A progress bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def tell(what: str, done: int, of: int) -> None:
            bar.update(task, description=what, completed=done, total=of)

        yield tell


def text(result: dict[str, Any]) -> str:
    """The report for people."""
    from specsim.report.tables import table

    device = result["device"].get("name", "?")
    lines = [f"Calibrated on {device}, starting from {result['base']}", ""]
    peaks = result["peaks"]
    flops = ", ".join(f"{k} {v / 1e9:.0f} GFLOP/s" for k, v in peaks["flops"].items())
    lines += [f"Peaks: memory {peaks['mem_bytes_per_s'] / 1e9:.1f} GB/s, {flops}", ""]
    lines.append(table(
        ("parameter", "prior", "fitted", "+-", ""),
        [(row["parameter"], _number(row["prior"]), _number(row["value"]),
          f"{100 * row['rel_sd']:.1f} %", "" if row["seen"] else "not seen: prior kept")
         for row in result["parameters"]],
    ))
    lines += ["", "Errors (median, 90th percentile of |predicted / measured - 1|):"]
    rows = [(f"fitted: {kind}", *_errors(found)) for kind, found in result["fitted"].items()]
    outside = result["left_out_shapes"]
    if outside["all"]:
        rows.append(("shapes left out of the fit", *_errors(outside["all"])))
        worst = sorted(
            outside["by_shape"].items(), key=lambda item: -item[1]["median_abs_error"]
        )[:SHOWN]
        rows += [(f"  {name}", *_errors(found)) for name, found in worst]
    rows.append(("whole steps, not fitted", *_errors(result["held_out_steps"])))
    lines.append(table(("points", "number", "median", "p90", "bias"), rows))
    if result["not_seen"]:
        lines += ["", "The data do not see: " + ", ".join(result["not_seen"])]
    for one, other, correlation in result["hardly_told_apart"]:
        lines.append(f"Hardly told apart: {one} and {other} (correlation {correlation:+.2f})")
    for reason, count in result["excluded"].items():
        lines.append(f"Left out: {count} points, {reason}")
    for name in result["truncated_files"]:
        lines.append(f"{name}: the last line was cut short and is left out")
    if result["files"]:
        lines += ["", "Written: " + ", ".join(result["files"])]
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value * 1e6:.4g} us" if value < 2e-3 else f"{value:.4g}"


def _errors(found: dict[str, Any] | None) -> tuple[str, str, str, str]:
    if found is None:
        return ("0", "-", "-", "-")
    return (
        str(found["count"]), f"{100 * found['median_abs_error']:.1f} %",
        f"{100 * found['p90_abs_error']:.1f} %", f"{100 * found['bias']:+.1f} %",
    )
