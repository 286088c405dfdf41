"""Nodes of the prefix cache and the queue of blocks that no request uses, on the arrays of `Core`.

Memory is counted in blocks, as vLLM counts them: every group of layers takes blocks of its own out
of one pool. A *unit*, the `block_size` tokens by which prefixes are found, costs `full_blocks` for
the layers that keep everything and `window_blocks` for those that see a window.

Blocks that no request uses form one queue, as in vLLM: they are taken from its front and come
back at its end, last block of a request first, so that the end of a prefix is always given up
before its beginning. What they hold stays findable until they are taken: that queue *is* the LRU
order of the prefix cache.

The queue is run-length coded. A *node* is a piece of content (key, after its parent) of which the
first `units` are present, in `blocks` blocks; nodes without users stand in the queue, as do
anonymous nodes (key NO_NODE) for blocks whose content nobody will ask for. All operations cost a
few steps per piece, whatever the number of blocks, so that a block may be a single token.
"""

from specsim.sim.core import NO_NODE, ROOT, Core, PrefixCache


def bucket_of(cache: PrefixCache, parent: int, key: int) -> int:
    """Hash of a piece after its parent. Factors are small enough for 64-bit integers."""
    return ((key % 2147483647) * 48271 + (parent % 2147483647) * 69621) % len(cache.buckets)


def find_node(cache: PrefixCache, parent: int, key: int) -> int:
    """Node of the piece `key` after the piece with serial `parent`, or NO_NODE."""
    node = cache.buckets[bucket_of(cache, parent, key)]
    while node != NO_NODE:
        if cache.nodes[node].key == key and cache.nodes[node].parent == parent:
            break
        node = cache.nodes[node].chain
    return node


def last_piece(c: Core, slot: int) -> int:
    """Node of the last piece of a request that runs, or NO_NODE; the others are `above` it."""
    request = c.slots[slot]
    parent = ROOT
    node = NO_NODE
    for j in range(request.first_piece, request.first_piece + request.pieces):
        node = find_node(c.cache, parent, c.cache.piece_key[j])
        parent = c.cache.nodes[node].serial
    return node


def new_node(cache: PrefixCache, parent: int, key: int) -> int:
    """An unused node, findable if it has a key. The caller made sure that one is left."""
    node = cache.unused_first
    piece = cache.nodes[node]
    cache.unused_first = piece.after
    cache.unused -= 1
    cache.serial += 1
    piece.serial = cache.serial
    piece.key = key
    piece.parent = parent
    piece.units = piece.blocks = piece.users = 0
    piece.above = piece.before = piece.after = NO_NODE
    if key != NO_NODE:
        place = bucket_of(cache, parent, key)
        piece.chain = cache.buckets[place]
        cache.buckets[place] = node
    return node


def drop_node(cache: PrefixCache, node: int) -> None:
    """Forget a node that holds no blocks and stands in no queue."""
    key = cache.nodes[node].key
    if key != NO_NODE:
        place = bucket_of(cache, cache.nodes[node].parent, key)
        at = cache.buckets[place]
        if at == node:
            cache.buckets[place] = cache.nodes[node].chain
        else:
            while cache.nodes[at].chain != node:
                at = cache.nodes[at].chain
            cache.nodes[at].chain = cache.nodes[node].chain
    cache.nodes[node].after = cache.unused_first
    cache.unused_first = node
    cache.unused += 1


def queue_append(cache: PrefixCache, node: int) -> None:
    tail = cache.queue_last
    cache.nodes[node].before = tail
    cache.nodes[node].after = NO_NODE
    if tail == NO_NODE:
        cache.queue_first = node
    else:
        cache.nodes[tail].after = node
    cache.queue_last = node


def queue_remove(cache: PrefixCache, node: int) -> None:
    before = cache.nodes[node].before
    after = cache.nodes[node].after
    if before == NO_NODE:
        cache.queue_first = after
    else:
        cache.nodes[before].after = after
    if after == NO_NODE:
        cache.queue_last = before
    else:
        cache.nodes[after].before = before


def leave_queue(c: Core, node: int, units: int, unit_blocks: int) -> None:
    """Take a node out of the queue to be used. Of what it holds, `units` stay; the rest, and blocks
    that make up no unit any more, become the first to be taken."""
    piece = c.cache.nodes[node]
    queue_remove(c.cache, node)
    c.free_blocks -= piece.blocks
    surplus = piece.blocks - units * unit_blocks
    piece.units = units
    if surplus > 0:
        piece.blocks -= surplus
        give_blocks(c, surplus, True)


def enter_queue(c: Core, node: int) -> None:
    """A node lost its last user."""
    blocks = c.cache.nodes[node].blocks
    if blocks > 0:
        c.free_blocks += blocks
        queue_append(c.cache, node)
    else:
        drop_node(c.cache, node)


def give_blocks(c: Core, count: int, first: bool) -> None:
    """Blocks whose content nobody will ask for come back, to be taken first or last."""
    c.free_blocks += count
    if not c.rules.prefix_caching:
        return
    cache = c.cache
    node = cache.queue_first if first else cache.queue_last
    if node == NO_NODE or cache.nodes[node].key != NO_NODE:
        head = node
        node = new_node(cache, ROOT, NO_NODE)
        if first and head != NO_NODE:
            cache.nodes[node].after = head
            cache.nodes[head].before = node
            cache.queue_first = node
        else:
            queue_append(cache, node)
    cache.nodes[node].blocks += count


def take_blocks(c: Core, count: int) -> None:
    """Take blocks from the front of the queue; what they cached is gone. count <= free_blocks."""
    c.free_blocks -= count
    if not c.rules.prefix_caching:
        return
    cache = c.cache
    while count > 0:
        node = cache.queue_first
        piece = cache.nodes[node]
        if piece.blocks > count:
            piece.blocks -= count
            # The first block of each unit goes before the second of any: one group of layers comes
            # back after the other.
            piece.units = max(0, piece.units - count)
            return
        count -= piece.blocks
        piece.units = piece.blocks = 0
        queue_remove(cache, node)
        drop_node(cache, node)
