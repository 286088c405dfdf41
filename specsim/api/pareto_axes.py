"""What `pareto` varies: the axes from the options, and the systems on them."""

from collections.abc import Callable

from specsim.analytic.predict import candidate_k
from specsim.analytic.system import System
from specsim.api.deployment import DeploymentRequest, build_request
from specsim.errors import CapacityError, SpecSimError, UsageError
from specsim.methods.base import MAX_K, check_k
from specsim.methods.resolve import resolve_setup
from specsim.model.catalogue import variant
from specsim.model.counts import cache_dtype, kv_dtype_bytes
from specsim.options.analytic import ParetoOptions
from specsim.options.groups import DeploymentOptions
from specsim.options.values import Numbers, Words, as_text, parse_numbers, shown
from specsim.planning.pareto import Axes

MAX_VALUE = 10_000_000


def one_deployment(options: ParetoOptions) -> DeploymentOptions:
    """The options with what is varied left open: lists are no value of one deployment."""
    varied = ParetoOptions.__annotations__  # its own; the others are those of a deployment
    given = {name: getattr(options, name) for name in options.model_fields_set
             if name in DeploymentOptions.model_fields and name not in varied}
    return DeploymentOptions.of_values(given)


def axes_of(asked: ParetoOptions) -> tuple[DeploymentRequest, Axes]:
    """The deployment that the options name, and what is varied around it."""
    options = one_deployment(asked)
    tps = _numbers(asked.tps, "--tps", 1, 1024) if asked.tps is not None else None
    pps = _numbers(asked.pps if asked.pps is not None else "1", "--pps", 1, 1024)
    weights = _words(asked.weights, "--weights")
    kv = _words(asked.kv, "--kv")
    base = None
    for tp in tps or (1, 2, 4, 8):
        # The smallest replica that holds the model says what can be varied.
        try:
            first = weights[0] if weights else None
            base = build_request(options.but(tp=tp, pp=pps[0], weights=first))
            break
        except CapacityError as error:
            refusal = error
    if base is None:
        raise refusal
    system = base.system
    node = system.profile.gpus_per_node if system.profile.link_bytes_per_s > 0 else 1
    axes = Axes(
        k=_ks(asked.ks, system),
        tp=tps or tuple(tp for tp in (1, 2, 4, 8) if tp <= max(1, node)),
        weights=_weights(weights, system),
        kv_dtype=_kv(kv, system),
        max_num_seqs=_numbers(
            asked.max_num_seqs or "1,2,4,8,16,32,64,128,256,512", "--max-num-seqs", 1, MAX_VALUE
        ),
        max_num_batched_tokens=_budgets(asked.max_num_batched_tokens, system),
        pp=pps,
    )
    # What the base warns of by its own tp or dtype is not said of all.
    return base, axes


def _ks(text: Numbers | None, system: System) -> tuple[int, ...]:
    if text is not None:
        found = _numbers(text, "--ks", 0, MAX_K)
        if any(found) and not system.speculative:
            raise UsageError(
                f"--ks is {as_text(text)}, but there is no speculation to vary; name a --method "
                "with its acceptance (--acceptance-length)"
            )
        return found
    if not system.speculative:
        return (0,)
    return (0, *(candidate_k(system) or [system.setup.k]))


def _weights(names: tuple[str, ...], system: System) -> tuple[str, ...]:
    """Formats by name, as the models that have them are labelled."""
    if names:
        return tuple(dict.fromkeys(variant(system.spec, name).weights for name in names))
    own = system.spec.weights
    return (own, "fp8") if own == "bf16" and "fp8" in system.profile.flops else (own,)


def _kv(names: tuple[str, ...], system: System) -> tuple[str, ...]:
    for name in names:
        kv_dtype_bytes(system.spec, cache_dtype(name))  # refuses an unknown one
    if names:
        return tuple(dict.fromkeys(map(cache_dtype, names)))
    return tuple(dict.fromkeys((system.kv_dtype, "fp8")))


def _budgets(text: Numbers | None, system: System) -> tuple[int, ...]:
    if text is not None:
        return _numbers(text, "--max-num-batched-tokens", 1, MAX_VALUE)
    return tuple(sorted({2048, 8192, system.engine.max_num_batched_tokens}))


def _numbers(text: Numbers, flag: str, low: int, high: int) -> tuple[int, ...]:
    found = parse_numbers(text, flag)
    for value in found:
        if not low <= value <= high:
            raise UsageError(f"{flag} has {value:.15g}; it must be from {low} to {high}")
    return tuple(sorted({int(value) for value in found}))


def _words(text: Words | None, flag: str) -> tuple[str, ...]:
    if text is None:
        return ()
    found = tuple(dict.fromkeys(part.strip().lower() for part in as_text(text).split(",")))
    if not all(found):
        raise UsageError(f"{flag} is {shown(as_text(text))}; it must be names separated by commas")
    return found


def builder(options: DeploymentOptions) -> Callable[[int, int, str, str, int], System]:
    """The system with a tp, pp, weight format, cache dtype and draft length; see `planning.pareto`.

    The acceptance is that of the options' own k, followed to other draft lengths. All draft
    lengths of one deployment share what prices its target's passes."""
    built: dict[tuple[int, int, str, str, bool], System | SpecSimError] = {}

    def sided(tp: int, pp: int, weights: str, kv: str, plain: bool) -> System:
        key = (tp, pp, weights, kv, plain)
        if key not in built:
            asked = options.but(tp=tp, pp=pp, weights=weights, kv=kv)
            if plain:
                asked = asked.plain()
            try:
                built[key] = build_request(asked).system
            except SpecSimError as error:
                built[key] = error
        found = built[key]
        if isinstance(found, SpecSimError):
            raise found
        return found

    def build(tp: int, pp: int, weights: str, kv: str, k: int) -> System:
        if k == 0:
            return sided(tp, pp, weights, kv, True)
        system = sided(tp, pp, weights, kv, False)
        if k == system.setup.k:
            return system
        setup = system.setup
        if not setup.speculates:  # some weights have no method by default, so no drafts
            resolve_setup(system.spec, system.engine, setup.method, k)
        check_k(system.engine, setup.drafting, k, setup.drafter)
        return system.with_(k=k)

    return build
