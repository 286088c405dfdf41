"""What happens to all decoding requests of a step at once, vectorised with numpy.

`rows_loop` holds the same functions as plain loops: those become C, and the tests run both and
compare every byte. Everything here is integer arithmetic, so the order of operations cannot
matter. A row is one decoding request; the fields of `Core.rows` hold one number of every row.
"""

from bisect import bisect_right

import numpy as np

from specsim.sim.core import GONE, NO_DRAFT, Core
from specsim.sim.kv_nodes import take_blocks

# What draw, verify_steps and drafted gain in a step that verifies so many drafts.
_ADVANCE = [np.array([[1], [1], [drafts]], dtype=np.int64) for drafts in range(65)]


def node_below(grid: list[float], x: float) -> int:
    """Largest i < len(grid) - 1 with grid[i] <= x (0 if there is none). grid rises."""
    return min(max(bisect_right(grid, x) - 1, 0), len(grid) - 2)


def grow_rows(c: Core, count: int, width: int) -> bool:
    """Give the first `count` rows blocks for `width` more tokens and the lookahead.

    False, with nothing changed, if there are not enough.
    """
    rows = c.rows
    block = c.rules.block_size
    reach = width + c.rules.lookahead + block - 1
    need = (rows.computed[:count] + reach) // block - rows.held[:count]
    np.maximum(need, 0, out=need)
    total = int(np.add.reduce(need))
    if total == 0:
        return True
    total *= c.rules.full_blocks + c.rules.window_blocks
    if total > c.free_blocks:
        return False
    rows.held[:count] += need
    take_blocks(c, total)
    return True


def emit_rows(c: Core, count: int) -> int:
    """Draw what the step yields for the first `count` rows. Returns the tokens given out."""
    rows = c.rows
    drafts = c.drafts
    left = rows.remaining[:count]
    if drafts:
        draw = rows.draw[:count]
        # [accepted, draws, verify steps, drafted] of every row in this step
        gain = np.empty((4, count), dtype=np.int64)
        gain[1:] = _ADVANCE[1 if c.rules.ragged else drafts]
        accepted = gain[0]
        c.accept.take(draw, out=accepted, mode="clip")
        if c.rules.draws_skip:
            drafted = accepted != NO_DRAFT
            accepted *= drafted
            gain[2:] *= drafted
        if c.rules.ragged:
            depth = rows.depth[:count]
            np.minimum(accepted, depth, out=accepted)
            gain[1:3] *= depth > 0
            gain[3] *= depth
        elif drafts < c.rules.num_speculative_tokens:
            np.minimum(accepted, drafts, out=accepted)
        if c.rules.adaptive:
            c.step_accepted = int(np.add.reduce(accepted))
        if c.rules.asks_policy:
            size = len(c.accepted_rows)
            c.accepted_rows += np.bincount(accepted, minlength=size)
            c.complete_rows += np.bincount(accepted[accepted == gain[3]], minlength=size)
        rows.gains[:, :count] += gain
        accepted += 1
        got = np.minimum(accepted, left, out=accepted)
    else:
        got = np.minimum(left, 1)
    left -= got
    rows.computed[:count] += got
    c.least_left = int(np.minimum.reduce(left))
    tokens = int(np.add.reduce(got))
    c.context += tokens
    c.tokens += tokens
    return tokens


def ending_rows(c: Core) -> int:
    """Write the rows that have no token left to `picked`, in order. Returns how many there are."""
    rows = (c.rows.remaining[: c.n_rows] == 0).nonzero()[0]
    c.picked[: len(rows)] = rows
    return len(rows)


def fewest_left(c: Core) -> int:
    """Tokens that the row with the fewest has left. There is at least one row."""
    return int(np.minimum.reduce(c.rows.remaining[: c.n_rows]))


def draws_left(c: Core) -> int:
    """Draws that the row with the fewest has left. There is at least one row."""
    count, draws = c.n_rows, c.rules.draws
    places = c.rows.draw[:count] - c.rows.slot[:count] * draws
    return int(draws - np.maximum.reduce(places))


def close_gaps(c: Core) -> None:
    """Take out the rows that are gone, keeping the order of the others."""
    count = c.n_rows
    kept = c.rows.table[:, :count][:, c.rows.state[:count] != GONE]
    c.rows.table[:, : kept.shape[1]] = kept
    c.n_rows = kept.shape[1]
