"""`specsim watch`: a live server's batch, acceptance and steps beside the prediction. Read-only."""

import sys
from typing import Annotated, Any

import typer

from specsim.commands import options as o
from specsim.commands.diagnose import EngineOpt

Url = Annotated[str, typer.Option("--url", help="A live server: http://HOST:PORT.")]
Interval = Annotated[float, typer.Option("--interval", help="Seconds between scrapes.")]
For = Annotated[
    str | None, typer.Option("--for", help="Stop after this long: 60s, 5m, 1h. Default: Ctrl-C.")
]
Once = Annotated[bool, typer.Option("--once", help="Two scrapes, one observation, then stop.")]
WindowOpt = Annotated[
    float, typer.Option("--window", help="Seconds over which counters are taken together.")
]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


def register(app: typer.Typer) -> None:
    app.command(name="watch")(watch)


def watch(
    context: typer.Context,
    url: Url,
    model: o.Model = None,
    interval: Interval = 5.0,
    window: WindowOpt = 30.0,
    for_: For = None,
    once: Once = False,
    gpu: o.Gpu = "h200-sxm",
    tp: o.Tp = 1,
    ep: o.Ep = 1,
    attention_dp: o.Dp = 1,
    weights: o.Weights = None,
    kv: o.Kv = None,
    engine: EngineOpt = None,
    method: o.Method = None,
    draft: o.Draft = None,
    k: o.K = None,
    speculative_config: o.SpecConfig = None,
    tree: o.Tree = None,
    workload: o.WorkloadOpt = None,
    input_len: o.InputLen = None,
    output_len: o.OutputLen = None,
    max_num_seqs: o.MaxSeqs = None,
    max_num_batched_tokens: o.MaxTokens = None,
    gpu_memory_utilization: o.MemShare = None,
    fidelity: o.Fidelity = "calibrated",
    profiles: o.Profiles = None,
    json_out: JsonLines = False,
) -> None:
    """Watch a live vLLM, SGLang or TensorRT-LLM server: batch, acceptance, step time, and, with
    MODEL, whether speculation pays at this load and which k would. Only reads /metrics."""
    values = dict(locals())
    given = frozenset(
        name for name in values
        if name != "context" and (source := context.get_parameter_source(name)) is not None
        and source.name in ("COMMANDLINE", "ENVIRONMENT")
    )
    from specsim.commands.watch_run import run

    show: Any
    if json_out:
        from specsim.commands.watch_run import JsonShow

        show = JsonShow()
    elif sys.stdout.isatty() and not once:
        from specsim.commands.watch_run import ScreenShow

        show = ScreenShow(url)
    else:
        from specsim.commands.watch_run import LineShow

        show = LineShow()
    run(values, given, show)
