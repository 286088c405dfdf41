"""Options that several commands share, and the step from options to a `System`.

Typer reads the annotations; `build_request` checks that they agree with each other.
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from specsim.analytic.system import System
    from specsim.analytic.workload import Workload

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
    str, typer.Option("--engine", help="vllm, sglang or trtllm, with a version: vllm==0.10.")
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


@dataclass(frozen=True)
class Request:
    """A checked request: the system, its load shape, and what the user should know."""

    system: "System"
    workload: "Workload"
    warnings: tuple[str, ...] = field(default=())


def parse_numbers(text: str, name: str, *, whole: bool = True) -> list[float]:
    """A comma separated list of numbers; UsageError with the value and the rule."""
    from specsim.errors import UsageError

    values: list[float] = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            raise UsageError(
                f"{name} has {part.strip()!r}; it must be numbers separated by commas"
            ) from None
        if not math.isfinite(value) or (whole and value != int(value)):
            rule = "whole numbers" if whole else "finite numbers"
            raise UsageError(f"{name} has {part.strip()!r}; it must be {rule}")
        values.append(value)
    if len(values) > 1000:
        raise UsageError(f"{name} has {len(values)} values; at most 1000")
    return values


def parse_concurrency(text: str | None, default: tuple[int, ...] = (1, 4, 16, 64)) -> list[int]:
    from specsim.errors import UsageError

    if text is None:
        return list(default)
    values = [int(v) for v in parse_numbers(text, "--concurrency")]
    for value in values:
        if not 1 <= value <= 1_000_000:
            raise UsageError(f"--concurrency has {value}; it must be from 1 to 1000000")
    return sorted(set(values))


def build_workload(options: Options) -> "Workload":
    from dataclasses import replace

    from specsim.analytic.workload import Workload, find_workload

    base = find_workload(options.workload) if options.workload else find_workload("chat")
    given = options.input_len is not None or options.output_len is not None
    return replace(
        base,
        input_len=base.input_len if options.input_len is None else options.input_len,
        output_len=base.output_len if options.output_len is None else options.output_len,
        cached_share=options.cached_share,
        name="custom" if given else base.name,
    ) if given or options.cached_share else Workload(
        base.input_len, base.output_len, name=base.name
    )


def build_request(options: Options) -> Request:
    """Checks the options together and builds the system. Raises SpecSimError for any misuse."""
    from specsim.analytic.system import System
    from specsim.errors import UsageError
    from specsim.formats.load_model import load_model
    from specsim.hardware.store import load_profile
    from specsim.latency.draft import SpecSetup
    from specsim.latency.engine import find_engine
    from specsim.model.catalogue import variant
    from specsim.model.counts import kv_dtype_bytes
    from specsim.ops.work import Parallel
    from specsim.roofline.dispatch import FIDELITIES

    warnings: list[str] = []
    if options.fidelity not in FIDELITIES:
        raise UsageError(
            f"fidelity {options.fidelity!r} is not known; use {' or '.join(FIDELITIES)}"
        )
    spec = load_model(options.model)
    if options.weights:
        spec = variant(spec, options.weights)
    profile = load_profile(options.gpu, options.profiles)
    engine = find_engine(options.engine)
    kv = options.kv or spec.default_kv_dtype
    kv_dtype_bytes(spec, kv)  # refuses an unknown dtype
    parallel = Parallel(options.tp, options.ep, options.attention_dp)
    setup, acceptance = _speculation(options, spec, engine, warnings)
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        value = getattr(options, name)
        if value is not None and not 1 <= value <= 10_000_000:
            raise UsageError(f"--{name.replace('_', '-')} is {value}; it must be from 1")
    share = options.gpu_memory_utilization
    if share is not None and not 0.05 <= share <= 1:
        raise UsageError(f"--gpu-memory-utilization is {share}; it must be from 0.05 to 1")
    system = System(
        spec=spec,
        profile=profile,
        engine=engine,
        parallel=parallel,
        kv_dtype=kv,
        setup=setup if setup is not None else SpecSetup(),
        acceptance=acceptance,
        max_num_seqs=options.max_num_seqs or 0,
        max_num_batched_tokens=options.max_num_batched_tokens or 0,
        gpu_memory_utilization=share or 0.0,
        fidelity=options.fidelity,
    )
    _ = system.memory  # refuses a model that does not fit, before anything is computed
    assumed = [t for t in profile.kernels.values() if t.assumed]
    if assumed and options.fidelity != "datasheet":
        warnings.append(
            f"kernel efficiencies of {profile.name} are assumed "
            f"(measured on {assumed[0].inherited_from or 'another device'}), not measured on it"
        )
    return Request(system, build_workload(options), tuple(warnings))


def _speculation(options: Options, spec, engine, warnings):  # type: ignore[no-untyped-def]
    from specsim.errors import UsageError
    from specsim.formats.vllm_args import parse_speculative_config
    from specsim.latency.draft import SpecSetup
    from specsim.speculation.methods import default_method, resolve_setup

    method, k, draft, draft_tp = options.method, options.k, options.draft, 0
    config = None
    if options.speculative_config is not None:
        for name in ("method", "k", "draft"):
            if getattr(options, name) is not None:
                raise UsageError(
                    f"--speculative-config and --{name} contradict each other; give one of them"
                )
        config = parse_speculative_config(options.speculative_config)
        method, k, draft, draft_tp = config.method, config.k, config.model, config.draft_tp
        if method.endswith("mtp"):
            draft = None
        if config.batch_table:
            warnings.append("the dynamic table by batch size is not used by predict; k is static")
    if method is None:
        method = default_method(spec, engine) if not draft else "draft-model"
        if method == "none":
            if k or _given(options):
                raise UsageError(
                    f"{spec.name} ships no MTP head and the catalogue has no drafter for it; "
                    "name a --method (ngram, draft-model with --draft, ...)"
                )
            warnings.append(f"{spec.name} has no catalogued drafter: plain decoding only")
    topk, tokens = 1, 0
    if options.tree is not None:
        values = [int(v) for v in parse_numbers(options.tree, "--tree")]
        if len(values) != 2:
            raise UsageError(f"--tree is {options.tree!r}; it must be TOPK,TOKENS such as 4,8")
        topk, tokens = values
    share = options.draft_share
    if not 0 < share <= 1:
        raise UsageError(f"--draft-share is {share}; it must be above 0 and at most 1")
    setup = resolve_setup(
        spec, engine, method, k, draft=draft, tree_topk=topk, tree_tokens=tokens,
        exit_layers=options.exit_layers, draft_tp=draft_tp, draft_share=share,
    )
    if setup.method == "none":
        if _given(options):
            raise UsageError("an acceptance was given, but the method is 'none'; leave one out")
        return setup, None
    acceptance = _acceptance(options, config, spec, setup, warnings)
    if acceptance is None and options.method is None and config is None and not options.draft:
        # Nobody asked for this method: plain decoding is a true answer, a guess would not be.
        warnings.append(
            f"{spec.name} can draft with {setup.method}, but no acceptance of it has been measured "
            "in public: plain decoding only; give --acceptance-length to see what it would do"
        )
        return SpecSetup(), None
    if acceptance is None:
        raise UsageError(
            f"no measured acceptance of {setup.method} for {spec.name} is in the catalogue; "
            "give --acceptance-length (mean tokens per step), --acceptance (rates by "
            "position) or --acceptance-rate"
        )
    return setup, acceptance


_ACCEPTANCE_FLAGS = (
    "acceptance", "acceptance_conditional", "acceptance_rate", "acceptance_mean",
    "acceptance_length",
)


def _given(options: Options) -> list[str]:
    return [name for name in _ACCEPTANCE_FLAGS if getattr(options, name) is not None]


def _acceptance(options: Options, config, spec, setup, warnings):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    from specsim.errors import UsageError
    from specsim.speculation.acceptance import Acceptance
    from specsim.speculation.acceptance_catalogue import lookup

    given = _given(options)
    if len(given) > 1:
        flags = " and ".join("--" + name.replace("_", "-") for name in given)
        raise UsageError(f"{flags} both say what is accepted; give one of them")
    k = setup.k
    found: Acceptance | None
    if options.acceptance is not None:
        rates = parse_numbers(options.acceptance, "--acceptance", whole=False)
        found = Acceptance.from_unconditional(rates)
    elif options.acceptance_conditional is not None:
        rates = parse_numbers(
            options.acceptance_conditional, "--acceptance-conditional", whole=False
        )
        found = Acceptance.from_conditional(rates)
    elif options.acceptance_rate is not None:
        found = Acceptance.from_rate(options.acceptance_rate, k)
    elif options.acceptance_mean is not None:
        found = Acceptance.from_mean_rate(options.acceptance_mean, k)
    elif options.acceptance_length is not None:
        found = Acceptance.from_mean_length(options.acceptance_length, k)
    elif config is not None and config.acceptance:
        found = Acceptance.from_unconditional(config.acceptance)
    elif config is not None and config.acceptance_length is not None:
        found = Acceptance.from_mean_length(config.acceptance_length, k)
    else:
        draft = options.draft or (config.model if config is not None else None)
        match = lookup(spec.name, setup.method, k=k, draft=draft)
        if match is None and draft is not None:
            match = lookup(spec.name, setup.method, k=k)
            if match is not None:
                warnings.append(
                    f"acceptance was measured with the drafter {match.draft or 'of the model'}, "
                    f"not with {draft}"
                )
        found = match.acceptance if match is not None else None
        if match is not None and match.spread[1] - match.spread[0] > 0.05:
            warnings.append(
                f"acceptance depends on the text: {match.spread[0]:.2f} to {match.spread[1]:.2f} "
                f"tokens per step over {len(match.datasets)} measured data sets; "
                "give your own with --acceptance-length"
            )
        if found is None:
            return None
    found = found.at(k)
    if found.extrapolated:
        warnings.append(f"acceptance: {found.source}")
    if setup.method in ("ngram", "suffix") and setup.draft_share < 1:
        found = replace(found, draft_probability=setup.draft_share)
    return found
