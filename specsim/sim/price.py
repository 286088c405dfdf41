"""Seconds of a planned step, by linear interpolation in tables of the latency model.

Tables per pair (drafts verified, drafts proposed), filled by `surface` where a run needs them:

* decode_s[sequences, mean cached tokens]: exact in the number of sequences (CUDA graphs make it a
  staircase), linear between nodes of the context.
* prompt_s[cell]: steps of a single prompt chunk beside as many sequences as the node below has, by
  all tokens of the step, verified and prompt ones: they decide the matrix products. Price jumps
  after whole tiles of these, and where other kernels take over, so cells of tokens stand side by
  side, in each of which it is nearly a line.
* by_seqs_s, by_chunks_s, by_cached_s[node, prompt tokens]: what more sequences, several equal
  chunks in place of one, and tokens cached before a chunk (of each, by its own tokens) change, at
  the same tokens of the step. Kernels run one after the other, so what they add, adds up, and is
  smooth. Unequal chunks attend to more than equal ones do, as if that much were cached.
* beside_s[sequences, mean cached tokens]: what another context of the sequences changes. Beside
  prompts attention may run on another kernel, so it is not the decode table's.

The launches of an eager pass take the device's place where they are slower (`latency.launches`).
That is a kink, so the tables hold what lies on both sides of it: the work without the wait, and the
lead of the launches.
"""

import numpy as np

from specsim.sim.core import EXACT, INTERPOLATED, LEAD, WORK, Core, Floats3, Floats4, Prices
from specsim.sim.rows import node_below


def price_step(c: Core) -> bool:
    """Set `step_s`, `idle_s` and `free_s`. False if a table entry is missing (or all are, when
    pricing exactly), or it is time to check what the tables give."""
    if c.priced:
        c.priced = False
        return True
    mixed = c.new_tokens > 0
    if c.pricing == EXACT or (mixed and (c.pricing != INTERPOLATED or c.unchecked > c.check_after)):
        return False
    if not interpolate(c, c.prices):
        return False
    if mixed:
        c.unchecked += 1
    return True


def interpolate(c: Core, prices: Prices) -> bool:
    """Price the planned step from the tables; False if an entry is missing.

    Where drafts differ by request, the price lies between those of the two equal lengths around
    their mean: step time is near linear in the tokens."""
    below = mean_drafts(c)
    if not at_drafts(c, prices, below):
        return False
    share = drafts_above(c, below)
    if share == 0.0:
        return True
    step_s, idle_s, free_s = c.step_s, c.idle_s, c.free_s
    if not at_drafts(c, prices, below + 1):
        return False
    c.step_s = step_s + share * (c.step_s - step_s)
    c.idle_s = idle_s + share * (c.idle_s - idle_s)
    c.free_s = free_s + share * (c.free_s - free_s)
    return True


def proposing(c: Core) -> int:
    """Column of the tables: drafts proposed in the planned step, or one more than the most where
    there is no drafter in memory."""
    return c.rules.num_speculative_tokens + 1 if c.unloaded else c.next_drafts


def mean_drafts(c: Core) -> int:
    """Drafts that a scheduled request verifies, rounded down where they differ."""
    return c.verified // c.scheduled - 1 if c.rules.ragged and c.scheduled > 0 else c.drafts


def drafts_above(c: Core, below: int) -> float:
    """By how much of a draft the mean lies above `below`."""
    return c.verified / c.scheduled - 1 - below if c.rules.ragged and c.scheduled > 0 else 0.0


def at_drafts(c: Core, prices: Prices, drafts: int) -> bool:
    """Set the prices of the planned step from the tables of steps that verify `drafts`."""
    seqs = c.scheduled
    tier = prices.tier[drafts][proposing(c)]
    if tier < 0:
        return False
    context = mean_context(c)
    if c.new_tokens == 0:
        seconds = at_context(prices, prices.decode_s, tier, seqs, context)
        if is_missing(seconds):
            return False
        c.step_s = c.free_s = seconds
        c.idle_s = 0.0
        return True
    plane, tokens = plane_of(c, prices, tier), seqs * step_width(c, drafts) + c.new_tokens
    work_s = mixed_seconds(c, prices, tier, plane, tokens, WORK)
    lead_s = mixed_seconds(c, prices, tier, plane, tokens, LEAD)
    further_s = further_seconds(prices, tier, seqs, context)
    work_s += further_s
    lead_s += further_s
    if is_missing(work_s):
        return False
    c.idle_s = max(0.0, -lead_s)
    c.free_s = max(0.0, lead_s)
    c.step_s = work_s + c.idle_s
    return True


def further_seconds(prices: Prices, tier: int, seqs: int, context: float) -> float:
    """What this context adds to a step with prompts, against that of the other tables."""
    if seqs == 0:
        return 0.0
    a = node_below(prices.seqs, seqs)
    share = share_above(prices.seqs, a, seqs)
    known = prices.context[prices.mixed_at]
    seconds = 0.0
    # A node without weight may have no price yet.
    if share < 1.0:
        below_s = at_context(prices, prices.beside_s, tier, a, context)
        seconds += (1.0 - share) * (below_s - at_context(prices, prices.beside_s, tier, a, known))
    if share > 0.0:
        above_s = at_context(prices, prices.beside_s, tier, a + 1, context)
        seconds += share * (above_s - at_context(prices, prices.beside_s, tier, a + 1, known))
    return seconds


