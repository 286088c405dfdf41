"""What happens to all decoding requests of a step at once, vectorised with numpy.

`rows_loop` holds the same functions as plain loops: numba compiles those, and the tests run both
and compare every byte. Everything here is integer arithmetic, so the order of operations cannot
matter. A row is one decoding request; rows are columns of `Core.rows`.
"""

import numpy as np

from specsim.sim import fields as f
from specsim.sim.fields import Core
from specsim.sim.kv import take_blocks


def grow_rows(c: Core, count: int, width: int) -> bool:
    """Give the first `count` rows blocks for `width` more tokens and the lookahead.

    False, with nothing changed, if there are not enough.
    """
    rows = c.rows
    block = c.ints[f.I_BLOCK]
    reach = width + c.ints[f.I_LOOKAHEAD] + block - 1
    need = (rows[f.R_COMPUTED, :count] + reach) // block - rows[f.R_HELD, :count]
    if np.maximum.reduce(need) <= 0:
        return True
    np.maximum(need, 0, out=need)
    total = int(np.add.reduce(need))
    if total > c.ints[f.I_FREE]:
        return False
    rows[f.R_HELD, :count] += need
    take_blocks(c, total)
    return True


def emit_rows(c: Core, count: int) -> int:
    """Draw what the step yields for the first `count` rows. Returns the tokens given out."""
    ints, rows = c.ints, c.rows
    drafts = ints[f.I_K_NOW]
    left = rows[f.R_REMAINING, :count]
    if drafts:
        draw = rows[f.R_DRAW, :count]
        drawn = c.accept.take(draw)
        accepted = drawn.astype(np.int64)
        if drafts < ints[f.I_K_MAX] or ints[f.I_SKIPS]:
            np.minimum(accepted, drafts, out=accepted)
        if ints[f.I_SKIPS]:
            drafted = drawn != f.NO_DRAFT
            accepted *= drafted
            rows[f.R_VERIFY_STEPS, :count] += drafted
            rows[f.R_DRAFTED, :count] += drafted * drafts
        else:
            rows[f.R_VERIFY_STEPS, :count] += 1
            rows[f.R_DRAFTED, :count] += drafts
        rows[f.R_ACCEPTED, :count] += accepted
        if ints[f.I_ADAPTIVE]:
            ints[f.I_STEP_ACCEPTED] = int(np.add.reduce(accepted))
        accepted += 1
        if ints[f.I_BY_POSITION]:
            draw += accepted
        else:
            draw += 1
        got = np.minimum(accepted, left, out=accepted)
    else:
        got = np.minimum(left, 1)
    left -= got
    rows[f.R_COMPUTED, :count] += got
    ints[f.I_ENDED] = int(np.minimum.reduce(left) == 0)
    tokens = int(np.add.reduce(got))
    ints[f.I_CONTEXT] += tokens
    ints[f.I_TOKENS] += tokens
    return tokens


def keep_rows(c: Core, keep: np.ndarray) -> None:
    """Close the gaps of rows that left, keeping the order. keep: bool per row."""
    count = c.ints[f.I_N_ROWS]
    kept = c.rows[:, :count][:, keep]
    c.rows[:, : kept.shape[1]] = kept
    c.ints[f.I_N_ROWS] = kept.shape[1]
