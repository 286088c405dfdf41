"""Making, growing and checking the state of a replica (`fields.Core`).

Plain runs keep scalars and per-request fields in Python lists, which Python reads faster than
numpy arrays; compiled runs need arrays throughout. Nothing else differs.
"""

from typing import Any

import numpy as np

from specsim.sim import fields as f
from specsim.sim.acceptance import DRAWS, DrawSource
from specsim.sim.config import EngineRules, SimConfig
from specsim.sim.fields import Core
from specsim.sim.surface import Surface

LOG_STEPS = 1 << 14
FIRST_NODES = 1024
FIRST_SPANS = 1024


def whole_numbers(arrays: bool, *shape: int, value: int = 0) -> Any:
    """A list (of lists) or an int64 array."""
    if arrays:
        return np.full(shape, value, dtype=np.int64)
    if len(shape) == 1:
        return [value] * shape[0]
    return [[value] * shape[1] for _ in range(shape[0])]


def numbers(arrays: bool, *shape: int, value: float = 0.0) -> Any:
    """A list (of lists) or a float64 array."""
    if arrays:
        return np.full(shape, value, dtype=np.float64)
    if len(shape) == 1:
        return [value] * shape[0]
    return [[value] * shape[1] for _ in range(shape[0])]


def slots_for(rules: EngineRules, clients: int = 0) -> int:
    """Requests inside a replica: all seats, and enough waiting ones to fill every seat at once.
    clients: of a closed loop that is run inside the engine; each may have one more in standby."""
    return 2 * rules.max_num_seqs + 2 * clients + 128


