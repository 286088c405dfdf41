"""From the load options of `specsim simulate` to a checked `LoadPlan`.

One load at a time: an open loop (--rate), a closed loop (--concurrency), simulated users
(--users, --scenario) or a trace (--trace), which --rate or --concurrency may send at another pace.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from specsim.analytic.workload import Workload
from specsim.errors import UsageError, require
from specsim.formats.traces import TraceOptions, detect_format, read_trace
from specsim.options.declare import declared
from specsim.options.groups import RequestOptions
from specsim.options.serving import SharedPromptsOptions, SimulateOptions
from specsim.options.values import shown
from specsim.planning.capacity_loads import shared_by
from specsim.sim.arrivals import bench_serve_times, gamma_times
from specsim.sim.compare import LoadPlan
from specsim.sim.loads import ClosedLoop, OpenLoop, PromptPool, bench_random_lengths, varied_lengths
from specsim.sim.request import Request
from specsim.units import counted

RATE_REQUESTS = 1000  # as `vllm bench serve --num-prompts`
CLOSED_REQUESTS = 200
CLOSED_REQUESTS_PER_CLIENT = 10
MAX_SENT = 1_000_000_000  # in a run that only its duration ends, and Ctrl-C before


def check_together(o: SimulateOptions) -> None:
    """What contradicts each other."""
    loads = ("rate", "concurrency", "users", "trace", "scenario")
    named = [f"--{name}" for name in loads if getattr(o, name) is not None]
    if not named:
        raise UsageError(
            "no load is given; name one of --rate, --concurrency, --users, --trace or --scenario, "
            "for example --concurrency 16"
        )
    fine = {
        ("--rate", "--trace"),
        ("--concurrency", "--trace"),
        ("--users", "--scenario"),
        ("--concurrency", "--scenario"),
    }
    if len(named) > 1 and tuple(named) not in fine:
        raise UsageError(f"{' and '.join(named)} are different loads; give one of them")
    people = o.users is not None or o.scenario is not None
    source = "simulated users" if people else "the trace" if o.trace is not None else ""
    shared = next((item.flag for name, item in declared(SharedPromptsOptions).items()
                   if name in o.model_fields_set), "")
    endless = o.duration is not None and o.requests is None and o.trace is None
    sent = o.rate * o.duration if endless and o.rate is not None and o.duration else 0.0
    require(
        (o.burstiness is None or o.rate is not None,
         "--burstiness belongs to --rate; give a rate or leave it out"),
        (not source or not o.model_fields_set & RequestOptions.model_fields.keys(),
         f"the lengths of the requests come from {source}; leave out --workload, --input-len, "
         "--output-len and --cached-share"),
        (not source or o.range_ratio is None,
         f"--range-ratio varies fixed lengths, but they come from {source}"),
        *((not given or o.trace is not None,
           f"{flag} belongs to --trace; name a file or leave it out")
          for flag, given in (("--sort-trace", o.sort_trace), ("--trace-speed", o.trace_speed))),
        (not o.trace_speed or len(named) == 1,
         f"--trace-speed and {named[0]} both set the pace; give one of them"),
        (not shared or not source,
         f"{shared} is about prompts of one kind, but they come from {source}"),
        (not shared or not o.cached_share,
         f"--cached-share says how much is found, {shared} what could be; give one of them"),
    )
    check_settled(o.settled, people)
    require(
        (not people or o.requests is None,
         "--requests does not limit simulated users; give --duration"),
        (not math.isinf(sent),
         "--rate inf sends all requests at once; say how many with --requests"),
        (sent <= MAX_SENT,
         f"--rate {o.rate or 0:g} for --duration {o.duration or 0:.15g} sends {sent:,.0f} "
         f"requests; at most {MAX_SENT:,} are simulated: shorten it, or say how many with "
         "--requests"),
    )


def check_settled(settled: bool, people: bool) -> None:
    """Only what has a history can be met in the middle of it."""
    if settled and not people:
        raise UsageError(
            "--settled is about people whose conversations grow; these requests do not depend on "
            "each other, so leave it out and give --warmup the seconds until as many are in flight "
            "as stay"
        )


def fixed_plan(options: SimulateOptions, workload: Workload) -> LoadPlan:
    """An open or closed loop of requests with the workload's lengths."""
    pool = pool_of(options, workload)
    total = options.requests
    if options.rate is not None:
        if total is None and options.duration is None:
            total = RATE_REQUESTS
        kind: dict[str, object] = {
            "kind": "open",
            "rate": _json_number(options.rate),
            "burstiness": _json_number(options.burstiness or 1.0),
        }
    else:
        assert options.concurrency is not None
        if total is None and options.duration is None:
            total = max(CLOSED_REQUESTS, CLOSED_REQUESTS_PER_CLIENT * options.concurrency)
        kind = {"kind": "closed", "concurrency": options.concurrency}
    description: dict[str, object] = {
        **kind,
        "workload": workload.name,
        "input_len": workload.input_len,
        "output_len": workload.output_len,
        "range_ratio": options.range_ratio or 0.0,
        "cached_share": workload.cached_share,
        "shared_prefix": pool.shared_tokens,
        "prefix_groups": pool.groups,
        "prompts": pool.prompts or None,
        "requests": total,
    }

    def make(seed: int) -> OpenLoop | ClosedLoop:
        lengths = _lengths(workload, options.range_ratio or 0.0, total, seed)
        if pool.prompts:
            lengths = itertools.cycle(list(itertools.islice(lengths, pool.prompts)))
        if options.rate is None:
            assert options.concurrency is not None
            times: Iterable[float] = itertools.repeat(0.0)
            supply = _requests(times, lengths, pool)
            return ClosedLoop(supply, options.concurrency, total=total)
        times = _times(options.rate, options.burstiness or 1.0, total, seed)
        return OpenLoop(_requests(times, lengths, pool), total=total)

    return LoadPlan(make, description, total)


