"""Closed loop: `concurrency` clients that send the next request when the last one is answered.

Steady state by fluid balance (docs/model.md, Loads). With B running sequences every request goes
through n decode steps (`speculation.steps`) and its prompt through m prefill steps; meanwhile the
others bring on average (B - 1) / (n + m) prompts per step. A mixed step is priced as one step;
where prompts fill all of them, what more clients send waits (`full_steps`). An engine that never
mixes runs those prompts in steps of their own, G of them together (`waves`).

    TTFT = request overhead + what is left of the step in progress (and the next one, where it is
           planned already) + the steps of its own prompt and of those ahead (+ queue)
    throughput = B O / (time a request spends running)

A run of few requests per client starts with all prompts at once: `ttft_s` is the mean with that
start in it, `typical_ttft_s` what most requests see, and so near the median. Seconds, per replica.
"""

import math
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from specsim.analytic.full_steps import FullSteps, full_seconds, full_steps
from specsim.analytic.prompts import (
    beside,
    each_packed_s,
    mean_passes,
    packed_s,
    room_beside,
    saved_s,
)
from specsim.analytic.system import System
from specsim.analytic.waves import group_sizes, joining, rounds, steps_spread, together
from specsim.analytic.workload import Workload
from specsim.errors import CapacityError, UsageError
from specsim.latency.shape import StepShape
from specsim.speculation.steps import steps_to

MAX_CONCURRENCY = 1_000_000


@dataclass(frozen=True, slots=True)
class SteadyState:
    """ttft_s: mean; typical_ttft_s: without the start of a run of few requests per client, or of
    nothing but that start. running: sequences in the batch. step_s: a pure decode (verify) step at
    that batch. queue_s: mean wait for admission. output_tok_s: tokens per second of the replica;
    stream_tok_s: 1 / TPOT. mixed_share: share of steps that hold prompt tokens.
    prefill_share: share of the running time spent on prompts."""

    concurrency: int
    running: float
    ttft_s: float
    tpot_s: float
    itl_s: float
    step_s: float
    queue_s: float
    output_tok_s: float
    stream_tok_s: float
    request_rate: float
    mixed_share: float
    prefill_share: float
    bound: str
    typical_ttft_s: float


