"""Paged KV memory and the prefix cache of one replica, on the arrays of `Core`.

Memory is counted in blocks. Blocks that no request uses form one queue, as in vLLM: they are
taken from its front and come back at its end, last block of a request first, so that the end of
a prefix is always given up before its beginning. What they hold stays findable until they are
taken: that queue *is* the LRU order of the prefix cache.

The queue is run-length coded. A *node* is a piece of prompt content (key, after its parent) of
which the first `N_BLOCKS` blocks are present; nodes without users stand in the queue, as do
anonymous nodes (key NO_NODE) for blocks whose content nobody will ask for. All operations cost a
few steps per piece, whatever the number of blocks, so that a block may be a single token.

Blocks are compared by content, which includes everything before them: a block belongs to the
piece that it ends in. Functions here run as Python or compiled.
"""

# State is arrays or lists of numbers; what is read from it has no static type.
# mypy: disable-error-code="no-any-return"

from specsim.sim import fields as f
from specsim.sim.fields import Core


def bucket_of(c: Core, parent: int, key: int) -> int:
    """Hash of a piece after its parent. Factors are small enough for 64-bit integers."""
    return ((key % 2147483647) * 48271 + (parent % 2147483647) * 69621) % len(c.bucket)


def find_node(c: Core, parent: int, key: int) -> int:
    """Node of the piece `key` after the piece with serial `parent`, or NO_NODE."""
    node = c.bucket[bucket_of(c, parent, key)]
    while node != f.NO_NODE:
        if c.node[f.N_KEY][node] == key and c.node[f.N_PARENT][node] == parent:
            break
        node = c.node[f.N_CHAIN][node]
    return node


def new_node(c: Core, parent: int, key: int) -> int:
    """An unused node, findable if it has a key. The caller made sure that one is left."""
    node = c.ints[f.I_NODE_FREE]
    c.ints[f.I_NODE_FREE] = c.node[f.N_AFTER][node]
    c.ints[f.I_NODES_FREE] -= 1
    c.ints[f.I_SERIAL] += 1
    c.node[f.N_SERIAL][node] = c.ints[f.I_SERIAL]
    c.node[f.N_KEY][node] = key
    c.node[f.N_PARENT][node] = parent
    c.node[f.N_UP][node] = f.NO_NODE
    c.node[f.N_BLOCKS][node] = 0
    c.node[f.N_USERS][node] = 0
    c.node[f.N_BEFORE][node] = f.NO_NODE
    c.node[f.N_AFTER][node] = f.NO_NODE
    if key != f.NO_NODE:
        place = bucket_of(c, parent, key)
        c.node[f.N_CHAIN][node] = c.bucket[place]
        c.bucket[place] = node
    return node


def drop_node(c: Core, node: int) -> None:
    """Forget a node that holds no blocks and stands in no queue."""
    key = c.node[f.N_KEY][node]
    if key != f.NO_NODE:
        place = bucket_of(c, c.node[f.N_PARENT][node], key)
        at = c.bucket[place]
        if at == node:
            c.bucket[place] = c.node[f.N_CHAIN][node]
        else:
            while c.node[f.N_CHAIN][at] != node:
                at = c.node[f.N_CHAIN][at]
            c.node[f.N_CHAIN][at] = c.node[f.N_CHAIN][node]
    c.node[f.N_AFTER][node] = c.ints[f.I_NODE_FREE]
    c.ints[f.I_NODE_FREE] = node
    c.ints[f.I_NODES_FREE] += 1


def queue_append(c: Core, node: int) -> None:
    tail = c.ints[f.I_LRU_TAIL]
    c.node[f.N_BEFORE][node] = tail
    c.node[f.N_AFTER][node] = f.NO_NODE
    if tail == f.NO_NODE:
        c.ints[f.I_LRU_HEAD] = node
    else:
        c.node[f.N_AFTER][tail] = node
    c.ints[f.I_LRU_TAIL] = node


def queue_remove(c: Core, node: int) -> None:
    before = c.node[f.N_BEFORE][node]
    after = c.node[f.N_AFTER][node]
    if before == f.NO_NODE:
        c.ints[f.I_LRU_HEAD] = after
    else:
        c.node[f.N_AFTER][before] = after
    if after == f.NO_NODE:
        c.ints[f.I_LRU_TAIL] = before
    else:
        c.node[f.N_BEFORE][after] = before


def queue_prepend(c: Core, count: int) -> None:
    """Blocks without content of use become the first to be taken."""
    head = c.ints[f.I_LRU_HEAD]
    if head == f.NO_NODE or c.node[f.N_KEY][head] != f.NO_NODE:
        node = new_node(c, f.ROOT, f.NO_NODE)
        c.node[f.N_AFTER][node] = head
        if head == f.NO_NODE:
            c.ints[f.I_LRU_TAIL] = node
        else:
            c.node[f.N_BEFORE][head] = node
        c.ints[f.I_LRU_HEAD] = node
        head = node
    c.node[f.N_BLOCKS][head] += count


def take_blocks(c: Core, count: int) -> None:
    """Take blocks from the front of the queue; what they cached is gone. count <= I_FREE."""
    c.ints[f.I_FREE] -= count
    if not c.ints[f.I_CACHING]:
        return
    while count > 0:
        node = c.ints[f.I_LRU_HEAD]
        have = c.node[f.N_BLOCKS][node]
        if have > count:
            c.node[f.N_BLOCKS][node] = have - count
            return
        count -= have
        c.node[f.N_BLOCKS][node] = 0
        queue_remove(c, node)
        drop_node(c, node)


