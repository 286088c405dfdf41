"""Draft positions that were drafted, among those a server was configured for.

vLLM prints and counts num_speculative_tokens positions whatever was drafted. With a table by batch
size (`num_speculative_tokens_per_batch_size`) below that number the last positions are never
drafted: their zeros are no rejections. drafted / drafts, the mean length of a draft, tells.
"""

import math
from collections.abc import Sequence

SHORT = 0.05  # tokens per draft by which ends of answers and grammars shorten drafts
_ROUNDING = 0.01  # drafts that are derived from a printed length are off by less


def drafted_positions(
    rates: Sequence[float], drafts: float | None, drafted: float | None
) -> tuple[float, ...]:
    """Unconditional rates without the last positions that nothing shows to have been drafted:
    beyond the mean draft length, and never accepted."""
    if not drafts or not drafted:
        return tuple(rates)
    least = math.ceil(drafted / drafts - _ROUNDING)
    known = len(rates)
    while known > max(1, least) and rates[known - 1] == 0:
        known -= 1
    return tuple(rates[:known])


def undrafted_note(configured: int, drafted: int, mean: float | None = None) -> list[str]:
    """What people are told where positions were left out, or drafted at times only. mean: tokens
    per draft."""
    notes = []
    if 0 < drafted < configured:
        notes.append(
            f"of {configured} configured positions only the first {drafted} were drafted; the "
            "others are no rejections"
        )
    if mean is not None and mean < drafted - SHORT:
        notes.append(
            f"a draft had {mean:.3g} of {drafted} tokens on average: rates are of all drafts, also "
            "of those that ended before the position"
        )
    return notes


def pooled_rates(
    parts: Sequence[tuple[float | None, Sequence[float]]],
) -> tuple[float, ...]:
    """Unconditional rates over (drafts, rates) of several times, each weighed by its drafts.

    A position is judged by the parts that drafted it, given the positions before it: where one
    part drafted 2 tokens and another 4, the third is that of the second part."""
    out: list[float] = []
    reach = 1.0
    for i in range(max((len(rates) for _, rates in parts), default=0)):
        deep = [(drafts or 0.0, rates) for drafts, rates in parts if len(rates) > i]
        came = math.fsum(n * (rates[i - 1] if i else 1.0) for n, rates in deep)
        taken = math.fsum(n * rates[i] for n, rates in deep)
        reach *= min(1.0, taken / came) if came > 0 else 0.0
        out.append(reach)
    return tuple(out)
