"""What numpy does elsewhere at once, as plain loops that become C: the functions of `rows`, and
`acceptance`'s draws. Same results to the byte."""

from specsim.sim.core import GONE, NO_DRAFT, Core, Draws, Floats, Floats2, Ints
from specsim.sim.kv_nodes import take_blocks


def node_below_loop(grid: list[float], x: float) -> int:
    low = 0
    high = len(grid) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if grid[middle] <= x:
            low = middle
        else:
            high = middle
    return low


def grow_rows_loop(c: Core, count: int, width: int) -> bool:
    block = c.rules.block_size
    reach = width + c.rules.lookahead + block - 1
    computed = c.rows.computed
    held = c.rows.held
    # Rows that lack a block, without a jump that depends on it; only those are worth a division.
    lacking = c.picked
    found = 0
    for r in range(count):
        lacking[found] = r
        found += computed[r] + reach >= (held[r] + 1) * block
    if found == 0:
        return True
    total = 0
    for j in range(found):
        r = lacking[j]
        total += (computed[r] + reach) // block - held[r]
    total *= c.rules.full_blocks + c.rules.window_blocks
    if total > c.free_blocks:
        return False
    for j in range(found):
        r = lacking[j]
        held[r] = (computed[r] + reach) // block
    take_blocks(c, total)
    return True


def emit_rows_loop(c: Core, count: int) -> int:
    drafts = c.drafts
    skips = c.rules.draws_skip
    ragged = c.rules.ragged
    asks = c.rules.asks_policy
    accept = c.accept
    depths = c.rows.depth
    left = c.rows.remaining
    computed = c.rows.computed
    draw = c.rows.draw
    accepted_sum = c.rows.accepted
    verify_steps = c.rows.verify_steps
    drafted = c.rows.drafted
    tokens = 0
    all_accepted = 0
    least = left[0]
    for r in range(count):
        got = 1
        if drafts > 0:
            depth = int(depths[r]) if ragged else drafts
            drawn = int(accept[draw[r]])
            accepted = min(drawn, depth)
            if skips > 0 and drawn == NO_DRAFT:
                accepted = depth = 0
            elif depth > 0:
                verify_steps[r] += 1
                drafted[r] += depth
            if asks > 0:
                c.accepted_rows[accepted] += 1
                c.complete_rows[accepted] += accepted == depth
            accepted_sum[r] += accepted
            all_accepted += accepted
            got = accepted + 1
            if not ragged or depths[r] > 0:
                draw[r] += 1
        got = min(got, left[r])
        left[r] -= got
        computed[r] += got
        tokens += got
        least = min(least, left[r])
    if c.rules.adaptive > 0:
        c.step_accepted = all_accepted
    c.least_left = least
    c.context += tokens
    c.tokens += tokens
    return tokens


def ending_rows_loop(c: Core) -> int:
    found = 0
    for r in range(c.n_rows):
        if c.rows.remaining[r] == 0:
            c.picked[found] = r
            found += 1
    return found


def fewest_left_loop(c: Core) -> int:
    left = c.rows.remaining
    least = int(left[0])
    for r in range(1, c.n_rows):
        least = min(least, int(left[r]))
    return least


def draws_left_loop(c: Core) -> int:
    draws = c.rules.draws
    most = 0
    for r in range(c.n_rows):
        most = max(most, int(c.rows.draw[r] - c.rows.slot[r] * draws))
    return draws - most


def close_gaps_loop(c: Core) -> None:
    table = c.rows.table
    to = 0
    for r in range(c.n_rows):
        if c.rows.state[r] != GONE:
            if to != r:
                for field in range(len(table)):
                    table[field, to] = table[field, r]
            to += 1
    c.n_rows = to


def draw_steps(
    states: Ints, moves: Floats, uniform: Floats, thresholds: Floats2, step_levels: int,
    passed: Draws,
) -> None:  # fmt: skip
    """Thresholds passed [request, step] on a uniform number each. states [request]: before the
    first step, then after the last. moves: below `step_levels` where the latent level changes, to
    what; none if it never does. See `acceptance.SpreadDraws`."""
    steps = len(passed) // len(states)
    at = 0
    for r in range(len(states)):
        state = states[r]
        first = state - state % step_levels
        for _step in range(steps):
            count = 0
            for i in range(len(thresholds)):
                count += uniform[at] < thresholds[i, state]  # no jump that could be foretold
            passed[at] = count
            if len(moves) > 0 and moves[at] < step_levels:
                state = first + int(moves[at])
            at += 1
        states[r] = state