def make_core(
    config: SimConfig,
    replica: int,
    surface: Surface,
    source: DrawSource | None,
    *,
    arrays: bool,
    stop_on_finish: bool,
    clock_s: float = 0.0,
    clients: int = 0,
) -> Core:
    """State of an empty replica."""
    rules = config.rules_of(replica)
    spec = config.speculation
    slots = slots_for(rules, clients)
    k = spec.num_speculative_tokens
    widest = max((len(lengths) for _, lengths in spec.adaptive), default=0)
    adapt = whole_numbers(arrays, max(1, len(spec.adaptive)), widest + 1, value=-1)
    for i, (batch, lengths) in enumerate(spec.adaptive):
        adapt[i][0] = batch
        for j, drafts in enumerate(lengths):
            adapt[i][j + 1] = min(drafts, k)
    table = spec.drafts_by_batch(rules.max_num_seqs)
    nodes = FIRST_NODES if rules.prefix_caching else 1
    gaps = 4096 + 4 * rules.max_num_seqs
    core = Core(
        ints=whole_numbers(arrays, f.I_LENGTH),
        flts=numbers(arrays, f.X_LENGTH),
        slot=whole_numbers(arrays, slots, f.S_LENGTH),
        slot_time=numbers(arrays, slots, f.T_LENGTH, value=-1.0),
        rows=np.zeros((f.R_LENGTH, rules.max_num_seqs), dtype=np.int64),
        prefill=whole_numbers(arrays, rules.max_num_seqs),
        wait=whole_numbers(arrays, slots),
        standby=whole_numbers(arrays, slots),
        coming=whole_numbers(arrays, slots),
        finished=whole_numbers(arrays, slots),
        freed=whole_numbers(arrays, slots),
        accept=np.zeros(slots * DRAWS if source else 1, dtype=np.uint8 if arrays else np.int64),
        span_key=whole_numbers(arrays, FIRST_SPANS),
        span_end=whole_numbers(arrays, FIRST_SPANS),
        node=whole_numbers(arrays, f.N_LENGTH, nodes),
        bucket=whole_numbers(arrays, 2 * nodes + 1, value=f.NO_NODE),
        chunk=whole_numbers(arrays, f.C_LENGTH, rules.max_num_seqs + 1),
        k_table=np.array(table, dtype=np.int64) if arrays else table,
        adapt=adapt,
        tier=surface.tier if arrays else surface.tier.tolist(),
        grid_ctx=surface.grid_ctx if arrays else surface.grid_ctx.tolist(),
        grid_seqs=surface.grid_seqs if arrays else surface.grid_seqs.tolist(),
        grid_tokens=surface.grid_tokens if arrays else surface.grid_tokens.tolist(),
        grid_span=surface.grid_span if arrays else surface.grid_span.tolist(),
        decode_s=surface.decode_s,
        mixed_s=surface.mixed_s,
        log_s=np.zeros((2, LOG_STEPS + 1)),
        log=np.zeros((f.L_LENGTH, LOG_STEPS + 1), dtype=np.int64),
        cover=np.zeros(LOG_STEPS + 3, dtype=np.int64),
        gaps=np.zeros(gaps),
    )
    ints, flts = core.ints, core.flts
    blocks = config.blocks_of(replica)
    ints[f.I_MAX_SEQS] = rules.max_num_seqs
    ints[f.I_BUDGET] = rules.max_num_batched_tokens
    ints[f.I_BLOCK] = rules.block_size
    ints[f.I_BLOCKS] = ints[f.I_FREE] = blocks
    ints[f.I_LOOKAHEAD] = spec.lookahead
    ints[f.I_WATERMARK] = int(rules.watermark * blocks)
    ints[f.I_K_MAX] = k
    ints[f.I_WIDTH] = spec.verify_tokens
    ints[f.I_LAG] = rules.readback_lag_steps
    ints[f.I_AHEAD] = int(rules.plan_ahead)
    ints[f.I_CACHING] = int(rules.prefix_caching)
    ints[f.I_DROP_LAST] = int(k > 0 and spec.drop_last_cached_block)
    ints[f.I_PREFILL_FIRST] = int(rules.prefill_first)
    ints[f.I_CHUNKED] = int(rules.chunked_prefill)
    ints[f.I_RESERVE_FULL] = int(rules.reserve_full_isl)
    ints[f.I_CHUNK_MAX] = rules.long_prefill_token_threshold
    ints[f.I_VICTIM_FEWEST] = int(rules.victim == "fewest_tokens")
    ints[f.I_DRAWS] = DRAWS
    ints[f.I_BY_POSITION] = int(source is not None and source.by_position)
    ints[f.I_SKIPS] = int(source is not None and source.skips)
    ints[f.I_ADAPTIVE] = int(k > 0 and bool(spec.adaptive))
    ints[f.I_ADAPT_K] = k
    ints[f.I_EXACT] = f.EXACT_ASK if config.exact_cost else f.EXACT_OFF
    plain = not (arrays or config.exact_cost or ints[f.I_BY_POSITION] or ints[f.I_SKIPS])
    ints[f.I_STRETCHES] = int(plain and config.stretches and not spec.adaptive)
    ints[f.I_AT_NODE] = surface.at_node
    ints[f.I_LOG_CAP] = LOG_STEPS
    ints[f.I_EMIT_BASE] = -1
    ints[f.I_GAP_CAP] = gaps - 2 * rules.max_num_seqs
    ints[f.I_STOP_ON_FINISH] = int(stop_on_finish)
    ints[f.I_LRU_HEAD] = ints[f.I_LRU_TAIL] = f.NO_NODE
    flts[f.X_CLOCK_S] = flts[f.X_LAST_EMIT_S] = clock_s
    flts[f.X_PLANNED_S] = np.inf
    flts[f.X_STALL_S] = config.stall_s
    flts[f.X_WARM_UP_S] = config.warmup_s
    flts[f.X_FRONT_END_S] = config.request_overhead_s
    ints[f.I_SUPPLIED] = int(clients > 0)
    flts[f.X_RESERVE] = rules.output_reserve
    flts[f.X_RESERVE_MIN] = rules.output_reserve_min
    flts[f.X_RESERVE_DECAY] = (
        rules.output_reserve - rules.output_reserve_min
    ) / rules.output_reserve_steps
    if rules.prefix_caching:
        _link_unused(core, 0, nodes)
        from specsim.sim.kv import new_node, queue_append

        everything = new_node(core, f.ROOT, f.NO_NODE)
        core.node[f.N_BLOCKS][everything] = blocks
        queue_append(core, everything)
    return core