def is_missing(seconds: float) -> bool:
    """Whether a table entry was (NaN), or stands for asking at each step (infinite)."""
    return not seconds < np.inf


def no_prompt_ends(c: Core) -> int:
    """1 for a step in which nothing needs a token, so that nothing is drafted: nobody decodes, and
    of every prompt something is left. Else 0."""
    if c.scheduled > 0:
        return 0
    for j in range(c.n_chunks):
        chunk = c.chunks[j]
        if chunk.cached + chunk.new >= c.slots[chunk.slot].target:
            return 0
    return 1


def plane_of(c: Core, prices: Prices, tier: int) -> int:
    """Where `prompt_s` has the planned step: by the node of its sequences, none of which is the
    last."""
    count = len(prices.seqs)
    return tier * count + (count - 1 if no_prompt_ends(c) else node_below(prices.seqs, c.scheduled))


def uneven_span(c: Core) -> float:
    """By how many tokens more a prompt token attends to its own chunk than if all were equal."""
    squares = 0
    for j in range(c.n_chunks):
        squares += int(c.chunks[j].new) * int(c.chunks[j].new)
    return max(0.0, squares / c.new_tokens - c.new_tokens / c.n_chunks) / 2


def step_width(c: Core, drafts: int) -> int:
    """Tokens that a decoding request takes part with when it verifies `drafts`."""
    if drafts > 0 and c.rules.verify_tokens > 0:
        return c.rules.verify_tokens
    return drafts + 1


def scheduled_context(c: Core) -> int:
    """Cached tokens of the scheduled decoding requests."""
    if c.scheduled == 0:
        return 0
    total = c.context
    for r in range(c.scheduled, c.n_rows):
        total -= int(c.rows.computed[r])
    return total


def mean_context(c: Core) -> float:
    """Cached tokens per scheduled decoding request."""
    return scheduled_context(c) / c.scheduled if c.scheduled > 0 else 0.0


def at_context(prices: Prices, table: Floats3, tier: int, row: int, context: float) -> float:
    """An entry of a table over contexts. The node at `mixed_at` may be the only one priced."""
    j = node_below(prices.context, context)
    below = float(table[tier, row, j])
    if context == prices.context[j]:
        return below
    above = float(table[tier, row, j + 1])
    if context == prices.context[j + 1]:
        return above
    return below + (above - below) * share_above(prices.context, j, context)


def mixed_seconds(c: Core, prices: Prices, tier: int, plane: int, tokens: int, part: int) -> float:
    """WORK or LEAD of the planned step, if it has `tokens` in all, with the sequences at the
    context of the tables."""
    new = float(c.new_tokens)
    i = node_below(prices.cells, tokens)
    low, width = prices.cells[i], prices.cells[i + 1] - prices.cells[i] - 1.0
    total = float(prices.prompt_s[plane, i, 2 * part])
    if width > 0.0:
        rise = float(prices.prompt_s[plane, i, 2 * part + 1]) - total
        total += rise * ((tokens - low) / width)
    more = node_below(prices.seqs, c.scheduled)
    share = share_above(prices.seqs, more, c.scheduled)
    if share > 0.0:
        total += share * along(prices.by_seqs_s, prices.new, tier, more + 1, new, part)
    count, uneven = float(c.n_chunks), uneven_span(c)
    total += added(prices.by_chunks_s, prices.chunks, prices.new, plane, count, new, part)
    cached_s, cached = prices.by_cached_s, prices.cached
    if uneven > 0.0:
        total += added(cached_s, cached, prices.new, tier, uneven, new, part)
    behind = 0.0
    for j in range(c.n_chunks):
        chunk = c.chunks[j]
        if chunk.cached > 0:
            before, tokens_of_it = float(chunk.cached), float(chunk.new)
            behind += added(cached_s, cached, prices.new, tier, before, tokens_of_it, part)
    # Attention groups read what lies before their chunks at the same time.
    return total + behind / max(1, min(c.rules.groups, c.n_chunks))


def added(
    table: Floats4, grid: list[float], tokens: list[float], first: int, x: float, new: float,
    part: int,
) -> float:  # fmt: skip
    """Bilinear interpolation in table[first] at x of `grid` and `new` prompt tokens."""
    node = node_below(grid, x)
    share = share_above(grid, node, x)
    total = 0.0
    if share < 1.0:  # entries without weight may have no price yet
        total += (1.0 - share) * along(table, tokens, first, node, new, part)
    if share > 0.0:
        total += share * along(table, tokens, first, node + 1, new, part)
    return total


def along(
    table: Floats4, tokens: list[float], first: int, node: int, new: float, part: int
) -> float:  # fmt: skip
    """Linear interpolation in table[first, node] at `new` prompt tokens."""
    at = node_below(tokens, new)
    share = share_above(tokens, at, new)
    total = 0.0
    if share < 1.0:
        total += (1.0 - share) * float(table[first, node, at, part])
    if share > 0.0:
        total += share * float(table[first, node, at + 1, part])
    return total


def share_above(grid: list[float], node: int, x: float) -> float:
    """How far x is from one node to the next, 0 to 1 in between."""
    return (x - grid[node]) / (grid[node + 1] - grid[node])
