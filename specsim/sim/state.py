"""Making, growing and checking the state of a replica (`core.Core`)."""

import numpy as np

from specsim.sim.acceptance import DRAWS, DrawSource
from specsim.sim.config import SimConfig
from specsim.sim.core import (
    DECODING,
    EXACT,
    INTERPOLATED,
    NO_NODE,
    ROOT,
    Chunk,
    Core,
    Node,
    PrefixCache,
    Ring,
    Rows,
    Slot,
    SlotList,
    StepLog,
    StepRules,
)
from specsim.sim.kv import bucket_of, new_node, queue_append
from specsim.sim.structs import as_struct, longer
from specsim.sim.surface import Surface

LOG_STEPS = 1 << 14
FIRST_NODES = 1024
FIRST_PIECES = 1024


def slots_for(config: SimConfig, clients: int = 0) -> int:
    """Requests inside a replica: all that run, and as many waiting ones as could replace them at
    once. clients: of a closed loop that is run inside the engine; each may have one more in
    standby."""
    return 2 * config.rules.max_num_seqs + 2 * clients + 128


def make_core(
    config: SimConfig,
    surface: Surface,
    source: DrawSource | None,
    *,
    compiled: bool,
    stop_on_finish: bool,
    clock_s: float = 0.0,
    clients: int = 0,
) -> Core:
    """State of an empty replica; compiled: as a structure that compiled code can use."""
    slots = slots_for(config, clients)
    most = config.rules.max_num_seqs
    rules = _rules(config, source, compiled)
    rules.stop_on_finish = stop_on_finish
    rules.supplied = clients > 0
    spec = config.speculation
    k = spec.num_speculative_tokens
    nodes = FIRST_NODES if rules.prefix_caching else 1
    core = Core(
        rules=rules,
        slots=[Slot() for _ in range(slots)],
        rows=Rows.empty(most),
        log=StepLog.empty(LOG_STEPS + 1),
        cache=PrefixCache(
            nodes=[Node() for _ in range(nodes)],
            buckets=[NO_NODE] * (2 * nodes + 1),
            piece_key=[0] * FIRST_PIECES,
            piece_end=[0] * FIRST_PIECES,
        ),
        prices=surface.prices,
        waiting=Ring([0] * slots),
        standby=Ring([0] * slots),
        coming=Ring([0] * slots),
        prefill=SlotList([0] * most),
        finished=SlotList([0] * slots),
        freed=SlotList([0] * slots),
        chunks=[Chunk() for _ in range(most + 1)],
        drafts_by_batch=spec.drafts_by_batch(most),
        adapt=_tiers(spec.adaptive, k),
        # numpy's `take` into whole numbers wants them in the plain loop.
        accept=np.zeros(slots * DRAWS if source else 1, dtype=np.int64),
        cover=np.zeros(LOG_STEPS + 3, dtype=np.int64),
        gaps=np.zeros(rules.gap_capacity + 2 * most),
        pricing=EXACT if config.exact_cost else INTERPOLATED,
        free_blocks=rules.num_kv_blocks,
        adapt_k=k,
        clock_s=clock_s,
        last_emit_s=clock_s,
        reserve=config.rules.output_reserve,
    )
    if compiled:
        core = as_struct(core)
    if rules.prefix_caching:
        _fill_cache(core.cache, rules.num_kv_blocks)
    return core


