"""`specsim measure`: measure this machine and the bundled decoder on it, for calibration."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specsim.commands import decoder_setup as d
from specsim.commands import options as o

if TYPE_CHECKING:
    from specsim.measure.run import MeasurePlan, MeasureSummary, PointProgress

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def register(app: typer.Typer) -> None:
    app.command(name="measure")(measure)


def measure(
    budget: Annotated[
        str, typer.Option("--budget", help="Time for the whole run: 600s, 10m.")
    ] = "600s",
    device: Annotated[
        str, typer.Option("--device", help="cpu or cuda; default: cuda if there is one.")
    ] = "",
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            help="A dense model: a known shape, a folder or a .gguf file; repeat for several "
            "sizes, small to large.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="JSON lines file; an earlier run's is continued."),
    ] = None,
    grid: Annotated[str, typer.Option("--grid", help="small or full.")] = "small",
    dtype: Annotated[str, typer.Option("--dtype", help="bf16 or fp32.")] = "bf16",
    seed: d.SeedOpt = 0,
    threads: d.ThreadsOpt = None,
    json_out: o.JsonOut = False,
) -> None:
    """Measure kernels first, then whole steps and serving; one flushed line per point.

    Ctrl-C keeps what has been measured; the same command continues where it stopped.
    """
    import time

    started = time.monotonic()
    budget_s = parse_duration(budget, "--budget")
    plan = _plan(device, grid, model, dtype, seed, threads)
    target = out if out is not None else Path(f"measured-{plan.device}.jsonl")

    from specsim.measure.run import measure as run
    from specsim.report.tables import to_json

    with _bar(plan, budget_s) as show:
        summary = run(plan, target, budget_s, on_progress=show, started=started)
    result = {"file": str(target), **summary.to_dict()}
    sys.stdout.write((to_json(result) if json_out else _text(target, summary)) + "\n")
    if summary.interrupted:
        raise typer.Exit(130)
    if summary.failed:
        raise typer.Exit(1)


def parse_duration(text: str, name: str) -> float:
    """Seconds of '90', '90s', '10m' or '1.5h'. Raises UsageError with the value and the rule."""
    from specsim.errors import UsageError

    number, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS else (text, "s")
    try:
        value = float(number) * _UNITS[unit]
    except ValueError:
        value = -1.0
    if not 0.0 < value <= 1e6:
        raise UsageError(
            f"{name} is {o.shown(text)}; it must be a time above 0 such as 600s, 10m or 1h"
        )
    return value


def _plan(
    device: str, grid: str, names: list[str] | None, dtype: str, seed: int, threads: int | None
) -> "MeasurePlan":
    from specsim.errors import UsageError

    for name, value, known in (("--grid", grid, ("small", "full")),
                               ("--dtype", dtype, ("bf16", "fp32")),
                               ("--device", device, ("", "cpu", "cuda"))):
        if value not in known:
            choices = ", ".join(k for k in known if k)
            raise UsageError(f"{name} is {o.shown(value)}; choose one of {choices}")
    d.need({"torch": "torch", "safetensors": "safetensors"}, "measure", "decoder")
    used = d.prepare_torch(threads)
    import torch

    from specsim.measure.models import check_together, default_models, default_moe, find_model
    from specsim.measure.run import MeasurePlan

    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: torch sees no CUDA device here; use --device cpu")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    models = tuple(find_model(name) for name in names or default_models(device, grid))
    check_together(models)
    experts = find_model(default_moe(device))
    return MeasurePlan(device, grid, models, experts, dtype, seed, used)


@contextmanager
def _bar(
    plan: "MeasurePlan", budget_s: float
) -> "Iterator[Callable[[PointProgress], None] | None]":
    """A progress bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.fields[part]}"), BarColumn(),
               TextColumn("{task.completed}/{task.total} points"), TimeElapsedColumn(),
               TextColumn(f"of {budget_s:.0f} s"), TextColumn("{task.fields[what]}"))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None, part=" ", what=f"loading torch on {plan.device}")

        def show(progress: "PointProgress") -> None:
            bar.update(task, total=progress.total, completed=progress.done, part=progress.part,
                       what=progress.what[:60])

        yield show


def _text(target: Path, summary: "MeasureSummary") -> str:
    lines = [f"{summary.points} points measured in {summary.elapsed_s:.0f} s, kept in {target}"]
    if summary.known:
        lines.append(f"{summary.known} points were in the file already")
    if summary.skipped:
        lines.append(f"{summary.skipped} points did not fit into the budget; run the command again "
                     "to measure them")
    for what, error in summary.failed:
        lines.append(f"failed: {what}: {error}")
    if summary.interrupted:
        lines.append("interrupted: the run is partial; run the command again to continue it")
    return "\n".join(lines)
