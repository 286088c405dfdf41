"""`specsim crossover`: with and without speculation while concurrency grows, by context length."""

import sys
from typing import Annotated, Any

import typer

from specsim.commands import options as o

Contexts = Annotated[
    str | None,
    typer.Option("--contexts", help="Prompt lengths, e.g. 1k,8k,32k (1k is 1024 tokens)."),
]
MaxConcurrency = Annotated[
    int | None,
    typer.Option("--max-concurrency", help="Clients at most; default: the largest batch."),
]
CheapShare = Annotated[
    float,
    typer.Option("--cheap-share", help="Speculative work is cheap while a step costs at most "
                 "this share more than a plain one."),
]
Plot = Annotated[str | None, typer.Option("--plot", help="Draw into a file: .svg or .png.")]
NoPlot = Annotated[bool, typer.Option("--no-plot", help="No plot in the terminal.")]


def register(app: typer.Typer) -> None:
    app.command(name="crossover")(crossover)


def crossover(
    context: typer.Context,
    model: o.Model = None,
    contexts: Contexts = None,
    max_concurrency: MaxConcurrency = None,
    cheap_share: CheapShare = 0.5,
    gpu: o.Gpu = "h200-sxm",
    tp: o.Tp = 1,
    ep: o.Ep = 1,
    attention_dp: o.Dp = 1,
    weights: o.Weights = None,
    kv: o.Kv = None,
    engine: o.Engine = "vllm",
    method: o.Method = None,
    draft: o.Draft = None,
    k: o.K = None,
    speculative_config: o.SpecConfig = None,
    acceptance: o.Acc = None,
    acceptance_conditional: o.AccCond = None,
    acceptance_rate: o.AccRate = None,
    acceptance_mean: o.AccMean = None,
    acceptance_length: o.AccLen = None,
    tree: o.Tree = None,
    draft_share: o.DraftShare = 1.0,
    exit_layers: o.ExitLayers = 0,
    workload: o.WorkloadOpt = None,
    input_len: o.InputLen = None,
    output_len: o.OutputLen = None,
    cached_share: o.Cached = 0.0,
    max_num_seqs: o.MaxSeqs = None,
    max_num_batched_tokens: o.MaxTokens = None,
    gpu_memory_utilization: o.MemShare = None,
    fidelity: o.Fidelity = "calibrated",
    profiles: o.Profiles = None,
    command: o.Command = None,
    plot: Plot = None,
    no_plot: NoPlot = False,
    json_out: o.JsonOut = False,
    csv_out: o.CsvOut = False,
) -> None:
    """Compare ordinary and speculative decoding while concurrency grows: where speculative work
    stops being cheap, and where it stops paying, by context length."""
    values = dict(locals())
    from specsim.api.crossover import run
    from specsim.commands.repeat import repeat_command
    from specsim.errors import UsageError
    from specsim.files import check_writable
    from specsim.report.crossovers import crossover_picture, crossover_text, terminal_panel
    from specsim.report.plots_file import check_plot, write_picture
    from specsim.report.tables import to_csv, to_json

    if json_out and csv_out:
        raise UsageError("--json and --csv are both given; choose one output")
    check_plot(plot)
    check_writable(plot, "--plot")
    result = run(values)
    if plot is not None:
        write_picture(crossover_picture(result), plot)
    if json_out:
        text = to_json({**result.to_dict(), "command": repeat_command(context)})
    elif csv_out:
        text = to_csv(result.rows()).rstrip("\n")
    else:
        text = crossover_text(result)
        if not no_plot:
            text = f"{text}\n\n{terminal_plot(terminal_panel(result))}"
        if plot is not None:
            text = f"{text}\n\nplot: {plot}"
    sys.stdout.write(text + "\n")


def terminal_plot(panel: Any) -> str:
    """The panel as wide as the terminal, in colour where there is one."""
    import os
    import shutil

    from specsim.report.plots_text import panel_text

    width = min(110, shutil.get_terminal_size((78, 24)).columns)
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return panel_text(panel, max(50, width), colour=colour)