def running_limit(system: System, workload: Workload) -> int:
    """Largest number of sequences that run together: max_num_seqs, memory, or the token budget of
    a step over the tokens each sequence brings into it, whichever is least.

    CapacityError when not even one request of this length fits, UsageError when the budget is
    smaller than what one sequence brings."""
    tokens = workload.input_len + workload.output_len
    fits = system.memory.max_requests(tokens)
    if fits < 1:
        plan = system.memory
        raise CapacityError(
            f"a request of {tokens} tokens needs {plan.bytes_per_request(tokens) / 1e9:.2f} GB of "
            f"cache, but {plan.pool_bytes / 1e9:.2f} GB are left beside the weights of "
            f"{system.spec.name} on {system.profile.name}; use shorter requests, a larger tp or "
            "an fp8 cache"
        )
    fits = memory_limit(system, workload)
    if not system.mixes:
        return min(system.seqs_limit, fits)
    each = system.setup.verify_tokens
    if system.batched_tokens < each:
        raise UsageError(
            f"--max-num-batched-tokens is {system.batched_tokens}, but one sequence verifies "
            f"{each} tokens in a step; raise it to {each} or more, or draft less with --k"
        )
    return min(system.seqs_limit, fits, system.round_tokens // each)


def memory_limit(system: System, workload: Workload) -> int:
    """Sequences that memory holds on average while others wait: each has its prompt, what it has
    written, and the share of what it may still write that the engine keeps free."""
    written = workload.mean_context - workload.input_len
    reserve = system.engine.scheduler.output_reserve_min
    return max(1, system.memory.max_requests(workload.input_len + written * (1 + reserve)))


def preemptions(system: System, workload: Workload, running: int) -> float:
    """Times that a request is preempted for lack of memory, on average, where others wait.

    An engine admits the next prompt once what it needs is free, I (with its states and windows in
    tokens of cache that grows), so that between none and I are left; the running ones then write O
    tokens, exponentially distributed, until one ends and frees its own. They run out with
    probability (1 - exp(-I / O)) O / I; the request admitted last then starts again. Rarer where
    an engine keeps free a share of the outputs still to come, or where it is the token budget that
    prompts wait for, in a share of the steps."""
    output, memory = workload.output_len, system.memory
    written = workload.mean_context - workload.input_len
    if memory.kv_bytes_per_token <= 0:
        return 0.0
    tokens = memory.bytes_per_request(workload.input_len) / memory.kv_bytes_per_token
    kept = system.engine.scheduler.output_reserve_min * running * written
    steps = max(1.0, decode_steps(system, output))
    decode = system.decode_shape(running, workload.mean_context)
    room = room_beside(system, decode, workload.computed_input / steps)
    own_steps = mean_passes(workload, room, system.parallel.attention_dp)
    asked = running * workload.computed_input / (steps + own_steps) / room
    lost = -math.expm1(-tokens / output) * output / tokens * math.exp(-kept / output)
    return lost * max(0.0, 1 - asked)


def decode_steps(system: System, output_len: int) -> float:
    """Mean steps that produce the output after its first token (which the prefill gives)."""
    return steps_to(output_len - 1, system.acceptance, system.setup.k if system.speculative else 0)


def request_overhead_s(system: System) -> float:
    """Front end per request before scheduling; the datasheet knows none."""
    return 0.0 if system.fidelity == "datasheet" else system.engine.overheads.request_s


class _Cycle(NamedTuple):
    """What one request goes through, without the wait for admission. busy_s: seconds it runs."""

    tpot_s: float
    ttft_s: float
    typical_ttft_s: float
    busy_s: float
    step_s: float
    mixed_share: float
    prefill_share: float
    bound: str


def closed_loop(system: System, workload: Workload, concurrency: int) -> SteadyState:
    """Steady state at a fixed number of clients."""
    if isinstance(concurrency, bool) or not 1 <= concurrency <= MAX_CONCURRENCY:
        raise UsageError(
            f"concurrency is {concurrency!r}; it must be a whole number from 1 to {MAX_CONCURRENCY}"
        )
    key, states = (workload, concurrency), system.states
    if key not in states:
        states[key] = _steady(system, workload, concurrency)
    found: SteadyState = states[key]
    return found


def _steady(system: System, workload: Workload, concurrency: int) -> SteadyState:
    limit = running_limit(system, workload)
    running = float(min(concurrency, limit))
    steps = decode_steps(system, workload.output_len)
    full = full_steps(system, workload, steps) if system.mixes and steps else None
    waves = workload.requests_per_client
    early = 0.5 / waves if waves else 0.0  # of the waits: of those at the start half are ahead
    if full is not None and full.in_engine < running and not workload.computed_elsewhere:
        early = 0.0  # its cycle has the start
        running = full.in_engine
        cycle = _full_cycle(system, workload, steps, full, concurrency)
    else:
        short = concurrency > limit == memory_limit(system, workload)
        again = preemptions(system, workload, limit) if short else 0.0
        # Of the places that a step makes, those for which somebody waits.
        queued = min(1.0, (concurrency - running) * max(1.0, steps) / running)
        cycle = _cycle(system, workload, int(running), again, queued)
    waits = concurrency > running
    tpot_s, rate = cycle.tpot_s, running / cycle.busy_s
    queue_s = max(0.0, concurrency / rate - cycle.busy_s) if waits else 0.0
    typical_queue_s = queue_s / 2 if early == 0.5 else queue_s
    queue_s *= 1 - early
    return SteadyState(
        concurrency=concurrency,
        running=running,
        ttft_s=cycle.ttft_s + queue_s,
        tpot_s=tpot_s,
        itl_s=tpot_s * system.tokens_per_step,
        step_s=cycle.step_s,
        queue_s=queue_s,
        output_tok_s=rate * workload.output_len,
        stream_tok_s=1.0 / tpot_s if tpot_s > 0 else 0.0,
        request_rate=rate,
        mixed_share=cycle.mixed_share,
        prefill_share=cycle.prefill_share,
        bound=cycle.bound,
        typical_ttft_s=cycle.typical_ttft_s + typical_queue_s,
    )


def _cycle(
    system: System, workload: Workload, running: int, again: float, queued: float
) -> _Cycle:
    """The cycle of one request with `running` sequences in the system, whose prompt is computed
    `again` so many times on average. queued: share of the places for which others wait."""
    steps = decode_steps(system, workload.output_len)
    decode = system.decode_shape(running, workload.mean_context)
    plain = system.latency.step(decode)
    step_s = system.decode_step_s(decode)  # the mean with steps that carry no draft
    if workload.computed_elsewhere:
        wall_s = steps * step_s
        each_s = wall_s / max(1, workload.output_len - 1)
        return _Cycle(each_s, 0.0, 0.0, wall_s, step_s, 0.0, 0.0, plain.bound)
    request_s = request_overhead_s(system)
    if steps == 0:
        return _prompts_only(system, workload, running, request_s, step_s, plain.bound)
    if running == 1:
        prefill_s = packed_s(system, workload, 1.0)
        busy_s = prefill_s + steps * step_s + request_s
        tpot_s, ttft_s = steps * step_s / max(1, workload.output_len - 1), prefill_s + request_s
        share = prefill_s / busy_s
        return _Cycle(tpot_s, ttft_s, ttft_s, busy_s, step_s, 0.0, share, plain.bound)
    # Of the step in progress half is left, unless it is its end that makes place (where prompts
    # wait for no group of them); the next one is planned already where that is done ahead.
    ahead = 0.5 * (1 - queued * system.mixes) + system.plans_ahead
    wait = _mixed(system, workload, decode, step_s, ahead) if system.mixes else _apart(
        system, workload, decode, step_s, request_s, ahead
    )
    decode_wall = steps * step_s + wait.decoding_s * (1 + again) + again * wait.prompt_s
    step_ahead_s = ahead * decode_wall / steps * wait.alone
    typical_s = request_s + min(
        step_ahead_s + wait.prompt_s, max(wait.own_s, wait.cycle_s - decode_wall)
    )
    # At the start all prompts are there at once and nothing decodes.
    start_s = request_s + wait.start_s
    waves = workload.requests_per_client
    ttft_s = typical_s + (start_s - typical_s) / waves if waves else typical_s
    if waves == 1:
        typical_s = start_s
    busy_s = ttft_s + decode_wall
    return _Cycle(
        decode_wall / max(1, workload.output_len - 1), ttft_s, typical_s, busy_s, step_s,
        wait.mixed_share, min(1.0, wait.each_s * running / busy_s), plain.bound,
    )


def _full_cycle(
    system: System, workload: Workload, steps: float, full: FullSteps, concurrency: int
) -> _Cycle:
    """The cycle of one request where prompts fill every step and others wait (the front end is
    done meanwhile)."""
    decode = system.decode_shape(full.per_step * steps, workload.mean_context)
    found = full_seconds(system, workload, steps, full)
    decode_wall, busy_s = steps * found.beside_s, (steps + full.waits) * found.mean_s
    ttft_s = max(0.0, busy_s - decode_wall)
    # At the start all prompts are there at once, and a request has half of the others before it:
    # of their prompts while nothing decodes, and of those that the engine has no place for.
    queued = (concurrency - full.in_engine) / full.per_step
    at_once = concurrency * workload.computed_input / system.round_tokens
    waves = workload.requests_per_client
    start_s = ttft_s + (max(queued, at_once) / 2 - queued) * found.mean_s
    more_s = (start_s - ttft_s) / waves if waves else 0.0
    mean_s, longer_s = ttft_s + more_s, max(0.0, more_s) * full.in_engine / concurrency
    return _Cycle(
        decode_wall / max(1, workload.output_len - 1), mean_s, start_s if waves == 1 else ttft_s,
        busy_s + longer_s, system.decode_step_s(decode), 1.0,
        1 - found.decoding_s / found.mean_s,
        system.latency.step(decode).bound,
    )


class _Wait(NamedTuple):
    """What prompts cost one request. prompt_s: its own, with those ahead of it; decoding_s: those
    that fall between its decode steps; start_s: as prompt_s where all come at once; each_s: seconds
    of one; own_s: of a group with one for each attention group; alone: share of requests that come
    while others decode; cycle_s: what a device that never idles needs until the client's next
    request is as far, each prompt in it once."""

    prompt_s: float
    decoding_s: float
    start_s: float
    each_s: float
    own_s: float
    mixed_share: float
    alone: float = 1.0
    cycle_s: float = math.inf


def _mixed(
    system: System, workload: Workload, decode: StepShape, decode_s: float, ahead: float
) -> _Wait:
    """Prompts share the steps of those that decode. ahead: steps before a prompt is taken up."""
    steps = decode_steps(system, workload.output_len)
    others = decode.decode_seqs - 1
    room = room_beside(system, decode, workload.computed_input / steps)
    own_steps = mean_passes(workload, room, system.parallel.attention_dp)
    # During one cycle (own decode and own prefill, and the wait for the step in progress) each of
    # the other requests prefills once. Those prompts hit any of its steps.
    cycle = steps + own_steps + ahead
    # Prompts that come into one step together share what the step reads for them. Each of the
    # others brings one into one of its steps; those without any cost nothing.
    met, dealt = 1 + (others - 1) / cycle, _dealt(system, 1.0, others + 1)
    sizes = group_sizes(others, met) if met >= dealt else [dealt]
    filled = (others + 1) * workload.computed_input / room  # steps that prompts of a cycle fill
    prompts = beside(system, workload, decode, room)
    # Prompts that do not fit into a step join the next one's, and no cycle has more steps than it
    # has or those that full ones take.
    full_s = prompts.full_s() * max(1.0, cycle / filled)
    without = max(0.0, 1 - own_steps / cycle) ** (others - 1)  # prompts, of the steps before
    each_s = min(full_s, prompts.each_s(sizes, without))
    share = steps / cycle
    # At the start nothing decodes yet, at its end all do.
    start_room = (system.round_tokens + room) / 2
    at_once = int(system.prompts_at_once(start_room, workload.computed_input))
    group = min(others + 1.0, float(at_once))
    group_s = packed_s(system, workload, group)
    beside_s = own_steps * decode_s / 2
    start_s = (others + 1) / group * (group_s + beside_s) / 2 + group_s / 2
    once = workload.requests_per_client == 1
    own_s = decode_s * own_steps + dealt * each_s
    if system.parallel.pp > 1:  # through all stages
        own_s = max(own_s, packed_s(system, workload, 1.0))
    return _Wait(  # beside mine, one for each other attention group takes the same time
        prompt_s=own_s + max(0.0, others + 1 - dealt) * own_steps / cycle * each_s,
        decoding_s=(others + 1 - dealt) * (0.5 if once else share) * each_s,
        start_s=start_s,
        each_s=each_s,
        own_s=dealt * each_s,
        mixed_share=min(1.0, others * own_steps / cycle),
    )


def _dealt(system: System, prompts: float, running: int) -> float:
    """Prompts that come together where on average so many would. Attention groups are dealt
    requests evenly and step together: they take prompts up in the same steps."""
    return max(prompts, min(float(system.parallel.attention_dp), running))


def _apart(
    system: System, workload: Workload, decode: StepShape, step_s: float, request_s: float,
    ahead: float,
) -> _Wait:
    """Prompts run in steps of their own, before any decoding. ahead: as above."""
    running = decode.decode_seqs
    steps = decode_steps(system, workload.output_len)
    waves = workload.requests_per_client
    spread = steps_spread(system, workload, steps)
    group = running if waves == 1 else together(running, steps, spread, waves)
    fit = int(system.prompts_at_once(system.round_tokens, workload.computed_input))
    dealt = _dealt(system, 1.0, running)

    def all_s(prompts: float) -> float:
        """Seconds of a group of so many prompts."""
        return packed_s(system, workload, prompts)

    def middle_s(prompts: float) -> float:
        """Until half of a group is through: the mean wait of one of it."""
        return (all_s(prompts) + all_s(min(prompts, fit))) / 2

    # Where the next step is planned ahead, the first launches of a group go out while the last
    # decode step runs, if that is what runs before it.
    saved, alone = 0.0, 1 - (group - 1) / max(1, running - 1)
    first, groups = alone, group_sizes(running, group)
    waited = ahead * alone
    met = (running - group) * steps / (steps + waited)  # prompts of others between my tokens
    after_s = (all_s(group) - all_s(min(group, fit))) / 2  # those of my group that come after me
    if group <= 1 + (running - 1) / max(1.0, steps) * (1 + 1e-9):
        most = system.round_tokens / workload.computed_input
        found = rounds(running / steps, most, request_s / step_s, system.plans_ahead)
        size = _dealt(system, found.size, running)
        first, groups = found.first, group_sizes(running, joining(running, size))
        waited = found.waited
        met = (running - dealt) * max(0.0, steps - 1) / (steps + waited)
        # Groups that run after mine, before the next decode step.
        after_s = packed_s(system, workload, found.size) * (1 / first - 1) / 2
    if system.plans_ahead:
        saved = first * saved_s(system, workload, groups, decode)
    each_s = each_packed_s(system, workload, groups) - saved / fmean(groups)
    return _Wait(
        prompt_s=middle_s(max(group, dealt)) - saved,
        decoding_s=min(met * each_s + after_s, (running - 1) * each_s * steps / (steps + waited)),
        start_s=middle_s(running),
        each_s=each_s,
        own_s=dealt * each_s,
        mixed_share=0.0,
        alone=alone,
        cycle_s=running * each_s + (steps + waited) * step_s,
    )


def _prompts_only(
    system: System,
    workload: Workload,
    running: int,
    request_s: float,
    step_s: float,
    bound: str,
) -> _Cycle:
    """One output token per request: the prefill gives it, nothing decodes. Clients wait for each
    other's prompts."""
    fit = int(system.prompts_at_once(system.round_tokens, workload.computed_input))
    packed = min(running, fit)
    group_s = packed_s(system, workload, packed)
    busy_s = max(group_s + request_s, running / packed * group_s)
    share = min(1.0, running / packed * group_s / busy_s)
    return _Cycle(0.0, busy_s, busy_s, busy_s, step_s, 0.0, share, bound)
