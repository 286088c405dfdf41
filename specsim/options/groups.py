"""Options that several commands share, in groups of what belongs together."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from pydantic import model_validator

from specsim.errors import UsageError
from specsim.methods.base import METHODS
from specsim.options.declare import OptionSet, declared, opt
from specsim.options.values import Numbers, TextPath

# vLLM's and SGLang's spellings of --tp.
TENSOR_PARALLEL = ("-tp", "--tp-size", "--tensor-parallel-size")
MAX_LIMIT = 10_000_000
MAX_SEED = (1 << 32) - 1


class ModelArgument(OptionSet, section="Deployment"):
    model: TextPath | None = opt(
        None, help="Model: a name from `specsim models`, a config.json, or its folder.",
        argument=True,
    )


class ServerCommandOptions(OptionSet, section="Deployment"):
    command: str | None = opt(
        None,
        help="A server's whole command line ('vllm serve ...', 'python -m sglang.launch_server "
             "...', 'trtllm-serve ...'), in place of the options it sets.",
    )


class GpuOptions(OptionSet, section="Deployment"):
    gpu: str = opt("h200-sxm", help="GPU: a name from `specsim gpus` or a .toml.")


class TensorParallelOptions(OptionSet, section="Deployment"):
    tp: int = opt(
        1, help="Tensor parallelism: GPUs that share every layer.",
        also=TENSOR_PARALLEL,
    )


class LinkOptions(OptionSet, section="Deployment"):
    link: str | None = opt(
        None,
        help="How the GPUs are joined where it is not as `specsim gpus NAME` says: nvlink (a "
             "pair's bridge), pcie4-x16, pcie5-x8 ...; pcie4-x16-no-p2p: through host memory.",
    )


class ExpertParallelOptions(OptionSet, section="Deployment"):
    ep: int = opt(
        1, help="Expert parallelism: GPUs over which whole experts are spread.",
        also=("--ep-size", "--expert-parallel-size"),
    )
    attention_dp: int = opt(
        1, help="Data-parallel attention: groups of GPUs, each with the requests of its own.",
    )


class PipelineOptions(OptionSet, section="Deployment"):
    pp: int = opt(
        1, help="Pipeline parallelism: stages over which the layers are spread, each of --tp GPUs.",
        also=("-pp", "--pp-size", "--pipeline-parallel-size"),
    )


class NumberFormatsOptions(OptionSet, section="Deployment"):
    weights: str | None = opt(
        None, help="Weight format: bf16, fp8, fp8_block, nvfp4, mxfp4, int8, int4; weight-only: "
                   "fp8_w8a16, nvfp4_w4a16, int8_w8a16. Default: as published.",
        also=("-q", "--quantization"),
    )
    kv: str | None = opt(
        None, help="KV cache dtype: bf16, fp8. Default: the engine's.", also=("--kv-cache-dtype",),
    )


class EngineOptions(OptionSet, section="Deployment"):
    engine: str = opt("vllm", help="vllm, sglang, trtllm or transformers; a version: vllm==0.10.")


class MethodOptions(OptionSet, section="Speculation"):
    method: str | None = opt(
        None, help=f"{', '.join(METHODS)}. Default: what the model ships or the catalogue has.",
    )


class DrafterOptions(OptionSet, section="Speculation"):
    draft: str | None = opt(
        None, help="Drafter: name, config.json or folder.",
        also=("--speculative-draft-model-path",),
    )


class DraftLengthOptions(OptionSet, section="Speculation"):
    k: int | None = opt(
        None, "-k", "--k", "--num-speculative-tokens", help="Draft tokens per step.",
        file_key="num_speculative_tokens",
    )


class DraftingOptions(MethodOptions, DrafterOptions, DraftLengthOptions):
    """How drafts are made."""


class SpeculativeJsonOptions(OptionSet, section="Speculation"):
    speculative_config: str | Mapping[str, object] | None = opt(
        None, help="vLLM's JSON, instead of the above.",
    )


class ServerOptions(
    GpuOptions, TensorParallelOptions, LinkOptions, ExpertParallelOptions, PipelineOptions,
    NumberFormatsOptions, EngineOptions, DraftingOptions, SpeculativeJsonOptions,
):
    """What is served, on what."""

    @model_validator(mode="after")
    def _json_or_flags(self) -> Self:
        if self.speculative_config is not None:
            for name in ("method", "k", "draft"):
                if getattr(self, name) is not None:
                    raise UsageError(
                        f"--speculative-config and --{name} contradict each other; give one of them"
                    )
        return self

    @property
    def asks_to_draft(self) -> bool:
        """Whether a method is named (`none` too), or what tells it."""
        return any(given is not None for given in (
            self.method, self.draft, self.speculative_config))


class AcceptanceRatesOptions(OptionSet, section="Acceptance"):
    """Forms of acceptance besides its length; one of all may be given."""

    acceptance: Numbers | None = opt(
        None,
        help="P(at least i drafts accepted) for i = 1, 2, ..., comma separated (vLLM's rates).",
    )
    acceptance_conditional: Numbers | None = opt(
        None, help="P(draft i accepted | all before accepted).",
    )
    acceptance_rate: float | None = opt(
        None, help="One conditional rate for every position (i.i.d. model).",
    )
    acceptance_mean: float | None = opt(
        None, help="Accepted / drafted tokens over all k positions.",
        file_key="acceptance_mean_rate",
    )


class AcceptanceLengthOptions(OptionSet, section="Acceptance"):
    acceptance_length: float | None = opt(
        None, help="Mean tokens per step with the bonus, 1 to k + 1.",
    )


class AcceptanceOptions(AcceptanceRatesOptions, AcceptanceLengthOptions):
    """What is accepted of the drafts, in one of five forms."""

    @property
    def acceptance_flags(self) -> list[str]:
        """The flags by which it was given."""
        return [item.flag for name, item in declared(AcceptanceOptions).items()
                if getattr(self, name) is not None]

    @model_validator(mode="after")
    def _one_acceptance(self) -> Self:
        given = self.acceptance_flags
        if len(given) > 1:
            flags = " and ".join(given)
            raise UsageError(f"{flags} both say what is accepted; give one of them")
        return self


class TreeOptions(OptionSet, section="Speculation"):
    tree: str | Sequence[int] | None = opt(
        None, help="Tree drafts: TOPK,TOKENS (SGLang's eagle-topk, draft-tokens).",
    )


class DraftShareOptions(OptionSet, section="Speculation"):
    draft_share: float = opt(
        1.0, help="n-gram, suffix: share of steps in which a draft exists.", gt=0, le=1,
    )
    exit_layers: int = opt(0, help="early-exit: layers that draft.")


class DescribedOptions(ServerOptions, AcceptanceOptions, TreeOptions, DraftShareOptions):
    """What is served, and how it speculates."""


class LengthsOptions(OptionSet, section="Requests"):
    workload: str | None = opt(
        None, help="chat, short, summarize, code, reasoning, rag or long-context.",
    )
    input_len: int | None = opt(
        None, help="Prompt tokens per request.", also=("--isl", "--random-input-len"),
    )
    output_len: int | None = opt(
        None, help="Output tokens per request.", also=("--osl", "--random-output-len"),
    )


class CachedShareOptions(OptionSet, section="Requests"):
    cached_share: float = opt(0.0, help="Share of the prompt found in the prefix cache.")


class TextOptions(OptionSet, section="Acceptance"):
    """What is written, on which a catalogued acceptance depends. Default: the usual, pooled."""

    work: str | None = opt(
        None,
        help="Kind of work whose measured acceptance is taken: chat, code, math, summarization, "
             "..., or a data set. Default: that of --workload.",
    )
    temperature: float | None = opt(None, help="Sampling temperature (0: greedy).", le=10)
    thinking: str | None = opt(
        None, help="Whether the model thinks first: on or off.", choices=("on", "off"),
    )
    language: str | None = opt(
        None, help="Language: en, zh or multi.", choices=("en", "zh", "multi"),
    )


class RequestOptions(LengthsOptions, CachedShareOptions, TextOptions):
    """What the requests look like."""


class ClientOptions(OptionSet, section="Load"):
    concurrency: Numbers | None = opt(
        None, help="Clients in a closed loop, e.g. 1,4,16.", also=("--max-concurrency",),
    )


class LengthRangeOptions(OptionSet, section="Requests"):
    range_ratio: float | None = opt(
        None, help="Lengths vary by this share, uniformly.", ge=0, lt=1, rule="from 0 to below 1",
    )


class LoadOptions(ClientOptions):
    """Loads to look at: of a closed loop or of an open one."""

    rate: Numbers | None = opt(
        None, help="Requests per second (open loop), e.g. 0.5,1,2.", also=("--request-rate",),
    )

    @model_validator(mode="after")
    def _one_loop(self) -> Self:
        if self.concurrency is not None and self.rate is not None:
            raise UsageError(
                "--concurrency is a closed loop and --rate an open one; give one of them"
            )
        return self


class BatchLimitsOptions(OptionSet, section="Engine limits"):
    max_num_seqs: int | None = opt(
        None, help="Request slots: sequences that run at once, at most.", ge=1, le=MAX_LIMIT,
        also=("--max-running-requests",),
    )
    max_num_batched_tokens: int | None = opt(
        None, help="Token budget of a step.", ge=1, le=MAX_LIMIT,
        also=("--chunked-prefill-size",),
    )


class LaunchOptions(OptionSet, section="Engine limits"):
    """How the engine launches its steps, where that is not its own way."""

    cuda_graph_max: int | None = opt(
        None,
        help="Largest batch of a CUDA graph: tokens in vLLM, requests in SGLang; 0: none, as with "
             "--enforce-eager.",
        ge=0, le=MAX_LIMIT, also=("--cuda-graph-max-bs", "--max-cudagraph-capture-size"),
    )
    async_scheduling: str | None = opt(
        None, help="Plan a step while the one before it runs: on or off. Default: the engine's.",
        choices=("on", "off"),
    )


class MemoryShareOptions(OptionSet, section="Engine limits"):
    gpu_memory_utilization: float | None = opt(
        None, help="Share of GPU memory that the engine uses.", ge=0.05, le=1,
        also=("--mem-fraction-static",),
    )


class LongestRequestOptions(OptionSet, section="Engine limits"):
    max_model_len: int | None = opt(
        None, help="Longest request, prompt and output, in tokens.", ge=1, le=100_000_000,
    )


class ProfilesOptions(OptionSet, section="Advanced"):
    profiles: TextPath | None = opt(None, help="Folder with hardware profiles of your own.")


class FidelityOptions(OptionSet, section="Advanced"):
    fidelity: str = opt(
        "calibrated", help="calibrated, or datasheet (a plain roofline).",
        choices=("calibrated", "datasheet"),
    )
    routing: str | None = opt(
        None,
        help="How traffic chooses experts: uniform, a kind of router (softmax, gated-shared, "
             "sigmoid, relu2, coarse), eplb (the default, evened out over GPUs), or BETA,SHAPE. "
             "Default: as measured on the model or its kind with natural text.",
    )


class PricingOptions(FidelityOptions, ProfilesOptions, section="Advanced"):
    """What steps are priced with."""

    host_w: float | None = opt(
        None, help="Watts of the host per GPU, added to energy. Default: boards alone.",
        ge=0, le=10_000, rule="from 0 to 10000 W",
    )


class PricedOptions(MemoryShareOptions, LaunchOptions, PricingOptions):
    """What steps are priced with, and the memory and launches behind them."""


class DeploymentOptions(
    ModelArgument, ServerCommandOptions, DescribedOptions, RequestOptions, BatchLimitsOptions,
    LongestRequestOptions, PricedOptions,
):
    """All that describes one deployment and its requests: what `api.deployment` builds from."""

    @classmethod
    def of(cls, options: OptionSet) -> Self:
        """Those of a command's options that describe a deployment; the others as built in."""
        made = cls.model_construct(
            _fields_set={name for name in options.model_fields_set if name in cls.model_fields},
            **{name: value for name, value in options if name in cls.model_fields},
        )
        made._of_file = options.of_file & cls.model_fields.keys()
        return made

    def plain(self) -> Self:
        """The same without speculation."""
        drafting = (DraftingOptions, SpeculativeJsonOptions, AcceptanceOptions, TreeOptions,
                    DraftShareOptions)
        built_in = {name: item.default for group in drafting
                    for name, item in declared(group).items()}
        return self.but(**built_in | {"method": "none"})


