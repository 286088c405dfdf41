"""Pipeline parallelism: a round of steps when the layers are split over stages of GPUs.

Up to `pp` microbatches are under way at once (vLLM's batch queue, SGLang's microbatches), each with
its share of the sequences and of the prompts that came since the last round. A microbatch passes
the stages one after the other, hands its hidden states over between them, is sampled and drafts on
the last stage, and only then takes part again, because its next tokens depend on that. So its
sequences step once in

    round = max(its trip, sum over microbatches of their time in the busiest stage)
    trip = stages + host + (pp - 1) hand-overs + the host's wait for the tokens

and a step's time is the mean over sequences: a prompt's microbatch is long under way, and the
others wait for it in the stages only.

A stage has ceil(L / pp) of L layers or one fewer; the last, which never has more than another
(vLLM, distributed/utils.get_pp_indices), has the output head, sampling and the drafter besides.
With fewer sequences than stages the others idle; with speculation the drafts make the last stage
the busiest. Without decoding sequences the pipeline is filled and drained each time. Seconds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from specsim.latency.breakdown import StepLatency
from specsim.latency.shape import PrefillChunk, StepShape
from specsim.ops.work import Parallel


@dataclass(frozen=True, slots=True)
class Trip:
    """One microbatch alone. busiest_s: in its busiest stage. trip_s: through all of them."""

    step: StepLatency
    busiest_s: float
    trip_s: float


def stage_layers(layers: float, pp: int) -> tuple[int, int]:
    """(layers of the stage with the most, of the last)."""
    return ceil(layers / pp), int(layers // pp)


def trip(
    step: StepLatency, ends_s: float, hop_s: float, returned_s: float, layers: float, pp: int
) -> Trip:
    """step: of the whole model on one stage's GPUs. ends_s: of it, embedding and output head.
    hop_s: one hand-over. returned_s: the host's wait for the tokens, where the step has none."""
    layers_s = max(0.0, step.target_s - ends_s)
    most, last = stage_layers(layers, pp)
    on_last_s = layers_s * last / layers + ends_s + step.sample_s + step.draft_s
    return Trip(
        step,
        max(layers_s * most / layers, on_last_s),
        step.total_s + (pp - 1) * hop_s + returned_s,
    )


def round_of(
    shape: StepShape, pp: int, budget: int, trip_of: Callable[[StepShape], Trip]
) -> StepLatency:
    """The round in which every sequence and chunk of `shape` takes part once: the phases of the
    microbatch with the longest trip, and beside them `pipeline_s`, hand-overs and waits."""
    counted = [
        (trip_of(part), part.decode_seqs, count) for part, count in microbatches(shape, pp, budget)
    ]
    longest = max((found for found, _, _ in counted), key=lambda found: found.trip_s)
    busiest_s = sum(found.busiest_s * count for found, _, count in counted)
    if shape.decode_seqs:
        rounds_s = sum(
            max(found.trip_s, busiest_s) * seqs * count for found, seqs, count in counted
        )
        round_s = rounds_s / shape.decode_seqs
    else:
        round_s = longest.trip_s + busiest_s - longest.busiest_s
    step = longest.step
    most = min(1.0, round_s / step.total_s)  # less where others do not wait for a prompt's trip
    return replace(
        step, total_s=round_s, target_s=most * step.target_s, sample_s=most * step.sample_s,
        draft_s=most * step.draft_s, host_s=most * step.host_s,
        pipeline_s=max(0.0, round_s - step.total_s),
    )


def microbatches(shape: StepShape, pp: int, budget: int) -> list[tuple[StepShape, int]]:
    """(microbatch, how many alike) of a round: sequences and prompts are dealt out evenly."""
    pieces = _dealt(shape.prefill, budget, pp)
    seqs = shape.decode_seqs
    count = min(pp, max(len(pieces), seqs + len(pieces) if seqs else 1))
    context = shape.decode_context_tokens / seqs if seqs else 0.0
    found: dict[StepShape, int] = {}
    for i in range(count):
        # Those with prompts come first; the odd sequences go to the others.
        share = seqs // count + (i >= count - seqs % count)
        prompts = pieces[i] if i < len(pieces) else ()
        part = replace(
            shape, decode_seqs=share, decode_context_tokens=share * context, prefill=prompts,
        )
        found[part] = found.get(part, 0) + 1
    return list(found.items())


def stage_share(shape: StepShape, pp: int, budget: int) -> float:
    """Of one microbatch's work in all layers, what a GPU does in a round: its stage's part of every
    microbatch."""
    return sum(count for _, count in microbatches(shape, pp, budget)) / pp


@lru_cache(maxsize=1024)
def _dealt(
    chunks: tuple[PrefillChunk, ...], budget: int, most: int
) -> tuple[tuple[PrefillChunk, ...], ...]:
    """The chunks in their order, in as many microbatches as there are chunks, of as many tokens,
    or where their tokens need more of them, filled one after the other; at most so many."""
    total = sum(chunk.new_tokens for chunk in chunks)
    room = max(min(ceil(total / max(1, min(most, len(chunks)))), budget), ceil(total / most))
    out: list[list[PrefillChunk]] = []
    left = 0
    for chunk in chunks:
        done = 0
        while done < chunk.new_tokens:
            if left == 0:
                out.append([])
                left = room
            take = min(left, chunk.new_tokens - done)
            ends = done + take == chunk.new_tokens
            whole = take == chunk.new_tokens
            out[-1].append(chunk if whole else PrefillChunk(
                take, chunk.cached_tokens + done, last=chunk.last and ends
            ))
            done += take
            left -= take
    return tuple(tuple(some) for some in out)


def crossings(parallel: Parallel, node: int) -> int:
    """Hand-overs that leave a node of so many GPUs."""
    size = parallel.gpus
    return sum((i * size) % node == 0 or size > node for i in range(1, parallel.pp))
