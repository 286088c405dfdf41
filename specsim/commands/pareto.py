"""`specsim pareto`: speed for one user against throughput of a GPU, over all that can be set."""

import sys
from typing import Annotated

import typer

from specsim.commands import options as o

INTERRUPTED = 130
SHOW_BAR_FROM = 3000  # combinations: about two seconds

Ks = Annotated[
    str | None, typer.Option("--ks", help="Draft lengths, e.g. 0,1,2,3; 0: plain decoding.")
]
Tps = Annotated[str | None, typer.Option("--tps", help="GPUs per replica, e.g. 1,2,4,8.")]
WeightList = Annotated[
    str | None, typer.Option("--weights", help="Weight formats, e.g. bf16,fp8.")
]
KvList = Annotated[str | None, typer.Option("--kv", help="Cache dtypes, e.g. bf16,fp8.")]
SeqsList = Annotated[
    str | None, typer.Option("--max-num-seqs", help="Running sequences, e.g. 1,8,64.")
]
TokensList = Annotated[
    str | None, typer.Option("--max-num-batched-tokens", help="Token budgets, e.g. 2048,8192.")
]
MaxTtft = Annotated[
    float | None, typer.Option("--max-ttft", help="Leave out points with a longer mean TTFT, s.")
]
Floor = Annotated[
    float | None, typer.Option("--stream-floor", help="Leave out points slower per user, tok/s.")
]
All = Annotated[bool, typer.Option("--all", help="With --json: every point, not the frontiers.")]
Plot = Annotated[str | None, typer.Option("--plot", help="Draw into a file: .svg or .png.")]
NoPlot = Annotated[bool, typer.Option("--no-plot", help="No plot in the terminal.")]


def register(app: typer.Typer) -> None:
    app.command(name="pareto")(pareto)


def pareto(
    context: typer.Context,
    model: o.Model = None,
    ks: Ks = None,
    tps: Tps = None,
    weights: WeightList = None,
    kv: KvList = None,
    max_num_seqs: SeqsList = None,
    max_num_batched_tokens: TokensList = None,
    max_ttft: MaxTtft = None,
    stream_floor: Floor = None,
    gpu: o.Gpu = "h200-sxm",
    ep: o.Ep = 1,
    attention_dp: o.Dp = 1,
    engine: o.Engine = "vllm",
    method: o.Method = None,
    draft: o.Draft = None,
    k: o.K = None,
    acceptance: o.Acc = None,
    acceptance_conditional: o.AccCond = None,
    acceptance_rate: o.AccRate = None,
    acceptance_mean: o.AccMean = None,
    acceptance_length: o.AccLen = None,
    draft_share: o.DraftShare = 1.0,
    exit_layers: o.ExitLayers = 0,
    workload: o.WorkloadOpt = None,
    input_len: o.InputLen = None,
    output_len: o.OutputLen = None,
    cached_share: o.Cached = 0.0,
    gpu_memory_utilization: o.MemShare = None,
    fidelity: o.Fidelity = "calibrated",
    profiles: o.Profiles = None,
    plot: Plot = None,
    no_plot: NoPlot = False,
    every_point: All = False,
    json_out: o.JsonOut = False,
    csv_out: o.CsvOut = False,
) -> None:
    """Every combination of draft length, GPUs, formats and limits: which give one user the most
    speed and a GPU the most throughput. --k is the draft length that an acceptance length or rate
    was given for; --ks are those tried."""
    values = dict(locals())
    from specsim.api.pareto import Study
    from specsim.commands.crossover import terminal_plot
    from specsim.commands.repeat import repeat_command
    from specsim.errors import UsageError
    from specsim.files import check_writable
    from specsim.report.paretos import (
        pareto_json,
        pareto_picture,
        pareto_rows,
        pareto_text,
        terminal_panel,
    )
    from specsim.report.plots_file import check_plot, write_picture
    from specsim.report.progress import task_bar
    from specsim.report.tables import to_csv, to_json

    if json_out and csv_out:
        raise UsageError("--json and --csv are both given; choose one output")
    if every_point and not json_out:
        raise UsageError("--all belongs to --json; --csv has every point anyway")
    check_plot(plot)
    check_writable(plot, "--plot")
    study = Study(values)
    quiet = json_out or csv_out or not (sys.stdout.isatty() and sys.stderr.isatty())
    with task_bar(not quiet and study.axes.count >= SHOW_BAR_FROM, "combinations") as report:
        result = study.run(report)
    if plot is not None:
        write_picture(pareto_picture(result), plot)
    if json_out:
        found = {**pareto_json(result, every_point), "command": repeat_command(context)}
        text = to_json(found)
    elif csv_out:
        text = to_csv(pareto_rows(result)).rstrip("\n")
    else:
        text = pareto_text(result)
        if not no_plot:
            text = f"{text}\n\n{terminal_plot(terminal_panel(result))}"
        if plot is not None:
            text = f"{text}\n\nplot: {plot}"
    sys.stdout.write(text + "\n")
    if result.partial:
        raise typer.Exit(INTERRUPTED)
