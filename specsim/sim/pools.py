"""Prefill and decoding on replicas apart: who computes prompts, who decodes, the link between.

Numbered first to last, prefill replicas come before decode replicas: `Fault.replica` and
`RequestRecord.replica` count so.
"""

import math
from dataclasses import dataclass, fields

from specsim.errors import UsageError
from specsim.latency.kv_link import KVLink
from specsim.sim.block_costs import BlockCosts
from specsim.sim.engine_rules import EngineRules

MOST_REPLICAS = 4096


@dataclass(frozen=True, slots=True)
class PrefillPool:
    """Replicas that compute prompts and their first token, and send the cache to those that decode.

    They hold the blocks of a prompt until it is sent. rules: how their engine schedules (None: as
    the decode replicas'). num_kv_blocks, block_costs: of each (0, None: as the
    decode replicas')."""

    n_replicas: int = 1
    link: KVLink = KVLink()
    rules: EngineRules | None = None
    num_kv_blocks: int = 0
    block_costs: BlockCosts | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.n_replicas <= MOST_REPLICAS:
            raise UsageError(
                f"prefill replicas are {self.n_replicas}; there must be 1 to {MOST_REPLICAS}"
            )

    def to_dict(self) -> dict[str, object]:
        """Plain settings, for the record beside a result. Infinite never: a link without limit has
        0 s per token."""
        link = self.link
        out: dict[str, object] = {
            item.name: getattr(link, item.name) for item in fields(KVLink)
        }
        out["windows"] = [list(pair) for pair in link.windows]
        assert math.isfinite(link.latency_s)
        return {
            "n_replicas": self.n_replicas, "num_kv_blocks": self.num_kv_blocks or None,
            "link": out,
        }
