"""From the options of a command line to a checked `System` and its load.

Each option is checked where its meaning lives (profiles, engines, methods, acceptance); here they
are brought together, and what contradicts is refused: acceptance without a method, a tree for a
chain, two forms of acceptance, a draft length beside another one in vLLM's JSON. A server's command
line (--command) is filled in first.
"""

from dataclasses import dataclass, field, replace

from specsim.analytic.compare import compared
from specsim.analytic.prices import PriceCache
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.acceptance import (
    catalogued,
    fitted_to,
    given_acceptance,
    given_rates,
    measured_drafter,
    remarks,
    rows_of,
    usable,
    usual_drafter,
)
from specsim.api.requests import build_workload, check_longest
from specsim.errors import SpecSimError, UsageError
from specsim.formats.load_model import load_drafter, load_model
from specsim.formats.speculative_config import SpeculativeConfig, parse_speculative_config
from specsim.hardware.link import with_link
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile
from specsim.latency.collectives import GATHERED
from specsim.latency.engine import find_engine
from specsim.latency.engine_profile import EngineProfile
from specsim.latency.routing import EVENED, parse_routing
from specsim.latency.walks import not_running
from specsim.methods.base import METHODS, SpecSetup, find_method, method_of
from specsim.methods.draft_model import DraftModelMethod
from specsim.methods.mtp import MtpMethod
from specsim.methods.registry import lookup_named, method_name
from specsim.methods.resolve import default_method, named_drafter, resolve_setup
from specsim.model.catalogue import variant
from specsim.model.counts import cache_dtype, kv_dtype_bytes
from specsim.model.feedforward import MoE
from specsim.model.spec import ModelSpec
from specsim.ops.work import Parallel, Routing
from specsim.options.declare import OptionSet
from specsim.options.groups import DeploymentOptions
from specsim.options.serving import CacheOptions
from specsim.options.values import Numbers, parse_numbers, profile_folder, shown
from specsim.roofline.device import native, params
from specsim.speculation.acceptance import Acceptance
from specsim.units import GB

# Of all requests of this process: what a sweep or a page asks next has mostly the same steps.
PRICES = PriceCache()
TABLE_FIELD = "num_speculative_tokens_per_batch_size"
TABLE_NOTE = (
    f"{TABLE_FIELD}: one draft length is priced at every batch here; `specsim simulate` follows "
    "the table, `specsim tune` makes one"
)


@dataclass(frozen=True)
class DeploymentRequest:
    """A checked request: the system, its load shape, and what the user should know. unknown: the
    system with a method of whose acceptance nothing is known, beside plain decoding; it stands
    with what comparable drafters yield, which is no prediction."""

    system: System
    workload: Workload
    warnings: tuple[str, ...] = field(default=())
    unknown: System | None = None


def build_request(
    given: OptionSet, *, unknown: bool = False, choose: bool = True
) -> DeploymentRequest:
    """Checks what the options say together and builds the system. SpecSimError for any misuse.

    unknown: a method asked for without known acceptance is answered with `unknown`, not refused.
    choose: where none is named, the fastest of known acceptance is taken, else (or without it) what
    the model ships or the catalogue has.
    """
    options = DeploymentOptions.of(given)
    warnings: list[str] = []
    if options.command is not None:
        from specsim.api.command_line import expand_command

        options, warnings = expand_command(options)
    if not isinstance(given, CacheOptions):  # a simulated server cuts the answer there
        check_longest(options)
    chosen = _chosen(options, given) if choose else None
    options = options if chosen is None else options.but(method=chosen)
    found = _built(options, warnings)
    if found.unknown is not None and options.asks_to_draft and not unknown:
        raise refused(found.unknown)
    return found


def refused(unknown: System) -> UsageError:
    """What to type where an answer needs the acceptance that nobody knows."""
    setup, accepted = unknown.setup, unknown.acceptance
    assert accepted is not None and accepted.grounds is not None
    low, high = accepted.grounds.tokens_90
    return UsageError(
        f"no acceptance of {setup.method} for {unknown.spec.name} is known (comparable "
        f"drafters: {low:.2f} to {high:.2f} tokens per step at k = {setup.k}); name --method "
        f"{setup.method} with --acceptance-length, such as {(low + high) / 2:.1f}, --acceptance "
        "(rates by position) or --acceptance-rate; `specsim predict` says from how many tokens per "
        "step it pays, `specsim diagnose --url http://HOST:PORT` measures it"
    )


def _chosen(options: DeploymentOptions, load: OptionSet) -> str | None:
    """Of the methods with a known acceptance the fastest at the first load asked for, where the
    options leave the method open; None where they do not, or nothing is known."""
    if options.acceptance_flags or options.asks_to_draft:
        return None
    spec, engine = _model(options), find_engine(options.engine)
    rate, clients = getattr(load, "rate", None), getattr(load, "concurrency", None)
    speedups: dict[str, float] = {}
    names = [
        m.name for m in METHODS.values()
        if m.servable and m.name in engine.methods and rows_of(spec, m.name)
    ]
    for name in names:
        try:
            found = _built(options.but(method=name), [])
            if found.unknown is None:
                speedups[name] = compared(
                    found.system, found.workload,
                    1 if clients is None else int(parse_numbers(clients, "--concurrency")[0]),
                    None if rate is None else parse_numbers(rate, "--rate", whole=False)[0],
                ).speedup
        except SpecSimError:
            continue  # asked for by name, it says why
    return max(speedups, key=lambda name: speedups[name]) if speedups else None