class PlotFileOptions(OptionSet, section="Output"):
    plot: str | None = opt(None, help="Draw into a file: .svg or .png.", output=True)


class SeedOptions(OptionSet, section="Advanced"):
    seed: int = opt(0, help="Everything random derives from it.", ge=0, le=MAX_SEED)


class JobsOptions(OptionSet, section="Advanced"):
    jobs: int | None = opt(None, help="Processes. Default: 2, or 1 on a single core.", ge=1, le=64)


class JsonOptions(OptionSet, section="Output"):
    json_out: bool = opt(False, "--json", help="Print JSON.", output=True)
    wide: bool = opt(
        False, "--wide", help="Tables with all columns, however wide the terminal is.",
        output=True,
    )


class OutputOptions(JsonOptions):
    """The form of what is printed."""

    csv_out: bool = opt(False, "--csv", help="Print CSV.", output=True)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.json_out and self.csv_out:
            raise UsageError("--json and --csv are both given; choose one output")
        return self


class MaxErrorOptions(OptionSet, section="Output"):
    max_error: float | None = opt(
        None, gt=0, lt=100, rule="above 0, e.g. 0.15 for 15%",
        help="Exit with code 1 if a median error (of throughput, TPOT, TTFT, E2E latency or the "
             "speedup) is above this share, e.g. 0.15.",
    )


class ComparisonOutOptions(JsonOptions):
    out: Path | None = opt(None, help="Write the whole comparison as JSON.", output=True)


class ComparisonOutputOptions(MaxErrorOptions, ComparisonOutOptions):
    """What becomes of a comparison."""