def _rules(
    config: SimConfig, source: DrawSource | None, compiled: bool
) -> StepRules:
    rules, spec = config.rules, config.speculation
    k = spec.num_speculative_tokens
    by_position = source is not None and source.by_position
    skips = source is not None and source.skips
    stretches = config.stretches and not (
        compiled or config.exact_cost or by_position or skips or spec.adaptive
    )
    reserve = rules.output_reserve - rules.output_reserve_min
    return StepRules(
        max_num_seqs=rules.max_num_seqs,
        max_num_batched_tokens=rules.max_num_batched_tokens,
        block_size=rules.block_size,
        num_kv_blocks=config.num_kv_blocks,
        lookahead=spec.lookahead,
        watermark_blocks=int(rules.watermark * config.num_kv_blocks),
        num_speculative_tokens=k,
        verify_tokens=spec.verify_tokens,
        readback_lag_steps=rules.readback_lag_steps,
        plan_ahead=rules.plan_ahead,
        prefix_caching=rules.prefix_caching,
        drop_last_cached_block=k > 0 and spec.drop_last_cached_block,
        prefill_first=rules.prefill_first,
        chunked_prefill=rules.chunked_prefill,
        reserve_full_isl=rules.reserve_full_isl,
        long_prefill_token_threshold=rules.long_prefill_token_threshold,
        preempt_fewest_tokens=rules.victim == "fewest_tokens",
        draws=DRAWS,
        draws_by_position=by_position,
        draws_skip=skips,
        adaptive=k > 0 and bool(spec.adaptive),
        stretches=stretches,
        log_capacity=LOG_STEPS,
        gap_capacity=4096 + 2 * rules.max_num_seqs,
        front_end_s=config.request_overhead_s,
        warmup_s=config.warmup_s,
        stall_s=config.stall_s,
        reserve_min=rules.output_reserve_min,
        reserve_decay=reserve / rules.output_reserve_steps,
    )


def _tiers(adaptive: tuple[tuple[int, tuple[int, ...]], ...], k: int) -> list[list[int]]:
    """`Core.adapt` of the tiers, lines of equal length."""
    widest = max((len(lengths) for _, lengths in adaptive), default=0)
    return [
        [batch, *(min(drafts, k) for drafts in lengths), *[-1] * (widest - len(lengths))]
        for batch, lengths in adaptive
    ] or [[-1]]


def _fill_cache(cache: PrefixCache, blocks: int) -> None:
    """At the start all blocks are unused, and their content is of no use to anybody."""
    _link_unused(cache, 0)
    everything = new_node(cache, ROOT, NO_NODE)
    cache.nodes[everything].blocks = blocks
    queue_append(cache, everything)


def _link_unused(cache: PrefixCache, first: int) -> None:
    """The nodes from `first` on become unused ones."""
    last = len(cache.nodes) - 1
    for node in range(first, last):
        cache.nodes[node].after = node + 1
    cache.nodes[last].after = cache.unused_first
    cache.unused_first = first
    cache.unused += last + 1 - first


def grow_nodes(cache: PrefixCache, needed: int) -> None:
    """Room for `needed` more nodes: nodes keep their numbers, the hash table is made anew."""
    have = len(cache.nodes)
    size = have
    while size - have + cache.unused < needed:
        size *= 2
    unused = set()
    at = cache.unused_first
    while at != NO_NODE:
        unused.add(at)
        at = cache.nodes[at].after
    cache.nodes = longer(cache.nodes, size, Node())
    cache.buckets = longer(cache.buckets[:0], 2 * size + 1, NO_NODE)
    for i in range(have):
        node = cache.nodes[i]
        if i not in unused and node.key != NO_NODE:
            place = bucket_of(cache, node.parent, node.key)
            node.chain = int(cache.buckets[place])
            cache.buckets[place] = i
    _link_unused(cache, have)


def check_integrity(core: Core, live_slots: list[int]) -> None:
    """Blocks free, held and cached add up, and so do the counters; AssertionError if not."""
    caching, rows = core.rules.prefix_caching, core.rows
    held = 0
    for slot in live_slots:
        request = core.slots[slot]
        if request.where != DECODING:
            held += request.private if caching else request.held
    for r in range(core.n_rows):
        request = core.slots[int(rows.slot[r])]
        own = request.private if caching else request.held
        held += own + int(rows.held[r]) - request.held
    free = core.free_blocks
    if caching:
        cache = core.cache
        queued, at, before = 0, cache.queue_first, NO_NODE
        while at != NO_NODE:
            node = cache.nodes[at]
            assert node.users == 0 and node.before == before
            queued += node.blocks
            before, at = at, node.after
        assert before == cache.queue_last
        assert queued == free, f"queue holds {queued} blocks but {free} are counted as free"
        for place in cache.buckets:
            at = place
            while at != NO_NODE:
                node = cache.nodes[at]
                if node.users > 0:
                    held += node.blocks
                at = node.chain
    total = core.rules.num_kv_blocks
    assert held + free == total, f"{held} blocks held and {free} free, but there are {total}"
    context = int(rows.computed[: core.n_rows].sum())
    assert context == core.context, f"context {core.context} but rows hold {context}"