def _model(options: DeploymentOptions) -> ModelSpec:
    if options.model is None:
        raise UsageError(
            "a MODEL is needed, or a --command that starts one; `specsim models` lists them"
        )
    spec = load_model(str(options.model), formats_needed=options.weights is None)
    return spec if options.weights is None else variant(spec, options.weights)


def _built(options: DeploymentOptions, warnings: list[str]) -> DeploymentRequest:
    if options.work is not None:  # also where no acceptance is looked up, or one method of several
        from specsim.speculation.resolve import named_work

        named_work(options.work)
    spec = _model(options)
    profile = load_profile(options.gpu, profile_folder(options.profiles))
    profile = with_link(profile, options.link, options.tp * options.pp)
    if options.host_w is not None:
        profile = replace(profile, host_w=options.host_w)
    engine = find_engine(options.engine).on(profile.name, profile.mem_bytes, options.tp)
    ahead = options.async_scheduling
    engine = engine.launched(options.cuda_graph_max, None if ahead is None else ahead == "on")
    kv = cache_dtype("auto" if options.kv is None else options.kv)
    kv = engine.kv_dtype(spec, profile.arch) if kv == "auto" else kv
    kv_dtype_bytes(spec, kv)  # refuses an unknown dtype
    parallel = _parallel(options, spec, profile, warnings)
    setup, acceptance, known = _speculation(options, spec, engine, parallel, warnings)
    system = System(
        spec=spec, profile=profile, engine=engine, parallel=parallel, kv_dtype=kv, setup=setup,
        acceptance=acceptance, max_num_seqs=options.max_num_seqs or 0,
        max_num_batched_tokens=options.max_num_batched_tokens or 0,
        gpu_memory_utilization=options.gpu_memory_utilization or 0.0,
        routing=_routing(options.routing, spec), fidelity=options.fidelity, prices=PRICES,
    )
    if why := not_running(engine, spec, profile):
        warnings.append(f"what is shown could not be served: {why}")
    unknown = None
    if not known:
        unknown, system = system, system.plain()
    workload = build_workload(options)
    _ = system.memory, system.latency  # refuse what does not fit, before anything is computed
    tokens = workload.input_len + workload.output_len
    if spec.max_position and tokens > spec.max_position:
        warnings.append(
            f"requests of {tokens} tokens are longer than the {spec.max_position} positions of "
            f"{spec.name}; an engine serves them only with rope scaling set"
        )
    if parallel.ep > GATHERED and options.routing is None:
        warnings.append(
            f"experts of {parallel.ep} GPUs are asked unevenly, and all wait for the busiest; "
            f"--routing {EVENED} says that the server evens this out (--enable-eplb)"
        )
    kernels = profile.kernels_known
    if kernels != "measured" and options.fidelity != "datasheet":
        products = profile.kernels.get("gemm.bf16")
        other = products.inherited_from if products is not None else None
        origin = f"measured on {other}" if other else "typical of such kernels"
        said = f"assumed ({origin}), not measured on it"
        if kernels != "assumed":
            said = f"partly measured on it, the others assumed ({origin})"
        warnings.append(f"kernel efficiencies of {profile.name} are {said}")
    if not engine.graph_max and options.fidelity != "datasheet":
        over = engine.overheads
        op_s = max(over.prompt_op_s, over.eager_op_s, over.eager_kernel_s)
        warnings.append(
            f"without CUDA graphs a step takes at least what the host needs to launch it: "
            f"{op_s * 1e6:.0f} us for each op of `specsim explain`"
            + (", assumed" if op_s > over.prompt_op_s else "")
        )
    if options.cuda_graph_max and options.fidelity != "datasheet":
        warnings.append(
            f"decode steps beyond CUDA graphs of {options.cuda_graph_max} are at best: what their "
            "launches cost was seen only where the device takes longer (512 clients)"
        )
    if spec.weights == "int8" and native(profile, "int8"):
        warnings.append("products of 8-bit integers reach the shares of FP8 kernels (assumed)")
    if parallel.all_gpus > 1 and options.link is None and profile.link_kind.startswith("PCIe"):
        warnings.append(
            f"GPUs are taken to be joined by {profile.link_kind}, of which sums reach what they "
            "did on the one host of such cards that was measured; --link nvlink, pcie4-x16 or "
            "pcie4-x16-no-p2p (through host memory) says otherwise"
        )
    return DeploymentRequest(system, workload, tuple(warnings), unknown)


