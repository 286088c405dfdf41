"""Paged KV memory and the prefix cache of one replica, on the arrays of `Core`.

Memory is counted in blocks. Blocks that no request uses form one queue, as in vLLM: they are
taken from its front and come back at its end, last block of a request first, so that the end of
a prefix is always given up before its beginning. What they hold stays findable until they are
taken: that queue *is* the LRU order of the prefix cache.

The queue is run-length coded. A *node* is a piece of prompt content (key, after its parent) of
which the first `blocks` blocks are present; nodes without users stand in the queue, as do
anonymous nodes (key NO_NODE) for blocks whose content nobody will ask for. All operations cost a
few steps per piece, whatever the number of blocks, so that a block may be a single token.

Blocks are compared by content, which includes everything before them: a block belongs to the
piece that it ends in. Functions here run as Python or compiled.
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
    piece.blocks = piece.users = 0
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


def queue_prepend(cache: PrefixCache, count: int) -> None:
    """Blocks without content of use become the first to be taken."""
    head = cache.queue_first
    if head == NO_NODE or cache.nodes[head].key != NO_NODE:
        node = new_node(cache, ROOT, NO_NODE)
        cache.nodes[node].after = head
        if head == NO_NODE:
            cache.queue_last = node
        else:
            cache.nodes[head].before = node
        cache.queue_first = node
        head = node
    cache.nodes[head].blocks += count


def take_blocks(c: Core, count: int) -> None:
    """Take blocks from the front of the queue; what they cached is gone. count <= free_blocks."""
    c.free_blocks -= count
    if not c.rules.prefix_caching:
        return
    cache = c.cache
    while count > 0:
        node = cache.queue_first
        have = cache.nodes[node].blocks
        if have > count:
            cache.nodes[node].blocks = have - count
            return
        count -= have
        cache.nodes[node].blocks = 0
        queue_remove(cache, node)
        drop_node(cache, node)


def match_prefix(c: Core, slot: int) -> int:
    """Leading blocks of the request's tokens that are present. Changes nothing.

    `cache.matched_unused` then says how many of them stand in the queue. At least one token is
    left to compute: its logits are needed.
    """
    cache = c.cache
    request = c.slots[slot]
    cache.matched_unused = 0
    if not c.rules.prefix_caching:
        return 0
    block = c.rules.block_size
    limit = (request.target - 1) // block
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
        found = min(piece.blocks, max(min(end, limit) - start, 0))
        hits += found
        if found > 0:
            last_unused = piece.users == 0
            if last_unused:
                cache.matched_unused += found
        if found < end - start:
            break
        start = end
        parent = piece.serial
    if c.rules.drop_last_cached_block and hits > 0:
        hits -= 1
        if last_unused:
            cache.matched_unused -= 1
    return hits


def pin_prefix(c: Core, slot: int, hits: int) -> None:
    """Make the request a user of all its pieces, present or still to be computed.

    It holds the `hits` blocks that `match_prefix` found. What else an unused piece holds is given
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
    for j in range(first, first + request.pieces):
        key = cache.piece_key[j]
        end = cache.piece_end[j] // block
        node = find_node(cache, parent, key)
        if node == NO_NODE:
            node = new_node(cache, parent, key)
        elif cache.nodes[node].users == 0:
            queue_remove(cache, node)
            present = cache.nodes[node].blocks
            used = min(present, end - start, hits)
            c.free_blocks -= used
            cache.nodes[node].blocks = used
            if present > used:
                queue_prepend(cache, present - used)
        piece = cache.nodes[node]
        piece.above = above
        piece.users += 1
        hits -= min(piece.blocks, end - start, hits)
        start = end
        above = node
        parent = piece.serial
    # One node is kept back for the request's own blocks when they come free (`release_blocks`).
    cache.unused -= 1


def publish_prefix(c: Core, slot: int, computed: int, to_the_end: bool) -> None:
    """Blocks that the request has computed become findable by others.

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
        grown = end - start - piece.blocks
        if grown > 0:
            # Another request may have brought the same blocks meanwhile; then ours stay our own.
            grown = min(grown, request.private)
            piece.blocks += grown
            request.private -= grown
            c.admission_blocked = False
        if computed < cache.piece_end[j]:
            return
        start = cache.piece_end[j] // block
        parent = piece.serial


def release_blocks(c: Core, slot: int, computed: int) -> None:
    """Give back all blocks of a request that has `computed` tokens in them."""
    cache = c.cache
    request = c.slots[slot]
    c.admission_blocked = False
    if not c.rules.prefix_caching:
        c.free_blocks += request.held
        request.held = 0
        return
    publish_prefix(c, slot, computed, True)
    own = request.private
    cache.unused += 1
    if own > 0:
        c.free_blocks += own
        tail = cache.queue_last
        if tail == NO_NODE or cache.nodes[tail].key != NO_NODE:
            tail = new_node(cache, ROOT, NO_NODE)
            queue_append(cache, tail)
        cache.nodes[tail].blocks += own
    release_pieces(c, slot)
    request.private = 0
    request.held = 0


def release_pieces(c: Core, slot: int) -> None:
    """Stop using the pieces, last one first; those without users enter the queue."""
    cache = c.cache
    request = c.slots[slot]
    first = request.first_piece
    parent = ROOT
    node = NO_NODE
    for j in range(first, first + request.pieces):
        node = find_node(cache, parent, cache.piece_key[j])
        parent = cache.nodes[node].serial
    while node != NO_NODE:
        piece = cache.nodes[node]
        piece.users -= 1
        if piece.users == 0:
            if piece.blocks > 0:
                c.free_blocks += piece.blocks
                queue_append(cache, node)
            else:
                drop_node(cache, node)
        node = piece.above
