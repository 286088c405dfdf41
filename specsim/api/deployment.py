"""From the options of a command line to a checked `System` and its load.

Each option is checked where its meaning lives (profiles, engines, methods, acceptance); here they
are brought together, and what contradicts is refused: acceptance without a method, a tree for a
chain, two forms of acceptance, a draft length beside another one in vLLM's JSON. A server's command
line (--command) is filled in first.
"""

from dataclasses import dataclass, field, replace

from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.requests import build_workload
from specsim.errors import UsageError
from specsim.formats.load_model import load_drafter, load_model
from specsim.formats.speculative_config import SpeculativeConfig, parse_speculative_config
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.latency.engine_profile import EngineProfile
from specsim.latency.routing import parse_routing
from specsim.methods.base import SpecSetup, find_method, method_of
from specsim.methods.registry import method_name
from specsim.methods.resolve import default_method, named_drafter, resolve_setup
from specsim.model.catalogue import variant
from specsim.model.counts import kv_dtype_bytes
from specsim.model.spec import Drafter, ModelSpec, MoE
from specsim.ops.work import Parallel, Routing
from specsim.options.declare import OptionSet
from specsim.options.groups import DeploymentOptions
from specsim.options.values import Numbers, parse_numbers, profile_folder, shown
from specsim.roofline.device import FIDELITIES
from specsim.speculation.acceptance import Acceptance

TABLE_FIELD = "num_speculative_tokens_per_batch_size"
TABLE_NOTE = (
    f"{TABLE_FIELD}: one draft length is priced at every batch here; `specsim simulate` follows "
    "the table, `specsim tune` makes one"
)


@dataclass(frozen=True)
class DeploymentRequest:
    """A checked request: the system, its load shape, and what the user should know."""

    system: System
    workload: Workload
    warnings: tuple[str, ...] = field(default=())


def build_request(given: OptionSet) -> DeploymentRequest:
    """Checks what the options say together and builds the system. SpecSimError for any misuse."""
    options = DeploymentOptions.of(given)
    warnings: list[str] = []
    if options.command is not None:
        from specsim.api.command_line import expand_command

        options, warnings = expand_command(options)
    if options.fidelity not in FIDELITIES:
        raise UsageError(
            f"fidelity {shown(options.fidelity)} is not known; use {' or '.join(FIDELITIES)}"
        )
    spec = load_model(str(options.model or ""))
    if options.weights is not None:
        spec = variant(spec, options.weights)
    profile = load_profile(options.gpu, profile_folder(options.profiles))
    engine = find_engine(options.engine)
    kv = spec.default_kv_dtype if options.kv in (None, "auto") else options.kv
    kv_dtype_bytes(spec, kv)  # refuses an unknown dtype
    parallel = _parallel(options, spec, profile, warnings)
    setup, acceptance = _speculation(options, spec, engine, parallel, warnings)
    system = System(
        spec=spec,
        profile=profile,
        engine=engine,
        parallel=parallel,
        kv_dtype=kv,
        setup=setup,
        acceptance=acceptance,
        max_num_seqs=options.max_num_seqs or 0,
        max_num_batched_tokens=options.max_num_batched_tokens or 0,
        gpu_memory_utilization=options.gpu_memory_utilization or 0.0,
        routing=_routing(options.routing, spec),
        fidelity=options.fidelity,
    )
    workload = build_workload(options)
    _ = system.memory, system.latency  # refuse what does not fit, before anything is computed
    tokens = workload.input_len + workload.output_len
    if spec.max_position and tokens > spec.max_position:
        warnings.append(
            f"requests of {tokens} tokens are longer than the {spec.max_position} positions of "
            f"{spec.name}; an engine serves them only with rope scaling set"
        )
    products = profile.kernels.get("gemm.bf16")  # measured products stand for the whole device
    if (products is None or products.assumed) and options.fidelity != "datasheet":
        measured = products.inherited_from if products is not None else None
        origin = f"measured on {measured}" if measured else "typical of such kernels"
        warnings.append(
            f"kernel efficiencies of {profile.name} are assumed ({origin}), not measured on it"
        )
    return DeploymentRequest(system, workload, tuple(warnings))


def _routing(text: str | None, spec: ModelSpec) -> Routing | None:
    """How the traffic chooses experts where it was said; None: as the model's own does."""
    if text is None:
        return None
    if not spec.has_experts:
        raise UsageError(f"--routing is given, but {spec.name} has no experts; leave it out")
    return parse_routing(text)


