"""What a deployment keeps in device memory, and how many requests fit beside the weights.

Per GPU: weights (target, vision tower, drafter), a reserve for activations and graphs, then the
cache pool. A request holds cache for its tokens plus the lookahead slots of speculation, and on
recurrent models 1 + k state slots (vLLM 0.25.1 keeps a state per draft position). The drafter's
own layers live in the same pool. Bytes; GB is 1e9.
"""

import math
from dataclasses import dataclass
from typing import Any

from specsim.errors import CapacityError
from specsim.hardware.profile import HardwareProfile
from specsim.latency.draft import SpecSetup
from specsim.latency.engine import EngineProfile
from specsim.model.counts import (
    drafter_kv_bytes,
    drafter_weight_bytes,
    kv_bytes_per_token,
    state_bytes,
    weight_bytes,
)
from specsim.model.spec import Attention, ModelSpec
from specsim.ops.work import Parallel
from specsim.units import GB

# Activations, graph pools, the context of the driver: what engines report beyond weights and
# cache on one large GPU is 2 to 5 GB, growing with the token budget. Assumed, not fitted.
RESERVE_BYTES = 2.0 * GB
RESERVE_BYTES_PER_TOKEN_AND_WIDTH = 8.0


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes per GPU. kv_bytes_per_token covers target and drafter layers that grow for ever;
    window_bytes and state_bytes_per_seq are what one sequence holds besides."""

    capacity_bytes: float
    usable_bytes: float
    weight_bytes: float
    drafter_bytes: float
    reserve_bytes: float
    kv_bytes_per_token: float
    window_bytes_per_seq: float
    state_bytes_per_seq: float
    lookahead_tokens: int
    block_size: int

    @property
    def pool_bytes(self) -> float:
        used = self.weight_bytes + self.drafter_bytes + self.reserve_bytes
        return self.usable_bytes - used

    @property
    def kv_tokens(self) -> int:
        """Tokens of cache the pool holds when no sequence needs a state."""
        if self.kv_bytes_per_token <= 0:
            return 1 << 40
        return max(0, int(self.pool_bytes / self.kv_bytes_per_token))

    def bytes_per_request(self, tokens: float) -> float:
        """Pool bytes of one request of `tokens` tokens, rounded up to whole blocks."""
        held = math.ceil((tokens + self.lookahead_tokens) / self.block_size) * self.block_size
        return (
            held * self.kv_bytes_per_token + self.window_bytes_per_seq + self.state_bytes_per_seq
        )

    def max_requests(self, tokens: float) -> int:
        """Requests of `tokens` tokens that fit at the same time."""
        if self.pool_bytes <= 0:
            return 0
        per_request = self.bytes_per_request(tokens)
        if per_request <= 0:
            return 1 << 20
        return int(self.pool_bytes / per_request)

    def to_dict(self) -> dict[str, Any]:
        return {
            "capacity_bytes": self.capacity_bytes,
            "usable_bytes": self.usable_bytes,
            "weight_bytes": self.weight_bytes,
            "drafter_bytes": self.drafter_bytes,
            "reserve_bytes": self.reserve_bytes,
            "pool_bytes": self.pool_bytes,
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "window_bytes_per_seq": self.window_bytes_per_seq,
            "state_bytes_per_seq": self.state_bytes_per_seq,
            "kv_tokens": self.kv_tokens,
        }


def _kv_shard(spec: ModelSpec, par: Parallel) -> float:
    """GPUs that share one token's cache: kv heads are split over tp until none is left; a latent
    cache is not split; attention_dp groups hold their own sequences."""
    heads = [g.mixer.n_kv_heads for g in spec.layers if isinstance(g.mixer, Attention)]
    split = min(par.tp, max(heads)) if heads else 1
    return float(split)


def plan_memory(
    spec: ModelSpec,
    profile: HardwareProfile,
    engine: EngineProfile,
    parallel: Parallel,
    kv_dtype: str,
    setup: SpecSetup,
    *,
    gpu_memory_utilization: float | None = None,
    max_num_batched_tokens: int | None = None,
    check: bool = True,
) -> MemoryPlan:
    """The memory plan of one deployment. CapacityError when the weights alone do not fit, with
    the smallest tp that does."""
    share = gpu_memory_utilization or engine.gpu_memory_utilization
    budget = max_num_batched_tokens or engine.max_num_batched_tokens
    size = weight_bytes(spec)
    target = size.text + size.vision
    drafter = setup.drafter
    if drafter is None:
        draft_bytes = 0.0
    elif drafter is spec.mtp:
        draft_bytes = size.mtp
    else:
        draft_bytes = drafter_weight_bytes(drafter)
    reserve = RESERVE_BYTES + RESERVE_BYTES_PER_TOKEN_AND_WIDTH * min(budget, 16384) * spec.hidden
    gpus = parallel.gpus
    kv = kv_bytes_per_token(spec, kv_dtype)
    per_token, windows = kv.full + kv.index, sum(w * b for w, b in kv.sliding)
    if drafter is not None:
        own = drafter_kv_bytes(drafter, kv_dtype)
        per_token += own.full + own.index
        windows += sum(w * b for w, b in own.sliding)
    split = _kv_shard(spec, parallel)
    k = setup.k if setup.method != "none" else 0
    lookahead = 0 if setup.method in ("ngram", "suffix", "none") else k
    states = state_bytes(spec).total * (1 + k) / parallel.tp
    plan = MemoryPlan(
        capacity_bytes=float(profile.mem_bytes),
        usable_bytes=profile.mem_bytes * share,
        weight_bytes=target / gpus,
        drafter_bytes=draft_bytes / (setup.draft_tp or gpus),
        reserve_bytes=reserve,
        kv_bytes_per_token=per_token / split / parallel.attention_dp,
        window_bytes_per_seq=windows / split / parallel.attention_dp,
        state_bytes_per_seq=states / parallel.attention_dp,
        lookahead_tokens=lookahead + (1 + k),
        block_size=engine.block_size,
    )
    if check and plan.pool_bytes <= 0:
        text = _does_not_fit(spec, profile, parallel, plan, share, target, draft_bytes)
        raise CapacityError(text)
    return plan


def _does_not_fit(
    spec: ModelSpec,
    profile: HardwareProfile,
    parallel: Parallel,
    plan: MemoryPlan,
    share: float,
    target: float,
    drafter: float,
) -> str:
    need = plan.weight_bytes + plan.drafter_bytes + plan.reserve_bytes
    text = (
        f"{spec.name} needs {need / GB:.0f} GB per GPU at tp {parallel.tp} "
        f"(weights {plan.weight_bytes / GB:.0f} GB, drafter {plan.drafter_bytes / GB:.1f} GB, "
        f"reserve {plan.reserve_bytes / GB:.1f} GB), but {profile.name} offers "
        f"{plan.usable_bytes / GB:.0f} GB ({share:.0%} of {plan.capacity_bytes / GB:.0f} GB)"
    )
    for tp in (2, 4, 8, 16, 32, 64):
        per_gpu = (target + drafter) / tp + plan.reserve_bytes
        if tp > parallel.tp and per_gpu < 0.97 * plan.usable_bytes:
            return f"{text}; the smallest tp that fits is {tp}, or choose smaller weights"
    return f"{text}; choose smaller weights or a larger GPU"