def match_prefix(c: Core, slot: int) -> int:
    """Leading blocks of the request's tokens that are present. Changes nothing.

    Leaves in I_MATCH_FREE how many of them stand in the queue. At least one token is left to
    compute: its logits are needed.
    """
    ints = c.ints
    ints[f.I_MATCH_FREE] = 0
    if not ints[f.I_CACHING]:
        return 0
    block = ints[f.I_BLOCK]
    limit = (c.slot[slot][f.S_TARGET] - 1) // block
    first = c.slot[slot][f.S_SPAN]
    parent = f.ROOT
    start = 0
    hits = 0
    last_unused = False
    for j in range(first, first + c.slot[slot][f.S_N_SPANS]):
        node = find_node(c, parent, c.span_key[j])
        if node == f.NO_NODE:
            break
        end = c.span_end[j] // block
        found = min(c.node[f.N_BLOCKS][node], max(min(end, limit) - start, 0))
        hits += found
        if found > 0:
            last_unused = c.node[f.N_USERS][node] == 0
            if last_unused:
                ints[f.I_MATCH_FREE] += found
        if found < end - start:
            break
        start = end
        parent = c.node[f.N_SERIAL][node]
    if ints[f.I_DROP_LAST] and hits > 0:
        hits -= 1
        if last_unused:
            ints[f.I_MATCH_FREE] -= 1
    return hits


def pin_prefix(c: Core, slot: int, hits: int) -> None:
    """Make the request a user of all its pieces, present or still to be computed.

    It holds the `hits` blocks that `match_prefix` found. What else an unused piece holds is given
    up: the request computes it anew, or goes another way.
    """
    ints = c.ints
    if not ints[f.I_CACHING]:
        return
    block = ints[f.I_BLOCK]
    first = c.slot[slot][f.S_SPAN]
    parent = f.ROOT
    above = f.NO_NODE
    start = 0
    for j in range(first, first + c.slot[slot][f.S_N_SPANS]):
        key = c.span_key[j]
        end = c.span_end[j] // block
        node = find_node(c, parent, key)
        if node == f.NO_NODE:
            node = new_node(c, parent, key)
        elif c.node[f.N_USERS][node] == 0:
            queue_remove(c, node)
            present = c.node[f.N_BLOCKS][node]
            used = min(present, end - start, hits)
            ints[f.I_FREE] -= used
            c.node[f.N_BLOCKS][node] = used
            if present > used:
                queue_prepend(c, present - used)
        c.node[f.N_UP][node] = above
        c.node[f.N_USERS][node] += 1
        hits -= min(c.node[f.N_BLOCKS][node], end - start, hits)
        start = end
        above = node
        parent = c.node[f.N_SERIAL][node]
    # One node is kept back for the request's own blocks when they come free (`release_blocks`).
    ints[f.I_NODES_FREE] -= 1


def publish_prefix(c: Core, slot: int, computed: int, to_the_end: bool) -> None:
    """Blocks that the request has computed become findable by others.

    to_the_end: a growing last piece covers all `computed` tokens (prompt and answer).
    """
    if not c.ints[f.I_CACHING]:
        return
    block = c.ints[f.I_BLOCK]
    first = c.slot[slot][f.S_SPAN]
    last = first + c.slot[slot][f.S_N_SPANS] - 1
    parent = f.ROOT
    start = 0
    for j in range(first, last + 1):
        node = find_node(c, parent, c.span_key[j])
        end = min(c.span_end[j], computed) // block
        if to_the_end and j == last and c.slot[slot][f.S_GROWS]:
            end = computed // block
        grown = end - start - c.node[f.N_BLOCKS][node]
        if grown > 0:
            # Another request may have brought the same blocks meanwhile; then ours stay our own.
            grown = min(grown, c.slot[slot][f.S_PRIVATE])
            c.node[f.N_BLOCKS][node] += grown
            c.slot[slot][f.S_PRIVATE] -= grown
            c.ints[f.I_BLOCKED] = 0
        if computed < c.span_end[j]:
            return
        start = c.span_end[j] // block
        parent = c.node[f.N_SERIAL][node]


def release_blocks(c: Core, slot: int, computed: int) -> None:
    """Give back all blocks of a request that has `computed` tokens in them."""
    c.ints[f.I_BLOCKED] = 0
    if not c.ints[f.I_CACHING]:
        c.ints[f.I_FREE] += c.slot[slot][f.S_HELD]
        c.slot[slot][f.S_HELD] = 0
        return
    publish_prefix(c, slot, computed, True)
    own = c.slot[slot][f.S_PRIVATE]
    c.ints[f.I_NODES_FREE] += 1
    if own > 0:
        c.ints[f.I_FREE] += own
        tail = c.ints[f.I_LRU_TAIL]
        if tail == f.NO_NODE or c.node[f.N_KEY][tail] != f.NO_NODE:
            tail = new_node(c, f.ROOT, f.NO_NODE)
            queue_append(c, tail)
        c.node[f.N_BLOCKS][tail] += own
    release_pieces(c, slot)
    c.slot[slot][f.S_PRIVATE] = 0
    c.slot[slot][f.S_HELD] = 0


def release_pieces(c: Core, slot: int) -> None:
    """Stop using the pieces, last one first; those without users enter the queue."""
    first = c.slot[slot][f.S_SPAN]
    parent = f.ROOT
    node = f.NO_NODE
    for j in range(first, first + c.slot[slot][f.S_N_SPANS]):
        node = find_node(c, parent, c.span_key[j])
        parent = c.node[f.N_SERIAL][node]
    while node != f.NO_NODE:
        above = c.node[f.N_UP][node]
        c.node[f.N_USERS][node] -= 1
        if c.node[f.N_USERS][node] == 0:
            if c.node[f.N_BLOCKS][node] > 0:
                c.ints[f.I_FREE] += c.node[f.N_BLOCKS][node]
                queue_append(c, node)
            else:
                drop_node(c, node)
        node = above
