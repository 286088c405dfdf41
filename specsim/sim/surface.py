"""The step cost as tables, so that a step is priced without asking the latency model.

Nodes are asked for where a run needs them and kept; between nodes the tables are interpolated
linearly (`price`). How far that is from the model is measured, not assumed: `Surface.error`
compares priced steps of the run, chunks and all, with the cost function itself.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specsim.errors import UsageError
from specsim.latency.shape import PrefillChunk, StepCost, StepShape
from specsim.sim import fields as f
from specsim.sim.config import SpeculationRules
from specsim.sim.fields import Core
from specsim.sim.price import mean_context
from specsim.sim.rows import node_below

CHECKED_STEPS = 64
TABLE_CONTEXT = 1024  # cached tokens per sequence (the next node) that the mixed table is for
CONTINUED_OVER = 64  # prompt tokens


def checked_seconds(cost: StepCost, shape: StepShape) -> float:
    """Price of a step; a cost function that gives no time for it is the caller's mistake."""
    seconds = float(cost.seconds(shape))
    if not (math.isfinite(seconds) and seconds >= 0.0):
        raise UsageError(
            f"the step cost gives {seconds} seconds for {shape}; "
            "it must be a finite time, 0 or more"
        )
    return seconds


def ladder(last: int, ratio: float, first: int, start: int = 0) -> NDArray[np.float64]:
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
    return np.array(nodes, dtype=np.float64)


def token_ladder(last: int) -> NDArray[np.float64]:
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
    return np.array(rising, dtype=np.float64)


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
    checked: list[tuple[float, float]] = field(default_factory=list)  # (priced, asked) seconds
    tier: NDArray[np.int64] = field(init=False)
    grid_ctx: NDArray[np.float64] = field(init=False)
    grid_seqs: NDArray[np.float64] = field(init=False)
    grid_tokens: NDArray[np.float64] = field(init=False)
    grid_span: NDArray[np.float64] = field(init=False)
    decode_s: NDArray[np.float64] = field(init=False)
    mixed_s: NDArray[np.float64] = field(init=False)
    pairs: list[tuple[int, int]] = field(init=False)
    at_node: int = field(init=False)

    def __post_init__(self) -> None:
        lengths = self.speculation.draft_lengths(self.max_seqs)
        self.pairs = [(now, following) for now in lengths for following in lengths]
        self.tier = np.full((max(lengths) + 1, max(lengths) + 1), -1, dtype=np.int64)
        for index, pair in enumerate(self.pairs):
            self.tier[pair] = index
        context = max(self.max_context, 2)
        self.grid_ctx = ladder(context, 1.5, 256)
        self.grid_seqs = ladder(self.max_seqs, 2.0, 1)
        at = int(np.searchsorted(self.grid_ctx, TABLE_CONTEXT))
        self.at_node = min(at, len(self.grid_ctx) - 1)
        self.grid_tokens = token_ladder(self.max_tokens)
        self.grid_span = ladder(context, 2.0, 128, start=1)
        tiers = len(self.pairs)
        self.decode_s = np.full((tiers, self.max_seqs + 1, len(self.grid_ctx)), np.nan)
        self.mixed_s = np.full(
            (
                tiers,
                len(self.grid_seqs),
                len(self.grid_tokens),
                len(self.grid_span),
            ),
            np.nan,
        )

    def width(self, drafts: int) -> int:
        wide = self.speculation.verify_tokens
        return wide if drafts and wide else drafts + 1

    def fill(self, c: Core) -> None:
        """Ask for the nodes around the step that `c` has planned."""
        ints = c.ints
        now, following = int(ints[f.I_K_NOW]), int(ints[f.I_K_NEXT])
        tier = int(self.tier[now, following])
        seqs, context = int(ints[f.I_SCHEDULED]), float(mean_context(c))
        at = node_below(self.grid_ctx.tolist(), context)
        new = int(ints[f.I_NEW_TOKENS])
        if seqs > 0:
            for j in {at, at + 1} if new == 0 else {at, at + 1, self.at_node}:
                if math.isnan(self.decode_s[tier, seqs, j]):
                    total = seqs * float(self.grid_ctx[j])
                    shape = StepShape(seqs, self.width(now), total, (), following)
                    self.decode_s[tier, seqs, j] = self._ask(shape)
        if new == 0:
            return
        span = ints[f.I_SPAN_WORK] / new
        width = self.width(now)
        for a in self._around(self.grid_seqs, seqs):
            for b in self._around(self.grid_tokens, seqs * width + new):
                for d in self._around(self.grid_span, span):
                    if math.isnan(self.mixed_s[tier, a, b, d]):
                        self.mixed_s[tier, a, b, d] = self._mixed_node(
                            int(self.grid_seqs[a]),
                            width,
                            int(self.grid_tokens[b]),
                            float(self.grid_span[d]),
                            following,
                        )

    def _mixed_node(
        self, seqs: int, width: int, tokens: int, span: float, following: int
    ) -> float:
        """Price at a node of the mixed table. The sequences leave the rest of the tokens to
        prompts; where they leave none the price is continued from where they leave some."""

        context = seqs * float(self.grid_ctx[self.at_node])

        def price(prompt: int) -> float:
            chunks = chunks_like(prompt, span)
            return self._ask(StepShape(seqs, width, context, chunks, following))

        prompt = tokens - seqs * width
        if prompt >= 1:
            return price(prompt)
        least_s = price(1)
        return least_s + (price(1 + CONTINUED_OVER) - least_s) / CONTINUED_OVER * (prompt - 1)

    @staticmethod
    def _around(grid: NDArray[np.float64], x: float) -> tuple[int, ...]:
        i = node_below(grid.tolist(), x)
        if x == grid[i]:
            return (i,)
        return (i + 1,) if x == grid[i + 1] else (i, i + 1)

    def _ask(self, shape: StepShape) -> float:
        self.asked += 1
        return checked_seconds(self.cost, shape)

    def shape_of(self, c: Core) -> StepShape:
        """The planned step itself, chunk by chunk."""
        ints = c.ints
        chunks = []
        for j in range(ints[f.I_N_CHUNKS]):
            slot = c.chunk[f.C_SLOT][j]
            new, cached = int(c.chunk[f.C_NEW][j]), int(c.chunk[f.C_CACHED][j])
            last = cached + new >= c.slot[slot][f.S_TARGET]
            chunks.append(PrefillChunk(new, cached, bool(last)))
        seqs = int(ints[f.I_SCHEDULED])
        return StepShape(
            seqs,
            self.width(int(ints[f.I_K_NOW])),
            seqs * float(mean_context(c)),
            tuple(chunks),
            int(ints[f.I_K_NEXT]),
        )

    def check(self, c: Core) -> None:
        """Compare the price of the step in flight with the cost function."""
        if len(self.checked) < CHECKED_STEPS:
            exact = checked_seconds(self.cost, self.shape_of(c))
            self.checked.append((float(c.flts[f.X_STEP_S]), exact))

    def error(self) -> dict[str, float | int]:
        """Interpolation error on checked steps: relative, signed mean and largest."""
        gaps = [priced / exact - 1.0 for priced, exact in self.checked if exact > 0.0]
        return {
            "nodes": self.asked,
            "checked_steps": len(gaps),
            "mean_rel_error": sum(gaps) / len(gaps) if gaps else 0.0,
            "max_rel_error": max((abs(gap) for gap in gaps), default=0.0),
        }
