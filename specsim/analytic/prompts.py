"""Seconds of the steps that prompts run in: alone (prompts first) or beside sequences that decode.

Prompts that come together fill steps of the token budget one after the other, in chunks. How many
come together varies, and where the load says so (`Workload.range_ratio`) so do their lengths:
prices are means over a few equally likely values of both. Seconds.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import TypeVar

from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.latency.launches import Launches, hidden_s
from specsim.latency.shape import PrefillChunk, StepShape

MAX_CHUNKS = 64  # of one prompt that are priced; of more, evenly spaced ones stand for all
MAX_PASSES = 8  # of a group of prompts that are priced; of more, the first ones stand for all
_SLICES = (-2 / 3, 0.0, 2 / 3)  # middles of three slices of a uniform law from -1 to 1

Pass = tuple[PrefillChunk, ...]
V = TypeVar("V")


def prompt_lengths(workload: Workload, count: int = 1) -> list[int]:
    """Equally likely mean lengths, in computed tokens, of `count` prompts."""
    tokens = workload.computed_input
    if not workload.range_ratio:
        return [tokens]
    spread = workload.range_ratio / math.sqrt(count)
    return [max(1, round(tokens * (1 + spread * at))) for at in _SLICES]


def mean_passes(workload: Workload, room: int, groups: int = 1) -> float:
    """Steps of one prompt, where each has room for so many tokens in as many attention groups, one
    of which computes it."""
    room = max(1, room // groups)
    return fmean(math.ceil(tokens / room) for tokens in prompt_lengths(workload))


def passes(
    count: int, tokens: int, cached: int, room: int, groups: int = 1
) -> tuple[list[Pass], float]:
    """(steps of `count` prompts of so many tokens each, how many each of these stands for). room:
    tokens of a step, shared out evenly to so many attention groups, as prompts are."""
    if groups > 1:
        return _in_groups(count, tokens, cached, max(1, room // groups), groups)
    needed = math.ceil(count * tokens / room)
    if count == 1 and needed > MAX_CHUNKS:
        # Whole chunks at evenly spaced depths; step time is smooth in the tokens before them.
        starts = [round((i + 0.5) * needed / MAX_CHUNKS) * room for i in range(MAX_CHUNKS)]
        chunks = [
            PrefillChunk(room, cached + min(start, tokens - room), last=i == MAX_CHUNKS - 1)
            for i, start in enumerate(starts)
        ]
        return [(chunk,) for chunk in chunks], tokens / (room * MAX_CHUNKS)
    priced = count if needed <= MAX_PASSES else max(1, MAX_PASSES * room // tokens)
    found: list[Pass] = []
    step: list[PrefillChunk] = []
    left = room
    todo, done = priced, 0  # prompts that have not ended, and what the first of them has had
    while todo:
        alike = 0 if done else min(todo, left // tokens)
        if alike:
            step += [PrefillChunk(tokens, cached)] * alike
            todo, left = todo - alike, left - alike * tokens
        else:
            take = min(left, tokens - done)
            ends = done + take == tokens
            step.append(PrefillChunk(take, cached + done, last=ends))
            todo, done, left = todo - ends, 0 if ends else done + take, left - take
        if not left:
            found.append(tuple(step))
            step, left = [], room
    if step:
        found.append(tuple(step))
    return found, count / priced


def _in_groups(
    count: int, tokens: int, cached: int, room: int, groups: int
) -> tuple[list[Pass], float]:
    """`passes` with room for so many tokens in each attention group, which computes the prompts
    dealt to it whole: its chunks stand together, those of a group with most prompts first."""
    most = -(-count // groups)
    steps, weight = passes(most, tokens, cached, room)
    if most == 1:
        return [step * count for step in steps], weight
    if weight > 1:  # the first steps stand for all: all groups have as many
        return [step * groups for step in steps], weight * count / (most * groups)
    fuller = count - (most - 1) * groups
    fewer = passes(most - 1, tokens, cached, room)[0] if fuller < groups else []
    others = fewer + [()] * (len(steps) - len(fewer))
    return [
        step * fuller + other * (groups - fuller)
        for step, other in zip(steps, others, strict=True)
    ], 1.0


def full_pass(workload: Workload, room: int, groups: int) -> tuple[Pass, float]:
    """(a step whose room prompts fill in every attention group, how many prompts it computes)."""
    tokens, room = workload.computed_input, max(1, room // groups)
    cached = workload.input_len - tokens
    if tokens > room:  # a chunk in the middle of a prompt costs what they do on average
        step: Pass = (PrefillChunk(room, cached + (tokens - room) // 2),)
    else:
        step = passes(room // tokens + 1, tokens, cached, room)[0][0]
    return step * groups, room * groups / tokens


def prompt_shape(system: System, chunks: Pass) -> StepShape:
    """A step of prompts alone. The one that ends a prompt already drafts for the next step."""
    drafts = system.setup.k if system.speculative and any(c.last for c in chunks) else 0
    return StepShape(prefill=chunks, num_drafts=drafts)


def packed_s(system: System, workload: Workload, prompts: float) -> float:
    """The steps that so many prompts share (a mean: between whole numbers of them)."""
    system = system.prompt_prices

    def whole_s(count: int) -> float:
        return _once(system, ("packed", workload, count), lambda: _passes_s(
            system, workload, count, system.round_tokens,
            lambda step: system.latency.seconds(prompt_shape(system, step)),
            lambda step: system.latency.launches(prompt_shape(system, step)),
        ))

    return _between(whole_s, prompts)


def _once(system: System, key: Hashable, made: Callable[[], V]) -> V:
    """What many loads and rates ask a system for."""
    found: V | None = system.states.get(key)
    if found is None:
        found = system.states[key] = made()
    return found


def _passes_s(
    system: System, workload: Workload, count: int, room: int, step_s: Callable[[Pass], float],
    launches: Callable[[Pass], Launches],
) -> float:
    """All steps of `count` prompts, each of which takes step_s, less what of their launches the one
    before hides where they are planned ahead; mean over their lengths."""
    cached = workload.input_len - workload.computed_input
    times = []
    for tokens in prompt_lengths(workload, count):
        steps, weight = passes(count, tokens, cached, room, system.parallel.attention_dp)
        seconds = sum(step_s(step) for step in steps)
        if system.plans_ahead:
            seconds -= sum(
                hidden_s(part.idle_s, before.free_s)
                for before, part in pairwise(map(launches, steps))
            )
        times.append(weight * max(0.0, seconds))
    return fmean(times)


def _between(whole_s: Callable[[int], float], prompts: float) -> float:
    low = max(1, int(prompts))
    seconds = whole_s(low)
    return seconds if prompts <= low else seconds + (prompts - low) * (whole_s(low + 1) - seconds)


def each_packed_s(system: System, workload: Workload, groups: Sequence[float]) -> float:
    """Of each prompt, where groups of these sizes are equally likely."""
    return sum(packed_s(system, workload, size) for size in groups) / sum(groups)


def saved_s(
    system: System, workload: Workload, groups: Sequence[float], decode: StepShape
) -> float:
    """What a group of prompts saves on average where the decode step before it hides its first
    launches (`latency.launches`): the fewer prompts, the longer the device would have waited."""
    free_s = system.latency.launches(decode).free_s
    tokens = workload.computed_input

    def idle_s(count: int) -> float:
        first = passes(
            count, tokens, workload.input_len - tokens, system.round_tokens,
            system.parallel.attention_dp,
        )[0][0]
        return system.latency.launches(prompt_shape(system, first)).idle_s

    counts = [max(1, round(size)) for size in groups]
    return fmean(
        hidden_s(_once(system, ("idle", workload, count), partial(idle_s, count)), free_s)
        for count in counts
    )


def room_beside(system: System, decode: StepShape, prompt_per_step: float) -> int:
    """Tokens of a step's budget left for prompts. `prompt_per_step`: prompt tokens that one
    decoding sequence stands for in each of its steps.

    Where decoding and prompts together ask more than the budget, prompts hold sequences back until
    both balance: then fewer decode than run, and the room is what those leave."""
    budget, each = system.round_tokens, decode.decode_q_len
    decoding = min(float(decode.decode_seqs), budget / (each + prompt_per_step))
    return max(1, round(budget - decoding * each))


def beside(system: System, workload: Workload, decode: StepShape, room: int) -> "Beside":
    """What prompts add to the decode steps that they run in, the same at every rate. room: tokens
    of a step that are left for them."""
    return _once(
        system, ("beside", workload, decode, room), lambda: Beside(system, workload, decode, room)
    )


class Beside:
    """See `beside`, which makes it."""

    def __init__(
        self, system: System, workload: Workload, decode: StepShape, room: int
    ) -> None:
        if system.prompt_prices is not system:
            system = system.prompt_prices
            each = decode.decode_context_tokens / decode.decode_seqs
            decode = system.decode_shape(decode.decode_seqs, each)
        self._system, self._workload, self._room = system, workload, room
        self._groups = system.parallel.attention_dp
        self._shape, self._decode_s = decode, system.decode_step_s(decode)
        self._added: dict[int, float] = {}
        self._hidden: dict[int, tuple[float, float]] = {}

    def each_s(self, groups: Sequence[float], behind: float = 1.0) -> float:
        """Of each prompt, where groups of these sizes are equally likely to come into a step, a
        share `behind` of them after a step without prompts, the others after one of theirs. Steps
        that are planned ahead are launched meanwhile (`latency.launches`)."""

        def all_s(count: int) -> float:
            if not self._system.plans_ahead:
                return self._added_s(count)
            after_decoding_s, after_prompts_s = self._hidden_s(count)
            hidden = behind * after_decoding_s + (1 - behind) * after_prompts_s
            return max(0.0, self._added_s(count) - hidden)

        return sum(_between(all_s, size) for size in groups) / sum(groups)

    def full_s(self) -> float:
        """Of each prompt, where they come one after the other and leave no room in any step."""
        whole, share = full_pass(self._workload, self._room, self._groups)
        added_s = self._extra_s(whole)
        if self._system.plans_ahead:  # launched while another such step runs
            added_s = max(0.0, added_s - hidden_s(*self._launches(whole)))
        return added_s / share

    def _added_s(self, count: int) -> float:
        if count not in self._added:
            self._added[count] = _passes_s(
                self._system, self._workload, count, self._room, self._extra_s, self._launches
            )
        return self._added[count]

    def _hidden_s(self, count: int) -> tuple[float, float]:
        """Of the first launches of so many prompts: after a step without any, after one of
        others'."""
        if count not in self._hidden:
            workload, found = self._workload, []
            cached = workload.input_len - workload.computed_input
            for tokens in prompt_lengths(workload, count):
                steps, weight = passes(count, tokens, cached, self._room, self._groups)
                first, last = self._launches(steps[0]), self._launches(steps[-1])
                found.append([
                    weight * hidden_s(first.idle_s, before.free_s)
                    for before in (self._launches(()), last)
                ])
            after_decoding_s, after_prompts_s = map(fmean, zip(*found, strict=True))
            self._hidden[count] = after_decoding_s, after_prompts_s
        return self._hidden[count]

    def _launches(self, step: Pass) -> Launches:
        return self._system.latency.launches(replace(self._shape, prefill=step))

    def _extra_s(self, step: Pass) -> float:
        mixed_s = self._system.decode_step_s(replace(self._shape, prefill=step))
        return max(0.0, mixed_s - self._decode_s)
