"""`specsim matrix`: what one GPU sustains, for models x GPUs."""

import sys
from typing import Annotated

import typer

from specsim.commands import options as o

MAX_NAMES = 400
SHOW_BAR_FROM = 60  # cells; about two seconds
INTERRUPTED = 130
FLOOR = 20.0  # tokens/s of a stream where nothing else is asked for
THINK_S = 45.0

Models = Annotated[
    str, typer.Option("--models", help="Models, comma separated; NAME:WEIGHTS for one format.")
]
Gpus = Annotated[
    str, typer.Option("--gpus", help="GPUs, comma separated, or all; see `specsim gpus`.")
]
Tp = Annotated[int, typer.Option("--tp", help="GPUs per replica; 0: the smallest that fits.")]
Concurrency = Annotated[
    int | None, typer.Option("--concurrency", help="Compare at so many clients per replica.")
]
Floor = Annotated[
    float | None,
    typer.Option("--stream-floor", help="Compare at the most requests that each get so many "
                 "tokens/s. Default: 20."),
]
Ttft = Annotated[
    float | None, typer.Option("--ttft", help="And a mean time to first token within, seconds.")
]
Think = Annotated[
    float, typer.Option("--think", help="Seconds a user pauses between two requests.")
]


def register(app: typer.Typer) -> None:
    app.command(name="matrix")(matrix)


def matrix(
    context: typer.Context,
    models: Models,
    gpus: Gpus = "h200-sxm",
    weights: o.Weights = None,
    kv: o.Kv = None,
    tp: Tp = 0,
    engine: o.Engine = "vllm",
    method: o.Method = None,
    k: o.K = None,
    acceptance_length: o.AccLen = None,
    concurrency: Concurrency = None,
    stream_floor: Floor = None,
    ttft: Ttft = None,
    think: Think = THINK_S,
    workload: o.WorkloadOpt = None,
    input_len: o.InputLen = None,
    output_len: o.OutputLen = None,
    cached_share: o.Cached = 0.0,
    max_num_seqs: o.MaxSeqs = None,
    max_num_batched_tokens: o.MaxTokens = None,
    gpu_memory_utilization: o.MemShare = None,
    fidelity: o.Fidelity = "calibrated",
    profiles: o.Profiles = None,
    json_out: o.JsonOut = False,
    csv_out: o.CsvOut = False,
) -> None:
    """Sustained tokens/s per GPU and users per GPU for models x GPUs, with speculation and
    without, at one operating point."""
    from specsim.analytic.system import System
    from specsim.api.deployment import build_request, build_workload
    from specsim.commands.repeat import repeat_command
    from specsim.errors import UsageError
    from specsim.hardware.store import list_profiles
    from specsim.planning.matrix import OperatingPoint
    from specsim.planning.matrix import matrix as run
    from specsim.report.matrix import matrix_text
    from specsim.report.progress import task_bar
    from specsim.report.tables import to_csv, to_json

    if json_out and csv_out:
        raise UsageError("--json and --csv are both given; choose one output")
    if not 0 <= tp <= 1024:
        raise UsageError(f"--tp is {tp}; it must be 1 to 1024, or 0 for the smallest that fits")
    if concurrency is not None and (stream_floor is not None or ttft is not None):
        raise UsageError(
            "--concurrency and --stream-floor or --ttft are different operating points; give one"
        )
    if concurrency is not None and not 1 <= concurrency <= 1_000_000:
        raise UsageError(f"--concurrency is {concurrency}; it must be from 1 to 1000000")
    for name, value, high in (("--stream-floor", stream_floor, 1e5), ("--ttft", ttft, 1e6)):
        if value is not None and not 0 < value <= high:
            raise UsageError(f"{name} is {value:g}; it must be above 0 and at most {high:g}")
    if not 0 <= think <= 1e6:
        raise UsageError(f"--think is {think:g}; it must be from 0 to 1000000 seconds")
    o.profile_folder(profiles)
    rows = _names(models, "--models")
    columns = _names(gpus, "--gpus")
    if columns == ["all"]:
        columns = [profile.name for profile in list_profiles(profiles)]

    def options(model: str, gpu: str, width: int) -> o.Options:
        name, form = split_format(model)
        return o.Options(
            model=name, gpu=gpu, tp=width, weights=form or weights, kv=kv, engine=engine,
            method=method, k=k, acceptance_length=acceptance_length, workload=workload,
            input_len=input_len, output_len=output_len, cached_share=cached_share,
            max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens,
            gpu_memory_utilization=gpu_memory_utilization, fidelity=fidelity, profiles=profiles,
        )

    def build(model: str, gpu: str, width: int) -> tuple[System, tuple[str, ...]]:
        found = build_request(options(model, gpu, width))
        return found.system, found.warnings

    floor = 0.0 if concurrency is not None else FLOOR if stream_floor is None else stream_floor
    point = OperatingPoint(
        build_workload(options(rows[0], columns[0], 1)), think, floor, ttft or 0.0,
        concurrency or 0,
    )
    quiet = json_out or csv_out or not (sys.stdout.isatty() and sys.stderr.isatty())
    with task_bar(not quiet and len(rows) * len(columns) >= SHOW_BAR_FROM, "cells") as report:
        result = run(rows, columns, build, point, tp, report)
    if json_out:
        text = to_json({**result.to_dict(), "command": repeat_command(context)})
    elif csv_out:
        text = to_csv(cell.row() for cell in result.cells).rstrip("\n")
    else:
        text = matrix_text(result)
    sys.stdout.write(text + "\n")
    if result.partial:
        raise typer.Exit(INTERRUPTED)


def split_format(model: str) -> tuple[str, str]:
    """NAME:WEIGHTS as (name, weights); a colon inside a path belongs to the path."""
    name, sign, form = model.rpartition(":")
    if not sign or "/" in form:
        return model, ""
    if not form.strip():
        from specsim.errors import UsageError

        raise UsageError(f"--models has {o.shown(model)}; name a weight format behind the colon")
    return name, form


def _names(text: str, option: str) -> list[str]:
    from specsim.errors import UsageError

    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise UsageError(f"{option} is {o.shown(text)}; it must be names separated by commas")
    if len(names) > MAX_NAMES:
        raise UsageError(f"{option} has {len(names)} names; give at most {MAX_NAMES}")
    return list(dict.fromkeys(names))
