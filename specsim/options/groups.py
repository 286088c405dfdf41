"""Options that several commands share, in groups of what belongs together."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Self

from pydantic import model_validator

from specsim.errors import UsageError
from specsim.options.declare import Opt, OptionSet, declared
from specsim.options.values import Numbers, TextPath

MAX_LIMIT = 10_000_000
MAX_SEED = (1 << 32) - 1


class ModelArgument(OptionSet):
    model: Annotated[
        TextPath | None,
        Opt(
            help="Model: a name from `specsim models`, a config.json, or its folder.",
            argument=True,
        ),
    ] = None


class ServerCommandOptions(OptionSet):
    command: Annotated[
        str | None,
        Opt(
            help="A server's whole command line ('vllm serve ...', 'python -m "
            "sglang.launch_server ...'), in place of the options it sets."
        ),
    ] = None


class GpuOptions(OptionSet):
    gpu: Annotated[str, Opt(help="GPU: a name from `specsim gpus` or a .toml.")] = "h200-sxm"


class TensorParallelOptions(OptionSet):
    tp: Annotated[int, Opt(help="GPUs that share every layer.")] = 1


class ExpertParallelOptions(OptionSet):
    ep: Annotated[int, Opt(help="GPUs over which whole experts are spread.")] = 1
    attention_dp: Annotated[int, Opt(help="Attention groups (DP attention).")] = 1


class NumberFormatsOptions(OptionSet):
    weights: Annotated[
        str | None, Opt(help="Weight format: bf16, fp8, fp8_block, nvfp4, mxfp4, int4.")
    ] = None
    kv: Annotated[str | None, Opt(help="KV cache dtype: bf16, fp8.")] = None


class EngineOptions(OptionSet):
    engine: Annotated[
        str, Opt(help="vllm, sglang, trtllm or transformers; a version: vllm==0.10.")
    ] = "vllm"


class MethodOptions(OptionSet):
    method: Annotated[
        str | None,
        Opt(
            help="none, mtp, draft-model, eagle, eagle3, medusa, ngram, suffix, dflash, dspark, "
            "early-exit. Default: what the model ships or the catalogue has."
        ),
    ] = None


class DrafterOptions(OptionSet):
    draft: Annotated[str | None, Opt(help="Drafter: name, config.json or folder.")] = None


class DraftLengthOptions(OptionSet):
    k: Annotated[
        int | None,
        Opt("--k", "--num-speculative-tokens", help="Draft tokens per step.",
            file_key="num_speculative_tokens"),
    ] = None


class DraftingOptions(MethodOptions, DrafterOptions, DraftLengthOptions):
    """How drafts are made."""


class SpeculativeJsonOptions(OptionSet):
    speculative_config: Annotated[
        str | Mapping[str, object] | None, Opt(help="vLLM's JSON, instead of the above.")
    ] = None


class ServerOptions(
    GpuOptions, TensorParallelOptions, ExpertParallelOptions, NumberFormatsOptions, EngineOptions,
    DraftingOptions, SpeculativeJsonOptions,
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


class AcceptanceRatesOptions(OptionSet):
    """Forms of acceptance besides its length; one of all may be given."""

    acceptance: Annotated[
        Numbers | None,
        Opt(
            help="P(at least i drafts accepted) for i = 1, 2, ..., comma separated (vLLM's rates)."
        ),
    ] = None
    acceptance_conditional: Annotated[
        Numbers | None, Opt(help="P(draft i accepted | all before accepted).")
    ] = None
    acceptance_rate: Annotated[
        float | None, Opt(help="One conditional rate for every position (i.i.d. model).")
    ] = None
    acceptance_mean: Annotated[
        float | None,
        Opt(
            help="Accepted / drafted tokens over all k positions.",
            file_key="acceptance_mean_rate",
        ),
    ] = None


class AcceptanceLengthOptions(OptionSet):
    acceptance_length: Annotated[
        float | None, Opt(help="Mean tokens per step with the bonus, 1 to k + 1.")
    ] = None


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


class TreeOptions(OptionSet):
    tree: Annotated[
        str | Sequence[int] | None,
        Opt(help="Tree drafts: TOPK,TOKENS (SGLang's eagle-topk, draft-tokens)."),
    ] = None


class DraftShareOptions(OptionSet):
    draft_share: Annotated[
        float,
        Opt(help="n-gram, suffix: share of steps in which a draft exists.", gt=0, le=1),
    ] = 1.0
    exit_layers: Annotated[int, Opt(help="early-exit: layers that draft.")] = 0


class LengthsOptions(OptionSet):
    workload: Annotated[
        str | None,
        Opt(help="chat, short, summarize, code, reasoning, rag or long-context."),
    ] = None
    input_len: Annotated[int | None, Opt(help="Prompt tokens per request.")] = None
    output_len: Annotated[int | None, Opt(help="Output tokens per request.")] = None


class CachedShareOptions(OptionSet):
    cached_share: Annotated[
        float, Opt(help="Share of the prompt found in the prefix cache.")
    ] = 0.0


class RequestOptions(LengthsOptions, CachedShareOptions):
    """What the requests look like."""


class ClientOptions(OptionSet):
    concurrency: Annotated[
        Numbers | None, Opt(help="Clients in a closed loop, e.g. 1,4,16.")
    ] = None


class LoadOptions(ClientOptions):
    """Loads to look at: of a closed loop or of an open one."""

    rate: Annotated[
        Numbers | None, Opt(help="Requests per second (open loop), e.g. 0.5,1,2.")
    ] = None

    def check_one_loop(self) -> None:
        if self.concurrency is not None and self.rate is not None:
            raise UsageError(
                "--concurrency is a closed loop and --rate an open one; give one of them"
            )


class BatchLimitsOptions(OptionSet):
    max_num_seqs: Annotated[
        int | None, Opt(help="Largest number of running sequences.", ge=1, le=MAX_LIMIT)
    ] = None
    max_num_batched_tokens: Annotated[
        int | None, Opt(help="Token budget of a step.", ge=1, le=MAX_LIMIT)
    ] = None


class MemoryShareOptions(OptionSet):
    gpu_memory_utilization: Annotated[
        float | None, Opt(help="Share of memory an engine uses.", ge=0.05, le=1)
    ] = None


class ProfilesOptions(OptionSet):
    profiles: Annotated[
        TextPath | None, Opt(help="Folder with hardware profiles of your own.")
    ] = None


class FidelityOptions(OptionSet):
    fidelity: Annotated[
        str, Opt(help="calibrated, or datasheet (a plain roofline).")
    ] = "calibrated"


class PricingOptions(FidelityOptions, ProfilesOptions):
    """What steps are priced with."""


class DeploymentOptions(
    ModelArgument, ServerCommandOptions, ServerOptions, AcceptanceOptions, TreeOptions,
    DraftShareOptions, RequestOptions, BatchLimitsOptions, MemoryShareOptions, PricingOptions,
):
    """All that describes one deployment and its requests: what `api.deployment` builds from."""

    @classmethod
    def of(cls, options: OptionSet) -> Self:
        """Those of a command's options that describe a deployment; the others as built in."""
        return cls.model_construct(
            _fields_set={name for name in options.model_fields_set if name in cls.model_fields},
            **{name: value for name, value in options if name in cls.model_fields},
        )

    def plain(self) -> Self:
        """The same without speculation."""
        drafting = (DraftingOptions, SpeculativeJsonOptions, AcceptanceOptions, TreeOptions,
                    DraftShareOptions)
        built_in = {name: item.default for group in drafting
                    for name, item in declared(group).items()}
        return self.but(**built_in | {"method": "none"})


class SeedOptions(OptionSet):
    seed: Annotated[
        int, Opt(help="Everything random derives from it.", ge=0, le=MAX_SEED)
    ] = 0


class JobsOptions(OptionSet):
    jobs: Annotated[
        int | None,
        Opt(help="Processes. Default: 2, or 1 on a single core.", ge=1, le=64),
    ] = None


class JsonOptions(OptionSet):
    json_out: Annotated[bool, Opt("--json", help="Print JSON.", output=True)] = False


class OutputOptions(JsonOptions):
    """The form of what is printed."""

    csv_out: Annotated[bool, Opt("--csv", help="Print CSV.", output=True)] = False

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.json_out and self.csv_out:
            raise UsageError("--json and --csv are both given; choose one output")
        return self
