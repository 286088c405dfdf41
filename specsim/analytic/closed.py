"""Closed loop: `concurrency` clients that send the next request when the last one is answered.

Steady state by fluid balance. With B running sequences every request goes through
    n = (O - 1) / a + (a - 1) / (2 a)   decode steps
(O output tokens, a tokens per step; the second term is the surplus of the last step) and its
prompt through m prefill steps. While one request decodes, the others bring their prompts into
the same steps: on average (B - 1) / (n + m) prompts per step. A mixed step is priced as one step
(weights read once). An engine that never mixes runs those prompts in steps of their own. When all
requests have the same lengths its clients tend to stay in step: B prompts one after the other, then
B sequences that decode undisturbed, so that a request waits for half of the others' prompts and
not for all of them. IN_STEP says how far they do.

    TPOT = (decode steps and the share of prompt work that falls between them) / (O - 1)
    TTFT = request overhead + half a step in progress + the steps of its own prompt (+ queue)
    throughput = B O / (time a request spends running)

Requests beyond the running limit wait outside: by Little's law the wait is the cycle time of the
excess. Times in seconds, per replica.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import CapacityError, UsageError
from specsim.latency.shape import PrefillChunk, StepShape

MAX_CONCURRENCY = 1_000_000
MAX_CHUNKS = 64  # of one prompt that are priced; of more, evenly spaced ones stand for all
# 0: arrivals spread evenly, 1: all clients move together. From the TTFT of Llama-3.1-8B on SGLang
# and H200s (46 fixed-length runs on 1 to 8 GPUs, which the ledger lists as fitted).
IN_STEP = 0.2


@dataclass(frozen=True, slots=True)
class SteadyState:
    """running: sequences in the batch. step_s: a pure decode (verify) step at that batch.
    queue_s: mean wait for admission. output_tok_s: tokens per second of the replica;
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
    if not system.mixes:
        return min(system.seqs_limit, fits)
    each = system.setup.verify_tokens
    if system.batched_tokens < each:
        raise UsageError(
            f"max_num_batched_tokens is {system.batched_tokens}, but one sequence verifies "
            f"{each} tokens in a step; raise it or draft less"
        )
    return min(system.seqs_limit, fits, system.batched_tokens // each)


def decode_steps(output_len: int, tokens_per_step: float) -> float:
    """Mean steps that produce the output after its first token (which the prefill gives)."""
    if output_len <= 1:
        return 0.0
    surplus = (tokens_per_step - 1) / (2 * tokens_per_step)
    return (output_len - 1) / tokens_per_step + surplus


class _Cycle(NamedTuple):
    """What one request goes through, without the wait for admission. busy_s: seconds it runs."""

    tpot_s: float
    ttft_s: float
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
    limit = running_limit(system, workload)
    running = min(concurrency, limit)
    cycle = _cycle(system, workload, running)
    tpot_s, rate = cycle.tpot_s, running / cycle.busy_s
    waits = concurrency > running
    queue_s = max(0.0, concurrency / rate - cycle.busy_s) if waits else 0.0
    return SteadyState(
        concurrency=concurrency,
        running=float(running),
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
    )


def _cycle(system: System, workload: Workload, running: int) -> _Cycle:
    """The cycle of one request with `running` sequences in the system."""
    latency = system.latency
    steps = decode_steps(workload.output_len, system.tokens_per_step)
    prompt = workload.computed_input
    cached = workload.input_len - prompt
    decode = system.decode_shape(running, workload.mean_context)
    plain = latency.step(decode)
    always = system.setup.draft_share >= 1  # else the mean with steps that carry no draft
    step_s = plain.total_s if always else system.decode_step_s(decode)
    request_s = system.engine.overheads.request_s if system.fidelity != "datasheet" else 0.0
    if steps == 0:
        return _prompts_only(system, workload, running, request_s, step_s, plain.bound)
    room = _room(system, decode, prompt / steps) if system.mixes else system.batched_tokens
    own_steps = math.ceil(prompt / room)
    chunks, weight = _sampled(prompt, cached, room)
    if running == 1 or not system.mixes:
        prefill_s = weight * sum(latency.seconds(_prompt_shape(system, (c,))) for c in chunks)
    else:
        prefill_s = 0.0  # prompts share the steps of others
    if running == 1:
        busy_s = prefill_s + steps * step_s + request_s
        tpot_s = steps * step_s / max(1, workload.output_len - 1)
        share = prefill_s / busy_s
        return _Cycle(tpot_s, prefill_s + request_s, busy_s, step_s, 0.0, share, plain.bound)
    # Prompt work of all the others falls into the steps of one request.
    prompt_extra_s = prefill_s
    others = running - 1
    if system.mixes:
        # Prompts that come into one step together share what the step reads for them.
        together = min(others / (steps + own_steps), room // prompt, MAX_CHUNKS)
        if together > 1:
            prompt_extra_s = _shared_extra_s(system, decode, chunks[0], together, plain.total_s)
        else:
            prompt_extra_s = weight * sum(
                _extra_s(system, decode, (c,), plain.total_s) for c in chunks
            )
    # During one cycle (own decode and own prefill) each of the other requests prefills once.
    # Prompts per cycle that hit my decode steps; the rest hits my own prefill steps.
    share_decode = steps / (steps + own_steps)
    decode_wall = steps * step_s + others * share_decode * prompt_extra_s
    own_mixed = step_s * own_steps + prompt_extra_s if system.mixes else prefill_s
    prefill_wall = own_mixed + others * (1 - share_decode) * prompt_extra_s
    tpot_s = decode_wall / max(1, workload.output_len - 1)
    ttft_s = request_s + 0.5 * decode_wall / steps + prefill_wall
    busy_s = ttft_s + decode_wall
    if not system.mixes and workload.fixed_lengths:
        wave = _wave(system, workload, running, steps, step_s, request_s)
        tpot_s += IN_STEP * (wave[0] - tpot_s)
        ttft_s += IN_STEP * (wave[1] - ttft_s)
        busy_s += IN_STEP * (wave[2] - busy_s)
    if workload.requests_per_client:
        # At the start all prompts are there at once and wait for half of the others on average.
        ttft_s += others / 2 * prompt_extra_s / workload.requests_per_client
    return _Cycle(
        tpot_s,
        ttft_s,
        busy_s,
        step_s,
        min(1.0, others * own_steps / (steps + own_steps)),
        min(1.0, prompt_extra_s * running / busy_s),
        plain.bound,
    )


def _wave(
    system: System,
    workload: Workload,
    running: int,
    steps: float,
    step_s: float,
    request_s: float,
) -> tuple[float, float, float]:
    """Clients in step: all prompts of a wave, packed into steps of the token budget, then all
    decode together. (tpot_s, ttft_s, seconds a request runs)."""
    packed, group_s = _packed(system, workload, running)
    groups = math.ceil(running / packed)
    wave_s = groups * group_s
    wait_s = (wave_s - group_s) / 2
    tpot_s = (wait_s + steps * step_s) / max(1, workload.output_len - 1)
    ttft_s = request_s + (wave_s + group_s) / 2
    busy_s = wave_s + steps * step_s + request_s
    return tpot_s, ttft_s, busy_s


def _prompt_shape(system: System, chunks: tuple[PrefillChunk, ...]) -> StepShape:
    """A step of prompts alone. The one that ends a prompt already drafts for the next step."""
    drafts = system.setup.k if system.speculative and any(c.last for c in chunks) else 0
    return StepShape(prefill=chunks, num_drafts=drafts)


def _packed(system: System, workload: Workload, running: int) -> tuple[int, float]:
    """(prompts that share the steps of one token budget, seconds of those steps)."""
    prompt, budget = workload.computed_input, system.batched_tokens
    packed = max(1, min(running, budget // prompt))
    chunks, weight = _sampled(prompt, workload.input_len - prompt, budget)
    shapes = [_prompt_shape(system, (chunk,) * packed) for chunk in chunks]
    return packed, weight * sum(system.latency.seconds(shape) for shape in shapes)


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
    packed, group_s = _packed(system, workload, running)
    busy_s = max(group_s + request_s, running / packed * group_s)
    share = min(1.0, running / packed * group_s / busy_s)
    return _Cycle(0.0, busy_s, busy_s, step_s, 0.0, share, bound)


def _sampled(prompt: int, cached: int, room: int) -> tuple[list[PrefillChunk], float]:
    """(chunks of a prompt to price, how many each stands for)."""
    count = math.ceil(prompt / room)
    if count <= MAX_CHUNKS:
        return _chunks(prompt, cached, room), 1.0
    # Whole chunks at evenly spaced depths; step time is smooth in the tokens before them.
    starts = [round((i + 0.5) * count / MAX_CHUNKS) * room for i in range(MAX_CHUNKS)]
    chunks = [
        PrefillChunk(room, cached + min(start, prompt - room), last=i == MAX_CHUNKS - 1)
        for i, start in enumerate(starts)
    ]
    return chunks, prompt / (room * MAX_CHUNKS)


def _chunks(prompt: int, cached: int, room: int) -> list[PrefillChunk]:
    done, chunks = 0, []
    while done < prompt:
        take = min(room, prompt - done)
        chunks.append(PrefillChunk(take, cached + done, last=done + take == prompt))
        done += take
    return chunks


def _room(system: System, decode: StepShape, prompt_per_step: float) -> int:
    """Tokens of a step's budget left for prompts. `prompt_per_step`: prompt tokens that one
    decoding sequence stands for in each of its steps.

    Where decoding and prompts together ask more than the budget, prompts hold sequences back until
    both balance: then fewer decode than run, and the room is what those leave."""
    budget, each = system.batched_tokens, decode.decode_q_len
    decoding = min(float(decode.decode_seqs), budget / (each + prompt_per_step))
    return max(1, round(budget - decoding * each))


def _shared_extra_s(
    system: System, decode: StepShape, chunk: PrefillChunk, together: float, decode_s: float
) -> float:
    """What each of `together` whole prompts (not a whole number: a mean) adds to a step."""
    low = int(together)
    each_s = _extra_s(system, decode, (chunk,) * low, decode_s) / low
    if together > low:
        more_s = _extra_s(system, decode, (chunk,) * (low + 1), decode_s) / (low + 1)
        each_s += (together - low) * (more_s - each_s)
    return each_s


def _extra_s(
    system: System, decode: StepShape, chunks: tuple[PrefillChunk, ...], decode_s: float
) -> float:
    """What prompt chunks add to a step of the sequences that decode meanwhile."""
    both = replace(decode, prefill=chunks)
    return max(0.0, system.latency.seconds(both) - decode_s)
