"""`specsim tune`: the best method and draft length for a load, and what to type for it."""

import sys
from typing import Annotated

import typer

from specsim.commands import options as o

Objective = Annotated[
    str, typer.Option("--objective", help="throughput, tpot, or goodput (throughput within --slo).")
]
Slo = Annotated[
    str | None,
    typer.Option("--slo", help="Limits, e.g. ttft_mean=2,stream_tok_s_mean=15; percentiles are "
                 "compared with means."),
]
Methods = Annotated[
    str | None,
    typer.Option("--methods", help="Methods to compare, e.g. mtp,eagle3,ngram. Default: all that "
                 "the engine, the model and measured acceptance allow."),
]
MaxMemory = Annotated[
    float | None, typer.Option("--max-memory", help="GB per GPU that the engine may use.")
]
MaxK = Annotated[int, typer.Option("--max-k", help="Longest draft looked at.")]
Range = Annotated[
    str | None,
    typer.Option("--acceptance-range", help="LOW,HIGH acceptance length at k: adds the choice that "
                 "holds over the range."),
]
Mix = Annotated[
    str | None,
    typer.Option("--mix", help="Kinds of work with shares, and acceptance lengths where known: "
                 "chat=0.6,code=0.4@3.5."),
]


SHOW_BAR_FROM = 20  # loads; some seconds


def register(app: typer.Typer) -> None:
    app.command(name="tune")(tune)


def tune(
    context: typer.Context,
    model: o.Model = None,
    command: o.Command = None,
    concurrency: o.Concurrency = None,
    rate: o.Rate = None,
    objective: Objective = "throughput",
    slo: Slo = None,
    methods: Methods = None,
    max_k: MaxK = 8,
    acceptance_range: Range = None,
    mix: Mix = None,
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
    max_memory: MaxMemory = None,
    fidelity: o.Fidelity = "calibrated",
    profiles: o.Profiles = None,
    json_out: o.JsonOut = False,
    csv_out: o.CsvOut = False,
) -> None:
    """Choose the method and the draft length: the best per load, a table by batch size, what would
    change the answer, and the flags to type."""
    given = dict(locals())
    from specsim.api.tune import loads_of, run
    from specsim.commands.repeat import repeat_command
    from specsim.errors import UsageError
    from specsim.report.progress import task_bar
    from specsim.report.tables import to_csv, to_json
    from specsim.report.tuning import tuning_text

    if json_out and csv_out:
        raise UsageError("--json and --csv are both given; choose one output")
    many = len(loads_of(given)) >= SHOW_BAR_FROM
    seen = not (json_out or csv_out) and sys.stdout.isatty() and sys.stderr.isatty()
    with task_bar(many and seen, "loads") as report:
        result = run(given, report)
    if json_out:
        text = to_json({**result.to_dict(), "command": repeat_command(context)})
    elif csv_out:
        text = to_csv(result.candidate_rows()).rstrip("\n")
    else:
        text = tuning_text(result)
    sys.stdout.write(text + "\n")
