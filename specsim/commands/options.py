"""Options that several commands share. Typer reads the annotations; what they say together is
checked in `specsim.api.deployment`.
"""

from pathlib import Path
from typing import Annotated

import typer

from specsim.api.options import (
    Options,
    parse_concurrency,
    parse_numbers,
    parse_rates,
    profile_folder,
    shown,
)
from specsim.errors import UsageError

# The plain values are part of this module for the commands that use them as `o.Options`.
__all__ = [
    "Options",
    "named_path",
    "parse_concurrency",
    "parse_numbers",
    "parse_rates",
    "profile_folder",
    "shown",
]


def named_path(text: str) -> Path:
    """A path to read; UsageError for an empty one, which would be the current folder."""
    if not text.strip():
        raise UsageError(f"{text!r} names no file; name one, or . for this folder")
    return Path(text)


Model = Annotated[
    str | None,
    typer.Argument(help="Model: a name from `specsim models`, a config.json, or its folder."),
]
Gpu = Annotated[str, typer.Option("--gpu", help="GPU: a name from `specsim gpus` or a .toml.")]
Tp = Annotated[int, typer.Option("--tp", help="GPUs that share every layer.")]
Ep = Annotated[int, typer.Option("--ep", help="GPUs over which whole experts are spread.")]
Dp = Annotated[int, typer.Option("--attention-dp", help="Attention groups (DP attention).")]
Weights = Annotated[
    str | None,
    typer.Option("--weights", help="Weight format: bf16, fp8, fp8_block, nvfp4, mxfp4, int4."),
]
Kv = Annotated[str | None, typer.Option("--kv", help="KV cache dtype: bf16, fp8.")]
Engine = Annotated[
    str,
    typer.Option("--engine", help="vllm, sglang, trtllm or transformers; a version: vllm==0.10."),
]
Method = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="none, mtp, draft-model, eagle, eagle3, medusa, ngram, suffix, dflash, dspark, "
        "early-exit. Default: what the model ships or the catalogue has.",
    ),
]
Draft = Annotated[str | None, typer.Option("--draft", help="Drafter: name, config.json or folder.")]
K = Annotated[
    int | None, typer.Option("--k", "--num-speculative-tokens", help="Draft tokens per step.")
]
SpecConfig = Annotated[
    str | None, typer.Option("--speculative-config", help="vLLM's JSON, instead of the above.")
]
Acc = Annotated[
    str | None,
    typer.Option(
        "--acceptance",
        help="P(at least i drafts accepted) for i = 1, 2, ..., comma separated (vLLM's rates).",
    ),
]
AccCond = Annotated[
    str | None,
    typer.Option("--acceptance-conditional", help="P(draft i accepted | all before accepted)."),
]
AccRate = Annotated[
    float | None,
    typer.Option(
        "--acceptance-rate", help="One conditional rate for every position (i.i.d. model)."
    ),
]
AccMean = Annotated[
    float | None,
    typer.Option("--acceptance-mean", help="Accepted / drafted tokens over all k positions."),
]
AccLen = Annotated[
    float | None,
    typer.Option("--acceptance-length", help="Mean tokens per step with the bonus, 1 to k + 1."),
]
Tree = Annotated[
    str | None,
    typer.Option("--tree", help="Tree drafts: TOPK,TOKENS (SGLang's eagle-topk, draft-tokens)."),
]
DraftShare = Annotated[
    float,
    typer.Option("--draft-share", help="n-gram, suffix: share of steps in which a draft exists."),
]
ExitLayers = Annotated[int, typer.Option("--exit-layers", help="early-exit: layers that draft.")]
WorkloadOpt = Annotated[
    str | None,
    typer.Option(
        "--workload", help="chat, short, summarize, code, reasoning, rag or long-context."
    ),
]
InputLen = Annotated[int | None, typer.Option("--input-len", help="Prompt tokens per request.")]
OutputLen = Annotated[int | None, typer.Option("--output-len", help="Output tokens per request.")]
Cached = Annotated[
    float, typer.Option("--cached-share", help="Share of the prompt found in the prefix cache.")
]
Concurrency = Annotated[
    str | None, typer.Option("--concurrency", help="Clients in a closed loop, e.g. 1,4,16.")
]
Rate = Annotated[
    str | None, typer.Option("--rate", help="Requests per second (open loop), e.g. 0.5,1,2.")
]
MaxSeqs = Annotated[
    int | None, typer.Option("--max-num-seqs", help="Largest number of running sequences.")
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-num-batched-tokens", help="Token budget of a step.")
]
MemShare = Annotated[
    float | None, typer.Option("--gpu-memory-utilization", help="Share of memory an engine uses.")
]
Fidelity = Annotated[
    str, typer.Option("--fidelity", help="calibrated, or datasheet (a plain roofline).")
]
Profiles = Annotated[
    str | None, typer.Option("--profiles", help="Folder with hardware profiles of your own.")
]
Command = Annotated[
    str | None,
    typer.Option(
        "--command",
        help="A server's whole command line ('vllm serve ...', 'python -m sglang.launch_server "
        "...'), in place of the options it sets.",
    ),
]
JsonOut = Annotated[bool, typer.Option("--json", help="Print JSON.")]
CsvOut = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
