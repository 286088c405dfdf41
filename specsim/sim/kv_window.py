"""Blocks of layers that need only the end of what is cached: a window, or a state's last snapshot.

vLLM's hybrid manager, 0.10 on (v1/core/single_type_kv_cache_manager.py): what the window has passed
is freed while the request runs. Those blocks join the queue like any others, still findable, and
whoever needs memory takes them. A prefix can be used only up to where its last window is present in
every group of layers. Where an engine keeps the last window of prompts only (`keeps_last_window`),
the others are taken first.

A prompt's units stand in nodes of `segment` units each, keyed by their number after their piece. A
request uses the nodes that reach into its units from `passed` to `shown`; its further units are its
own. Decoding requests move on together, every SWEEP steps.
"""

from specsim.sim.core import NO_NODE, ROOT, Core
from specsim.sim.kv_nodes import (
    enter_queue,
    find_node,
    give_blocks,
    last_piece,
    leave_queue,
    new_node,
)

SWEEP = 16
# What `walk` does with the nodes it comes by.
COUNT, HOLD, SHOW = range(3)
FIRST_KEY = -2  # of a piece's first segment; keys of pieces are 0 or more
TO_THE_END = 1 << 60


def window_start(c: Core, tokens: int) -> int:
    """First unit that the token after `tokens` computed ones needs."""
    return max(0, tokens + 1 - c.rules.window_tokens) // c.rules.block_size


