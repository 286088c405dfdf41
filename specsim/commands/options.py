"""Options that several commands share. Typer reads the annotations; what they say together is
checked in `specsim.commands.request`.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import typer

MAX_VALUES = 1000  # of one comma separated list
MAX_SHOWN = 60  # characters of a bad value that an error repeats

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


@dataclass
class Options:
    """Raw values of one command line."""

    model: str
    gpu: str = "h200-sxm"
    tp: int = 1
    ep: int = 1
    attention_dp: int = 1
    weights: str | None = None
    kv: str | None = None
    engine: str = "vllm"
    method: str | None = None
    draft: str | None = None
    k: int | None = None
    speculative_config: str | None = None
    acceptance: str | None = None
    acceptance_conditional: str | None = None
    acceptance_rate: float | None = None
    acceptance_mean: float | None = None
    acceptance_length: float | None = None
    tree: str | None = None
    draft_share: float = 1.0
    exit_layers: int = 0
    workload: str | None = None
    input_len: int | None = None
    output_len: int | None = None
    cached_share: float = 0.0
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    fidelity: str = "calibrated"
    profiles: str | None = None
    command: str | None = None


def shown(text: str) -> str:
    """A value as an error shows it: quoted, cut to a readable length."""
    return repr(text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "...")


def parse_numbers(text: str, name: str, *, whole: bool = True) -> list[float]:
    """A comma separated list of numbers; UsageError with the value and the rule."""
    from specsim.errors import UsageError

    parts = text.split(",")
    if len(parts) > MAX_VALUES:
        raise UsageError(f"{name} has {len(parts)} values; give at most {MAX_VALUES}")
    values: list[float] = []
    for part in parts:
        try:
            value = float(part)
        except ValueError:
            raise UsageError(
                f"{name} has {shown(part.strip())}; it must be numbers separated by commas"
            ) from None
        if not math.isfinite(value) or (whole and value != int(value)):
            rule = "whole numbers" if whole else "finite numbers"
            raise UsageError(f"{name} has {shown(part.strip())}; it must be {rule}")
        values.append(value)
    return values


def parse_concurrency(text: str | None, default: tuple[int, ...] = (1, 4, 16, 64)) -> list[int]:
    from specsim.errors import UsageError

    if text is None:
        return list(default)
    values = parse_numbers(text, "--concurrency")
    for value in values:
        if not 1 <= value <= 1_000_000:
            raise UsageError(f"--concurrency has {value:.15g}; it must be from 1 to 1000000")
    return sorted({int(value) for value in values})


def parse_rates(text: str) -> list[float]:
    """Requests per second of the open loop: positive numbers, in rising order."""
    from specsim.errors import UsageError

    values = parse_numbers(text, "--rate", whole=False)
    for value in values:
        if value <= 0:
            raise UsageError(f"--rate has {value:g}; it must be above 0 requests per second")
    return sorted(set(values))


def profile_folder(text: str | None) -> str | None:
    """The folder of --profiles; an empty name would silently mean the current folder."""
    from specsim.errors import UsageError

    if text is not None and not text.strip():
        raise UsageError("--profiles is empty; name a folder that holds .toml files")
    return text