def _routing(text: str | None, spec: ModelSpec) -> Routing | None:
    """How the traffic chooses experts where it was said; None: as the model's own does."""
    if text is None:
        return None
    if not spec.has_experts:
        if text == EVENED:  # a flag of the server, which has nothing to even out
            return None
        raise UsageError(f"--routing is given, but {spec.name} has no experts; leave it out")
    return parse_routing(text, spec)


def _parallel(
    options: DeploymentOptions, spec: ModelSpec, profile: HardwareProfile, warnings: list[str]
) -> Parallel:
    parallel = Parallel(options.tp, options.ep, options.attention_dp, options.pp)
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
    if parallel.all_gpus > profile.gpus_per_node > 1:
        warnings.append(
            f"{parallel.all_gpus} GPUs are more than the {profile.gpus_per_node} of one node; what "
            "they exchange between nodes is priced over one network card per GPU, of "
            f"{params(profile, 'network')['bytes_per_s'] / GB:.0f} GB/s"
        )
    return parallel


def _speculation(
    options: DeploymentOptions, spec: ModelSpec, engine: EngineProfile, parallel: Parallel,
    warnings: list[str],
) -> tuple[SpecSetup, Acceptance | None, bool]:
    """The method with its drafter, what is accepted (None for plain decoding), and whether that is
    known rather than the range of comparable drafters."""
    given = options.acceptance_flags
    config = _own_head(_config(options, bool(given), warnings), spec, options.model)
    method, k, draft = options.method, options.k, options.draft
    if draft is not None and method is None and (lookup := lookup_named(draft)) is not None:
        method, draft = lookup, None
    if config is not None:
        method, k, draft = config.method, config.k, config.model
        if find_method(method_name(method)).shipped(spec) is not None:
            draft = None  # vLLM takes the head from the target, whatever is named here
    drafter = None
    if draft is not None:
        drafter = load_drafter(draft, spec) or measured_drafter(spec, draft) or named_drafter(draft)
    asked = method is not None or drafter is not None
    if method is None:
        method = method_of(drafter).name if drafter is not None else default_method(
            spec, engine, assume=not given
        )
    if not find_method(method_name(method)).speculates:
        if given and not asked:
            raise UsageError(
                f"{spec.name} ships no MTP head that {engine.name} {engine.version} runs, and the "
                "catalogue has no drafter for it; name a --method (ngram, draft-model with "
                "--draft, ...)"
            )
        if given:
            raise UsageError(
                f"{given[0]} is given, but the method is 'none'; leave it out "
                "or name what drafts, such as --method eagle3"
            )
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
    if drafter is None and draft is None:
        drafter = usual_drafter(spec, method_name(method))
    rates = given_rates(options, config)
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
        spec, engine, method, k, draft=drafter, tree_topk=topk, tree_tokens=tokens,
        exit_layers=options.exit_layers, draft_tp=draft_tp, draft_share=options.draft_share,
        parallel_drafting=config is not None and config.parallel_drafting,
    )
    if not setup.speculates:
        return setup, None, True
    acceptance, known = given_acceptance(options, config, rates, setup.k), True
    if acceptance is None:
        found = catalogued(options, spec, setup, draft)
        acceptance, known = found.acceptance, usable(setup, found.level)
        if known:
            warnings += remarks(spec, found, draft)
        else:
            nobody = setup.drafter is not None and setup.drafter.source == "assumed"
            why = (f"neither {spec.name} nor the catalogue has a drafter that {engine.name} "
                   f"{engine.version} runs; " if nobody and not asked else "")
            warnings.append(
                f"{why}no acceptance of {setup.method} for {spec.name} is known: whether it pays "
                "is open; comparable drafters are no prediction"
            )
    acceptance = fitted_to(setup, acceptance)
    if setup.k > acceptance.measured_positions:
        warnings.append(f"acceptance: {acceptance.source}")
    if setup.tree_topk > 1 and not engine.server.trees:
        warnings.append(
            f"{engine.server.label or engine.name} drafts chains: the tree of top-k "
            f"{setup.tree_topk} is priced, but no version of it that is known here would run it; "
            "--engine sglang does"
        )
    if setup.drafter is not None and setup.drafter.source == "assumed":
        warnings.append(f"drafter: {'; '.join(setup.drafter.notes)}")
    return setup, acceptance, known


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


def _own_head(
    config: SpeculativeConfig | None, spec: ModelSpec, model: object
) -> SpeculativeConfig | None:
    """vLLM takes a target that is named as its own draft model for its MTP head, if it has one."""
    if config is None or spec.mtp is None or config.method != DraftModelMethod.name:
        return config
    return replace(config, method=MtpMethod.name, model=None) if config.model == model else config


def _tree(given: Numbers | None) -> tuple[int, int]:
    if given is None:
        return 1, 0
    values = [int(value) for value in parse_numbers(given, "--tree")]
    if len(values) != 2:
        raise UsageError(f"--tree is {shown(str(given))}; it must be TOPK,TOKENS such as 4,8")
    return values[0], values[1]
