"""Options of what runs on this machine: generate, serve, measure, train-head, validate run."""

from pathlib import Path
from typing import Annotated, ClassVar

from specsim.options.declare import Opt, OptionSet
from specsim.options.groups import DraftLengthOptions, JsonOptions
from specsim.options.measured import ComparisonOutOptions, MaxErrorOptions


class SamplingSeedOptions(OptionSet):
    seed: Annotated[int, Opt(help="Seed of the sampling.")] = 0


class ThreadsOptions(OptionSet):
    threads: Annotated[
        int | None, Opt(help="CPU threads of the model. Default: one per core.")
    ] = None


class DecoderModelOptions(OptionSet):
    model: Annotated[
        str,
        Opt(help="smollm2-135m, a Hugging Face folder, or a .gguf file.", metavar="MODEL"),
    ] = "smollm2-135m"
    draft: Annotated[
        str,
        Opt(
            help="none, ngram, suffix, early-exit, head (the trained one of the model), a head's "
            ".safetensors file, or a draft model (name, folder, .gguf).", metavar="METHOD|MODEL",
        ),
    ] = "ngram"


class DecoderDtypeOptions(OptionSet):
    dtype: Annotated[str, Opt(help="bf16, or fp32 (lossless to the token).")] = "bf16"


class DecoderDeviceOptions(OptionSet):
    device: Annotated[str, Opt(help="cpu, cuda, or auto.")] = "auto"


class PromptOptions(OptionSet):
    prompt: Annotated[
        str, Opt(help="Text to continue; - reads it from standard input.", argument=True)
    ]


class SamplingOptions(OptionSet):
    max_new_tokens: Annotated[int, Opt(help="Length of the answer.")] = 128
    temperature: Annotated[float, Opt(help="0 is greedy.")] = 0.0
    top_k: Annotated[int, Opt(help="Sample from the k likeliest; 0 is all.")] = 0
    top_p: Annotated[float, Opt(help="Sample from this share of probability.")] = 1.0
    chat: Annotated[bool, Opt(help="Ask as a user in the model's chat template.")] = False


class GenerateOutputOptions(OptionSet):
    compare: Annotated[
        bool, Opt("--compare/--no-compare", help="Measure plain decoding too.")
    ] = True
    repeat: Annotated[int, Opt(help="Runs of each kind.")] = 1
    color: Annotated[str, Opt(help="auto, always or never.")] = "auto"
    json_out: Annotated[
        bool, Opt("--json", help="Print one JSON object.", output=True)
    ] = False


class GenerateCommand(
    PromptOptions, DecoderModelOptions, DraftLengthOptions, SamplingOptions, DecoderDtypeOptions,
    SamplingSeedOptions, ThreadsOptions, DecoderDeviceOptions, GenerateOutputOptions,
):
    NAME: ClassVar = "generate"


class ListenOptions(OptionSet):
    """Where the server listens, and how much it takes."""

    host: Annotated[str, Opt(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Opt(help="Port to listen on; 0 takes a free one.")] = 8000
    served_model_name: Annotated[str | None, Opt(help="Name of the model in the API.")] = None
    max_num_seqs: Annotated[int, Opt(help="Sequences that run at once.")] = 8
    max_model_len: Annotated[
        int | None, Opt(help="Tokens of prompt and answer. Default: up to 2048.")
    ] = None
    max_num_batched_tokens: Annotated[int, Opt(help="Prompt tokens computed per step.")] = 512
    max_queue: Annotated[
        int, Opt(help="Requests that may wait; more are refused with 429.")
    ] = 256
    shutdown_timeout: Annotated[
        float, Opt(help="Seconds for running requests after a signal.")
    ] = 60.0
    per_request_spec_decode_metrics: Annotated[
        str,
        Opt(help="none, summary or detailed: what each response says about its drafts."),
    ] = "none"
    log_interval: Annotated[float, Opt(help="Seconds between log lines; 0 writes none.")] = 10.0


class ServeCommand(
    DecoderModelOptions, DraftLengthOptions, DecoderDtypeOptions, ListenOptions,
    SamplingSeedOptions, ThreadsOptions, DecoderDeviceOptions,
):
    NAME: ClassVar = "serve"


class MeasureOptions(OptionSet):
    """What is measured, and for how long."""

    budget: Annotated[str, Opt(help="Time for the whole run: 600s, 10m.")] = "600s"
    device: Annotated[str, Opt(help="cpu or cuda; default: cuda if there is one.")] = ""
    model: Annotated[
        list[str] | None,
        Opt(help="A dense model: a known shape, a folder or a .gguf file; repeat for several "
            "sizes, small to large."),
    ] = None
    out: Annotated[
        Path | None,
        Opt(help="JSON lines file; an earlier run's is continued.", output=True),
    ] = None
    grid: Annotated[str, Opt(help="small or full.")] = "small"
    dtype: Annotated[str, Opt(help="bf16 or fp32.")] = "bf16"


class MeasureCommand(MeasureOptions, SamplingSeedOptions, ThreadsOptions, JsonOptions):
    NAME: ClassVar = "measure"


class TrainHeadOptions(OptionSet):
    """What a draft head is trained on, and how long."""

    out: Annotated[
        Path, Opt(help="Folder for the head and what it came from.", output=True)
    ]
    budget: Annotated[str, Opt(help="Wall time of this run: 20m, 1h.")] = "20m"
    model: Annotated[
        str, Opt(help="smollm2-135m, a Hugging Face folder or a .gguf file.")
    ] = "smollm2-135m"
    prompts: Annotated[
        Path | None,
        Opt(help="JSON lines with a prompt (or turns, or question) each, or plain lines. Default: "
            "prompts the model makes up itself, and built-in ones of many kinds."),
    ] = None
    tokens: Annotated[
        int, Opt(help="Answer tokens to train on, at most.", ge=1, le=10**9)
    ] = 120_000
    max_new_tokens: Annotated[int, Opt(help="Longest answer.", ge=1, le=4096)] = 128
    epochs: Annotated[int, Opt(help="Passes over the answers, at most.", ge=1, le=1000)] = 6
    vocab_size: Annotated[
        int, Opt(help="Tokens that the head can draft.", ge=1, le=10**6)
    ] = 8192
    init: Annotated[
        Path | None, Opt(help="Head file to go on from, with its vocabulary.")
    ] = None


class TrainHeadCommand(TrainHeadOptions, SamplingSeedOptions, ThreadsOptions, JsonOptions):
    NAME: ClassVar = "train-head"


class ValidateRunOptions(OptionSet):
    """What is measured and kept on the way to the comparison."""

    budget: Annotated[str, Opt(help="Time for the whole run: 600s, 10m.")] = "10m"
    short: Annotated[
        bool, Opt(help="Under a minute with tiny random models, wide bars.")
    ] = False
    model: Annotated[
        list[str] | None, Opt(help="As for `specsim measure`; repeat for several sizes.")
    ] = None
    records: Annotated[
        Path | None,
        Opt(help="Records of `specsim measure` on this machine to start from, instead of "
            "measuring again."),
    ] = None
    repeats: Annotated[int, Opt(help="Runs of each serving load.", ge=1, le=20)] = 3
    grid: Annotated[str, Opt(help="Of the measurement: small or full.")] = "full"
    work: Annotated[
        Path, Opt(help="Folder for what is done; a later call goes on.", output=True)
    ] = Path("specsim-validate")


class ValidateRunCommand(
    ValidateRunOptions, SamplingSeedOptions, ThreadsOptions, MaxErrorOptions,
    ComparisonOutOptions, JsonOptions,
):
    NAME: ClassVar = "validate run"
