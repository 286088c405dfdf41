"""Seconds of a planned step, by linear interpolation in tables of the latency model.

Two tables per pair (drafts verified, drafts proposed), filled by `surface` where a run needs them:

* decode_s[sequences, mean cached tokens]: exact in the number of sequences (CUDA graphs make it a
  staircase), linear between nodes of the context.
* mixed_s[sequences, tokens, mean span]: steps with prompt chunks, at one context. Tokens are all of
  the step, verified and prompt ones: they decide the matrix products. The span of a prompt token
  is how many tokens it attends to, itself included; chunks of equal total length and equal mean
  span cost the same attention.
* beside_s[sequences, mean cached tokens]: what another context of the decoding sequences changes
  in them. Beside prompts attention may run on another kernel, so it is not the decode table's.

Of steps with prompts the tables hold what the device takes, and by how much that exceeds the time
of the launches (`slack_s`), so that both can be interpolated where either binds.

Functions here run as Python or compiled, in the same order of operations.
"""

from specsim.sim.core import EXACT, INTERPOLATED, Core, Floats3, Floats4, Prices
from specsim.sim.rows import between_corners, node_below


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
    if c.new_tokens > 0:
        tokens = c.verified + c.new_tokens
        span = c.span_work / c.new_tokens
        further_s = further_seconds(prices, tier, seqs, context)
        seconds = mixed_seconds(prices, prices.mixed_s, tier, seqs, tokens, span) + further_s
    else:
        seconds = decode_seconds(prices, tier, seqs, context)
    if seconds != seconds:  # noqa: PLR0124 - NaN, in a form that compiles to one comparison
        return False
    c.step_s = c.free_s = seconds
    c.idle_s = 0.0
    if c.new_tokens > 0 and prices.launches:
        slack_s = mixed_seconds(prices, prices.slack_s, tier, seqs, tokens, span) + further_s
        c.idle_s = max(0.0, -slack_s)
        c.free_s = max(0.0, slack_s)
        c.step_s = seconds + c.idle_s
    return True


def further_seconds(prices: Prices, tier: int, seqs: int, context: float) -> float:
    """What this context adds to a step with prompts, against that of the mixed table."""
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


def decode_seconds(prices: Prices, tier: int, seqs: int, context: float) -> float:
    return at_context(prices, prices.decode_s, tier, seqs, context)


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


def mixed_seconds(
    prices: Prices, table: Floats4, tier: int, seqs: int, tokens: int, span: float
) -> float:
    a = node_below(prices.seqs, seqs)
    b = node_below(prices.tokens, tokens)
    d = node_below(prices.span, span)
    return between_corners(
        table, tier, a, b, d,
        share_above(prices.seqs, a, seqs),
        share_above(prices.tokens, b, tokens),
        share_above(prices.span, d, span),
    )


def share_above(grid: list[float], node: int, x: float) -> float:
    """How far x is from one node to the next, 0 to 1 in between."""
    return (x - grid[node]) / (grid[node + 1] - grid[node])
