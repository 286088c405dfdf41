"""The step cost as tables, so that a step is priced without asking the latency model.

Nodes are asked for where a run needs them and kept; between nodes the tables are interpolated
linearly (`price`). How far that is from the model is measured in every run, on its own steps, chunk
by chunk: each that needs new nodes, of those with prompts some further ones, ever more seldom while
they pass, and of the others some in each log. Where the tables are off by more than `MOST_GAP` they
get a node at the step. Where that does not help the step is priced by the model; where that is so
for more than a few of those that are looked at, so are all with prompts from there on.
"""

import math
import statistics
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from specsim.errors import UsageError
from specsim.latency.launches import Launching
from specsim.latency.shape import PrefillChunk, StepCost, StepShape
from specsim.sim.config import SimConfig, SpeculationRules
from specsim.sim.core import EXACT_MIXED, Core, Prices
from specsim.sim.price import (
    decode_seconds,
    drafts_above,
    interpolate,
    mean_context,
    mean_drafts,
    proposing,
)
from specsim.sim.rows import node_below

CHECKED_OF_LOG = 16  # decode steps of each full log
MOST_GAP = 0.02  # of a step's price from the tables
MOST_ADDED = 64  # nodes
MOST_FAILED = 0.05  # of the checked steps, beyond which a run is priced exactly
FEW = 20  # checked steps that are no sample yet
TABLE_CONTEXT = 1024  # cached tokens per sequence (the next node) that the mixed table is for
CONTINUED_OVER = 64  # prompt tokens
BESIDE_TOKENS = 256  # of the prompt beside which contexts are compared


def checked_seconds(cost: StepCost, shape: StepShape) -> float:
    """Price of a step; a cost function that gives no time for it is the caller's mistake."""
    seconds = float(cost.seconds(shape))
    if not (math.isfinite(seconds) and seconds >= 0.0):
        raise UsageError(
            f"the step cost gives {seconds} seconds for {shape}; "
            "it must be a finite time, 0 or more"
        )
    return seconds


def ladder(last: int, ratio: float, first: int, start: int = 0) -> list[float]:
    """Nodes start, first, first * ratio, ... up to exactly `last`: whole numbers, rising."""
    nodes = [start]
    x = float(first)
    while round(x) < last:
        if round(x) > nodes[-1]:
            nodes.append(round(x))
        x *= ratio
    if last > nodes[-1]:
        nodes.append(last)
    if len(nodes) == 1:
        nodes.append(nodes[0] + 1)
    return [float(node) for node in nodes]


def token_ladder(last: int) -> list[float]:
    """Tokens of a step. Matrix products take whole tiles, so its price jumps after multiples of
    128 tokens: nodes stand on both sides of each, while a jump is more than a small part of the
    price. CUDA graphs (up to 512 tokens) pad by their own rules and move the jumps; there nodes
    are close."""
    nodes = {1, 8, *range(16, min(512, last), 16)}
    for step, first, end in ((128, 128, 4096), (256, 4096, 16384), (1024, 16384, last)):
        for node in range(first, min(end, last), step):
            nodes.update((node, node + 1))
    rising = sorted({node for node in nodes if node < last} | {last})
    if len(rising) == 1:
        rising.append(last + 1)
    return [float(node) for node in rising]


