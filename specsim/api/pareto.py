"""`specsim.pareto`: speed for one user against throughput of a GPU, over all that can be set."""

from collections.abc import Callable
from typing import Any

from specsim.analytic.predict import candidate_k
from specsim.analytic.system import System
from specsim.api.deployment import DeploymentRequest, build_request
from specsim.api.functions import python_function
from specsim.api.results import Deployed, Result, flat
from specsim.errors import CapacityError, SpecSimError, UsageError
from specsim.jsonable import Key
from specsim.methods.base import MAX_K, check_k
from specsim.methods.resolve import resolve_setup
from specsim.model.catalogue import variant
from specsim.model.counts import cache_dtype, kv_dtype_bytes
from specsim.options.analytic import ParetoOptions
from specsim.options.declare import repeat
from specsim.options.groups import DeploymentOptions
from specsim.options.values import (
    Numbers,
    Words,
    as_text,
    parse_names,
    parse_numbers,
    parse_speeds,
)
from specsim.planning import pareto as planning
from specsim.planning.pareto import Axes
from specsim.planning.pareto_at import with_speeds
from specsim.report.blocks import Section
from specsim.report.progress import task_bar

SHOW_BAR_FROM = 3000  # combinations: about two seconds


class Pareto(Result, planning.ParetoFigures, Deployed):
    """All combinations as `points`; the best of them as `frontier`, `speculative`, `plain`."""

    engine_version = method = Key[str]()
    draft = Key[str | None]()
    input_len = output_len = combinations = feasible = Key[int]()
    infeasible_examples = Key[dict[str, str]]()
    frontier_speculative = frontier_plain = Key[list[dict[str, Any]]]()

    def to_dict(self, every_point: bool = False) -> dict[str, object]:
        """As `--json`; with every_point as `--json --all`."""
        from specsim.report.paretos import pareto_json

        return {**pareto_json(self, every_point), "command": self.command}

    def section(self) -> Section:
        from specsim.report.paretos import pareto_blocks

        return pareto_blocks(self)

    def to_rows(self) -> list[dict[str, object]]:
        from specsim.report.paretos import pareto_rows

        return [flat(row) for row in pareto_rows(self)]


def run(options: ParetoOptions, bar: bool = False) -> Pareto:
    """Every combination of draft length, GPUs, formats and limits for `model`."""
    speeds = [] if options.at is None else parse_speeds(options.at)
    if options.price_per_gpu_hour is not None and not speeds:
        raise UsageError("--price-per-gpu-hour prices the tokens at a speed; give --at, too")
    floor = options.stream_floor or 0.0
    if speeds and speeds[0] < floor:
        raise UsageError(
            f"--at has {speeds[0]:g} tok/s, but --stream-floor leaves out what is slower than "
            f"{floor:g}; ask for {floor:g} or more, or leave one out"
        )
    base, axes = axes_of(options)
    one = one_deployment(options)
    if base.system.speculative and not one.draft:
        # The method that is best for the smallest replica is compared at every width.
        one = one.but(method=base.system.setup.method)
    with task_bar(bar and axes.count >= SHOW_BAR_FROM, "combinations") as report:
        found = planning.pareto(
            base.system, base.workload, axes, builder(one), max_ttft_s=options.max_ttft,
            stream_floor_tok_s=options.stream_floor, warnings=base.warnings, report=report,
        )
    found = with_speeds(found, speeds, options.price_per_gpu_hour, options.max_ttft)
    return Pareto.of(found, repeat(options))


pareto = python_function(ParetoOptions, run)


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
    return () if text is None else tuple(parse_names(as_text(text).lower(), flag))


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
