"""Where a condition begins to hold: integer and real bisection, once for the whole product.

All functions take a predicate or a function that is monotone, ask it as seldom as halving allows,
and say what they return where it is not. A curve with humps (routed models lose before they win
again as the batch grows) is scanned by doubling first, so that its first crossing is found.
"""

from collections.abc import Callable


def first_between(holds: Callable[[int], bool], below: int, at: int) -> int:
    """Smallest whole number above `below`, up to `at`, for which `holds` is true.

    It is taken to be false at `below` and true at `at`; neither is asked. With several crossings
    between them one of them is returned."""
    while at - below > 1:
        middle = (below + at + 1) // 2
        if holds(middle):
            at = middle
        else:
            below = middle
    return at


def first_from_one(
    holds: Callable[[int], bool], limit: int, resolution: float = 0.0
) -> int | None:
    """Smallest whole number from 1 to `limit` for which `holds` is true, as far as powers of two
    (and `limit`) show a crossing; None where none of them holds.

    resolution: share of the answer that it may lie too high (0: exact), which saves calls."""
    below, at = 0, 1
    while not holds(at):
        if at >= limit:
            return None
        below, at = at, min(limit, at * 2)
    while at - below > max(1, int(at * resolution)):
        middle = (below + at) // 2
        if holds(middle):
            at = middle
        else:
            below = middle
    return at


def rising_root(
    function: Callable[[float], float], target: float, high: float, *, low: float = 0.0,
    resolution: float = 0.0,
) -> float:
    """x in [low, high] with function(x) = target for a rising function, at most `resolution` too
    high (0: to the last bit).

    Of the two neighbouring numbers around the crossing the upper one is returned."""
    while True:
        middle = 0.5 * (low + high)
        if middle in (low, high) or high - low <= resolution:
            return high
        if function(middle) < target:
            low = middle
        else:
            high = middle
