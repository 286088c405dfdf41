"""`specsim simulate`: a load on a deployment, with and without speculation, request by request."""

import sys
from typing import Annotated

import typer

from specsim.commands import options as o

INTERRUPTED = 130

Rate = Annotated[
    float | None, typer.Option("--rate", help="Requests per second (open loop); inf: all at once.")
]
Concurrency = Annotated[
    int | None, typer.Option("--concurrency", help="Clients in a closed loop (or streams that "
                             "never pause, with --scenario).")
]
Users = Annotated[int | None, typer.Option("--users", help="Simulated people who chat.")]
Trace = Annotated[
    str | None,
    typer.Option("--trace", help="Recorded requests: Azure, BurstGPT, Mooncake, timed_trace, "
                 "ShareGPT lengths. With --rate or --concurrency: sent at that pace."),
]
SortTrace = Annotated[
    bool, typer.Option("--sort-trace", help="Accept a trace that is slightly out of order.")
]
ScenarioOpt = Annotated[
    str | None, typer.Option("--scenario", help="A scenario by name (mindrouter-chat) or a .toml.")
]
Requests = Annotated[int | None, typer.Option("--requests", help="How many requests.")]
Duration = Annotated[float | None, typer.Option("--duration", help="Simulated seconds.")]
Warmup = Annotated[
    float | None, typer.Option("--warmup", help="Seconds at the start that are not measured.")
]
Burstiness = Annotated[
    float | None,
    typer.Option("--burstiness", help="Gamma shape of the gaps: 1 Poisson, inf even spacing."),
]
RangeRatio = Annotated[
    float | None, typer.Option("--range-ratio", help="Lengths vary by this share, uniformly.")
]
Seed = Annotated[int, typer.Option("--seed", help="Everything random derives from it.")]
Replications = Annotated[
    int, typer.Option("--replications", help="Runs with seeds seed, seed + 1, ...")
]
Precision = Annotated[
    float | None,
    typer.Option("--precision", help="Go on replicating until the 95 % intervals of TTFT, TPOT and "
                 "throughput are this narrow, e.g. 0.02."),
]
Slo = Annotated[
    str | None, typer.Option("--slo", help="Gates, e.g. ttft_p95=2,stream_tok_s_p10=15.")
]
Replicas = Annotated[int, typer.Option("--replicas", help="Equal replicas behind a router.")]
RouterOpt = Annotated[
    str,
    typer.Option("--router", help="round_robin, least_loaded, power_of_two or prefix_affinity."),
]
MaxConcurrent = Annotated[
    int, typer.Option("--max-concurrent", help="Requests a gateway lets into one replica; 0: all.")
]
Fail = Annotated[
    str | None,
    typer.Option("--fail", help="Failures, REPLICA:FROM_S:TO_S, comma separated, e.g. 0:60:120."),
]
RequestTimeout = Annotated[
    float | None, typer.Option("--request-timeout", help="Clients give up after so many seconds.")
]
MaxModelLen = Annotated[
    int | None, typer.Option("--max-model-len", help="Longest prompt + output, tokens.")
]
PrefixCaching = Annotated[
    bool | None,
    typer.Option("--prefix-caching/--no-prefix-caching", help="Default: as the engine."),
]
EasinessOpt = Annotated[
    str | None,
    typer.Option("--easiness", help="How acceptance varies over requests and steps: a name from "
                 "catalog/easiness.csv, or none."),
]
Adaptive = Annotated[
    bool, typer.Option("--adaptive", help="SGLang's adaptive draft length, up to k.")
]
Baseline = Annotated[
    bool, typer.Option("--baseline/--no-baseline", help="Also the same load without speculation.")
]
TraceOut = Annotated[
    str | None, typer.Option("--trace-out", help="Write a Chrome trace (opens in Perfetto).")
]
RecordsOut = Annotated[
    str | None, typer.Option("--records", help="Write one record per request: .jsonl or .csv.")
]
Export = Annotated[
    str | None,
    typer.Option("--export", help="Write the requests for other tools: .csv, .json, .jsonl or "
                 ".parquet."),
]
ExportVllmBench = Annotated[
    str | None,
    typer.Option("--export-vllm-bench", help="Write a result as `vllm bench serve --save-detailed` "
                 "does (.json)."),
]
ExportPrometheus = Annotated[
    str | None,
    typer.Option("--export-prometheus", help="Write Prometheus text under vLLM's metric names."),
]


def register(app: typer.Typer) -> None:
    app.command(name="simulate")(simulate)


def simulate(
    context: typer.Context,
    model: o.Model = None,
    command: o.Command = None,
    rate: Rate = None,
    concurrency: Concurrency = None,
    users: Users = None,
    trace: Trace = None,
    sort_trace: SortTrace = False,
    scenario: ScenarioOpt = None,
    requests: Requests = None,
    duration: Duration = None,
    warmup: Warmup = None,
    burstiness: Burstiness = None,
    range_ratio: RangeRatio = None,
    seed: Seed = 0,
    replications: Replications = 1,
    precision: Precision = None,
    slo: Slo = None,
    baseline: Baseline = True,
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
    adaptive: Adaptive = False,
    tree: o.Tree = None,
    draft_share: o.DraftShare = 1.0,
    exit_layers: o.ExitLayers = 0,
    workload: o.WorkloadOpt = None,
    input_len: o.InputLen = None,
    output_len: o.OutputLen = None,
    cached_share: o.Cached = 0.0,
    replicas: Replicas = 1,
    router: RouterOpt = "round_robin",
    max_concurrent: MaxConcurrent = 0,
    fail: Fail = None,
    request_timeout: RequestTimeout = None,
    max_num_seqs: o.MaxSeqs = None,
    max_num_batched_tokens: o.MaxTokens = None,
    max_model_len: MaxModelLen = None,
    prefix_caching: PrefixCaching = None,
    gpu_memory_utilization: o.MemShare = None,
    fidelity: o.Fidelity = "calibrated",
    profiles: o.Profiles = None,
    trace_out: TraceOut = None,
    records: RecordsOut = None,
    export: Export = None,
    export_vllm_bench: ExportVllmBench = None,
    export_prometheus: ExportPrometheus = None,
    json_out: o.JsonOut = False,
    csv_out: o.CsvOut = False,
) -> None:
    """Simulate a load request by request: tails, queues, bursts, prefix caches, several replicas.
    Always beside the same load without speculation."""
    values = dict(locals())
    values.pop("context")
    from specsim.api.simulate_run import run
    from specsim.commands.repeat import repeat_command
    from specsim.report.simulation import simulation_text
    from specsim.report.tables import to_csv, to_json

    given = frozenset(name for name in values if _given(context, name))
    quiet = json_out or csv_out or not (sys.stdout.isatty() and sys.stderr.isatty())
    result = run(values, given, bar=not quiet)
    if json_out:
        text = to_json({**result.to_dict(over_time=True), "command": repeat_command(context)})
    elif csv_out:
        text = to_csv(result.rows()).rstrip("\n")
    else:
        text = simulation_text(result)
    sys.stdout.write(text + "\n")
    if result.partial:
        sys.stdout.flush()
        sys.stderr.write("specsim: interrupted; the figures are partial\n")
        raise typer.Exit(INTERRUPTED)


def _given(context: typer.Context, name: str) -> bool:
    """Whether an option was set, not left as it is built in (typer does not export the
    enumeration)."""
    from specsim.commands.repeat import GIVEN

    source = context.get_parameter_source(name)
    return source is not None and source.name in GIVEN