def pool_of(options: SimulateOptions, workload: Workload) -> PromptPool:
    """What the prompts share: what is asked for, or the share that is to be found."""
    if workload.cached_share:
        return shared_by(workload, options.range_ratio or 0.0)
    shared = options.shared_prefix or 0
    if shared >= workload.input_len:
        raise UsageError(
            f"--shared-prefix is {shared}; it must be below the {workload.input_len} tokens of the "
            "prompts: give a longer --input-len"
        )
    if "prefix_groups" in options.model_fields_set and not shared:
        raise UsageError("--prefix-groups belongs to --shared-prefix; say how many tokens")
    return PromptPool(shared, options.prefix_groups, options.prompts or 0)


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _times(rate: float, burstiness: float, total: int | None, seed: int) -> Iterable[float]:
    """Send times: those of `vllm bench serve` for a given number of requests, else endless."""
    if total is None:
        return gamma_times(rate, seed, burstiness=burstiness)
    times: list[float] = bench_serve_times(total, rate, burstiness=burstiness, seed=seed).tolist()
    return times


def _lengths(
    workload: Workload, ratio: float, total: int | None, seed: int
) -> Iterator[tuple[int, int]]:
    """(prompt, output) tokens: fixed, or those of `vllm bench serve --random-range-ratio`."""
    if not ratio:
        return itertools.repeat((workload.input_len, workload.output_len), total or 1 << 60)
    if total is not None:
        return iter(
            bench_random_lengths(
                total, workload.input_len, workload.output_len, range_ratio=ratio, seed=seed
            )
        )
    return varied_lengths((workload.input_len, workload.output_len), ratio, seed)


def _requests(
    times: Iterable[float], lengths: Iterator[tuple[int, int]], pool: PromptPool
) -> Iterator[Request]:
    rows = zip(times, lengths, strict=False)
    for number, (time_s, (prompt, output)) in enumerate(rows):
        yield Request(time_s, prompt, output, pool.spans(number, prompt))


def trace_plan(options: SimulateOptions) -> LoadPlan:
    """The requests of a trace at their own times, at another mean rate, at times drawn anew
    (--burstiness, or a trace without times), or in a closed loop.

    The file is read once beforehand, so that a broken line is found before the run and not in it.
    """
    assert options.trace is not None
    path = Path(options.trace)
    name = shown(str(path))
    if not path.is_file():
        raise UsageError(f"--trace {name} is not a file")
    try:
        kind = detect_format(path)
        reading = TraceOptions(
            limit=options.requests, sort_times=options.sort_trace,
            time_scale=1.0 / (options.trace_speed or 1.0),
        )
        count, last_s = 0, 0.0
        for request in read_trace(path, kind, reading):
            count += 1
            last_s = request.arrival_s
    except OSError as error:
        raise UsageError(f"--trace {name} cannot be read: {error}") from None
    timed = kind != "lengths"
    drawn = options.rate is not None and (options.burstiness is not None or not timed)
    if not timed and options.rate is None and options.concurrency is None:
        raise UsageError(f"{path.name} holds no times; give --rate or --concurrency")
    if options.rate is not None and not drawn:
        if math.isinf(options.rate):
            drawn = True  # all at once
        elif last_s <= 0.0:
            raise UsageError(
                f"{path.name} spans no time, so it has no rate to change; add --burstiness to "
                "draw new times"
            )
        else:
            reading = replace(reading, time_scale=count / options.rate / last_s)
    burstiness = options.burstiness or 1.0
    if options.concurrency is not None:
        pace = f"{counted(options.concurrency, 'client')} in a closed loop"
    elif drawn:
        pace = f"new times at {options.rate:g}/s, burstiness {burstiness:g}"
    elif options.rate is not None:
        pace = f"its times stretched to {options.rate:g}/s"
    elif options.trace_speed is not None:
        pace = f"its times at {options.trace_speed:g} times the speed"
    else:
        pace = "at its own times"
    description = {
        "kind": "trace",
        "file": path.name,
        "format": kind,
        "pace": pace,
        "rate": None if options.rate is None else _json_number(options.rate),
        "burstiness": _json_number(burstiness) if drawn else None,
        "concurrency": options.concurrency,
        "requests": count,
    }

    def make(seed: int) -> OpenLoop | ClosedLoop:
        requests = read_trace(path, kind, reading)
        if options.concurrency is not None:
            return ClosedLoop(requests, options.concurrency, total=count)
        if drawn:
            assert options.rate is not None
            requests = _at_times(_times(options.rate, burstiness, count, seed), requests)
        return OpenLoop(requests, total=count)

    return LoadPlan(make, description, count)


def _at_times(times: Iterable[float], requests: Iterator[Request]) -> Iterator[Request]:
    for time_s, request in zip(times, requests, strict=False):
        yield request._replace(arrival_s=time_s)