def _parallel(
    options: DeploymentOptions, spec: ModelSpec, profile: HardwareProfile, warnings: list[str]
) -> Parallel:
    parallel = Parallel(options.tp, options.ep, options.attention_dp)
    experts = [
        part.n_experts
        for group in spec.layers
        for part in group.branches
        if isinstance(part, MoE)
    ]
    if parallel.ep > 1:
        if not experts:
            raise UsageError(f"ep is {parallel.ep}, but {spec.name} has no experts; leave out --ep")
        if any(count % parallel.ep for count in experts):
            raise UsageError(
                f"ep is {parallel.ep}, but the {min(experts)} experts of {spec.name} do not divide "
                "by it; choose a divisor"
            )
    if parallel.gpus > profile.gpus_per_node > 1:
        warnings.append(
            f"{parallel.gpus} GPUs are more than the {profile.gpus_per_node} of one node; they are "
            "priced as if its link joined them all"
        )
    return parallel


def _speculation(
    options: DeploymentOptions,
    spec: ModelSpec,
    engine: EngineProfile,
    parallel: Parallel,
    warnings: list[str],
) -> tuple[SpecSetup, Acceptance | None]:
    """The method with its drafter, and what is accepted; (none, None) for plain decoding."""
    given = options.acceptance_flags
    config = _config(options, bool(given), warnings)
    method, k, draft = options.method, options.k, options.draft
    if config is not None:
        method, k, draft = config.method, config.k, config.model
        if find_method(method_name(method)).shipped(spec) is not None:
            draft = None  # vLLM takes the head from the target, whatever is named here
    drafter = _drafter(draft, spec)
    asked = method is not None or drafter is not None
    if method is None:
        method = method_of(drafter).name if drafter is not None else default_method(spec, engine)
    if not find_method(method_name(method)).speculates:
        if given and not asked:
            raise UsageError(
                f"{spec.name} ships no MTP head that {engine.name} {engine.version} runs, and the "
                "catalogue has no drafter for it; name a --method (ngram, draft-model with "
                "--draft, ...)"
            )
        if given:
            raise UsageError("an acceptance was given, but the method is 'none'; leave one out")
        if not asked and k is None:
            warnings.append(
                f"neither {spec.name} nor the catalogue has a drafter that {engine.name} "
                f"{engine.version} runs: plain decoding only"
            )
    if "==" in options.engine or "@" in options.engine:
        from specsim.latency.engine import asked_version

        missing = engine.missing(method_name(method), asked_version(options.engine))
        if missing:
            raise UsageError(f"{missing}; use another --method or an older version")
    rates = _rates(options, config)
    if k is None and rates:
        k = len(rates)  # one rate per draft position
    topk, tokens = _tree(options.tree)
    draft_tp = config.draft_tp if config is not None else 0
    if draft_tp not in (0, 1, parallel.tp):
        raise UsageError(
            f"draft_tensor_parallel_size is {draft_tp}; it must be 1 or the target's tp "
            f"{parallel.tp}"
        )
    setup = resolve_setup(
        spec,
        engine,
        method,
        k,
        draft=drafter,
        tree_topk=topk,
        tree_tokens=tokens,
        exit_layers=options.exit_layers,
        draft_tp=draft_tp,
        draft_share=options.draft_share,
        parallel_drafting=config is not None and config.parallel_drafting,
    )
    if not setup.speculates:
        return setup, None
    acceptance = _acceptance(options, config, rates, spec, setup, draft, warnings)
    if acceptance is None:
        if asked:
            raise UsageError(
                f"no measured acceptance of {setup.method} for {spec.name} is in the catalogue; "
                "give --acceptance-length (mean tokens per step), --acceptance (rates by "
                "position) or --acceptance-rate"
            )
        # Nobody asked for this method: plain decoding is a true answer, a guess would not be.
        warnings.append(
            f"{spec.name} can draft with {setup.method}, but no acceptance of it has been measured "
            "in public: plain decoding only; give --acceptance-length to see what it would do"
        )
        return SpecSetup(), None
    if setup.tree_topk > 1 and not engine.server.trees:
        warnings.append(
            f"vLLM drafts chains: the tree of top-k {setup.tree_topk} is priced, but no version of "
            "it that is known here would run it; --engine sglang does"
        )
    if setup.drafter is not None and setup.drafter.source == "assumed":
        warnings.append(f"drafter: {'; '.join(setup.drafter.notes)}")
    return setup, acceptance


