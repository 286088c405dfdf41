"""Sequences of a batch are not equally long, which matters in two places.

Under a sliding window the mean of min(context, window) is below min(mean context, window). And on a
kernel that gives a block of threads a whole context, a call lasts as long as its longest block.
Contexts are taken to follow a gamma law with the mean and the coefficient of variation of the load.
"""

from functools import lru_cache
from math import ceil
from typing import NamedTuple

SAMPLE = 256  # sequences in the batches of `batches`, or one batch where that is larger


class Contexts(NamedTuple):
    """Contexts of a batch: mean tokens, coefficient of variation, and what of each is seen at
    most (0: all)."""

    mean: float
    variation: float
    window: float = 0.0


@lru_cache(maxsize=256)
def spread_factors(variation: float, parts: int) -> tuple[float, ...]:
    """Means of the parts of equal probability of a gamma law of mean 1 with this coefficient of
    variation, ascending; they average to 1."""
    if variation <= 0.0:
        return (1.0,) * parts
    from scipy.special import gammainc, gammaincinv

    shape = variation**-2
    limits = [float(gammaincinv(shape, i / parts)) for i in range(parts)]
    below = [float(gammainc(shape + 1.0, x)) for x in limits] + [1.0]
    return tuple(parts * (below[i + 1] - below[i]) for i in range(parts))


def causal_keys(cached: float, new: float, limit: float = 0.0) -> float:
    """Mean keys seen by one of `new` causal queries after `cached` tokens, each at most `limit`
    (0: all)."""
    if not limit or cached + new <= limit:
        return cached + (new + 1) / 2
    short = max(0.0, min(new, limit - cached))  # queries that see less
    return (short * (cached + (short + 1) / 2) + (new - short) * limit) / new


def mean_seen(context: float, variation: float, window: float) -> float:
    """Mean over sequences of min(context, window); window 0: the mean context."""
    if not window:
        return context
    if variation <= 0.0 or context <= 0.0:
        return min(context, float(window))
    from scipy.special import gammainc

    shape = variation**-2
    limit = shape * window / context
    whole, cut = gammainc(shape + 1.0, limit), 1.0 - gammainc(shape, limit)
    return float(context * whole + window * cut)


@lru_cache(maxsize=256)
def batches(seqs: int, variation: float) -> tuple[tuple[float, ...], ...]:
    """Batches of `seqs` contexts, in units of their mean, that together are the law: its parts,
    dealt in a fixed random order."""
    from random import Random

    count = ceil(SAMPLE / seqs)
    factors = list(spread_factors(variation, count * seqs))
    Random(0).shuffle(factors)
    return tuple(tuple(factors[i * seqs : (i + 1) * seqs]) for i in range(count))
