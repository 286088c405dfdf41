"""Medusa: several heads on the target's last hidden state, each drafting one position.

One pass of one row per sequence through all heads; no cache, so no slots ahead.
"""

from collections.abc import Mapping
from typing import ClassVar

from specsim.methods.base import DraftMethod, EngineLimits, ServerNames, assumed_network
from specsim.methods.registry import register
from specsim.model.spec import Drafter, ModelSpec

HEADS = 5  # of the published checkpoints


@register
class MedusaMethod(DraftMethod):
    """Heads of one residual layer and one output matrix each."""

    name = "medusa"
    listed = 5
    spellings = ("medusa-1", "medusa1", "medusa-2", "medusa2")
    server_names: ClassVar[ServerNames] = {"vllm": ("medusa",)}
    checkpoint_words = ("medusa",)
    config_names: ClassVar[Mapping[str, str]] = {
        "medusamodel": "medusa", "medusaforcausallm": "medusa", "medusa": "medusa",
    }
    config_fields: ClassVar[Mapping[str, str]] = {"medusa_num_heads": "medusa"}
    drafter_kinds = ("medusa",)
    catalogue_kinds = ("medusa",)
    one_pass = True
    free_length = False
    trees = True
    default_rank = 5

    def lookahead(self, k: int) -> int:
        return 0

    def default_k(self, drafter: Drafter | None) -> int:
        return max(1, drafter.n_heads_medusa) if drafter is not None else super().default_k(drafter)

    def k_fault(self, engine: EngineLimits, k: int, drafter: Drafter | None) -> str:
        heads = drafter.n_heads_medusa if drafter is not None else 0
        if drafter is None or not heads or k <= heads:
            return ""
        return f"k is {k}, but {drafter.name} has {heads} heads; use at most {heads}"

    def assumed_drafter(self, spec: ModelSpec) -> Drafter:
        """Heads (h x h and V x h each), all read in one pass."""
        note = f"assumed: {HEADS} heads of one residual layer each"
        return assumed_network(
            spec, "Medusa", "medusa", note, layers=(), own_head=True, n_heads_medusa=HEADS
        )
