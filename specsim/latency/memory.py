"""What a deployment keeps in device memory, and how many requests fit beside the weights.

Per GPU: weights (target, vision tower, drafter), a reserve for activations and graphs, then the
cache pool. A request holds cache for its tokens plus the lookahead slots of speculation, and on
recurrent models 1 + k state slots (vLLM 0.25.1 keeps a state per draft position). The drafter's
own layers live in the same pool. Sliding layers hold at most their window.

SGLang sets a share of what the weights leave apart for states, and runs no more requests than it
holds: each has slots for the states of prefixes besides its own, and k + 1 that a verify step
writes (mem_cache/kv_cache_configurator.py of 0.5.23; --mamba-full-memory-ratio). Without slots
for prefixes, states and tokens are taken from one pool.

Tensor parallelism splits weights and state; it splits the cache by KV heads, each layer's until
they run out, and a latent cache not at all. Attention groups (attention_dp) hold copies of
everything but the routed experts, and each its own sequences. Where layers are spread over pipeline
stages the plan is that of the stage that holds the fewest tokens: one with the most layers, or the
last, which keeps output head and drafter besides. Bytes; GB is 1e9.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from specsim.errors import CapacityError
from specsim.hardware.profile import HardwareProfile
from specsim.jsonable import picked
from specsim.latency.expert_storage import rounded_up
from specsim.latency.instance import Instance
from specsim.latency.pipeline import stage_layers
from specsim.model.counts import kv_bytes_per_token, state_bytes, weight_bytes
from specsim.model.drafter_counts import drafter_kv_bytes, drafter_weight_bytes
from specsim.model.feedforward import MoE
from specsim.model.layer_counts import KVBytes
from specsim.model.mixers import Attention
from specsim.model.spec import LayerGroup, ModelSpec
from specsim.ops.work import Parallel, split_fault
from specsim.units import GB

# Activations, graph pools, the context of the driver: what engines report beyond weights and
# cache on one large GPU is 2 to 5 GB, growing with the token budget. Assumed, not fitted.
RESERVE_BYTES = 2.0 * GB
RESERVE_BYTES_PER_TOKEN_AND_WIDTH = 8.0
MOST_REQUESTS = 1 << 20  # where nothing limits them
MAX_TP = 128  # looked at for the smallest tp that fits


@dataclass(frozen=True, slots=True)
class CachedLayers:
    """`count` layers of a kind and what they cache, all together, on one GPU: bytes per token of
    the last `window` tokens (0: of all), and bytes of one copy of a sequence's state."""

    count: int
    window: int
    token_bytes: float
    state_bytes: float = 0.0

    def part(self, share: float) -> "CachedLayers":
        """A share of them, in bytes to the layer and in number rounded."""
        count = max(1, round(self.count * share))
        return CachedLayers(count, self.window, self.token_bytes * share, self.state_bytes * share)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes per GPU. kv_bytes_per_token covers target and drafter layers that grow for ever;
    windows: (tokens, bytes per token) of sliding layers; state_bytes_per_seq: recurrent state, all
    its slots; state_pool_bytes: where states have memory of their own (0: they lie in the pool).
    lookahead_tokens: cache slots a sequence holds ahead of its accepted tokens. layers: what these
    sums are made of."""

    capacity_bytes: float
    usable_bytes: float
    weight_bytes: float
    drafter_bytes: float
    reserve_bytes: float
    kv_bytes_per_token: float
    windows: tuple[tuple[int, float], ...]
    state_bytes_per_seq: float
    lookahead_tokens: int
    block_size: int
    layers: tuple[CachedLayers, ...] = ()
    state_pool_bytes: float = 0.0

    @property
    def window_bytes_per_seq(self) -> float:
        """Most that a sequence holds in sliding layers."""
        return sum(tokens * size for tokens, size in self.windows)

    @property
    def pool_bytes(self) -> float:
        used = self.weight_bytes + self.drafter_bytes + self.reserve_bytes
        return self.usable_bytes - used - self.state_pool_bytes

    @property
    def state_requests(self) -> int:
        """Requests whose states fit where these have memory of their own, whatever their length."""
        if self.state_pool_bytes <= 0:
            return MOST_REQUESTS
        return int(self.state_pool_bytes / self.state_bytes_per_seq)

    @property
    def pooled_state_bytes(self) -> float:
        """Of one sequence in the cache pool."""
        return 0.0 if self.state_pool_bytes > 0 else self.state_bytes_per_seq

    @property
    def kv_tokens(self) -> int:
        """Tokens of cache the pool holds when no sequence needs a state; of windows, where no
        layer keeps more."""
        each = self.kv_bytes_per_token or sum(size for _, size in self.windows)
        return max(0, int(self.pool_bytes / each)) if each > 0 else 1 << 40

    def bytes_per_request(self, tokens: float) -> float:
        """Pool bytes of one request of `tokens` tokens, rounded up to whole blocks."""
        held = math.ceil((tokens + self.lookahead_tokens) / self.block_size) * self.block_size
        sliding = sum(min(held, window) * size for window, size in self.windows)
        return held * self.kv_bytes_per_token + sliding + self.pooled_state_bytes

    def max_requests(self, tokens: float) -> int:
        """Requests of `tokens` tokens that fit at the same time."""
        if self.pool_bytes <= 0:
            return 0
        per_request = self.bytes_per_request(tokens)
        fits = int(self.pool_bytes / per_request) if per_request > 0 else MOST_REQUESTS
        return min(fits, self.state_requests)

    def to_dict(self) -> dict[str, object]:
        return picked(self, "capacity_bytes usable_bytes weight_bytes drafter_bytes reserve_bytes "
                            "pool_bytes kv_bytes_per_token window_bytes_per_seq "
                            "state_bytes_per_seq state_pool_bytes lookahead_tokens kv_tokens")


def _cached(
    layers: Iterable[LayerGroup], kv_of: Callable[[LayerGroup], KVBytes], parallel: Parallel,
    tp: int, copies: int = 1,
) -> list[CachedLayers]:
    """What some layers, each `copies` times, cache on one of `tp` GPUs per attention group."""
    groups = parallel.attention_dp
    found = []
    for group in layers:
        kv, mixer, count = kv_of(group), group.mixer, group.count * copies
        split = groups * (mixer.cache_shards(tp) if mixer is not None else 1)
        # Index keys are shared by all heads and so lie on every GPU of a group.
        if whole := kv.full / split + kv.index / groups:
            found.append(CachedLayers(count, 0, whole))
        found += [CachedLayers(count, window, size / split) for window, size in kv.sliding]
    return found


def _weights(spec: ModelSpec, arch: str, slices: int) -> tuple[float, float]:
    """(bytes that every attention group holds, bytes of the routed experts), tower included.

    Layers without a value projection (k_eq_v) hold their key projection twice: engines load it
    into both slots (vLLM 0.25.1)."""
    size = weight_bytes(spec)
    twice, routed = 0.0, _routed(spec.layers, spec.hidden)
    kept = _routed(spec.layers, spec.hidden, arch, slices)
    for group in spec.layers:
        a = group.mixer
        if isinstance(a, Attention) and a.k_eq_v and a.owns_kv:
            keys = spec.hidden * a.input_mult * a.n_kv_heads * a.head_dim
            twice += group.count * keys * a.weight.bytes_per_weight
    return size.text + size.vision - routed + twice, kept


def _routed(
    layers: Iterable[LayerGroup], hidden: int, arch: str = "", slices: int = 1
) -> float:
    """Bytes of the routed experts of some layers, on an architecture as engines keep them there."""
    return sum(
        group.count * part.count(hidden).routed * part.weight.bytes_per_weight
        * rounded_up(part, hidden, arch, slices)
        for group in layers
        for part in group.branches
        if isinstance(part, MoE)
    )


def _ends(spec: ModelSpec) -> float:
    """Bytes of the embedding and the output head."""
    matrix = float(spec.vocab * spec.hidden)
    if spec.tied_embeddings:
        return matrix * spec.embed_weight.bytes_per_weight
    return matrix * (spec.embed_weight.bytes_per_weight + spec.head_weight.bytes_per_weight)


def plan_memory(
    instance: Instance,
    *,
    gpu_memory_utilization: float | None = None,
    max_num_batched_tokens: int | None = None,
    check: bool = True,
) -> MemoryPlan:
    """The memory plan of one instance. CapacityError when the weights alone do not fit, with the
    smallest tp that does."""
    spec, profile, engine = instance.spec, instance.profile, instance.engine
    parallel, kv_dtype, setup = instance.parallel, instance.kv_dtype, instance.setup
    share = gpu_memory_utilization or engine.gpu_memory_utilization
    budget = max_num_batched_tokens or engine.max_num_batched_tokens
    drafter = setup.drafter
    if drafter is None:
        draft_bytes = 0.0
    elif drafter is spec.mtp:
        draft_bytes = weight_bytes(spec).mtp
    else:
        draft_bytes = drafter_weight_bytes(drafter)
    tp, groups = parallel.tp, parallel.attention_dp
    draft_tp, draft_routed = setup.draft_tp or tp, 0.0
    if drafter is not None and not setup.draft_tp:
        # Experts of an MTP head are spread over all GPUs like the target's.
        draft_routed = drafter.n_predict * _routed(drafter.layers, drafter.hidden)
    shared, routed = _weights(spec, profile.arch, parallel.gpus // parallel.ep)
    target_layers = _cached(
        spec.layers, lambda g: kv_bytes_per_token(replace(spec, layers=(g,)), kv_dtype), parallel,
        tp,
    )
    draft_layers: list[CachedLayers] = []
    if drafter is not None:
        draft_layers = _cached(
            drafter.layers, lambda g: drafter_kv_bytes(replace(drafter, layers=(g,)), kv_dtype),
            parallel, draft_tp, drafter.n_predict,
        )
    for group in spec.layers:
        size = state_bytes(replace(spec, layers=(group,))).total
        if size > 0:
            target_layers.append(CachedLayers(group.count, 0, 0.0, size / tp / groups))
    slots = engine.held_states(setup)
    ends = _ends(spec)

    def stage(layers: float, ends_bytes: float, drafts: bool) -> MemoryPlan:
        """Of a stage that has this share of the layers; drafts: and the drafter."""
        draft = 0.0
        cached = [one.part(layers) for one in target_layers]
        if drafts:
            draft = (draft_bytes - draft_routed) / draft_tp + draft_routed / parallel.gpus
            cached += draft_layers
        if not engine.scheduler.frees_windows:
            cached = [replace(one, window=0) for one in cached]
        windows = {0: 0.0}
        for one in cached:
            windows[one.window] = windows.get(one.window, 0.0) + one.token_bytes
        weights = ((shared - ends) * layers + ends_bytes) / tp + routed * layers / parallel.gpus
        reserve = RESERVE_BYTES + (
            RESERVE_BYTES_PER_TOKEN_AND_WIDTH * min(budget, 16384) * spec.hidden)
        usable = profile.mem_bytes * share
        if engine.share_of_free:
            usable += (1.0 - share) * (weights + draft + reserve)
        found = MemoryPlan(
            capacity_bytes=float(profile.mem_bytes),
            usable_bytes=usable,
            weight_bytes=weights,
            drafter_bytes=draft,
            reserve_bytes=reserve,
            kv_bytes_per_token=windows.pop(0),
            windows=tuple(sorted(windows.items())),
            state_bytes_per_seq=state_bytes(spec).total * layers * slots / tp / groups,
            lookahead_tokens=setup.lookahead_tokens + setup.verify_tokens,
            block_size=engine.block_size,
            layers=tuple(cached),
        )
        if found.state_bytes_per_seq <= 0:
            return found
        return replace(found, state_pool_bytes=engine.state_share(setup) * found.pool_bytes)

    plan = stage(1.0, ends, True)
    if parallel.pp > 1:
        most, last = (part / spec.n_layers for part in stage_layers(spec.n_layers, parallel.pp))
        # Embedding and output head are about one size; where they are tied, both ends have them.
        one_end = ends if spec.tied_embeddings else ends / 2
        plan = min(
            stage(most, one_end, False), stage(last, one_end, True),
            key=lambda found: found.pool_bytes / max(found.bytes_per_request(1024), 1.0),
        )
    if check and plan.pool_bytes <= 0:
        fits = None
        if profile.link_bytes_per_s > 0:
            for wider in range(tp + 1, MAX_TP + 1):
                if wider * groups % parallel.ep or split_fault(spec.layers, wider):
                    continue
                split = Instance(
                    spec, profile, engine, replace(parallel, tp=wider), kv_dtype,
                    replace(setup, draft_tp=0),
                )
                other = plan_memory(
                    split, gpu_memory_utilization=share, max_num_batched_tokens=budget,
                    check=False,
                )
                # A pool of a few hundred MB would start but serve nothing.
                if other.pool_bytes > 0.03 * other.usable_bytes:
                    fits = wider
                    break
        whole = 1.0 if engine.share_of_free else share
        raise CapacityError(_does_not_fit(spec, profile, parallel, plan, whole, fits))
    if check and plan.state_requests < 1:
        raise CapacityError(
            f"a request of {spec.name} keeps {plan.state_bytes_per_seq / GB:.2f} GB of recurrent "
            f"state per GPU at tp {tp}, but {engine.name} sets {plan.state_pool_bytes / GB:.2f} GB "
            f"apart for states beside the weights on {profile.name}; use a larger tp, smaller "
            "weights or a shorter draft (--k)"
        )
    return plan


def _does_not_fit(
    spec: ModelSpec,
    profile: HardwareProfile,
    parallel: Parallel,
    plan: MemoryPlan,
    share: float,
    fits: int | None,
) -> str:
    need = plan.weight_bytes + plan.drafter_bytes + plan.reserve_bytes
    text = (
        f"{spec.name} needs {need / GB:.0f} GB per GPU at tp {parallel.tp} "
        f"(weights {plan.weight_bytes / GB:.0f} GB, drafter {plan.drafter_bytes / GB:.1f} GB, "
        f"reserve {plan.reserve_bytes / GB:.1f} GB), but {profile.name} offers "
        f"{share * plan.capacity_bytes / GB:.0f} GB ({share:.0%} of "
        f"{plan.capacity_bytes / GB:.0f} GB)"
    )
    if fits is not None:
        return (
            f"{text}; the smallest tp that fits is {fits}: --tp {fits}, or choose smaller weights "
            "with --weights fp8 or int4"
        )
    alone = "" if profile.link_bytes_per_s > 0 else " (the profile has no link for a larger tp)"
    return (
        f"{text}; choose smaller weights (--weights int4) or a larger GPU of `specsim gpus`{alone}"
    )
