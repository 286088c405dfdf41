"""The tables of step prices before any entry is known: their nodes and cells."""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from specsim.sim.config import SpeculationRules
from specsim.sim.core import Prices

TABLE_CONTEXT = 1024  # cached tokens per sequence (the next node) that `by_seqs_s` is for
TILE = 128  # tokens


def empty_tables(
    speculation: SpeculationRules, max_seqs: int, max_tokens: int, max_context: int
) -> Prices:
    """For steps of so many sequences and tokens, and so many cached tokens of each sequence."""
    lengths = speculation.draft_lengths(max_seqs)
    longest = max(lengths)
    tier = [[-1] * (longest + 2) for _ in range(longest + 1)]
    pairs = [(now, following) for now in lengths for following in lengths]
    policy = speculation.policy
    if policy is not None and policy.unloads:
        pairs += [(0, longest + 1)]  # no drafter in memory (`price.proposing`)
    for index, (now, following) in enumerate(pairs):
        tier[now][following] = index
    last = max(max_context, 2)
    context, seqs = ladder(last, 1.5, 128), ladder(max_seqs, 2.0, 1)
    # Where drafts differ, one token more of each sequence is priced, too (`price.interpolate`).
    cells, new = token_cells(max_tokens + max_seqs), ladder(max_tokens, 1.5, 16, start=1)
    chunks, cached = ladder(max_seqs, 1.5, 2, start=1), ladder(last, 2.0, 256)
    planes = len(pairs) * len(seqs)

    def beyond(first: int, grid: list[float]) -> NDArray[np.float64]:
        """Nothing is added at the first node: one chunk, no token before it."""
        table = np.full((first, len(grid), len(new), 2), np.nan)
        table[:, 0] = 0.0
        return table

    return Prices(
        tier, context, cells, new, seqs, chunks, cached,
        np.full((len(pairs), max_seqs + 1, len(context)), np.nan),
        np.full((len(pairs), len(seqs), len(context)), np.nan),
        np.full((planes, len(cells) - 1, 4), np.nan),
        beyond(len(pairs), seqs), beyond(planes, chunks), beyond(len(pairs), cached),
        mixed_at=min(bisect_left(context, TABLE_CONTEXT), len(context) - 1),
    )  # fmt: skip


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


def token_cells(last: int) -> list[float]:
    """First tokens of cells from 1 to `last`, and one beyond. Matrix products take whole tiles, so
    prices jump behind multiples of 64 or 128 tokens, and CUDA graphs (up to 512) pad to multiples
    of 8 or 16: where cells meet."""
    parts = ((16, 1, 513), (TILE // 2, 513, 1025), (TILE, 1025, 4097), (2 * TILE, 4097, last + 1))
    spans = [range(first, min(end, last + 1), step) for step, first, end in parts]
    starts = [float(start) for span in spans for start in span]
    return [*starts, float(last + 1)]