def _link_unused(core: Core, first: int, last: int) -> None:
    for node in range(first, last):
        core.node[f.N_AFTER][node] = node + 1 if node + 1 < last else core.ints[f.I_NODE_FREE]
    if first == 0:
        core.node[f.N_AFTER][last - 1] = f.NO_NODE
    core.ints[f.I_NODE_FREE] = first
    core.ints[f.I_NODES_FREE] += last - first


def grow_nodes(core: Core, needed: int) -> Core:
    """Room for `needed` more cache nodes: nodes keep their numbers, the hash table is rebuilt."""
    from specsim.sim.kv import bucket_of

    have = len(core.node[0])
    size = have
    while size - have + core.ints[f.I_NODES_FREE] < needed:
        size *= 2
    arrays = isinstance(core.node, np.ndarray)
    node = whole_numbers(arrays, f.N_LENGTH, size)
    for row in range(f.N_LENGTH):
        node[row][:have] = core.node[row][:have]
    grown = core._replace(node=node, bucket=whole_numbers(arrays, 2 * size + 1, value=f.NO_NODE))
    unused = set()
    at = core.ints[f.I_NODE_FREE]
    while at != f.NO_NODE:
        unused.add(int(at))
        at = core.node[f.N_AFTER][at]
    for i in range(have):
        if i not in unused and node[f.N_KEY][i] != f.NO_NODE:
            place = bucket_of(grown, node[f.N_PARENT][i], node[f.N_KEY][i])
            node[f.N_CHAIN][i] = grown.bucket[place]
            grown.bucket[place] = i
    _link_unused(grown, have, size)
    return grown


def check_integrity(core: Core, live_slots: list[int]) -> None:
    """Blocks free, held and cached add up, and so do the counters; AssertionError if not."""
    ints = core.ints
    held = 0
    for slot in live_slots:
        own = core.slot[slot][f.S_PRIVATE if ints[f.I_CACHING] else f.S_HELD]
        if core.slot[slot][f.S_WHERE] != f.WHERE_DECODE:
            held += own
    for r in range(ints[f.I_N_ROWS]):
        slot = int(core.rows[f.R_SLOT, r])
        own = core.slot[slot][f.S_PRIVATE if ints[f.I_CACHING] else f.S_HELD]
        held += own + int(core.rows[f.R_HELD, r]) - core.slot[slot][f.S_HELD]
    free = ints[f.I_FREE]
    if ints[f.I_CACHING]:
        queued, at, before = 0, ints[f.I_LRU_HEAD], f.NO_NODE
        while at != f.NO_NODE:
            assert core.node[f.N_USERS][at] == 0 and core.node[f.N_BEFORE][at] == before
            queued += core.node[f.N_BLOCKS][at]
            before, at = at, core.node[f.N_AFTER][at]
        assert before == ints[f.I_LRU_TAIL]
        assert queued == free, f"queue holds {queued} blocks but {free} are counted as free"
        for place in core.bucket:
            node = place
            while node != f.NO_NODE:
                if core.node[f.N_USERS][node] > 0:
                    held += core.node[f.N_BLOCKS][node]
                node = core.node[f.N_CHAIN][node]
    assert held + free == ints[f.I_BLOCKS], (
        f"{held} blocks held and {free} free, but there are {ints[f.I_BLOCKS]}"
    )
    context = int(core.rows[f.R_COMPUTED, : ints[f.I_N_ROWS]].sum())
    assert context == ints[f.I_CONTEXT], f"context {ints[f.I_CONTEXT]} but rows hold {context}"