def _config(
    options: DeploymentOptions, acceptance_given: bool, warnings: list[str]
) -> SpeculativeConfig | None:
    """vLLM's JSON, which stands instead of the flags that say the same."""
    if options.speculative_config is None:
        return None
    config = parse_speculative_config(str(options.speculative_config))
    if acceptance_given and (config.acceptance or config.acceptance_length is not None):
        raise UsageError(
            "--speculative-config holds a synthetic acceptance and another one is given beside it; "
            "give one of them"
        )
    unknown = [name for name in config.not_modelled if name != TABLE_FIELD]
    if unknown:
        warnings.append(f"set but not modelled: {', '.join(unknown)}")
    if config.batch_table:
        warnings.append(TABLE_NOTE)
    return config


def _drafter(name: str | None, spec: ModelSpec) -> Drafter | None:
    if name is None or name == "[ngram]":
        return None
    return load_drafter(name, spec) or named_drafter(name)


def _tree(given: Numbers | None) -> tuple[int, int]:
    if given is None:
        return 1, 0
    values = [int(value) for value in parse_numbers(given, "--tree")]
    if len(values) != 2:
        raise UsageError(f"--tree is {shown(str(given))}; it must be TOPK,TOKENS such as 4,8")
    return values[0], values[1]


def _rates(options: DeploymentOptions, config: SpeculativeConfig | None) -> list[float]:
    """Acceptance by position, where it was given in that form (conditional or not)."""
    for given, flag in ((options.acceptance, "--acceptance"),
                        (options.acceptance_conditional, "--acceptance-conditional")):
        if given is not None:
            return parse_numbers(given, flag, whole=False)
    return list(config.acceptance) if config is not None else []


def _acceptance(
    options: DeploymentOptions,
    config: SpeculativeConfig | None,
    rates: list[float],
    spec: ModelSpec,
    setup: SpecSetup,
    draft: str | None,
    warnings: list[str],
) -> Acceptance | None:
    """What the user said is accepted, else what was measured, else None."""
    k = setup.k
    if rates and options.acceptance_conditional is not None:
        found = Acceptance.from_conditional(rates, k=k)
    elif rates:
        found = Acceptance.from_unconditional(rates, k=k)
    elif options.acceptance_rate is not None:
        found = Acceptance.from_rate(options.acceptance_rate, k)
    elif options.acceptance_mean is not None:
        found = Acceptance.from_mean_rate(options.acceptance_mean, k)
    elif options.acceptance_length is not None:
        found = Acceptance.from_mean_length(options.acceptance_length, k)
    elif config is not None and config.acceptance_length is not None:
        found = Acceptance.synthetic_min_variance(config.acceptance_length, k)
    else:
        measured = _measured(spec, setup, draft, warnings)
        if measured is None:
            return None
        found = measured
    if k > found.positions:
        found = found.at(k)
    if k > found.measured_positions:
        warnings.append(f"acceptance: {found.source}")
    if setup.draft_share < 1:
        found = replace(found, draft_probability=setup.draft_share)
    return found


def _measured(
    spec: ModelSpec, setup: SpecSetup, draft: str | None, warnings: list[str]
) -> Acceptance | None:
    """The catalogue's acceptance of this model, method and drafter."""
    from specsim.speculation.resolve import (  # reads its tables at first use
        AcceptanceQuery,
        TreeShape,
        resolve,
    )

    query = AcceptanceQuery(spec.name, setup.method, draft)
    found = resolve(query, setup.k, TreeShape(setup.tree_topk, setup.tree_tokens))
    if found.level in ("kind of drafter", "unknown"):
        return None
    if draft is not None and found.level == "this model":
        warnings.append(
            f"acceptance was not measured with {draft}, only with other drafters of the model"
        )
    if found.high_90 - found.low_90 > 0.05:
        warnings.append(
            f"acceptance depends on the text and the set-up: {found.low_90:.2f} to "
            f"{found.high_90:.2f} tokens per step (90 %, {found.level}); "
            "give your own with --acceptance-length"
        )
    return found.acceptance
