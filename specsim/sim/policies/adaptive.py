"""Adaptive draft length as SGLang does it: by batch size, then by what was accepted lately.

`Core.adapt` holds one line per batch tier: the lowest number of requests, then the draft lengths
to choose from, shortest first (padded with -1). An exponential mean of the accepted drafts per
request and step decides within a tier, every few steps: up while it exceeds the current length
- 0.5, down while it is at most the next shorter length - 0.5 - 0.25. (SGLang 0.5 server defaults
as listed in its documentation; the thresholds are recalled from its source.)
"""

from specsim.sim.core import Core

Tiers = tuple[tuple[int, tuple[int, ...]], ...]  # (lowest batch, draft lengths)
ADAPT_WARM_UP = 10
ADAPT_EVERY = 5
EMA_WEIGHT = 0.2
UP_MARGIN = 0.5
DOWN_MARGIN = 0.75


def tier_lines(tiers: Tiers, k: int) -> list[list[int]]:
    """`Core.adapt` of the tiers with drafts of at most k, lines of equal length."""
    widest = max((len(lengths) for _, lengths in tiers), default=0)
    return [
        [batch, *(min(drafts, k) for drafts in lengths), *[-1] * (widest - len(lengths))]
        for batch, lengths in tiers
    ] or [[-1]]


def observe_step(c: Core) -> None:
    """Take in what the step just ended has accepted, and reconsider if it is time."""
    if c.drafts == 0 or c.scheduled == 0:
        return
    accepted = c.step_accepted / c.scheduled
    if c.adapt_steps == 0:
        c.accepted_mean = accepted
    else:
        c.accepted_mean += EMA_WEIGHT * (accepted - c.accepted_mean)
    c.adapt_steps += 1
    if c.adapt_steps < ADAPT_WARM_UP or c.adapt_steps % ADAPT_EVERY != 0:
        return
    tier = tier_of_batch(c, c.scheduled)
    lengths = c.adapt[tier]
    at = place_in_tier(c, tier)
    last = len(lengths) - 1
    while at > 1 and c.accepted_mean <= lengths[at - 1] - DOWN_MARGIN:
        at -= 1
    while at < last and lengths[at + 1] >= 0:
        if c.accepted_mean <= lengths[at] - UP_MARGIN:
            break
        at += 1
    c.adapt_k = lengths[at]


def adaptive_drafts(c: Core, asked: int) -> int:
    """Drafts to propose for `asked` requests: the choice in force, within their tier."""
    tier = tier_of_batch(c, asked)
    return int(c.adapt[tier][place_in_tier(c, tier)])


def tier_of_batch(c: Core, asked: int) -> int:
    tier = 0
    for i in range(len(c.adapt)):
        if asked >= c.adapt[i][0]:
            tier = i
    return tier


def place_in_tier(c: Core, tier: int) -> int:
    """Column of the longest draft of the tier that is not above the choice in force."""
    at = 1
    lengths = c.adapt[tier]
    for i in range(1, len(lengths)):
        if 0 <= lengths[i] <= c.adapt_k:
            at = i
    return at
