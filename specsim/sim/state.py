"""Making, growing and checking the state of a replica (`core.Core`), and what the replicas of a run
share."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from specsim.latency.kv_link import KVLink
from specsim.sim.acceptance import DRAWS, DrawSource
from specsim.sim.clock import Clock
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
from specsim.sim.kv_nodes import bucket_of, new_node, queue_append
from specsim.sim.policies.adaptive import tier_lines
from specsim.sim.policies.table import drafts_by_batch
from specsim.sim.structs import as_struct, longer
from specsim.sim.surface import Surface

T = TypeVar("T")

LOG_STEPS = 1 << 14
FIRST_NODES = 1024
FIRST_PIECES = 1024
SEGMENTS = 16  # nodes of the prefix cache to one window: how finely windows are given back


@dataclass(frozen=True, slots=True)
class RunContext:
    """source: of accepted drafts, None without speculation. surface: prices of steps.

    coupled: somebody outside waits for finished requests, so engines may not run past one.
    compiled: the step loop is machine code. keep_trace: steps are kept. pulse: called now and then.
    clients: of a closed loop that runs inside the engine; 0: none does.
    link: over which prompts are handed over once computed; None: who computes one also decodes.
    """

    config: SimConfig
    source: DrawSource | None
    surface: Surface
    clock: Clock
    seed: int
    coupled: bool
    compiled: bool
    keep_trace: bool = False
    pulse: Callable[[], None] | None = None
    clients: int = 0
    link: KVLink | None = None


def make_core(run: RunContext) -> Core:
    """State of an empty replica; as a structure where the run is compiled (see `structs`)."""
    config, source = run.config, run.source
    most = config.rules.max_num_seqs
    # All that run, and as many waiting ones as could replace them at once; each client of a loop
    # inside the engine may have one more in standby.
    slots = 2 * most + 2 * run.clients + 128
    rules = _rules(run)
    spec = config.speculation
    k = spec.num_speculative_tokens
    nodes = FIRST_NODES if rules.prefix_caching else 1
    several = _one_again if run.compiled else _each
    core = Core(
        rules=rules,
        slots=several(Slot, slots),
        rows=Rows.empty(most),
        log=StepLog.empty(LOG_STEPS + 1),
        cache=PrefixCache(
            nodes=several(Node, nodes), buckets=[NO_NODE] * (2 * nodes + 1),
            piece_key=[0] * FIRST_PIECES, piece_end=[0] * FIRST_PIECES,
        ),
        prices=run.surface.prices,
        waiting=Ring([0] * slots),
        standby=Ring([0] * slots),
        coming=Ring([0] * slots),
        prefill=SlotList([0] * most),
        picked=np.zeros(most, dtype=np.int64),
        finished=SlotList([0] * slots),
        freed=SlotList([0] * slots),
        chunks=several(Chunk, most + 1),
        drafts_by_batch=drafts_by_batch(spec.per_batch_size, k, most),
        adapt=tier_lines(spec.adaptive, k),
        accepted_rows=np.zeros(k + 1, dtype=np.int64),
        complete_rows=np.zeros(k + 1, dtype=np.int64),
        lanes=[0.0] * (run.link.lanes if run.link is not None else 1),
        # numpy's `take` into whole numbers wants them in the plain loop.
        accept=np.zeros(slots * DRAWS if source else 1, dtype=np.int64),
        cover=np.zeros(LOG_STEPS + 3, dtype=np.int64),
        gaps=np.zeros(rules.gap_capacity + 2 * most),
        pricing=EXACT if config.exact_cost else INTERPOLATED,
        free_blocks=rules.num_kv_blocks,
        adapt_k=k,
        clock_s=run.clock.now,
        last_emit_s=run.clock.now,
        reserve=config.rules.output_reserve,
    )
    if run.compiled:
        core = as_struct(core)
    if rules.prefix_caching:
        _fill_cache(core.cache, rules.num_kv_blocks)
    return core


def _each(cls: type[T], count: int) -> list[T]:
    return [cls() for _ in range(count)]


def _one_again(cls: type[T], count: int) -> list[T]:
    """What structures are made of, which are copies (see `structs`)."""
    return [cls()] * count


def _rules(run: RunContext) -> StepRules:
    config, source = run.config, run.source
    rules, spec = config.rules, config.speculation
    # What the engine's rules and the step loop's have in common.
    costs = config.block_costs
    names = {item.name for item in fields(StepRules)}
    out = StepRules(**{
        item.name: getattr(given, item.name)
        for given in (rules, costs)
        for item in fields(given)
        if item.name in names
    })
    out.segment = max(1, costs.window_tokens // (SEGMENTS * rules.block_size))
    out.window_cap = costs.window_units(rules.max_num_batched_tokens, rules.block_size)
    k = out.num_speculative_tokens = spec.num_speculative_tokens
    out.num_kv_blocks = config.num_kv_blocks
    out.watermark_blocks = int(rules.watermark * config.num_kv_blocks)
    out.lookahead = spec.lookahead
    out.verify_tokens = spec.verify_tokens
    out.drop_last_cached_block = k > 0 and spec.drop_last_cached_block
    out.preempt_fewest_tokens = rules.victim == "fewest_tokens"
    out.draws = DRAWS
    out.draws_skip = source is not None and source.skips
    out.adaptive = k > 0 and bool(spec.adaptive)
    out.asks_policy = k > 0 and spec.policy is not None
    out.ragged = k > 0 and spec.policy is not None and spec.policy.per_request
    out.hides_launches = rules.plan_ahead and run.surface.knows_launches
    out.log_capacity = LOG_STEPS
    out.gap_capacity = 4096 + 2 * rules.max_num_seqs
    out.stop_on_finish = run.coupled
    out.supplied = run.clients > 0
    out.front_end_s = config.request_overhead_s
    out.warmup_s = config.warmup_s
    out.stall_s = config.stall_s
    if run.link is not None:
        out.send_token_s = run.link.token_s
        out.send_by_chunk = run.link.by_chunk
    out.reserve_min = rules.output_reserve_min
    reserve = rules.output_reserve - rules.output_reserve_min
    out.reserve_decay = reserve / rules.output_reserve_steps
    return out


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


def _own_blocks(core: Core, request: Slot, units: int) -> int:
    """Blocks that a request which holds so many units shares with nobody."""
    rules = core.rules
    if units == 0:
        return 0
    windows = units - max(request.passed, request.shown)
    full = request.private + units - request.held if rules.prefix_caching else units
    return full * rules.full_blocks + windows * rules.window_blocks + rules.state_blocks


def check_integrity(core: Core, live_slots: list[int]) -> None:
    """Blocks free, held and cached add up, and so do the counters; AssertionError if not."""
    caching, rows = core.rules.prefix_caching, core.rows
    held = 0
    for slot in live_slots:
        request = core.slots[slot]
        if request.where != DECODING:
            held += _own_blocks(core, request, request.held)
    for r in range(core.n_rows):
        request = core.slots[int(rows.slot[r])]
        held += _own_blocks(core, request, int(rows.held[r]))
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
