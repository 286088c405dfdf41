"""Options of what runs on this machine: generate, serve, measure, train-head, validate run."""

from pathlib import Path
from typing import ClassVar

from specsim.options.declare import REQUIRED, OptionSet, opt
from specsim.options.groups import ComparisonOutputOptions, DraftLengthOptions, JsonOptions

DTYPES, GRIDS = ("bf16", "fp32"), ("small", "full")


class SamplingSeedOptions(OptionSet, section="Advanced"):
    seed: int = opt(0, help="Seed of the sampling.", ge=-(1 << 63), lt=1 << 63,
                    rule="a number of 64 bits")
    threads: int | None = opt(
        None, help="CPU threads of the model. Default: one per core.", ge=1, le=1024
    )


class DecoderModelOptions(OptionSet, section="Deployment"):
    model: str = opt(
        "smollm2-135m", help="smollm2-135m, a Hugging Face folder, or a .gguf file.",
        metavar="MODEL",
    )
    dtype: str = opt("bf16", help="bf16, or fp32 (lossless to the token).", choices=DTYPES)
    device: str = opt("auto", help="cpu, cuda, or auto.", choices=("cpu", "cuda", "auto"))


class DecoderDraftOptions(OptionSet, section="Speculation"):
    draft: str = opt(
        "ngram", metavar="METHOD|MODEL",
        help="none, ngram, suffix, early-exit, head (the trained one of the model), a head's "
             ".safetensors file, or a draft model (name, folder, .gguf).",
    )


class PromptOptions(OptionSet, section="Sampling"):
    prompt: str = opt(
        REQUIRED, help="Text to continue; - reads it from standard input.", argument=True,
    )
    max_new_tokens: int = opt(128, help="Length of the answer.", ge=1)
    temperature: float = opt(0.0, help="0 is greedy.")
    top_k: int = opt(0, help="Sample from the k likeliest; 0 is all.")
    top_p: float = opt(1.0, help="Sample from this share of probability.")
    chat: bool = opt(False, help="Ask as a user in the model's chat template.")


class GenerateCommand(
    PromptOptions, DecoderModelOptions, DecoderDraftOptions, DraftLengthOptions,
    SamplingSeedOptions, section="Output",
):
    NAME: ClassVar = "generate"

    compare: bool = opt(True, "--compare/--no-compare", help="Measure plain decoding too.")
    repeat: int = opt(1, help="Runs of each kind.", ge=1, le=100)
    color: str = opt(
        "auto", help="auto, always or never.", choices=("auto", "always", "never")
    )
    json_out: bool = opt(False, "--json", help="Print one JSON object.", output=True)


class ServeModelCommand(
    DecoderModelOptions, DecoderDraftOptions, DraftLengthOptions, SamplingSeedOptions,
    section="Server",
):
    NAME: ClassVar = "serve"

    host: str = opt("127.0.0.1", help="Address to listen on.")
    port: int = opt(8000, help="Port to listen on; 0 takes a free one.", ge=0, le=65535)
    served_model_name: str | None = opt(None, help="Name of the model in the API.")
    max_num_seqs: int = opt(8, help="Sequences that run at once.", ge=1, le=1024)
    max_model_len: int | None = opt(None, help="Tokens of prompt and answer. Default: up to 2048.")
    max_num_batched_tokens: int = opt(
        512, help="Prompt tokens computed per step.", ge=1, le=1 << 20
    )
    max_queue: int = opt(
        256, help="Requests that may wait; more are refused with 429.", ge=0, le=100_000
    )
    shutdown_timeout: float = opt(
        60.0, help="Seconds for running requests after a signal.", ge=0, le=86400
    )
    per_request_spec_decode_metrics: str = opt(
        "none", help="none, summary or detailed: what each response says about its drafts.",
        choices=("none", "summary", "detailed"),
    )
    log_interval: float = opt(
        10.0, help="Seconds between log lines; 0 writes none.", ge=0, le=86400
    )


class MeasureCommand(SamplingSeedOptions, JsonOptions, section="Study"):
    NAME: ClassVar = "measure"

    budget: str = opt("600s", help="Time for the whole run: 600s, 10m.")
    device: str = opt(
        "", help="cpu or cuda; default: cuda if there is one.", choices=("", "cpu", "cuda")
    )
    model: list[str] | None = opt(
        None,
        help="A dense model: a known shape, a folder or a .gguf file; repeat for several sizes, "
             "small to large.",
    )
    out: Path | None = opt(
        None, help="JSON lines file; an earlier run's is continued.", output=True,
    )
    grid: str = opt("small", help="small or full.", choices=GRIDS)
    dtype: str = opt("bf16", help="bf16 or fp32.", choices=DTYPES)


class TrainHeadCommand(SamplingSeedOptions, JsonOptions, section="Study"):
    NAME: ClassVar = "train-head"

    out: Path = opt(REQUIRED, help="Folder for the head and what it came from.", output=True)
    budget: str = opt("20m", help="Wall time of this run: 20m, 1h.")
    model: str = opt("smollm2-135m", help="smollm2-135m, a Hugging Face folder or a .gguf file.")
    prompts: Path | None = opt(
        None,
        help="JSON lines with a prompt (or turns, or question) each, or plain lines. Default: "
             "prompts the model makes up itself, and built-in ones of many kinds.",
    )
    tokens: int = opt(120_000, help="Answer tokens to train on, at most.", ge=1, le=10**9)
    max_new_tokens: int = opt(128, help="Longest answer.", ge=1, le=4096)
    epochs: int = opt(6, help="Passes over the answers, at most.", ge=1, le=1000)
    vocab_size: int = opt(8192, help="Tokens that the head can draft.", ge=1, le=10**6)
    init: Path | None = opt(None, help="Head file to go on from, with its vocabulary.")


class ValidateRunCommand(SamplingSeedOptions, ComparisonOutputOptions, section="Study"):
    NAME: ClassVar = "validate run"

    budget: str = opt("10m", help="Time for the whole run: 600s, 10m.")
    short: bool = opt(False, help="Under a minute with tiny random models, wide bars.")
    model: list[str] | None = opt(None, help="As for `specsim measure`; repeat for several sizes.")
    records: Path | None = opt(
        None,
        help="Records of `specsim measure` on this machine to start from, instead of measuring "
             "again.",
    )
    repeats: int = opt(3, help="Runs of each serving load.", ge=1, le=20)
    grid: str = opt("full", help="Of the measurement: small or full.", choices=GRIDS)
    work: Path = opt(
        Path("specsim-validate"), help="Folder for what is done; a later call goes on.",
        output=True,
    )
