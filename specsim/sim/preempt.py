"""Requests that leave the engine, for good or to come again: blocks, rows and counters.

When blocks run out, the request that was admitted last (vLLM), or the one with the fewest tokens
(SGLang), loses all of its own and starts again from the head of the queue (recompute).

Functions here run as Python or compiled.
"""

# State is arrays or lists of numbers; what is read from it has no static type.
# mypy: disable-error-code="no-any-return"

from specsim.sim import fields as f
from specsim.sim.fields import Core
from specsim.sim.kv import release_blocks, take_blocks
from specsim.sim.streams import sit_out


def grow_or_preempt(c: Core, count: int, width: int) -> int:
    """Like `grow_rows` where blocks are short: preempt until the rest fits. Returns rows left."""
    ints = c.ints
    block = ints[f.I_BLOCK]
    reach = width + ints[f.I_LOOKAHEAD] + block - 1
    r = 0
    while r < count:
        need = int((c.rows[f.R_COMPUTED, r] + reach) // block - c.rows[f.R_HELD, r])
        if need <= 0:
            r += 1
            continue
        lost = False
        while need > ints[f.I_FREE]:
            victim = choose_victim(c)
            preempt(c, victim)
            if victim >= 0:
                if victim == r:
                    lost = True
                    break
                if victim < r:
                    r -= 1
        count = min(count, ints[f.I_N_ROWS])
        if lost:
            # SGLang's victim may stand before others that still need their blocks.
            continue
        c.rows[f.R_HELD, r] += need
        take_blocks(c, need)
        r += 1
    return count


def choose_victim(c: Core) -> int:
    """Row to preempt, or -1 for the last request in prefill."""
    ints = c.ints
    if ints[f.I_N_PREFILL] > 0:
        return -1
    last = ints[f.I_N_ROWS] - 1
    if not ints[f.I_VICTIM_FEWEST]:
        return last
    best = last
    for r in range(last + 1):
        slot = c.rows[f.R_SLOT, r]
        chosen = c.rows[f.R_SLOT, best]
        done = c.slot[slot][f.S_OUTPUT] - c.rows[f.R_REMAINING, r]
        fewest = c.slot[chosen][f.S_OUTPUT] - c.rows[f.R_REMAINING, best]
        if done < fewest or (
            done == fewest and c.slot[slot][f.S_PROMPT] > c.slot[chosen][f.S_PROMPT]
        ):
            best = r
    return best


def preempt(c: Core, row: int) -> None:
    """Take everything from row `row` (or the last request in prefill) and queue it in front."""
    ints = c.ints
    ints[f.I_PREEMPTED] += 1
    if row < 0:
        ints[f.I_N_PREFILL] -= 1
        slot = c.prefill[ints[f.I_N_PREFILL]]
        # Its chunk of this step, if it has one, is the last that was planned.
        if ints[f.I_N_CHUNKS] > 0 and c.chunk[f.C_SLOT][ints[f.I_N_CHUNKS] - 1] == slot:
            drop_chunk(c)
    else:
        slot = int(c.rows[f.R_SLOT, row])
        zombie = c.rows[f.R_ZOMBIE, row] != f.ROW_LIVE
        if not zombie and c.rows[f.R_STALLED, row] == 0:
            sit_out(c, row)
        remove_row(c, row)
        if zombie:
            ints[f.I_N_ZOMBIES] -= 1
            discard(c, slot)
            return
    if c.slot[slot][f.S_DROPPED]:
        discard(c, slot)
        return
    release_blocks(c, slot, c.slot[slot][f.S_COMPUTED])
    ints[f.I_N_PREEMPTIONS] += 1
    c.slot[slot][f.S_PREEMPTIONS] += 1
    done = c.slot[slot][f.S_OUTPUT] - c.slot[slot][f.S_REMAINING]
    c.slot[slot][f.S_TARGET] = c.slot[slot][f.S_PROMPT] + done
    c.slot[slot][f.S_COMPUTED] = 0
    c.slot[slot][f.S_WHERE] = f.WHERE_WAITING
    head = ints[f.I_W_HEAD] - 1
    if head < 0:
        head = len(c.wait) - 1
    c.wait[head] = slot
    ints[f.I_W_HEAD] = head
    ints[f.I_W_LEN] += 1


def discard(c: Core, slot: int) -> None:
    """Give up a request's place for good."""
    release_blocks(c, slot, c.slot[slot][f.S_COMPUTED])
    c.slot[slot][f.S_WHERE] = f.WHERE_NOWHERE
    c.freed[c.ints[f.I_N_FREED]] = slot
    c.ints[f.I_N_FREED] += 1


def drop_chunk(c: Core) -> None:
    ints = c.ints
    j = ints[f.I_N_CHUNKS] - 1
    new = c.chunk[f.C_NEW][j]
    ints[f.I_N_CHUNKS] = j
    ints[f.I_NEW_TOKENS] -= new
    ints[f.I_SPAN_WORK] -= new * (2 * c.chunk[f.C_CACHED][j] + new + 1) // 2


def save_blocks(c: Core, row: int) -> None:
    """Copy the blocks that a row holds back to its request."""
    slot = c.rows[f.R_SLOT, row]
    held = int(c.rows[f.R_HELD, row])
    c.slot[slot][f.S_PRIVATE] += held - c.slot[slot][f.S_HELD]
    c.slot[slot][f.S_HELD] = held
    c.slot[slot][f.S_COMPUTED] = int(c.rows[f.R_COMPUTED, row])


def save_row(c: Core, row: int) -> None:
    """Copy all that a row counts back to its request."""
    rows = c.rows
    slot = rows[f.R_SLOT, row]
    save_blocks(c, row)
    c.slot[slot][f.S_REMAINING] = int(rows[f.R_REMAINING, row])
    c.slot[slot][f.S_DRAW] = int(rows[f.R_DRAW, row] - slot * c.ints[f.I_DRAWS])
    c.slot[slot][f.S_ACCEPTED] = int(rows[f.R_ACCEPTED, row])
    c.slot[slot][f.S_VERIFY_STEPS] = int(rows[f.R_VERIFY_STEPS, row])
    c.slot[slot][f.S_DRAFTED] = int(rows[f.R_DRAFTED, row])
    c.slot[slot][f.S_STALLED] = int(rows[f.R_STALLED, row])


def remove_row(c: Core, row: int) -> None:
    """Save a row and take it out, keeping the order of the others."""
    ints = c.ints
    if c.rows[f.R_ZOMBIE, row] == f.ROW_LIVE:
        save_row(c, row)
    else:
        save_blocks(c, row)
    ints[f.I_CONTEXT] -= int(c.rows[f.R_COMPUTED, row])
    if c.rows[f.R_STALLED, row] != 0:
        ints[f.I_N_STALLED] -= 1
    last = ints[f.I_N_ROWS] - 1
    if row < last:
        for field in range(f.R_LENGTH):
            for r in range(row, last):
                c.rows[field, r] = c.rows[field, r + 1]
    ints[f.I_N_ROWS] = last
