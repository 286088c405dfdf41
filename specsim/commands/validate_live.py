"""`specsim validate live`: drive a server, simulate the same requests, compare."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from specsim.commands import options as o
from specsim.commands import validate_deployment as d

Url = Annotated[str, typer.Option("--url", help="An OpenAI-compatible server: http://HOST:PORT.")]
Prompts = Annotated[
    Path | None,
    typer.Option("--prompts", help="JSON lines {prompt, output_tokens}; default: built-in texts."),
]
Trace = Annotated[
    Path | None,
    typer.Option("--trace", help="A recorded trace: its send times and lengths, as random tokens."),
]
RandomLen = Annotated[
    str | None,
    typer.Option("--random", help="Random token ids of these lengths: PROMPT,OUTPUT."),
]
Requests = Annotated[
    int | None, typer.Option("--requests", help="Requests per point. Default: 16, or 4 per client.")
]
Repeats = Annotated[int, typer.Option("--repeats", help="How often every point is measured.")]
Burstiness = Annotated[
    float, typer.Option("--burstiness", help="Gamma shape of the gaps: 1 Poisson, inf even.")
]
ServedName = Annotated[
    str | None, typer.Option("--served-model-name", help="Model at the server. Default: its first.")
]
Chat = Annotated[bool, typer.Option("--chat", help="Use /v1/chat/completions.")]
Temperature = Annotated[
    float, typer.Option("--temperature", help="Sampling temperature; below 0: the server's own.")
]
IgnoreEos = Annotated[
    bool, typer.Option("--ignore-eos", help="Answers have the whole length asked for (vLLM).")
]
ApiKey = Annotated[
    str, typer.Option("--api-key-env", help="Environment variable that holds the server's key.")
]
RequestTimeout = Annotated[
    float, typer.Option("--request-timeout", help="Seconds for a whole answer.")
]
StallTimeout = Annotated[
    float, typer.Option("--stall-timeout", help="Seconds for the next piece of an answer.")
]
Warmups = Annotated[int, typer.Option("--warmups", help="Requests before each point, not counted.")]
SampleEvery = Annotated[
    float, typer.Option("--sample-every", help="Seconds between looks at the server's gauges.")
]
SaveBench = Annotated[
    Path | None,
    typer.Option("--save-bench", help="Folder for one result file per point, as `vllm bench "
                 "serve` writes it."),
]
Seed = Annotated[int, typer.Option("--seed", help="Of send times and random tokens.")]
OutputLen = Annotated[
    int | None, typer.Option("--output-len", help="Output tokens, instead of the file's.")
]


def live(
    url: Url,
    model: o.Model = None,
    concurrency: o.Concurrency = None,
    rate: o.Rate = None,
    prompts: Prompts = None,
    trace: Trace = None,
    random: RandomLen = None,
    output_len: OutputLen = None,
    requests: Requests = None,
    repeats: Repeats = 1,
    burstiness: Burstiness = 1.0,
    served_model_name: ServedName = None,
    chat: Chat = False,
    temperature: Temperature = 0.0,
    ignore_eos: IgnoreEos = False,
    api_key_env: ApiKey = "",
    request_timeout: RequestTimeout = 600.0,
    stall_timeout: StallTimeout = 60.0,
    warmups: Warmups = 1,
    sample_every: SampleEvery = 1.0,
    seed: Seed = 0,
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
    max_num_seqs: o.MaxSeqs = None,
    max_num_batched_tokens: o.MaxTokens = None,
    gpu_memory_utilization: o.MemShare = None,
    fidelity: o.Fidelity = "calibrated",
    profiles: o.Profiles = None,
    prefix_caching: d.PrefixCaching = None,
    fitted: d.Fitted = None,
    explain: d.Explain = True,
    max_error: d.MaxError = None,
    save_bench: SaveBench = None,
    out: d.Out = None,
    json_out: o.JsonOut = False,
) -> None:
    """Drive the server at URL, simulate the same requests with the acceptance measured there, and
    put the measured figures beside the predicted ones, with what explains the gap.

    Ctrl-C keeps what was finished.
    """
    values = dict(locals())
    from specsim.commands.validate_live_run import run

    bar = not json_out and sys.stdout.isatty() and sys.stderr.isatty()
    found, partial, stopped = run(values, bar=bar)
    d.finish(found, max_error, json_out, out, partial, stopped)
