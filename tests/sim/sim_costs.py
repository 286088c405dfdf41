"""Step costs and small helpers shared by the simulator's tests."""

from dataclasses import dataclass, replace

import numpy as np

from specsim.latency.shape import StepShape
from specsim.sim.config import SimConfig, SpeculationRules
from specsim.sim.engine_rules import VLLM, EngineRules
from specsim.sim.request import Request


@dataclass(frozen=True)
class Linear:
    """base + row * decoding requests + token * prompt tokens + cached * cached tokens, seconds."""

    base: float = 0.010
    row: float = 0.0
    token: float = 0.0
    cached: float = 0.0
    draft: float = 0.0

    def seconds(self, shape: StepShape) -> float:
        return (
            self.base
            + self.row * shape.decode_seqs
            + self.token * shape.prefill_tokens
            + self.cached * shape.decode_context_tokens
            + self.draft * shape.num_drafts
        )


class Random:
    """Independent exponential step times, for queues with a known law."""

    def __init__(self, mean_s: float, seed: int) -> None:
        self._generator = np.random.default_rng([seed, 99])
        self._mean_s = mean_s

    def seconds(self, shape: StepShape) -> float:
        return float(self._generator.exponential(self._mean_s))


class Curved:
    """A cost with kinks and a staircase, as a real step has: for the surface's error."""

    def seconds(self, shape: StepShape) -> float:
        rows = shape.decode_seqs * shape.decode_q_len + shape.prefill_tokens
        padded = -(-rows // 8) * 8 if rows <= 512 else rows
        gemm = max(4e-3, padded * 8e-6)
        attention = shape.decode_context_tokens * 2e-8 + sum(
            chunk.new_tokens * (chunk.cached_tokens + chunk.new_tokens / 2) * 3e-10
            for chunk in shape.prefill
        )
        return gemm + attention + 1e-3 + 2e-4 * shape.num_drafts


# SGLang 0.5: server_args.py and schedule_policy.py; new_token_ratio 0.7 falling to 0.7 * 0.14.
SGLANG = EngineRules(
    name="sglang",
    max_num_seqs=4096,
    block_size=1,
    prefill_first=True,
    victim="fewest_tokens",
    output_reserve=0.7,
    output_reserve_min=0.098,
)
PLAIN_RULES = replace(VLLM, prefix_caching=False, readback_lag_steps=0)


def config(
    *,
    rules: EngineRules = PLAIN_RULES,
    num_kv_blocks: int = 10_000,
    k: int = 0,
    **settings: object,
) -> SimConfig:
    """A configuration without surprises: no prefix cache, no readback lag."""
    own = {name: settings.pop(name) for name in list(settings) if name in _RULES}
    if k and "speculation" not in settings:
        settings["speculation"] = SpeculationRules(k)
    return SimConfig(num_kv_blocks=num_kv_blocks, rules=replace(rules, **own), **settings)


_RULES = set(EngineRules.__dataclass_fields__)


def plain_requests(*triples: tuple[float, int, int]) -> list[Request]:
    """Requests from (arrival, prompt tokens, output tokens)."""
    return [Request(*triple) for triple in triples]
