"""A separate small model as the drafter, with a cache of its own.

As MTP, with one more row per sequence in the first pass: the draft has not seen the bonus token
(vLLM's expanded buffer). PARD models draft all positions in one pass (parallel drafting).
"""

from typing import ClassVar

from specsim.methods.assistant import ASSISTANT, RunsAssistants
from specsim.methods.base import EngineLimits, ServerNames, SpecSetup
from specsim.methods.registry import register

WHOLE_MODEL = "model"  # kind of drafter: an ordinary model, with embedding and head


@register
class DraftModelMethod(RunsAssistants):
    """Any model that shares the target's tokenizer."""

    name = "draft-model"
    listed = 2
    spellings = (
        "draft", "standalone", "draft-target", "draft-target-one-model", "assisted",
        "assisted-generation", "assisted-decoding", "speculative-sampling", "sps",
    )
    server_names: ClassVar[ServerNames] = {
        "vllm": ("draft_model",), "sglang": ("STANDALONE",),
        "trtllm": ("DraftTarget", "Draft_Target")}
    drafter_kinds = (WHOLE_MODEL, ASSISTANT)
    catalogue_kinds = (ASSISTANT,)
    parallel = True
    default_rank = 1

    def first_rows(self, setup: SpecSetup, engine: EngineLimits) -> int:
        # A draft model with a cache of its own has not seen the bonus token.
        seen = super().first_rows(setup, engine) + setup.fills_cache
        return engine.draft_model_first_rows or seen

    def reserved_tokens(self, k: int, at_once: bool) -> int:
        return 1 + super().reserved_tokens(k, at_once)
