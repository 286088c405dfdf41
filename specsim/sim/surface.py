"""The step cost as tables, so that a step is priced without asking the latency model.

Entries are asked for where a run needs them, and kept; `price` says what lies between them. Cells
of the tokens of a step and of the context are made so narrow, when they are first used, that a
line holds in each. How far all of it is from the model is measured in every run, on its own steps,
chunk by chunk: each that needs new entries, of those with prompts some further ones, ever more
seldom, and of the others some in each log. A step with prompts that is further off than `MOST_GAP`
is priced by the model itself, as are all in the same cell from then on, and all with prompts when
several cells are off.
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from specsim.errors import UsageError
from specsim.latency.launches import Launching
from specsim.latency.shape import PrefillChunk, StepCost, StepShape
from specsim.sim.config import SimConfig, SpeculationRules
from specsim.sim.core import EXACT_MIXED, LEAD, WORK, Core, Floats4, Prices
from specsim.sim.price import (
    at_context,
    drafts_above,
    interpolate,
    mean_context,
    mean_drafts,
    no_prompt_ends,
    plane_of,
    proposing,
    uneven_span,
)
from specsim.sim.rows import node_below
from specsim.sim.tables import empty_tables

CHECKED_OF_LOG = 16  # decode steps of each full log
MOST_GAP = 0.02  # of a step's price from the tables
MOST_BEND = 0.005  # of a price in the middle of a cell from the line through its ends
MOST_ASKED_ALWAYS = 8  # cells, beyond which all steps with prompts are asked for
BESIDE_TOKENS = 256  # of the prompt beside which contexts are compared
NARROWEST = 32  # cached tokens, of a cell of the context


def checked_seconds(cost: StepCost, shape: StepShape) -> float:
    """Price of a step; a cost function that gives no time for it is the caller's mistake."""
    seconds = float(cost.seconds(shape))
    if not (math.isfinite(seconds) and seconds >= 0.0):
        raise UsageError(
            f"the step cost gives {seconds} seconds for {shape}; "
            "it must be a finite time, 0 or more"
        )
    return seconds


def chunks_of(new: int, count: int) -> tuple[PrefillChunk, ...]:
    """Prompts of `new` tokens in all, as many as `count` or one for each token."""
    size, more = divmod(new, count)
    return tuple(PrefillChunk(size + (i < more)) for i in range(min(new, count)))


# Table, its first index, grid of its second, place on that, prompt tokens, price at a node of both.
_Entry = tuple[
    Floats4, int, list[float], float, int, Callable[[int, int], NDArray[np.float64]]
]


