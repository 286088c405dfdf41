"""DFlash, with the heads of DFlash2 and Domino, and DSpark: one non-causal pass drafts a block.

Every step the drafter makes keys and values of the verified rows (and of prompts), and the block's
rows attend to them. DFlash runs k + 1 rows per sequence; DSpark, whose anchor is the last verified
token, k rows, and walks a small head over the block token by token.
"""

from collections.abc import Mapping
from typing import ClassVar

from specsim.methods.base import DraftMethod, EngineLimits, ServerNames, SpecSetup
from specsim.methods.registry import register
from specsim.model.spec import Drafter


@register
class DFlashMethod(DraftMethod):
    """A block in one pass, its first row the token verified last."""

    name = "dflash"
    listed = 8
    server_names: ClassVar[ServerNames] = {"vllm": ("dflash",), "sglang": ("DFLASH",)}
    checkpoint_words = ("dflash",)
    config_names: ClassVar[Mapping[str, str]] = {
        "dflashdraftmodel": "dflash", "dflashspeculator": "dflash",
        "dflash2draftmodel": "dflash", "dominodraftmodel": "dflash",  # more parts, one name
    }
    speculators: ClassVar[Mapping[str, str]] = {"dflash": "dflash"}
    config_fields: ClassVar[Mapping[str, str]] = {"dflash_config": "dflash"}
    drafter_kinds = ("dflash",)
    catalogue_kinds = ("dflash",)
    measured_names: tuple[str, ...] = ("dflash2", "dfly")  # later ones, served under the same name
    one_pass = True
    block = True
    free_length = False
    reads_last_block = True
    one_number = True
    default_rank = 3
    anchor_rows = 1  # rows of the block that draft nothing

    def first_rows(self, setup: SpecSetup, engine: EngineLimits) -> int:
        return setup.k + self.anchor_rows

    def lookahead(self, k: int) -> int:
        return k + self.anchor_rows

    def reserved_tokens(self, k: int, at_once: bool) -> int:
        return k - 1

    def default_k(self, drafter: Drafter | None) -> int:
        if drafter is None or not drafter.block_size:
            return super().default_k(drafter)
        return max(1, drafter.block_size - self.anchor_rows)

    def k_fault(self, engine: EngineLimits, k: int, drafter: Drafter | None) -> str:
        if drafter is None or not drafter.block_size or k <= drafter.block_size:
            return ""
        return (
            f"k is {k}, but {drafter.name} drafts blocks of {drafter.block_size} tokens; "
            f"use at most {drafter.block_size}"
        )


@register
class DSparkMethod(DFlashMethod):
    """DFlash with a sequential head over the block, and no row for the anchor."""

    name = "dspark"
    listed = 9
    server_names: ClassVar[ServerNames] = {"vllm": ("dspark",), "sglang": ("DSPARK",)}
    checkpoint_words = ("dspark",)
    config_names: ClassVar[Mapping[str, str]] = {
        "dsparkdraftmodel": "dspark", "dsparkspeculator": "dspark", "qwen3dsparkmodel": "dspark",
        "lfm2dsparkdraftmodel": "dspark", "gemma4dsparkmodel": "dspark", "k3dsparkmodel": "dspark",
    }
    speculators: ClassVar[Mapping[str, str]] = {"dspark": "dspark"}
    config_fields: ClassVar[Mapping[str, str]] = {}
    drafter_kinds = ("dspark",)
    catalogue_kinds = ("dspark",)
    measured_names = ()
    new_runner = True
    default_rank = 0
    anchor_rows = 0

    def k_fault(self, engine: EngineLimits, k: int, drafter: Drafter | None) -> str:
        """Longer drafts than the block are served: DeepSeek-V4-Pro-0813, of block 5, was measured
        with 6 to 8 (published sets DSPARK, GOLDAL)."""
        return ""
