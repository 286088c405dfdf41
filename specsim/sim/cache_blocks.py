"""The blocks of a deployment's cache: how many, and what a request takes of them.

vLLM (0.10 to 0.33, v1/core/kv_cache_utils.py) cuts the pool into blocks of one size for all layers.
Layers of one kind (window, bytes per token) are split into groups of equal numbers of layers; a
block holds so many tokens of all layers of one group, and any group may take any block:

    bytes of a block = layers of a group x bytes of a page
    page = block_size tokens of the widest layer; narrower ones have longer blocks
    blocks = pool / bytes of a block

With recurrent layers the block grows until the page of an attention layer holds a state, and a
request takes a block for each group and state slot. So how many blocks there are depends on the
memory alone, and what is lost to padding (groups that are not full, states smaller than a page) is
lost here too.

Where all layers are of one kind, and in engines that have a pool for each kind, a block is what
`block_size` tokens take, or a small part of it: then windows and states take whole numbers.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from specsim.analytic.system import System
from specsim.errors import CapacityError
from specsim.latency.memory import CachedLayers, MemoryPlan
from specsim.sim.engine_rules import MAX_BLOCKS, BlockCosts

PARTS = 64  # of what a token takes of engines with a pool for each kind of layer
STATE_WINDOW = 2  # tokens: a cached state serves the prompt that goes on right behind it


@dataclass(frozen=True, slots=True)
class CacheBlocks:
    """num_kv_blocks blocks of block_bytes. block_size: tokens by which prefixes are found."""

    num_kv_blocks: int
    block_size: int
    block_bytes: float
    costs: BlockCosts


@dataclass(frozen=True, slots=True)
class _GroupKind:
    """Layers alike: how many, their window (0: none) and bytes of one of them per token, or of one
    slot of its state."""

    count: int
    window: int
    token_bytes: float
    state_bytes: float = 0.0


def cache_blocks(system: System, *, prefix_caching: bool = True) -> CacheBlocks:
    """The blocks of a deployment. CapacityError if not one fits."""
    plan, rules = system.memory, system.engine.scheduler
    attention = _kinds(one for one in plan.layers if one.token_bytes > 0)
    states = _kinds(one for one in plan.layers if one.state_bytes > 0)
    several = states or len({kind.window for kind in attention}) > 1
    if rules.uniform_pages and attention and several:
        snapshots = bool(states) and prefix_caching and rules.prefix_caching_with_state
        found = _paged(plan, attention, states, rules.group_slack, snapshots)
        keeps_last = rules.keeps_last_window or snapshots
    else:
        found, keeps_last = _by_bytes(plan, attention), rules.keeps_last_window
    if found.num_kv_blocks < 1:
        raise CapacityError(
            f"{plan.pool_bytes / 1e9:.2f} GB are left for the cache, less than one block of "
            f"{found.block_size} tokens; use a larger tp, smaller weights or an fp8 cache"
        )
    costs = found.costs
    if keeps_last and costs.window_blocks:
        costs = replace(costs, keeps_last_window=True)
    return CacheBlocks(found.num_kv_blocks, found.block_size, found.block_bytes, costs)


def _kinds(layers: Iterable[CachedLayers]) -> list[_GroupKind]:
    counts: dict[tuple[int, float, float], int] = {}
    for one in layers:
        key = (one.window, one.token_bytes / one.count, one.state_bytes / one.count)
        counts[key] = counts.get(key, 0) + one.count
    return [_GroupKind(count, *key) for key, count in counts.items()]


def _window_of(kinds: list[_GroupKind]) -> int:
    """One window in place of several: their mean by bytes, which long requests hold."""
    sliding = [kind for kind in kinds if kind.window]
    size = sum(kind.count * kind.token_bytes for kind in sliding)
    held = sum(kind.count * kind.token_bytes * kind.window for kind in sliding)
    return round(held / size) if size else 0


def _by_bytes(plan: MemoryPlan, attention: list[_GroupKind]) -> CacheBlocks:
    """A block is what `block_size` tokens take of all layers, or a part of it where some layers
    have a window."""
    unit_tokens = plan.block_size
    full = plan.kv_bytes_per_token * unit_tokens
    window = sum(size for _, size in plan.windows) * unit_tokens
    state = plan.pooled_state_bytes
    costs = BlockCosts(1 if full else 0, 1 if window else 0, _window_of(attention))
    block_bytes = full + window or state or plan.pool_bytes / MAX_BLOCKS
    if full and window:
        block_bytes /= PARTS
        share = min(PARTS - 1, max(1, round(full / block_bytes)))
        costs = BlockCosts(share, PARTS - share, costs.window_tokens)
    if state:
        costs = replace(costs, state_blocks=math.ceil(state / block_bytes))
    blocks = min(MAX_BLOCKS, int(plan.pool_bytes / block_bytes))
    return CacheBlocks(blocks, unit_tokens, block_bytes, costs)


def _paged(
    plan: MemoryPlan, attention: list[_GroupKind], states: list[_GroupKind], slack: float,
    snapshots: bool,
) -> CacheBlocks:
    """vLLM's groups. snapshots: a state is also kept for prompts that go on from it."""
    widest = max(kind.token_bytes for kind in attention)
    tokens = plan.block_size
    if states:
        state = max(kind.state_bytes for kind in states)
        tokens *= max(1, math.ceil(state / (widest * tokens)))
    counts = [kind.count for kind in (*attention, *states)]
    size = min(counts)
    if max(counts) < slack * size:
        size = max(counts)
    lengths = [tokens * _times(widest, kind.token_bytes) for kind in attention]
    unit_tokens = math.lcm(*lengths)
    full = window = 0
    for kind, length in zip(attention, lengths, strict=True):
        blocks = math.ceil(kind.count / size) * unit_tokens // length
        if kind.window:
            window += blocks
        else:
            full += blocks
    groups = sum(math.ceil(kind.count / size) for kind in states)
    one_slot = sum(kind.count * kind.state_bytes for kind in states)
    held = groups * round(plan.state_bytes_per_seq / one_slot) if one_slot else 0
    window_tokens = _window_of(attention)
    if snapshots and not window:
        # The running state is the last of the blocks that a window of one token leaves.
        window, window_tokens, held = groups * unit_tokens // tokens, STATE_WINDOW, held - groups
    block_bytes = size * widest * tokens
    costs = BlockCosts(full, window, window_tokens, held)
    return CacheBlocks(int(plan.pool_bytes / block_bytes), unit_tokens, block_bytes, costs)


def _times(widest: float, size: float) -> int:
    """How many times as long the blocks of narrower layers are; 1 where that is no whole number,
    and their pages are padded."""
    ratio = widest / size
    return round(ratio) if abs(ratio - round(ratio)) < 1e-6 else 1
