"""`specsim.capacity`: the largest load within objectives, by simulation."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from specsim.analytic.workload import MAX_TOKENS, Workload
from specsim.api.apart import apart_of
from specsim.api.command_line import expand_command
from specsim.api.deployment import build_request
from specsim.api.functions import python_function
from specsim.api.results import Decided, DeployedAs
from specsim.api.simulate_load import check_settled
from specsim.api.simulate_run import acceptance_spread
from specsim.api.simulate_scenario import DEFAULT_SCENARIO, with_scenario
from specsim.errors import CapacityError, UsageError
from specsim.jsonable import Key
from specsim.options.declare import declared, repeat
from specsim.options.groups import RequestOptions
from specsim.options.serving import MAX_CLIENTS, VariationOptions
from specsim.options.sizing import CapacityOptions
from specsim.options.values import Numbers, as_text, shown
from specsim.planning import capacity_result as planning
from specsim.planning.capacity import (
    WAITING_GATE,
    WAITING_LIMIT_S,
    check_gates,
    find_capacity,
    with_waiting_gate,
)
from specsim.planning.capacity_demand import Demand, read_demand
from specsim.planning.capacity_loads import HIGHEST_RATE, LOWEST_RATE, Arrivals, LoadShape, People
from specsim.planning.capacity_result import CapacityFigures, Wishes
from specsim.planning.capacity_runs import WITH, WITHOUT, Study, Summary, Trial, default_jobs
from specsim.planning.verdict_results import of_capacity
from specsim.report.deployment import live
from specsim.report.progress import words_line
from specsim.sim.passing import MOST
from specsim.sim.scenario import Scenario, find_scenario
from specsim.sim.slo import parse_slo

MAX_STAGES = 200
STAGE_S = 300.0
WARMUP_S = 60.0


class Capacity(Decided, planning.CapacityFigures, DeployedAs):
    """The largest load: `main.capacity`, `baseline`, `gain`, `advised_slots`, `replicas`, ..."""

    BLOCKS = "capacity.capacity_section"
    gpus_per_replica = k = max_num_seqs = advised_max_num_seqs = seed = Key[int]()
    replications_at_most = Key[int]()
    apart = load = Key[dict[str, Any]]()
    method = unit = rule = Key[str]()
    acceptance_length = sure_fail = smallest_failing = ladder_capacity = Key[float | None]()
    slo = Key[dict[str, float]]()
    capacity = sure_pass = estimate_by_formulas = Key[float]()
    trials = Key[list[dict[str, Any]]]()
    binding_limit = failing_load_with_twice_the_slots = Key[dict[str, Any] | None]()
    at_capacity = operating_point = cost = other_question = Key[dict[str, Any] | None]()
    stream_floor = with_recommended_max_num_seqs = demand = Key[dict[str, Any] | None]()
    demand_with_recommended_max_num_seqs = Key[dict[str, Any] | None]()
    recommended_max_num_seqs = Key[int | None]()
    quick = Key[bool]()

    def live(self) -> dict[str, object]:
        return {**live(self.study.system), "share": f"{self.wishes.share:.0%}"}


def run(options: CapacityOptions, bar: bool = False) -> Capacity:
    """Find the largest load of `model` within objectives, with speculation and without."""
    found = searched(options, bar=bar)
    return Capacity.of(found, repeat(options)).with_verdict(of_capacity(found))


capacity = python_function(CapacityOptions, run)


def searched(options: CapacityOptions, *, bar: bool) -> CapacityFigures:
    """Check everything, then look for the capacity. bar: show progress."""
    options, said = expand_command(options)
    demand = _demand(options)
    unit = _unit(options, demand)
    name = DEFAULT_SCENARIO if options.scenario is None else str(options.scenario)
    scenario = find_scenario(name) if unit == "users" else None
    gates: dict[str, float] = {}
    if scenario is not None and options.scenario is not None:
        options = with_scenario(options, scenario)
        gates = dict(scenario.slo)
    if options.slo is not None:
        gates = parse_slo(str(options.slo))
        if not gates:
            raise UsageError("--slo is empty; write limits like ttft_p95=2,stream_tok_s_p10=15")
    check_gates(gates)
    if with_waiting_gate(gates) != gates:
        gates = with_waiting_gate(gates)
        said.append(
            f"no SLO limits waiting, so {WAITING_GATE}={WAITING_LIMIT_S:g} is added: nothing "
            "else would bound the load"
        )
    wishes = _wishes(options, gates, demand, scenario)
    request = build_request(options)
    shape = _shape(options, request.workload, scenario)
    apart = apart_of(options, request.system)
    if apart is not None:
        if options.stream_floor is not None:
            raise UsageError(
                "--stream-floor recommends the slots of one replica, but prompts and decoding are "
                "apart; leave it out, or give an SLO such as --slo stream_tok_s_p10=15"
            )
        wishes = replace(wishes, floor_tok_s=0.0)
    shapes: tuple[LoadShape, ...] = (shape,)
    if isinstance(shape, People) and not options.quick:
        shapes += (replace(shape, settled=not shape.settled),)
    study = Study(
        request.system, shapes, gates, settings=_settings(options),
        prefix_caching=options.prefix_caching,
        acceptance_spread=acceptance_spread(options.easiness), apart=apart,
    )
    _check_servable(study, shape)
    warnings = [*said, *request.warnings]
    if scenario is not None:
        warnings += [f"assumed by the scenario: {key}: {text}"
                     for key, text in scenario.assumed.items()]
    jobs = default_jobs() if options.jobs is None else options.jobs
    with _progress(bar, shape.unit) as heard:
        return find_capacity(study, wishes, jobs=jobs, heard=heard, warnings=warnings)


def _demand(options: CapacityOptions) -> Demand | None:
    wanted = ("users", "rate", "demand")
    named = [f"--{name}" for name in wanted if getattr(options, name) is not None]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} both say what is to be served; give one of them")
    if options.users is not None:
        return Demand("users", (float(options.users),), "--users")
    if options.rate is not None:
        return Demand("requests/s", (options.rate,), "--rate")
    return None if options.demand is None else read_demand(str(options.demand))


def _unit(options: CapacityOptions, demand: Demand | None) -> str:
    """'users' or 'rate': what the capacity is counted in."""
    asked = options.unit
    lengths = [item.flag for group in (RequestOptions, VariationOptions)
               for name, item in declared(group).items() if name in options.model_fields_set]
    if demand is not None:
        unit = "users" if demand.unit == "users" else "rate"
        if asked is not None and asked != unit:
            raise UsageError(
                f"--unit {asked} does not go with a demand in {demand.unit}; leave it out"
            )
    else:
        unit = asked or ("rate" if lengths and options.scenario is None else "users")
    if unit == "rate" and options.scenario is not None:
        raise UsageError(
            "a --scenario is about people, but the capacity is asked for in requests per second; "
            "leave out the scenario or ask for users"
        )
    if unit == "users" and lengths:
        raise UsageError(
            f"{lengths[0]} belongs to requests at a rate (--unit rate or --rate); what people send "
            "comes from the scenario"
        )
    return unit


def parse_ladder(given: Numbers, *, whole: bool) -> tuple[float, ...]:
    """'144,180,216' or '36:216:36' as rising stages."""
    text, what = as_text(given), "--ladder"
    rule = "write stages like 144,180,216 or FROM:TO:STEP"
    try:
        if ":" in text:
            low, high, step = (float(part) for part in text.split(":"))
            if not (step > 0 and low > 0 and high >= low) or (high - low) / step > MAX_STAGES:
                raise ValueError
            stages = [low + i * step for i in range(int((high - low) / step + 1e-9) + 1)]
        else:
            stages = [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{what} is {shown(text)}; {rule}") from None
    low, high = (1.0, float(MAX_CLIENTS)) if whole else (LOWEST_RATE, HIGHEST_RATE)
    for stage in stages:
        if not low <= stage <= high or (whole and stage != int(stage)):
            kind = "whole numbers of users" if whole else "requests per second"
            raise UsageError(f"{what} has {stage:g}; stages are {kind} from {low:g} to {high:g}")
    if len(stages) > MAX_STAGES:
        raise UsageError(f"{what} has {len(stages)} stages; give at most {MAX_STAGES}")
    return tuple(sorted(set(stages)))


def _wishes(
    options: CapacityOptions, gates: dict[str, float], demand: Demand | None,
    scenario: Scenario | None,
) -> Wishes:
    floor = options.stream_floor
    if floor is not None and options.no_stream_floor:
        raise UsageError("--stream-floor and --no-stream-floor contradict each other")
    if floor is None and not options.no_stream_floor:
        floor = gates.get("stream_tok_s_p10")
    ladder: tuple[float, ...] = ()
    if options.ladder is not None:
        ladder = parse_ladder(options.ladder, whole=scenario is not None)
    elif scenario is not None and options.scenario is not None:
        ladder = tuple(scenario.ladder)
    if options.quick and ladder:
        if options.ladder is not None:
            raise UsageError("--quick looks for its own loads; leave out --ladder")
        ladder = ()
    return Wishes(
        replications=options.replications or MOST, seed=options.seed, resolution=options.resolution,
        share=options.operating_share, ladder=ladder, ladder_only=options.ladder is not None,
        floor_tok_s=0.0 if options.quick else floor or 0.0,
        baseline=options.baseline and not options.quick, quick=options.quick,
        price_per_gpu_hour=options.price_per_gpu_hour, demand=demand,
    )


def _shape(options: CapacityOptions, workload: Workload, scenario: Scenario | None) -> LoadShape:
    duration, warmup = options.duration, options.warmup
    if duration is None:
        duration = scenario.duration_s if scenario is not None else STAGE_S
    if warmup is None:
        warmup = min(scenario.warmup_s if scenario is not None else WARMUP_S, duration / 2)
    if not warmup < duration:
        raise UsageError(
            f"--warmup is {warmup:g}; it must be 0 or more and below the {duration:g} s of a run"
        )
    if scenario is not None:
        return People(
            scenario.behaviour, duration, warmup, scenario.name, scenario.thinking, options.settled
        )
    check_settled(options.settled, False)
    free = options.duration is None and options.warmup is None
    return Arrivals(
        workload, duration, warmup, options.burstiness or 1.0, options.range_ratio or 0.0,
        stretch=free,
    )


def _settings(options: CapacityOptions) -> tuple[tuple[str, object], ...]:
    out: dict[str, object] = {}
    if options.max_concurrent:
        out["max_concurrent"] = options.max_concurrent
    if options.max_model_len is not None:
        out["max_model_len"] = options.max_model_len
    return tuple(out.items())


def _check_servable(study: Study, shape: LoadShape) -> None:
    """Refuse what no replica can run, before anything is simulated."""
    for side in (WITH, WITHOUT):
        config = study.deployment(side).config
        if isinstance(shape, Arrivals):
            total = min(MAX_TOKENS, shape.workload.input_len + shape.workload.output_len)
            room = config.max_model_len or config.longest_request
            if total > room:
                raise CapacityError(
                    f"a request of {total} tokens does not fit: the longest is {room}; shorten the "
                    "requests, or use a larger tp or an fp8 cache"
                )


@contextmanager
def _progress(wanted: bool, unit: str) -> Iterator[Callable[[Trial, Summary], None] | None]:
    """A line on stderr that follows the runs; None where nobody looks."""
    with words_line(wanted, "simulating") as tell:
        if tell is None:
            yield None
            return
        done = 0

        def heard(trial: Trial, summary: Summary) -> None:
            nonlocal done
            done += 1
            words = f"run {done}: {trial.amount:g} {unit} {trial.side} speculation"
            if trial.slots:
                words += f", max_num_seqs {trial.slots}"
            tell(words)

        yield heard
