"""The KV memory of requests and the prefixes they share, on the arrays of `Core`.

Content is compared with everything before it: a unit belongs to the piece that it ends in. Layers
that keep everything have one node per piece (`kv_nodes`), those that see a window several
(`kv_window`); a prefix is found only as far as all of them hold it.
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
from specsim.sim.kv_window import (
    hold_window,
    leave_window,
    show_window,
    unused_in_window,
    window_reach,
)


def nodes_needed(c: Core, entering: int) -> int:
    """Unused nodes that the next steps may take if so many requests are admitted."""
    rules = c.rules
    nodes = entering * (c.cache.most_pieces + 2)
    if rules.window_blocks == 0:
        return nodes
    # What windows leave in between: a run of blocks per request and sweep, and the nodes of an
    # answer's last window when it ends; then the prompts of one step.
    running = c.n_rows + c.prefill.count + entering
    return nodes + 20 * running + rules.max_num_batched_tokens // (rules.segment * rules.block_size)


def match_prefix(c: Core, slot: int) -> int:
    """Leading units of the request's tokens that are present. Changes nothing.

    `cache.matched_unused` then says how many of their blocks stand in the queue. At least one
    token is left to compute: its logits are needed.
    """
    rules = c.rules
    c.cache.matched_unused = 0
    if not rules.prefix_caching:
        return 0
    drop = 1 if rules.drop_last_cached_block else 0
    hits = match_full(c, slot, (c.slots[slot].target - 1) // rules.block_size, drop)
    if rules.window_blocks > 0 and hits > 0:
        reach = window_reach(c, slot, hits)
        if reach < hits:
            hits = match_full(c, slot, reach + drop, drop)
        c.cache.matched_unused += unused_in_window(c, slot, hits)
    return hits


def match_full(c: Core, slot: int, limit: int, drop: int) -> int:
    """`match_prefix` of the layers that keep everything, of at most `limit` units less `drop`."""
    cache = c.cache
    request = c.slots[slot]
    cache.matched_unused = 0
    block = c.rules.block_size
    first = request.first_piece
    parent = ROOT
    start = 0
    hits = 0
    last_unused = False
    for j in range(first, first + request.pieces):
        node = find_node(cache, parent, cache.piece_key[j])
        if node == NO_NODE:
            break
        piece = cache.nodes[node]
        end = cache.piece_end[j] // block
        found = min(piece.units, max(min(end, limit) - start, 0))
        hits += found
        if found > 0:
            last_unused = piece.users == 0
            if last_unused:
                cache.matched_unused += found * c.rules.full_blocks
        if found < end - start:
            break
        start = end
        parent = piece.serial
    if drop > 0 and hits > 0:
        hits -= 1
        if last_unused:
            cache.matched_unused -= c.rules.full_blocks
    return hits


def pin_prefix(c: Core, slot: int, hits: int) -> None:
    """Make the request a user of all its pieces, present or still to be computed.

    It holds the `hits` units that `match_prefix` found. What else an unused piece holds is given
    up: the request computes it anew, or goes another way.
    """
    cache = c.cache
    request = c.slots[slot]
    if not c.rules.prefix_caching:
        return
    block = c.rules.block_size
    first = request.first_piece
    parent = ROOT
    above = NO_NODE
    start = 0
    found = hits
    for j in range(first, first + request.pieces):
        key = cache.piece_key[j]
        end = cache.piece_end[j] // block
        node = find_node(cache, parent, key)
        if node == NO_NODE:
            node = new_node(cache, parent, key)
        elif cache.nodes[node].users == 0:
            used = min(cache.nodes[node].units, end - start, hits)
            leave_queue(c, node, used, c.rules.full_blocks)
        piece = cache.nodes[node]
        piece.above = above
        piece.users += 1
        hits -= min(piece.units, end - start, hits)
        start = end
        above = node
        parent = piece.serial
    # One node is kept back for the request's own blocks when they come free (`release_blocks`).
    cache.unused -= 1
    if c.rules.window_blocks > 0:
        hold_window(c, slot, found)


def publish_prefix(c: Core, slot: int, computed: int, to_the_end: bool) -> None:
    """Units that the request has computed become findable by others.

    to_the_end: a growing last piece covers all `computed` tokens (prompt and answer).
    """
    cache = c.cache
    request = c.slots[slot]
    if not c.rules.prefix_caching:
        return
    block = c.rules.block_size
    first = request.first_piece
    last = first + request.pieces - 1
    parent = ROOT
    start = 0
    for j in range(first, last + 1):
        piece = cache.nodes[find_node(cache, parent, cache.piece_key[j])]
        end = min(cache.piece_end[j], computed) // block
        if to_the_end and j == last and request.grows:
            end = computed // block
        grown = end - start - piece.units
        if grown > 0:
            # Another request may have brought the same units meanwhile; then ours stay our own.
            grown = min(grown, request.private)
            piece.units += grown
            piece.blocks += grown * c.rules.full_blocks
            request.private -= grown
            c.admission_blocked = False
        if computed < cache.piece_end[j]:
            return
        start = cache.piece_end[j] // block
        parent = piece.serial


def release_blocks(c: Core, slot: int, computed: int) -> None:
    """Give back all blocks of a request that has `computed` tokens in them."""
    rules = c.rules
    request = c.slots[slot]
    c.admission_blocked = False
    if rules.prefix_caching:
        publish_prefix(c, slot, computed, True)
        c.cache.unused += 1
    own = (request.private if rules.prefix_caching else request.held) * rules.full_blocks
    if request.held > 0:
        own += rules.state_blocks
    if rules.window_blocks > 0:
        if rules.prefix_caching and request.grows and not rules.keeps_last_window:
            show_window(c, slot, computed // rules.block_size)
        own += leave_window(c, slot)
    if own > 0:
        give_blocks(c, own, False)
    if rules.prefix_caching:
        release_pieces(c, slot)
    request.private = 0
    request.held = 0


def release_pieces(c: Core, slot: int) -> None:
    """Stop using the pieces, last one first; those without users enter the queue."""
    cache = c.cache
    node = last_piece(c, slot)
    while node != NO_NODE:
        piece = cache.nodes[node]
        piece.users -= 1
        if piece.users == 0:
            enter_queue(c, node)
        node = piece.above