@dataclass(slots=True)
class Surface:
    """Tables of one step cost, shared by all replicas with the same cost and rules."""

    cost: StepCost
    max_seqs: int
    max_tokens: int
    max_context: int
    speculation: SpeculationRules = field(default_factory=SpeculationRules)
    asked: int = 0
    checked: list[float] = field(default_factory=list)  # relative errors
    added: int = 0  # cells divided
    asked_always: int = 0  # cells
    exact_from: float = math.inf  # the first step that no table priced
    lines: set[tuple[float, float]] = field(default_factory=set)  # cells of the context
    prices: Prices = field(init=False)

    def __post_init__(self) -> None:
        self.prices = empty_tables(
            self.speculation, self.max_seqs, self.max_tokens, self.max_context
        )

    @classmethod
    def of(cls, config: SimConfig, cost: StepCost) -> "Surface":
        """For the replicas of a run, which are all alike."""
        rules = config.rules
        longest = config.longest_request + config.step_width
        return cls(
            cost, rules.max_num_seqs, rules.max_num_batched_tokens, longest, config.speculation
        )

    @property
    def knows_launches(self) -> bool:
        """Whether the cost says how steps are launched; else nothing is known to wait."""
        return hasattr(self.cost, "launches")

    def fill(self, c: Core) -> None:
        """Ask for the nodes around the step that `c` has planned."""
        for _, drafts in self._drafts_of(c):
            self._fill_at(c, drafts)

    @staticmethod
    def _drafts_of(c: Core) -> list[tuple[float, int]]:
        """(share, drafts) of the steps of equal drafts whose mean the planned one is."""
        below = mean_drafts(c)
        share = drafts_above(c, below)
        return [(1.0 - share, below), (share, below + 1)] if share else [(1.0, below)]

    def decode_s(self, seqs: int, context: float, now: int, following: int) -> float:
        """Seconds of a step of `seqs` sequences with `context` cached tokens each, without prompts,
        that verifies `now` drafts of each and proposes `following`."""
        self._fill_decode(seqs, context, now, following)
        prices = self.prices
        return at_context(prices, prices.decode_s, prices.tier[now][following], seqs, context)

    def _fill_decode(self, seqs: int, context: float, now: int, following: int) -> None:
        """Ask for the entries of the decode table around a context. The first to use a cell of it
        looks whether it holds a line, else divides it."""
        prices = self.prices
        grid = prices.context

        def price(mean: float) -> float:
            width = self.speculation.step_width(now)
            self.asked += 1
            return checked_seconds(self.cost, self.shape(seqs, width, seqs * mean, (), following))

        tier = prices.tier[now][following]
        while True:
            at = node_below(grid, context)
            ends = grid[at], grid[at + 1]
            for j in (at, at + 1):
                if math.isnan(prices.decode_s[tier, seqs, j]):
                    prices.decode_s[tier, seqs, j] = price(grid[j])
            if ends in self.lines:
                return
            middle = float(sum(ends) // 2)
            chord_s = at_context(prices, prices.decode_s, tier, seqs, middle)
            narrow = ends[1] - ends[0] <= NARROWEST
            if narrow or abs(price(middle) - chord_s) <= MOST_BEND * chord_s:
                self.lines.add(ends)
                return
            grid.insert(at + 1, middle)
            prices.decode_s = np.insert(prices.decode_s, at + 1, np.nan, 2)
            prices.beside_s = np.insert(prices.beside_s, at + 1, np.nan, 2)
            prices.mixed_at += prices.mixed_at > at
            self.added += 1

    def _fill_at(self, c: Core, now: int) -> None:
        """`fill` for a step that verifies `now` drafts of each sequence."""
        prices, following, seqs, new = self.prices, proposing(c), c.scheduled, c.new_tokens
        tier, width = prices.tier[now][following], self.speculation.step_width(now)
        if new == 0:
            self._fill_decode(seqs, mean_context(c), now, following)
            return

        def step(count: int, *chunks: PrefillChunk) -> NDArray[np.float64]:
            context = count * prices.context[prices.mixed_at]
            return self._parts(self.shape(count, width, context, chunks, following))

        at = node_below(prices.context, mean_context(c))
        for a in self._around(prices.seqs, seqs) if seqs else ():
            for j in {at, at + 1, prices.mixed_at}:
                if math.isnan(prices.beside_s[tier, a, j]):
                    count = int(prices.seqs[a])
                    total, beside = count * prices.context[j], (PrefillChunk(BESIDE_TOKENS),)
                    shape = self.shape(count, width, total, beside, following)
                    prices.beside_s[tier, a, j] = self._parts(shape)[WORK]
        ends = not no_prompt_ends(c)
        at = node_below(prices.seqs, seqs)
        least = int(prices.seqs[at])

        def among(more: int, tokens: int) -> NDArray[np.float64]:
            with_more = step(more, PrefillChunk(tokens))
            return with_more - step(least, PrefillChunk(tokens + (more - least) * width))

        def together(count: int, tokens: int) -> NDArray[np.float64]:
            return step(least, *chunks_of(tokens, count)) - step(least, PrefillChunk(tokens))

        def behind(cached: int, tokens: int) -> NDArray[np.float64]:
            return step(0, PrefillChunk(tokens, cached)) - step(0, PrefillChunk(tokens))

        plane = plane_of(c, prices, tier)
        self._fill_cell(
            plane, least * width, seqs * width + new,
            lambda tokens: step(least, PrefillChunk(tokens - least * width, 0, ends)),
        )
        uneven = (uneven_span(c), new)
        cached = [(c.chunks[j].cached, c.chunks[j].new) for j in range(c.n_chunks)]
        wanted: list[_Entry] = [
            (prices.by_chunks_s, plane, prices.chunks, float(c.n_chunks), new, together)
        ]
        wanted += [
            (prices.by_cached_s, tier, prices.cached, float(before), tokens, behind)
            for before, tokens in (uneven, *cached) if before > 0
        ]
        if prices.seqs[at] < seqs:
            wanted += [(prices.by_seqs_s, tier, prices.seqs, prices.seqs[at + 1], new, among)]
        for table, first, grid, x, tokens, price in wanted:
            for a in self._around(grid, x):
                for b in self._around(prices.new, tokens):
                    if math.isnan(table[first, a, b, WORK]):
                        table[first, a, b] = price(int(grid[a]), int(prices.new[b]))

    def _fill_cell(
        self, plane: int, taken: int, tokens: int, price: Callable[[int], NDArray[np.float64]]
    ) -> None:
        """Ask for the ends of the cell of `tokens`, and divide it until it lies above what the
        sequences take and holds a line: what does not fall is off by no more than it rises there,
        and by half of that where the middle is on the line."""
        prices = self.prices
        while True:
            i = node_below(prices.cells, tokens)
            if not math.isnan(prices.prompt_s[plane, i, 0]):
                return
            low, high = int(prices.cells[i]), int(prices.cells[i + 1]) - 1
            if low <= taken:
                self._divide(i, taken + 1)
                continue
            first = price(low)
            last = price(high) if high > low else first
            whole_s = first[WORK] + max(0.0, -first[LEAD])
            rise = abs(last[WORK] - first[WORK]) / whole_s if whole_s > 0.0 else 0.0
            middle = (low + high) // 2
            fits = high == low or rise <= MOST_GAP
            if not fits and rise <= 2 * MOST_GAP and middle > low:
                share = (middle - low) / (high - low)
                bend_s = price(middle)[WORK] - (first + share * (last - first))[WORK]
                fits = abs(bend_s) <= MOST_BEND * whole_s
            if fits:
                prices.prompt_s[plane, i] = np.stack([first, last], 1).ravel()
                return
            self._divide(i, middle + 1)

    def _divide(self, cell: int, start: int) -> None:
        """A cell of tokens ends before `start`, where another begins."""
        prices = self.prices
        prices.cells.insert(cell + 1, float(start))
        prices.prompt_s = np.insert(prices.prompt_s, cell + 1, np.nan, 1)
        prices.prompt_s[:, cell] = np.nan  # it ends elsewhere now
        self.added += 1

    def _parts(self, shape: StepShape) -> NDArray[np.float64]:
        """[PART] of a step: its work, and the lead of its launches."""
        self.asked += 1
        step_s, idle_s, free_s = self.exact(shape)
        return np.array([step_s - idle_s, free_s - idle_s])

    @staticmethod
    def _around(grid: list[float], x: float) -> tuple[int, ...]:
        i = node_below(grid, x)
        if x == grid[i]:
            return (i,)
        return (i + 1,) if x == grid[i + 1] else (i, i + 1)

    def shape(
        self, seqs: int, width: int, context: float, chunks: tuple[PrefillChunk, ...],
        following: int,
    ) -> StepShape:
        """A step from its column of the tables (`price.proposing`)."""
        drafter = following <= self.speculation.num_speculative_tokens
        return StepShape(seqs, width, context, chunks, following * drafter, drafter)

    def exact(self, shape: StepShape) -> tuple[float, float, float]:
        """Seconds of a step as if none ran before it, and its `launches`."""
        seconds = checked_seconds(self.cost, shape)
        if not self.knows_launches:
            return seconds, 0.0, seconds
        return (seconds, *cast(Launching, self.cost).launches(shape))

    def exact_of(self, c: Core) -> tuple[float, float, float]:
        """`exact` of the planned step itself, chunk by chunk."""
        chunks = []
        for j in range(c.n_chunks):
            chunk = c.chunks[j]
            last = chunk.cached + chunk.new >= c.slots[chunk.slot].target
            chunks.append(PrefillChunk(chunk.new, chunk.cached, last))
        context, following = c.scheduled * mean_context(c), proposing(c)
        parts = [
            (share, self.exact(self.shape(
                c.scheduled, self.speculation.step_width(drafts), context, tuple(chunks), following
            )))
            for share, drafts in self._drafts_of(c)
        ]
        step_s, idle_s, free_s = (
            sum(share * part[i] for share, part in parts) for i in range(3)
        )
        return step_s, idle_s, free_s

    def price(self, c: Core) -> None:
        """Price the planned step: from the tables if what they give is close to what the cost
        function says, else by that itself, as all in its cell from here on."""
        if c.unchecked > c.check_after:
            c.check_after = c.check_after * 5 // 4 + 1
            c.unchecked = 0
        self.fill(c)
        exact = self.exact_of(c)
        held = interpolate(c, self.prices)  # a compiled core may not have the latest entries yet
        gap = c.step_s / exact[0] - 1.0 if exact[0] > 0.0 else 0.0
        if held and (abs(gap) <= MOST_GAP or c.new_tokens == 0):
            self.checked.append(gap)
            return
        if held:
            for _, drafts in self._drafts_of(c):
                self._ask_always(c, drafts)
        c.step_s, c.idle_s, c.free_s = exact
        c.priced = True

    def _ask_always(self, c: Core, drafts: int) -> None:
        """The tables do not hold the planned step."""
        prices = self.prices
        plane = plane_of(c, prices, prices.tier[drafts][proposing(c)])
        tokens = c.scheduled * self.speculation.step_width(drafts) + c.new_tokens
        prices.prompt_s[plane, node_below(prices.cells, tokens)] = np.inf
        self.asked_always += 1
        if self.asked_always > MOST_ASKED_ALWAYS:
            c.pricing = EXACT_MIXED
            self.exact_from = min(self.exact_from, c.steps)

    def check_log(self, c: Core) -> None:
        """Compare some of the decode steps in the log with the cost function."""
        log = c.log
        steps = np.flatnonzero((log.new[: c.logged] == 0) & (log.rows[: c.logged] > 0))
        if c.rules.ragged:  # the log has the mean of the drafts; steps are checked before they run
            return
        for n in steps[:: max(1, len(steps) // CHECKED_OF_LOG)].tolist():
            shape = self.shape(
                int(log.rows[n]), int(log.width[n]), float(log.context[n]), (),
                int(log.next_drafts[n]),
            )
            exact_s = checked_seconds(self.cost, shape)
            priced_s = float(log.end_s[n] - log.start_s[n])
            self.checked.append(priced_s / exact_s - 1.0 if exact_s > 0.0 else 0.0)

    def error(self) -> dict[str, float | int | None]:
        """Entries asked for, cells divided and asked for always, and the relative error of the
        steps that were checked and priced by tables."""
        gaps = [abs(gap) for gap in self.checked]
        return {
            "nodes": self.asked,
            "nodes_added": self.added,
            "exact_cells": self.asked_always,
            "checked_steps": len(gaps),
            "median_rel_error": statistics.median(gaps) if gaps else None,
            "max_rel_error": max(gaps, default=None),
            "exact_from_step": None if math.isinf(self.exact_from) else int(self.exact_from),
        }
