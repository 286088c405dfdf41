"""`specsim measure`: measure this machine and the bundled decoder on it, for calibration."""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.commands import decoder_setup as d
from specsim.commands.bind import INTERRUPTED, Ended, command
from specsim.commands.output import write
from specsim.errors import UsageError
from specsim.options.local import MeasureCommand
from specsim.options.values import parse_duration
from specsim.report.tables import number
from specsim.units import counted

if TYPE_CHECKING:
    from specsim.measure.run import MeasurePlan, MeasureSummary


@command(
    MeasureCommand,
    "specsim measure --device cuda --budget 10m --out measured.jsonl",
)
def measure(options: MeasureCommand) -> None:
    """Measure kernels, decode steps and serving on this machine. Kernels first; one flushed line
    per point. Ctrl-C keeps what has been measured; the same command continues where it stopped."""
    import time

    started = time.monotonic()
    budget_s = parse_duration(options.budget, "--budget")
    plan = _plan(options)
    target = options.out if options.out is not None else Path(f"measured-{plan.device}.jsonl")

    from specsim.measure.run import measure as run
    from specsim.report.progress import live_bar

    columns = ("{task.fields[part]}", "bar", "{task.completed}/{task.total} points", "time",
               f"of {budget_s:.0f} s", "{task.fields[what]}")
    with live_bar(sys.stderr.isatty(), *columns, transient=False, part=" ",
                  what=f"loading torch on {plan.device}") as update:
        summary = run(plan, target, budget_s, started=started, on_progress=update and (
            lambda now: update(total=now.total, completed=now.done, part=now.part,
                               what=now.what[:60])))
    result = {"file": str(target), **summary.to_dict()}
    write(options, lambda: result, lambda: _text(target, summary))
    if summary.interrupted:
        raise Ended(INTERRUPTED)
    if summary.failed:
        raise Ended(1)


def _plan(options: MeasureCommand) -> "MeasurePlan":
    device, grid = options.device, options.grid
    d.need({"torch": "torch", "safetensors": "safetensors"}, "measure")
    used = d.prepare_torch(options.threads)
    import torch

    from specsim.measure.models import check_together, default_models, default_moe, find_model
    from specsim.measure.run import MeasurePlan

    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: torch sees no CUDA device here; use --device cpu")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    models = tuple(find_model(name) for name in options.model or default_models(device, grid))
    check_together(models)
    experts = find_model(default_moe(device))
    return MeasurePlan(device, grid, models, experts, options.dtype, options.seed, used)


def _text(target: Path, summary: "MeasureSummary") -> str:
    points = counted(summary.points, "point")
    lines = [f"{points} measured in {summary.elapsed_s:.0f} s, kept in {target}"]
    if summary.known:
        lines.append(f"in the file already: {counted(summary.known, 'point')}")
    if summary.skipped:
        lines.append(f"{counted(summary.skipped, 'point')} did not fit into the budget; run the "
                     "command again to measure the rest")
    lines += _found(target)
    for what, error in summary.failed:
        lines.append(f"failed: {what}: {error}")
    if summary.interrupted:
        lines.append("interrupted: the run is partial; run the command again to continue it")
    return "\n".join(lines)


def _found(target: Path) -> list[str]:
    """What the file holds: points by kind, the best rates of memory and products, what is next."""
    from specsim.calibrate.records import read_records

    points = read_records(target).points
    kinds = Counter(point.kind.replace("_", " ") for point in points)
    rates: dict[str, float] = {}
    for point in points:
        shape, work = point.shape, 0.0
        if point.kind == "stream" and shape.get("op") == "read":
            work = float(shape["bytes"])
        elif point.kind == "gemm_peak":
            work = 2.0 * float(shape["m"]) * float(shape["n"]) * float(shape["k"])
        rates[point.kind] = max(rates.get(point.kind, 0.0), work / point.timing.median_s)
    lines = [f"in it: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}"]
    if rates.get("stream") and rates.get("gemm_peak"):
        lines.append(f"memory read at {number(rates['stream'] / 1e9)} GB/s, products at "
                     f"{number(rates['gemm_peak'] / 1e12)} TFLOP/s")
    return [*lines, f"next: specsim calibrate {target} -o my-machine.toml"] if points else []
