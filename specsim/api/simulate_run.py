"""`specsim simulate`, from checked options to the result: deployment, load, runs, files."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from specsim.analytic.workload import Workload
from specsim.api.command_line import expand_values
from specsim.api.deployment import (
    TABLE_FIELD,
    TABLE_NOTE,
    Request,
    build_request,
    build_workload,
)
from specsim.api.options import shown
from specsim.api.simulate_export import check_exports, write_exports
from specsim.api.simulate_load import (
    LoadOptions,
    check_numbers,
    check_together,
    check_writable,
    fixed_plan,
    trace_plan,
)
from specsim.api.simulate_scenario import DEFAULT_SCENARIO, people_plan, with_scenario
from specsim.api.values import options_of
from specsim.errors import CapacityError, SpecSimError, UsageError
from specsim.formats.vllm_args import parse_speculative_config
from specsim.sim.build import Deployment
from specsim.sim.compare import Comparison, LoadPlan, Report, compare
from specsim.sim.config import ROUTERS, Fault
from specsim.sim.result import Simulation
from specsim.sim.run import Progress
from specsim.sim.scenario import Scenario, find_scenario
from specsim.sim.slo import parse_slo
from specsim.speculation.easiness import INDEPENDENT, Easiness, easiness_names, fitted_easiness

Values = dict[str, Any]
MAX_REPLICATIONS = 1000


def run(values: Values, given: frozenset[str], *, bar: bool) -> Simulation:
    """Check everything, run, write the files asked for. UsageError and its kin for any misuse.

    values: all options by name; given: those that stood on the command line. bar: show progress.
    """
    if values["json_out"] and values["csv_out"]:
        raise UsageError("--json and --csv are both given; choose one output")
    notes: list[str] = []
    if values.get("command") is not None:
        values, changed, notes = expand_values(values)
        given |= changed
    load = _load_options(values, given)
    check_numbers(load)
    check_together(load, values["scenario"])
    people = values["users"] is not None or values["scenario"] is not None
    name = DEFAULT_SCENARIO if values["scenario"] is None else values["scenario"]
    scenario = find_scenario(name) if people else None
    if scenario is not None:
        values = _of_scenario(values, given, scenario)
    for name, option in (("trace_out", "--trace-out"), ("records", "--records")):
        check_writable(values[name], option)
    steps_wanted = check_exports(values)
    if values["model"] is None:
        raise UsageError("a MODEL is needed (or a --scenario that names one); see `specsim models`")
    options = options_of(values)
    request = build_request(options)
    if scenario is not None:
        plan = people_plan(
            scenario, load.users, load.concurrency, values["duration"], values["warmup"]
        )
    elif load.trace is not None:
        plan = trace_plan(load)
    else:
        plan = fixed_plan(load, build_workload(options))
    warnings = [*notes, *request.warnings]
    deployment = _deployment(values, request, plan, warnings)
    if load.trace is None and scenario is None:
        _check_servable(deployment, request.workload)
    seed, replications = _runs(values)
    _warn_of_overload(load, request, deployment, warnings)
    with _progress(bar, plan, deployment, values["baseline"], replications) as report:
        found = compare(
            deployment,
            plan,
            seed,
            replications=replications,
            precision=values["precision"],
            baseline=values["baseline"],
            keep_trace=values["trace_out"] is not None or steps_wanted,
            report=report,
        )
    _write(values, found)
    warnings += _what_went_wrong(found)
    if found.partial:
        warnings.append(_partial_words(found, values["baseline"], deployment))
    result = Simulation(deployment, found, plan.description, seed, tuple(warnings))
    write_exports(values, result)
    return result


def _of_scenario(values: Values, given: frozenset[str], scenario: Scenario) -> Values:
    """Stage and gates of the scenario; its system too, if it was named and not only its people."""
    out = with_scenario(values, given, scenario) if values["scenario"] is not None else dict(values)
    if out["duration"] is None:
        out["duration"] = scenario.duration_s
    if out["warmup"] is None:
        out["warmup"] = min(scenario.warmup_s, out["duration"] / 2)
    if values["scenario"] is not None:
        out["gates"] = dict(scenario.slo)
    return out


def _load_options(values: Values, given: frozenset[str]) -> LoadOptions:
    lengths = {"workload", "input_len", "output_len", "cached_share"}
    names = {item.name for item in fields(LoadOptions)} - {"lengths_given"}
    return LoadOptions(
        **{name: values[name] for name in names}, lengths_given=bool(lengths & given)
    )


def _runs(values: Values) -> tuple[int, int]:
    """(first seed, runs)."""
    seed, count, precision = values["seed"], values["replications"], values["precision"]
    if not 0 <= seed < 1 << 32:
        raise UsageError(f"--seed is {seed}; it must be from 0 to {(1 << 32) - 1}")
    if not 1 <= count <= MAX_REPLICATIONS:
        raise UsageError(f"--replications is {count}; it must be from 1 to {MAX_REPLICATIONS}")
    if precision is not None and not 0 < precision < 1:
        raise UsageError(
            f"--precision is {precision:g}; it must be a share of the mean, above 0 and below 1"
        )
    return seed, count


def _deployment(
    values: Values, request: Request, plan: LoadPlan, warnings: list[str]
) -> Deployment:
    system = request.system
    table: tuple[tuple[int, int, int], ...] = ()
    if values["speculative_config"] is not None:
        table = parse_speculative_config(values["speculative_config"]).batch_table
        if TABLE_NOTE in warnings:
            warnings.remove(TABLE_NOTE)  # what the analytic model leaves out is simulated
    adaptive: tuple[tuple[int, tuple[int, ...]], ...] = ()
    if values["adaptive"]:
        adaptive = _adaptive(request)
    settings: dict[str, Any] = {
        "n_replicas": _count(values["replicas"], "--replicas", 1, 4096),
        "router": _router(values["router"]),
        "max_concurrent": _count(values["max_concurrent"], "--max-concurrent", 0, 1_000_000),
        "faults": _faults(values["fail"], values["replicas"]),
        "slo": values.get("gates", {}) if values["slo"] is None else parse_slo(values["slo"]),
    }
    for option, name in (("warmup", "warmup_s"), ("duration", "duration_s"),
                         ("request_timeout", "request_timeout_s")):
        value = values[option]
        if value is not None:
            flag = "--" + option.replace("_", "-")
            if not math.isfinite(value) or value < 0 or (option != "warmup" and value == 0):
                rule = "0 or more" if option == "warmup" else "above 0"
                raise UsageError(f"{flag} is {value:g}; it must be seconds, {rule}, and finite")
            settings[name] = value
    if values["max_model_len"] is not None:
        settings["max_model_len"] = _count(
            values["max_model_len"], "--max-model-len", 1, 100_000_000
        )
    if values["slo"] is not None and not settings["slo"]:
        raise UsageError("--slo is empty; write gates like ttft_p95=2,stream_tok_s_p10=15")
    deployment = Deployment(
        system,
        context_tokens=plan.context_tokens,
        context_variation=plan.context_variation,
        easiness=_easiness(values["easiness"]),
        per_batch_size=table,
        adaptive=adaptive,
        prefix_caching=values["prefix_caching"],
        settings=tuple(settings.items()),
    )
    _ = deployment.config, deployment.plain().config  # refuse what cannot run before it runs
    return deployment


def _count(value: int, option: str, low: int, high: int) -> int:
    if not low <= value <= high:
        raise UsageError(f"{option} is {value}; it must be from {low} to {high}")
    return value


def _router(text: str) -> str:
    name = text.strip().lower().replace("-", "_")
    if name not in ROUTERS:
        near = get_close_matches(name, ROUTERS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
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
                f"--fail names replica {replica}, but they are 0 to {replicas - 1}; see --replicas"
            )
        faults.append(Fault(replica, numbers[1], numbers[2] if len(numbers) > 2 else math.inf))
    return tuple(faults)


def _easiness(text: str | None) -> Easiness | None:
    if text is None:
        return None
    if text.strip().lower() in ("none", "independent"):
        return INDEPENDENT
    if text not in easiness_names():
        near = get_close_matches(text, easiness_names(), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"easiness {shown(text)} is not known; {hint}use none or one of "
            f"{', '.join(easiness_names())}"
        )
    return fitted_easiness(text)


def _adaptive(request: Request) -> tuple[tuple[int, tuple[int, ...]], ...]:
    system = request.system
    tiers = system.engine.scheduler.adaptive_tiers
    if not tiers:
        raise UsageError(
            f"--adaptive is SGLang's, but the engine is {system.engine.name}; for vLLM give "
            f"{TABLE_FIELD} in --speculative-config"
        )
    if not system.setup.drafting.adapts or system.setup.tree_topk > 1:
        raise UsageError(
            "--adaptive needs eagle, eagle3 or mtp with chains, but the method is "
            f"{system.setup.method}{' with a tree' if system.setup.tree_topk > 1 else ''}"
        )
    k = system.setup.k
    return tuple(
        (batch, tuple(sorted({min(length, k) for length in lengths})))
        for batch, lengths in tiers
    )


def _warn_of_overload(
    load: LoadOptions, request: Request, deployment: Deployment, warnings: list[str]
) -> None:
    """An open loop beyond what the deployment sustains has no steady state to report."""
    if load.rate is None or load.trace is not None or math.isinf(load.rate):
        return
    from specsim.analytic.open import open_loop

    share = load.rate / deployment.config.n_replicas
    sides = [("", request.system)]
    if request.system.speculative:
        sides.append((" without speculation", request.system.plain()))
    for words, system in sides:
        try:
            state = open_loop(system, request.workload, share)
        except SpecSimError:
            continue
        if not state.stable:
            warnings.append(
                f"rate {load.rate:g}/s is beyond the capacity{words} (about "
                f"{state.capacity_rate * deployment.config.n_replicas:.3g}/s): the queue grows "
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


def _what_went_wrong(found: Comparison) -> list[str]:
    """Requests that were not served, in words."""
    counts = found.main.figures["requests"]
    words = {
        "rejected": "refused: too long for max_model_len or the cache",
        "timeout": "given up by their clients",
        "failed": "lost with a failed replica",
        "unfinished": "unfinished at the end; they count in TTFT and E2EL as far as they waited",
    }
    out = []
    if not counts["measured"]:
        out.append("no request was measured; make the run longer or the warm-up shorter")
    for status, text in words.items():
        if counts[status]:
            out.append(f"{counts[status]:g} of {counts['measured']:g} requests were {text}")
    return out


def _partial_words(found: Comparison, baseline: bool, deployment: Deployment) -> str:
    missing = found.baseline is None and baseline and deployment.system.speculative
    if found.main.partial:
        text = "interrupted: the figures cover what was simulated until then"
        return text + ("; the baseline was not reached" if missing else "")
    if missing:
        return "interrupted before the baseline was simulated"
    if found.baseline is not None and found.baseline.partial:
        return "interrupted: the baseline covers what was simulated until then"
    return f"interrupted: means of the {len(found.main.runs)} runs that were finished"


def _write(values: Values, found: Comparison) -> None:
    """Records and trace of the first run with speculation."""
    path = values["records"]
    try:
        if path is not None:
            if path.lower().endswith(".csv"):
                found.first.write_csv(path)
            else:
                found.first.write_jsonl(path)
        if values["trace_out"] is not None:
            found.first.to_chrome_trace(values["trace_out"])
    except OSError as error:
        name = shown(str(error.filename)) if error.filename else "the output files"
        raise UsageError(f"cannot write {name}: {error.strerror}") from None


@contextmanager
def _progress(
    wanted: bool, plan: LoadPlan, deployment: Deployment, baseline: bool, replications: int
) -> Iterator[Report | None]:
    """A bar on stderr while the runs go on; None where nobody looks."""
    if not wanted:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    sides = 2 if baseline and deployment.system.speculative else 1
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("simulating", total=None)

        def report(side: str, number: int, progress: Progress | None) -> None:
            done = number * sides + (side == "without")
            words = f"{side} speculation" if sides > 1 else "simulating"
            if replications > 1:
                words += f", run {number + 1} of {replications}"
            if progress is not None:
                words += f", {progress.now_s:.0f} s, {progress.ended} requests"
            share = progress.share if progress is not None else 0.0
            whole = None if share is None else float(sides * replications)
            bars.update(task, description=words, total=whole, completed=done + (share or 0.0))

        yield report