def chunks_like(new: int, span: float) -> tuple[PrefillChunk, ...]:
    """Prompt chunks of `new` tokens in all that attend to `span` tokens each on average.

    As few prompts of equal length as attend to no more than that by themselves, each behind as
    many cached tokens as make up the rest.
    """
    count = min(new, max(1, math.ceil(new / max(1.0, 2 * span - 1))))
    size, more = divmod(new, count)
    cached = max(0, round(span - (new / count + 1) / 2))
    return tuple(PrefillChunk(size + (i < more), cached) for i in range(count))


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
    added: int = 0  # nodes on the axes of the mixed tables
    failed: int = 0  # checked steps with prompts for which no node helped
    exact_from: float = math.inf  # the first step that no table priced
    prices: Prices = field(init=False)

    def __post_init__(self) -> None:
        lengths = self.speculation.draft_lengths(self.max_seqs)
        longest = max(lengths)
        tier = [[-1] * (longest + 2) for _ in range(longest + 1)]
        pairs = [(now, following) for now in lengths for following in lengths]
        policy = self.speculation.policy
        if policy is not None and policy.unloads:
            pairs += [(0, longest + 1)]  # no drafter in memory (`price.proposing`)
        for index, (now, following) in enumerate(pairs):
            tier[now][following] = index
        last = max(self.max_context, 2)
        context, seqs = ladder(last, 1.5, 256), ladder(self.max_seqs, 2.0, 1)
        tokens, span = token_ladder(self.max_tokens), ladder(last, 2.0, 8, start=1)
        mixed = (len(pairs), len(seqs), len(tokens), len(span))
        launches = hasattr(self.cost, "launches")
        self.prices = Prices(
            tier,
            context,
            seqs,
            tokens,
            span,
            np.full((len(pairs), self.max_seqs + 1, len(context)), np.nan),
            np.full((len(pairs), len(seqs), len(context)), np.nan),
            np.full(mixed, np.nan),
            np.full(mixed if launches else (1, 1, 1, 1), np.nan),
            min(bisect_left(context, TABLE_CONTEXT), len(context) - 1),
            launches,
        )

    @classmethod
    def of(cls, config: SimConfig, cost: StepCost) -> "Surface":
        """For the replicas of a run, which are all alike."""
        rules = config.rules
        longest = config.longest_request + config.step_width
        return cls(
            cost,
            rules.max_num_seqs,
            rules.max_num_batched_tokens,
            longest,
            config.speculation,
        )

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
        at = node_below(self.prices.context, context)
        self._fill_decode(seqs, {at, at + 1}, now, following)
        return decode_seconds(self.prices, self.prices.tier[now][following], seqs, context)

    def _fill_decode(self, seqs: int, nodes: set[int], now: int, following: int) -> None:
        """Ask for entries of the decode table, at nodes of the context."""
        prices = self.prices
        tier = prices.tier[now][following]
        for j in nodes:
            if math.isnan(prices.decode_s[tier, seqs, j]):
                total = seqs * prices.context[j]
                shape = self.shape(seqs, self.speculation.step_width(now), total, (), following)
                self.asked += 1
                prices.decode_s[tier, seqs, j] = checked_seconds(self.cost, shape)

    def _fill_at(self, c: Core, now: int) -> None:
        """`fill` for a step that verifies `now` drafts of each sequence."""
        prices, following = self.prices, proposing(c)
        tier, seqs, new = prices.tier[now][following], c.scheduled, c.new_tokens
        at = node_below(prices.context, mean_context(c))
        if new == 0:
            self._fill_decode(seqs, {at, at + 1}, now, following)
            return
        span, width = c.span_work / new, self.speculation.step_width(now)
        for a in self._around(prices.seqs, seqs):
            for j in {at, at + 1, prices.mixed_at} if prices.seqs[a] else set[int]():
                if math.isnan(prices.beside_s[tier, a, j]):
                    self.asked += 1
                    count = int(prices.seqs[a])
                    total, beside = count * prices.context[j], (PrefillChunk(BESIDE_TOKENS),)
                    shape = self.shape(count, width, total, beside, following)
                    prices.beside_s[tier, a, j] = self._apart(shape)[0]
            for b in self._around(prices.tokens, c.verified + new):
                for d in self._around(prices.span, span):
                    if math.isnan(prices.mixed_s[tier, a, b, d]):
                        device_s, slack_s = self._mixed_node(
                            int(prices.seqs[a]),
                            width,
                            int(prices.tokens[b]),
                            prices.span[d],
                            following,
                        )
                        prices.mixed_s[tier, a, b, d] = device_s
                        if prices.launches:
                            prices.slack_s[tier, a, b, d] = slack_s

    def _mixed_node(
        self, seqs: int, width: int, tokens: int, span: float, following: int
    ) -> NDArray[np.float64]:
        """`_apart` at a node of the mixed tables. The sequences leave the rest of the tokens to
        prompts; where they leave none the price is continued from where they leave some."""

        context = seqs * self.prices.context[self.prices.mixed_at]

        def price(prompt: int) -> NDArray[np.float64]:
            self.asked += 1
            chunks = chunks_like(prompt, span)
            return np.array(self._apart(self.shape(seqs, width, context, chunks, following)))

        prompt = tokens - seqs * width
        if prompt >= 1:
            return price(prompt)
        least = price(1)
        return least + (price(1 + CONTINUED_OVER) - least) / CONTINUED_OVER * (prompt - 1)

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
        if not self.prices.launches:
            return seconds, 0.0, seconds
        return (seconds, *cast(Launching, self.cost).launches(shape))

    def _apart(self, shape: StepShape) -> tuple[float, float]:
        """Seconds of a step without its wait for launches, and its slack (see `price`)."""
        seconds, idle_s, free_s = self.exact(shape)
        return seconds - idle_s, free_s - idle_s

    def exact_of(self, c: Core) -> tuple[float, float, float]:
        """`exact` of the planned step itself, chunk by chunk."""
        chunks = []
        for j in range(c.n_chunks):
            chunk = c.chunks[j]
            last = chunk.cached + chunk.new >= c.slots[chunk.slot].target
            chunks.append(PrefillChunk(chunk.new, chunk.cached, last))
        return self._exact_for(c, tuple(chunks))

    def _exact_for(
        self, c: Core, chunks: tuple[PrefillChunk, ...]
    ) -> tuple[float, float, float]:
        """`exact` of the planned step with these prompt chunks."""
        context, following = c.scheduled * mean_context(c), proposing(c)
        parts = [
            (share, self.exact(self.shape(
                c.scheduled, self.speculation.step_width(drafts), context, chunks, following
            )))
            for share, drafts in self._drafts_of(c)
        ]
        step_s, idle_s, free_s = (
            sum(share * part[i] for share, part in parts) for i in range(3)
        )
        return step_s, idle_s, free_s

    def price(self, c: Core) -> None:
        """Price the planned step: from the tables if what they give is close to what the cost
        function says, with nodes added where it was not; else by that itself, from here on."""
        late = c.unchecked > c.check_after
        self.fill(c)
        exact = self.exact_of(c)
        gap = self._gap(c, exact[0])
        if late:
            self.checked.append(gap)
            c.check_after = c.check_after * 5 // 4 + 1
            c.unchecked = 0
        if c.new_tokens > 0 and abs(gap) > MOST_GAP:
            # Nodes help as long as the tables are off for chunks of equal length, too.
            like_s = self._exact_for(c, chunks_like(c.new_tokens, c.span_work / c.new_tokens))[0]
            while abs(self._gap(c, like_s)) > MOST_GAP and self._add_node(c):
                self.fill(c)
            gap = self._gap(c, exact[0])
        if not late:
            self.checked.append(gap)
        if c.new_tokens > 0 and abs(gap) > MOST_GAP:
            c.step_s, c.idle_s, c.free_s = exact
            c.priced = True
            self.failed += 1
            if self.failed > MOST_FAILED * (len(self.checked) + FEW):
                c.pricing = EXACT_MIXED
                self.exact_from = min(self.exact_from, c.steps)

    def _gap(self, c: Core, exact_s: float) -> float:
        """Relative error of the tables for the planned step."""
        interpolate(c, self.prices)  # a compiled core may not have the latest nodes yet
        return c.step_s / exact_s - 1.0 if exact_s > 0.0 else 0.0

    def _add_node(self, c: Core) -> bool:
        """A node where the planned step stands, on the first axis that has none there."""
        prices = self.prices
        seqs = c.scheduled
        tokens = c.verified + c.new_tokens
        axes = ((prices.span, c.span_work / c.new_tokens), (prices.tokens, tokens),
                (prices.seqs, seqs))
        for axis, (grid, x) in zip((3, 2, 1), axes, strict=True):
            if self.added < MOST_ADDED and x not in grid and grid[0] < x < grid[-1]:
                at = bisect_left(grid, x)
                grid.insert(at, float(x))
                for name in ("mixed_s", "slack_s") if prices.launches else ("mixed_s",):
                    setattr(prices, name, np.insert(getattr(prices, name), at, np.nan, axis))
                if axis == 1:
                    prices.beside_s = np.insert(prices.beside_s, at, np.nan, axis)
                self.added += 1
                return True
        return False

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
        """Entries asked for and added, and the relative error of the steps that were checked."""
        gaps = [abs(gap) for gap in self.checked]
        return {
            "nodes": self.asked,
            "nodes_added": self.added,
            "checked_steps": len(gaps),
            "median_rel_error": statistics.median(gaps) if gaps else None,
            "max_rel_error": max(gaps, default=None),
            "exact_from_step": None if math.isinf(self.exact_from) else int(self.exact_from),
        }
