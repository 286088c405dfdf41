"""`specsim capacity`: the largest load within objectives, by simulation."""

import sys
from typing import Annotated

import typer

from specsim.commands import options as o
from specsim.commands.simulate import (
    INTERRUPTED,
    Burstiness,
    Duration,
    EasinessOpt,
    MaxConcurrent,
    MaxModelLen,
    PrefixCaching,
    RangeRatio,
    ScenarioOpt,
    Seed,
    Slo,
    Warmup,
    _given,
)

Users = Annotated[
    int | None, typer.Option("--users", help="People who chat at the same time that are to be "
                             "served: their replicas are counted.")
]
Rate = Annotated[
    float | None, typer.Option("--rate", help="Requests per second that are to be served.")
]
Demand = Annotated[
    str | None,
    typer.Option("--demand", help="File of a demand over time: CSV with a column users or rate, "
                 "or TOML, JSON with such a list."),
]
Unit = Annotated[
    str | None, typer.Option("--unit", help="Capacity in users or rate. Default: as the demand, "
                             "else users."),
]
Ladder = Annotated[
    str | None,
    typer.Option("--ladder", help="Only these stages, as a load test: 144,180,216 or "
                 "FROM:TO:STEP."),
]
Floor = Annotated[
    float | None,
    typer.Option("--stream-floor", help="Recommend the max_num_seqs that keeps so many tokens/s "
                 "per stream (p10) with all seats taken. Default: the SLO's stream_tok_s_p10."),
]
NoFloor = Annotated[
    bool, typer.Option("--no-stream-floor", help="Recommend no max_num_seqs.")
]
Share = Annotated[
    float, typer.Option("--operating-share", help="Share of the capacity to run at.")
]
Price = Annotated[
    float | None, typer.Option("--price-per-gpu-hour", help="Price of one GPU for one hour.")
]
Resolution = Annotated[
    float, typer.Option("--resolution", help="Width of the answer, a share of the capacity.")
]
Replications = Annotated[
    int, typer.Option("--replications", help="Most runs per load (fewer where the case is clear).")
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", help="Processes. Default: 2, or 1 on a single core.")
]
Baseline = Annotated[
    bool, typer.Option("--baseline/--no-baseline", help="Also the capacity without speculation.")
]


def register(app: typer.Typer) -> None:
    app.command(name="capacity")(capacity)


def capacity(
    context: typer.Context,
    model: o.Model = None,
    command: o.Command = None,
    users: Users = None,
    rate: Rate = None,
    demand: Demand = None,
    unit: Unit = None,
    scenario: ScenarioOpt = None,
    slo: Slo = None,
    ladder: Ladder = None,
    stream_floor: Floor = None,
    no_stream_floor: NoFloor = False,
    operating_share: Share = 0.8,
    price_per_gpu_hour: Price = None,
    resolution: Resolution = 0.05,
    replications: Replications = 24,
    jobs: Jobs = None,
    seed: Seed = 0,
    baseline: Baseline = True,
    duration: Duration = None,
    warmup: Warmup = None,
    burstiness: Burstiness = None,
    range_ratio: RangeRatio = None,
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
    easiness: EasinessOpt = None,
    tree: o.Tree = None,
    draft_share: o.DraftShare = 1.0,
    exit_layers: o.ExitLayers = 0,
    workload: o.WorkloadOpt = None,
    input_len: o.InputLen = None,
    output_len: o.OutputLen = None,
    cached_share: o.Cached = 0.0,
    max_concurrent: MaxConcurrent = 0,
    max_num_seqs: o.MaxSeqs = None,
    max_num_batched_tokens: o.MaxTokens = None,
    max_model_len: MaxModelLen = None,
    prefix_caching: PrefixCaching = None,
    gpu_memory_utilization: o.MemShare = None,
    fidelity: o.Fidelity = "calibrated",
    profiles: o.Profiles = None,
    json_out: o.JsonOut = False,
    csv_out: o.CsvOut = False,
) -> None:
    """The largest load within objectives, by simulation, with speculation and without: what limits
    it, where to run, how many replicas a demand needs."""
    values = dict(locals())
    values.pop("context")
    from specsim.api.capacity_run import run
    from specsim.commands.repeat import repeat_command
    from specsim.report.capacity import capacity_text
    from specsim.report.tables import to_csv, to_json

    given = frozenset(name for name in values if _given(context, name))
    quiet = json_out or csv_out or not (sys.stdout.isatty() and sys.stderr.isatty())
    result = run(values, given, bar=not quiet)
    if json_out:
        text = to_json({**result.to_dict(), "command": repeat_command(context)})
    elif csv_out:
        text = to_csv(result.rows()).rstrip("\n")
    else:
        text = capacity_text(result)
    sys.stdout.write(text + "\n")
    if result.partial:
        sys.stdout.flush()
        sys.stderr.write("specsim: interrupted; the figures are partial\n")
        raise typer.Exit(INTERRUPTED)
