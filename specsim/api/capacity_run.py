"""`specsim capacity`, from checked options to the result: study, wishes, runs."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from specsim.analytic.workload import MAX_TOKENS
from specsim.api.command_line import expand_values
from specsim.api.deployment import build_request, build_workload
from specsim.api.options import Options, shown
from specsim.api.simulate_load import MAX_CLIENTS, MAX_DURATION_S
from specsim.api.simulate_scenario import DEFAULT_SCENARIO, with_scenario
from specsim.api.values import options_of
from specsim.errors import CapacityError, UsageError
from specsim.planning.capacity import (
    WAITING_GATE,
    WAITING_LIMIT_S,
    check_gates,
    find_capacity,
    with_waiting_gate,
)
from specsim.planning.capacity_demand import MAX_AMOUNT, Demand, read_demand
from specsim.planning.capacity_loads import HIGHEST_RATE, LOWEST_RATE, Arrivals, LoadShape, People
from specsim.planning.capacity_result import Capacity, Wishes
from specsim.planning.capacity_runs import WITH, WITHOUT, Study, Summary, Trial, default_jobs
from specsim.planning.cost import check_price
from specsim.report.progress import words_line
from specsim.sim.scenario import Scenario, find_scenario
from specsim.sim.slo import parse_slo
from specsim.speculation.easiness import INDEPENDENT, easiness_names, fitted_easiness

Values = dict[str, Any]
MAX_STAGES = 200
MAX_REPLICATIONS = 1000
MAX_JOBS = 64
STAGE_S = 300.0
WARMUP_S = 60.0
_LENGTHS = ("workload", "input_len", "output_len", "cached_share", "range_ratio", "burstiness")


def run(values: Values, given: frozenset[str], *, bar: bool) -> Capacity:
    """Check everything, then look for the capacity. values: all options by name; given: those that
    stood on the command line."""
    if values["json_out"] and values["csv_out"]:
        raise UsageError("--json and --csv are both given; choose one output")
    said: list[str] = []
    if values["command"] is not None:
        values, changed, said = expand_values(values)
        given |= changed
    demand = _demand(values)
    unit = _unit(values, given, demand)
    name = DEFAULT_SCENARIO if values["scenario"] is None else values["scenario"]
    scenario = find_scenario(name) if unit == "users" else None
    gates: dict[str, float] = {}
    if scenario is not None and values["scenario"] is not None:
        values = with_scenario(values, given, scenario)
        gates = dict(scenario.slo)
    if values["slo"] is not None:
        gates = parse_slo(values["slo"])
        if not gates:
            raise UsageError("--slo is empty; write gates like ttft_p95=2,stream_tok_s_p10=15")
    check_gates(gates)
    if with_waiting_gate(gates) != gates:
        gates = with_waiting_gate(gates)
        said.append(
            f"no gate is about waiting, so {WAITING_GATE}={WAITING_LIMIT_S:g} is added: nothing "
            "else would bound the load"
        )
    if values["model"] is None:
        raise UsageError(
            "a MODEL is needed (or a --command or --scenario that names one); see `specsim models`"
        )
    wishes = _wishes(values, given, gates, demand, scenario)
    options = options_of(values)
    request = build_request(options)
    shape = _shape(values, options, scenario)
    study = Study(
        request.system,
        (shape,),
        gates,
        settings=_settings(values),
        prefix_caching=values["prefix_caching"],
        easiness=_easiness(values["easiness"]),
    )
    _check_servable(study, shape)
    warnings = [*said, *request.warnings]
    if scenario is not None:
        warnings += [f"assumed by the scenario: {key}: {text}"
                     for key, text in scenario.assumed.items()]
    jobs = default_jobs() if values["jobs"] is None else values["jobs"]
    if not 1 <= jobs <= MAX_JOBS:
        raise UsageError(f"--jobs is {jobs}; it must be from 1 to {MAX_JOBS}")
    with _progress(bar, shape.unit) as heard:
        return find_capacity(study, wishes, jobs=jobs, heard=heard, warnings=warnings)


def _demand(values: Values) -> Demand | None:
    named = [name for name in ("users", "rate", "demand") if values[name] is not None]
    if len(named) > 1:
        flags = " and ".join("--" + name for name in named)
        raise UsageError(f"{flags} both say what is to be served; give one of them")
    users, rate = values["users"], values["rate"]
    if users is not None:
        if not 1 <= users <= MAX_AMOUNT:
            raise UsageError(f"--users is {users}; it must be from 1 to {MAX_AMOUNT:.0f}")
        return Demand("users", (float(users),), "--users")
    if rate is not None:
        if not 0 < rate <= MAX_AMOUNT:
            raise UsageError(
                f"--rate is {rate:g}; it must be requests per second, above 0 and at most "
                f"{MAX_AMOUNT:g}"
            )
        return Demand("requests/s", (rate,), "--rate")
    if values["demand"] is not None:
        return read_demand(values["demand"])
    return None


def _unit(values: Values, given: frozenset[str], demand: Demand | None) -> str:
    """'users' or 'rate': what the capacity is counted in."""
    asked = values["unit"]
    if asked is not None and asked not in ("users", "rate"):
        raise UsageError(f"--unit is {shown(asked)}; it must be users or rate")
    lengths = [name for name in _LENGTHS if name in given]
    if demand is not None:
        unit = "users" if demand.unit == "users" else "rate"
        if asked is not None and asked != unit:
            raise UsageError(
                f"--unit {asked} does not go with a demand in {demand.unit}; leave it out"
            )
    else:
        unit = asked or ("rate" if lengths and values["scenario"] is None else "users")
    if unit == "rate" and values["scenario"] is not None:
        raise UsageError(
            "a --scenario is about people, but the capacity is asked for in requests per second; "
            "leave out the scenario or ask for users"
        )
    if unit == "users" and lengths:
        flag = "--" + lengths[0].replace("_", "-")
        raise UsageError(
            f"{flag} belongs to requests at a rate (--unit rate or --rate); what people send comes "
            "from the scenario"
        )
    return unit


def parse_ladder(text: str, *, whole: bool) -> tuple[float, ...]:
    """'144,180,216' or '36:216:36' as rising stages."""
    what = "--ladder"
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
    values: Values,
    given: frozenset[str],
    gates: dict[str, float],
    demand: Demand | None,
    scenario: Scenario | None,
) -> Wishes:
    share, resolution = values["operating_share"], values["resolution"]
    if not 0 < share <= 1:
        raise UsageError(f"--operating-share is {share:g}; it must be above 0 and at most 1")
    if not 0.001 <= resolution <= 1:
        raise UsageError(f"--resolution is {resolution:g}; it must be from 0.001 to 1")
    count, seed = values["replications"], values["seed"]
    if not 2 <= count <= MAX_REPLICATIONS:
        raise UsageError(f"--replications is {count}; it must be from 2 to {MAX_REPLICATIONS}")
    if not 0 <= seed < 1 << 32:
        raise UsageError(f"--seed is {seed}; it must be from 0 to {(1 << 32) - 1}")
    check_price(values["price_per_gpu_hour"])
    floor = values["stream_floor"]
    if floor is not None and values["no_stream_floor"]:
        raise UsageError("--stream-floor and --no-stream-floor contradict each other")
    if floor is not None and not 0 < floor <= 100_000:
        raise UsageError(
            f"--stream-floor is {floor:g}; it must be tokens per second, above 0 and to 100000"
        )
    if floor is None and not values["no_stream_floor"]:
        floor = gates.get("stream_tok_s_p10")
    ladder: tuple[float, ...] = ()
    if values["ladder"] is not None:
        ladder = parse_ladder(values["ladder"], whole=scenario is not None)
    elif scenario is not None and values["scenario"] is not None:
        ladder = tuple(scenario.ladder)
    return Wishes(
        replications=count,
        seed=seed,
        resolution=resolution,
        share=share,
        ladder=ladder,
        ladder_only=values["ladder"] is not None,
        floor_tok_s=floor or 0.0,
        baseline=values["baseline"],
        price_per_gpu_hour=values["price_per_gpu_hour"],
        demand=demand,
    )


def _shape(values: Values, options: Options, scenario: Scenario | None) -> LoadShape:
    duration, warmup = values["duration"], values["warmup"]
    if duration is None:
        duration = scenario.duration_s if scenario is not None else STAGE_S
    if not (math.isfinite(duration) and 0 < duration <= MAX_DURATION_S):
        raise UsageError(
            f"--duration is {duration:g}; it must be above 0 and at most {MAX_DURATION_S} s"
        )
    if warmup is None:
        warmup = min(scenario.warmup_s if scenario is not None else WARMUP_S, duration / 2)
    if not 0 <= warmup < duration:
        raise UsageError(
            f"--warmup is {warmup:g}; it must be 0 or more and below the {duration:g} s of a run"
        )
    if scenario is not None:
        return People(scenario.behaviour, duration, warmup, scenario.name, scenario.thinking)
    shape, ratio = values["burstiness"], values["range_ratio"]
    if shape is not None and not shape > 0:
        raise UsageError(
            f"--burstiness is {shape:g}; it must be above 0 (1: Poisson, below: bursts, inf: even)"
        )
    if ratio is not None and not 0 <= ratio < 1:
        raise UsageError(f"--range-ratio is {ratio:g}; it must be from 0 to below 1")
    free = values["duration"] is None and values["warmup"] is None
    return Arrivals(
        build_workload(options), duration, warmup, shape or 1.0, ratio or 0.0, stretch=free
    )


def _settings(values: Values) -> tuple[tuple[str, Any], ...]:
    out: dict[str, Any] = {}
    gateway, longest = values["max_concurrent"], values["max_model_len"]
    if not 0 <= gateway <= 1_000_000:
        raise UsageError(f"--max-concurrent is {gateway}; it must be from 0 to 1000000")
    if gateway:
        out["max_concurrent"] = gateway
    if longest is not None:
        if not 1 <= longest <= 100_000_000:
            raise UsageError(f"--max-model-len is {longest}; it must be from 1 to 100000000")
        out["max_model_len"] = longest
    return tuple(out.items())


def _easiness(text: str | None) -> Any:
    if text is None:
        return None
    if text.strip().lower() in ("none", "independent"):
        return INDEPENDENT
    if text not in easiness_names():
        raise UsageError(
            f"easiness {shown(text)} is not known; use none or one of {', '.join(easiness_names())}"
        )
    return fitted_easiness(text)


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
            if trial.seats:
                words += f", max_num_seqs {trial.seats}"
            tell(words)

        yield heard
