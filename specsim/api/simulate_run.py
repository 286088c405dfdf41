"""`specsim simulate`, from checked options to the result: deployment, load, runs, files."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.apart import apart_of
from specsim.api.command_line import expand_command
from specsim.api.deployment import TABLE_FIELD, TABLE_NOTE, DeploymentRequest, build_request
from specsim.api.simulate_export import check_exports, write_exports
from specsim.api.simulate_load import check_together, fixed_plan, trace_plan
from specsim.api.simulate_scenario import DEFAULT_SCENARIO, people_plan, with_scenario
from specsim.checked import json_value
from specsim.errors import CapacityError, FormatError, SpecSimError, UsageError, closest
from specsim.files import file_text
from specsim.formats.speculative_config import parse_speculative_config
from specsim.options.serving import SimulateOptions
from specsim.options.values import shown
from specsim.report.progress import live_bar
from specsim.sim.build import Deployment
from specsim.sim.compare import LoadPlan, Report, SimulatedComparison, compare
from specsim.sim.config import ROUTERS, Fault
from specsim.sim.figures import Figures, value_at
from specsim.sim.passing import MOST
from specsim.sim.policies.choice import PolicyChoice, parse_policy
from specsim.sim.result import SimulationFigures
from specsim.sim.run import Progress
from specsim.sim.scenario import Scenario, find_scenario
from specsim.sim.slo import parse_slo
from specsim.speculation.acceptance_spread import (
    INDEPENDENT,
    AcceptanceSpread,
    acceptance_spread_names,
    default_acceptance_spread,
    fitted_acceptance_spread,
)
from specsim.units import counted, rounded

if TYPE_CHECKING:
    from specsim.sim.acceptance import Recorded


@dataclass(frozen=True)
class CheckedLoad:
    """What options ask for, checked. steps_wanted: a file is written that has every step."""

    options: SimulateOptions
    deployment: Deployment
    plan: LoadPlan
    warnings: list[str]
    steps_wanted: bool


def checked_load(options: SimulateOptions) -> CheckedLoad:
    """The deployment and its load. UsageError and its kin for any misuse."""
    options, notes = expand_command(options)
    check_together(options)
    people = options.users is not None or options.scenario is not None
    name = DEFAULT_SCENARIO if options.scenario is None else str(options.scenario)
    scenario = find_scenario(name) if people else None
    gates: Mapping[str, float] = {}
    if scenario is not None:
        options, gates = _of_scenario(options, scenario)
    steps_wanted = check_exports(options)
    request = build_request(options)
    if scenario is not None:
        assert options.duration is not None and options.warmup is not None
        plan = people_plan(
            scenario, options.users, options.concurrency, options.duration, options.warmup,
            options.settled,
        )
    elif options.trace is not None:
        plan = trace_plan(options)
    else:
        plan = fixed_plan(options, request.workload)
    warnings = [*notes, *request.warnings]
    deployment = _deployment(options, gates, request, plan, warnings)
    if options.trace is None and scenario is None:
        _check_servable(deployment, request.workload)
    _warn_of_overload(options, request, deployment, warnings)
    return CheckedLoad(options, deployment, plan, warnings, steps_wanted)


def simulated(options: SimulateOptions, *, bar: bool) -> SimulationFigures:
    """Check everything, run, write the files asked for. UsageError and its kin for any misuse.

    bar: show progress."""
    load = checked_load(options)
    options, deployment, plan, warnings = load.options, load.deployment, load.plan, load.warnings
    sides = ["with", "without"] if options.baseline and deployment.system.speculative else ["with"]
    runs = options.replications or (None if deployment.config.slo else 1)
    with progress(bar, sides, runs) as report:
        found = compare(
            deployment, plan, options.seed, replications=runs, precision=options.precision,
            baseline=options.baseline, keep_trace=load.steps_wanted, report=report,
        )
    warnings += what_went_wrong(found.main.figures, completed=plan.completed)
    if found.partial:
        warnings.append(_partial_words(found, options.baseline, deployment))
    result = SimulationFigures(deployment, found, plan.description, options.seed, tuple(warnings))
    write_exports(options, result)
    return result


def _of_scenario(
    options: SimulateOptions, scenario: Scenario
) -> tuple[SimulateOptions, Mapping[str, float]]:
    """Stage and gates of the scenario; its system too, if it was named and not only its people."""
    named = options.scenario is not None
    out = with_scenario(options, scenario) if named else options
    duration = scenario.duration_s if out.duration is None else out.duration
    warmup = min(scenario.warmup_s, duration / 2) if out.warmup is None else out.warmup
    return out.but(duration=duration, warmup=warmup), scenario.slo if named else {}


def _deployment(
    options: SimulateOptions, gates: Mapping[str, float], request: DeploymentRequest,
    plan: LoadPlan, warnings: list[str],
) -> Deployment:
    """The simulated deployment; gates: those that hold where --slo has none."""
    system = request.system
    table: tuple[tuple[int, int, int], ...] = ()
    if options.speculative_config is not None:
        table = parse_speculative_config(str(options.speculative_config)).batch_table
        if TABLE_NOTE in warnings:
            warnings.remove(TABLE_NOTE)  # what the analytic model leaves out is simulated
    slo = gates if options.slo is None else parse_slo(str(options.slo))
    apart = apart_of(options, system)
    if apart is not None and options.replicas > 1:
        raise UsageError(
            f"--replicas {options.replicas} do both, but --prefill-replicas and --decode-replicas "
            "each do one; leave out --replicas"
        )
    count = options.replicas
    if apart is not None:
        count = apart.prefill_replicas + apart.decode_replicas
    settings: dict[str, object] = {
        "n_replicas": options.replicas,
        "router": _router(options.router),
        "max_concurrent": options.max_concurrent,
        "faults": _faults(options.fail, count),
        "slo": slo,
    }
    limits = {
        "warmup_s": options.warmup, "duration_s": options.duration,
        "request_timeout_s": options.request_timeout, "max_model_len": options.max_model_len,
    }
    settings |= {name: value for name, value in limits.items() if value is not None}
    if options.acceptance_trace is not None:
        settings["recorded"] = _recorded(options, system)
    if options.slo is not None and not slo:
        raise UsageError("--slo is empty; write limits like ttft_p95=2,stream_tok_s_p10=15")
    deployment = Deployment(
        system, context_variation=plan.context_variation,
        acceptance_spread=acceptance_spread(options.easiness) or _spread_of_work(options, system),
        per_batch_size=table, policy=_policy(options, system, bool(table)),
        prefix_caching=options.prefix_caching, apart=apart, settings=tuple(settings.items()),
    )
    _ = deployment.config, deployment.plain().config  # refuse what cannot run before it runs
    return deployment


def _recorded(options: SimulateOptions, system: System) -> "Recorded":
    """The accepted drafts of --acceptance-trace. UsageError, FormatError."""
    from specsim.sim.acceptance import Recorded

    if not system.speculative:
        raise UsageError("--acceptance-trace is given, but the method is 'none'; leave one out")
    if options.easiness is not None:
        raise UsageError("--acceptance-trace replays records; leave out --acceptance-spread")
    path = Path(str(options.acceptance_trace))
    lines = [line for line in file_text(path).splitlines() if line.strip()]
    sequences: list[list[int]] = []
    for number, line in enumerate(lines, 1):
        where = f"{path.name} line {number}"
        value = json_value(line, where)
        if not isinstance(value, list) or any(type(v) is not int for v in value):
            raise FormatError(
                f"{where} is no list of whole numbers; write the accepted drafts of each step of "
                "one request, such as [3, 0, 2]"
            )
        sequences.append(value)
    return Recorded(sequences, k=system.setup.k)


def _router(text: str) -> str:
    name = text.strip().lower().replace("-", "_")
    if name not in ROUTERS:
        hint = closest(name, ROUTERS)
        raise UsageError(f"router {shown(text)} is not known; {hint}use {', '.join(ROUTERS)}")
    return name


def _faults(text: str | None, replicas: int) -> tuple[Fault, ...]:
    """'0:60:120,1:30' as faults: replica 0 fails at 60 s and is back at 120 s, 1 stays away."""
    if text is None:
        return ()
    faults = []
    for part in text.split(","):
        pieces = part.strip().split(":")
        try:
            if not 2 <= len(pieces) <= 3:
                raise ValueError
            numbers = [float(piece) for piece in pieces]
            replica = int(pieces[0])
        except ValueError:
            raise UsageError(
                f"--fail has {shown(part.strip())}; write REPLICA:FROM_S or REPLICA:FROM_S:TO_S"
            ) from None
        if not 0 <= replica < replicas:
            raise UsageError(
                f"--fail names replica {replica}, but they are 0 to {replicas - 1}; see "
                "--replicas, or --prefill-replicas (which come first) and --decode-replicas"
            )
        faults.append(Fault(replica, numbers[1], numbers[2] if len(numbers) > 2 else math.inf))
    return tuple(faults)


def acceptance_spread(text: str | None) -> AcceptanceSpread | None:
    """How acceptance varies, by name; None: as fitted for the method."""
    if text is None:
        return None
    if text.strip().lower() in ("none", "independent"):
        return INDEPENDENT
    if text not in acceptance_spread_names():
        raise UsageError(
            f"acceptance spread {shown(text)} is not known; "
            f"{closest(text, acceptance_spread_names())}use none or one of "
            f"{', '.join(acceptance_spread_names())}"
        )
    return fitted_acceptance_spread(text)


def _spread_of_work(options: SimulateOptions, system: System) -> AcceptanceSpread | None:
    """How acceptance varies on the workload named; None: as fitted for the method."""
    accepted = system.acceptance
    if options.workload is None or accepted is None or not system.speculative:
        return None
    return default_acceptance_spread(
        system.setup.method, accepted.draft_probability, options.workload
    )


def _policy(options: SimulateOptions, system: System, table: bool) -> PolicyChoice | None:
    """What decides on draft lengths; None: they are fixed, or in the table of the config."""
    text = "adaptive" if options.adaptive else options.policy
    if text is None:
        return None
    if options.adaptive and options.policy is not None:
        raise UsageError("--adaptive is --policy adaptive; give one of them")
    if table:
        raise UsageError(
            f"--policy and {TABLE_FIELD} in --speculative-config exclude each other; give one"
        )
    choice = parse_policy(text)
    if not system.speculative and not options.adaptive:
        raise UsageError(
            f"--policy {choice.text} decides on draft lengths, but the method is 'none'; name a "
            "--method or leave it out"
        )
    return choice


def _warn_of_overload(
    load: SimulateOptions, request: DeploymentRequest, deployment: Deployment, warnings: list[str]
) -> None:
    """An open loop beyond what the deployment sustains has no steady state to report."""
    if load.rate is None or load.trace is not None or math.isinf(load.rate):
        return
    if load.prompts:
        return  # what the cache then finds, formulas do not know
    workload = request.workload
    if load.shared_prefix:
        workload = replace(workload, cached_share=load.shared_prefix / workload.input_len)
    from specsim.analytic.compare import at_rate

    sides = [("", deployment)]
    if request.system.speculative:
        sides.append((" without speculation", deployment.plain()))
    for words, side in sides:
        count = 1 if side.apart is not None else side.config.n_replicas
        try:
            state = at_rate(side.system, workload, load.rate / count, side.apart)
        except SpecSimError:
            continue
        if not state.stable:
            warnings.append(
                f"rate {load.rate:g}/s is beyond the capacity{words} (about "
                f"{rounded(state.capacity_rate * count)}/s): the queue grows "
                "as long as requests come, and the figures depend on how long that is"
            )


def _check_servable(deployment: Deployment, workload: Workload) -> None:
    """Requests of one length that no replica can ever hold would all be refused."""
    config = deployment.config
    prompt, total = workload.input_len, workload.input_len + workload.output_len
    limit, longest = config.max_model_len, config.longest_request
    if limit is not None and prompt >= limit:
        raise UsageError(
            f"prompts have {prompt} tokens, but max_model_len is {limit}: all would be refused; "
            "shorten them or raise --max-model-len"
        )
    if limit is None and total > longest:
        raise CapacityError(
            f"a request of {total} tokens does not fit: the cache holds one of at most {longest}; "
            "shorten the requests, or use a larger tp or an fp8 cache"
        )


def what_went_wrong(figures: Figures, *, completed: bool) -> list[str]:
    """Requests that were not served, in words."""
    counts = figures["requests"]
    words = {
        "rejected": "refused: too long for max_model_len or the cache",
        "timeout": "given up by their clients",
        "failed": "lost with a failed replica",
        "unfinished": "unfinished at the end; " + (
            "latencies are of the completed ones" if completed
            else "they count in TTFT and E2EL as far as they waited"
        ),
    }
    out = []
    if not counts["measured"]:
        out.append("no request was measured; make the run longer or the warm-up shorter")
    for status, text in words.items():
        count = value_at(counts, status)
        if count:
            out.append(f"{count:g} of {counts['measured']:g} requests were {text}")
    return out


def _partial_words(found: SimulatedComparison, baseline: bool, deployment: Deployment) -> str:
    missing = found.baseline is None and baseline and deployment.system.speculative
    if found.main.partial:
        text = "interrupted: the figures cover what was simulated until then"
        return text + ("; the baseline was not reached" if missing else "")
    if missing:
        return "interrupted before the baseline was simulated"
    if found.baseline is not None and found.baseline.partial:
        return "interrupted: the baseline covers what was simulated until then"
    return f"interrupted: medians of {counted(len(found.main.runs), 'finished run')}"


@contextmanager
def progress(
    wanted: bool, sides: Sequence[str], runs: int | None, suffix: str = " speculation"
) -> Iterator[Report | None]:
    """A bar on stderr while the runs go on; None where nobody looks. suffix: behind a side's name.
    """
    most = runs or MOST
    columns = ("{task.description}", "bar", "{task.percentage:>3.0f}%", "left")
    with live_bar(wanted, *columns, begin="simulating") as update:

        def report(side: str, number: int, state: Progress | None) -> None:
            assert update is not None
            done = number * len(sides) + sides.index(side)
            words = f"{side}{suffix}" if len(sides) > 1 else "simulating"
            if most > 1:
                words += f", run {number + 1} of {'at most ' if runs is None else ''}{most}"
            if state is not None:
                words += f", {state.now_s:.0f} s, {counted(state.ended, 'request')}"
            share = state.share if state is not None else 0.0
            whole = None if share is None else float(len(sides) * most)
            update(description=words, total=whole, completed=done + (share or 0.0))

        yield report if update else None