def walk(c: Core, slot: int, low: int, high: int, action: int) -> int:
    """Go through the segments of a request's pieces that reach into its units low..high.

    COUNT: blocks that no request uses. HOLD: use them. SHOW: what was the request's own is theirs;
    returns units that another request had brought already.
    """
    cache, rules = c.cache, c.rules
    request = c.slots[slot]
    size = rules.segment
    parent = ROOT
    start = 0
    total = 0
    last = request.first_piece + request.pieces - 1
    for j in range(request.first_piece, last + 1):
        if start >= high:
            break
        end = cache.piece_end[j] // rules.block_size
        end = high if j == last and request.grows else min(end, high)
        piece = find_node(cache, parent, cache.piece_key[j])
        parent = cache.nodes[piece].serial
        for index in range(max(0, low - start) // size, (end - start + size - 1) // size):
            at = start + index * size
            node = find_node(cache, parent, FIRST_KEY - index)
            if action == COUNT:
                if node != NO_NODE and cache.nodes[node].users == 0:
                    held = cache.nodes[node].units * rules.window_blocks
                    total += min(held, cache.nodes[node].blocks)
                continue
            if node == NO_NODE:
                node = new_node(cache, parent, FIRST_KEY - index)
                cache.nodes[node].users = 1
            elif action == HOLD or at >= request.shown:
                if cache.nodes[node].users == 0:
                    leave_queue(c, node, cache.nodes[node].units, rules.window_blocks)
                cache.nodes[node].users += 1
            first = max(low - at, 0)
            stop = min(end - at, size)
            if action == SHOW and stop > first:
                segment = cache.nodes[node]
                added = max(0, stop - max(segment.units, first))
                segment.units = max(segment.units, stop)
                segment.blocks += added * rules.window_blocks
                total += stop - first - added
        start = cache.piece_end[j] // rules.block_size
    return total


def window_reach(c: Core, slot: int, hits: int) -> int:
    """Most of the leading `hits` units after which a prompt can go on: the window before is there.

    What is left out for a drafter (`drop_last_cached_block`) need not be seen whole.
    """
    cache, rules = c.cache, c.rules
    request = c.slots[slot]
    drop = 1 if rules.drop_last_cached_block else 0
    size = rules.segment
    parent = ROOT
    start = 0
    run = 0  # all units from here on are present
    best = 0
    for j in range(request.first_piece, request.first_piece + request.pieces):
        if start >= hits + drop:
            break
        piece = find_node(cache, parent, cache.piece_key[j])
        parent = cache.nodes[piece].serial
        end = min(cache.piece_end[j] // rules.block_size, hits + drop)
        for index in range((end - start + size - 1) // size):
            at = start + index * size
            node = find_node(cache, parent, FIRST_KEY - index)
            stop = min(at + size, end)
            present = at
            if node != NO_NODE:
                present = min(stop, at + cache.nodes[node].units)
            usable = present - drop
            if usable > best and window_start(c, usable * rules.block_size) >= run:
                best = usable
            if present < stop:
                run = stop
        start = cache.piece_end[j] // rules.block_size
    return best


def unused_in_window(c: Core, slot: int, hits: int) -> int:
    """Blocks in the queue that a request uses which goes on after `hits` units."""
    low = window_start(c, hits * c.rules.block_size)
    return walk(c, slot, low, hits, COUNT)


def hold_window(c: Core, slot: int, hits: int) -> None:
    """The request goes on after `hits` units and holds the window before them."""
    low = window_start(c, hits * c.rules.block_size)
    walk(c, slot, low, hits, HOLD)
    c.slots[slot].passed = low
    c.slots[slot].shown = hits


def show_window(c: Core, slot: int, high: int) -> None:
    """The request's own blocks of its pieces, up to unit `high`, become findable by others."""
    request = c.slots[slot]
    if request.pieces == 0:
        return
    low = max(request.passed, request.shown)
    if not request.grows:
        last = request.first_piece + request.pieces - 1
        high = min(high, c.cache.piece_end[last] // c.rules.block_size)
    if high > low:
        brought = walk(c, slot, low, high, SHOW)
        request.shown = high
        if brought > 0:
            give_blocks(c, brought * c.rules.window_blocks, False)


def move_window(c: Core, slot: int, computed: int) -> None:
    """After `computed` tokens of a prompt: others may find them, and what is passed is freed."""
    request, rules = c.slots[slot], c.rules
    high = computed // rules.block_size
    start = window_start(c, computed)
    if rules.prefix_caching and rules.keeps_last_window:
        # Where a prompt that comes again goes on: all but its last token may be found.
        again = (request.prompt_tokens - 1) // rules.block_size
        if high >= again > request.shown:
            seen = again - 1 if rules.drop_last_cached_block else again
            pass_window(c, slot, min(start, window_start(c, seen * rules.block_size)))
            show_window(c, slot, again)
    elif rules.prefix_caching:
        show_window(c, slot, high)
    pass_window(c, slot, start)


def pass_window(c: Core, slot: int, start: int) -> None:
    """The request needs no unit before `start` any more."""
    request = c.slots[slot]
    if start <= request.passed:
        return
    c.admission_blocked = False
    own = start - max(request.passed, request.shown)
    leave_segments(c, slot, start)
    request.passed = start
    if own > 0:
        give_blocks(c, own * c.rules.window_blocks, c.rules.keeps_last_window)


def leave_segments(c: Core, slot: int, until: int) -> None:
    """Stop using the nodes that end by unit `until`, last one first. They reach in between `passed`
    and `shown`; the last of a piece may end behind it."""
    cache, rules = c.cache, c.rules
    request = c.slots[slot]
    size = rules.segment
    if request.shown == 0 or request.shown + size <= request.passed:
        return
    piece = last_piece(c, slot)
    high = request.shown
    for back in range(request.pieces):
        j = request.first_piece + request.pieces - 1 - back
        start = cache.piece_end[j - 1] // rules.block_size if j > request.first_piece else 0
        parent = cache.nodes[piece].serial
        first = max(0, request.passed - start) // size
        count = max(0, (min(high, until) - start + size - 1) // size)
        for skipped in range(count - first):
            index = count - 1 - skipped
            if start + (index + 1) * size <= until:
                node = find_node(cache, parent, FIRST_KEY - index)
                cache.nodes[node].users -= 1
                if cache.nodes[node].users == 0:
                    enter_queue(c, node)
        high = min(high, start)
        piece = cache.nodes[piece].above


def receive_window(c: Core, slot: int, start: int) -> None:
    """Another replica computed the prompt: the request holds its window from unit `start` on, its
    own, and nothing that was found before it."""
    leave_segments(c, slot, TO_THE_END)
    c.slots[slot].shown = 0
    c.slots[slot].passed = start


def leave_window(c: Core, slot: int) -> int:
    """The request ends: it stops using its nodes. Returns the blocks that are its own."""
    request = c.slots[slot]
    leave_segments(c, slot, TO_THE_END)
    own = request.held - max(request.passed, request.shown)
    request.passed = request.shown = 0
    return own * c.rules.window_blocks


def sweep(c: Core) -> None:
    """The windows of all decoding requests move on."""
    for r in range(c.n_rows):
        slot = int(c.rows.slot[r])
        pass_window(c, slot, window_start(c, int(c.rows.computed[r])))
