"""Multi-token prediction: a head that ships inside the target's checkpoint (or Gemma's assistant).

One pass over all B (k + 1) verified rows (rejected ones are padding), then k - 1 passes of B rows;
every pass reads the drafter's head.
"""

from typing import ClassVar

from specsim.methods.assistant import ASSISTANT, RunsAssistants
from specsim.methods.base import EngineLimits, ServerNames
from specsim.methods.draft_model import DraftModelMethod
from specsim.methods.registry import register
from specsim.model.spec import Drafter, ModelSpec


@register
class MtpMethod(RunsAssistants):
    """The checkpoint's own head."""

    name = "mtp"
    listed = 1
    spellings = ("nextn", "mtp-one-model", "mtp-eagle", "mtp-eagle-one-model", "mtp-vanilla")
    server_names: ClassVar[ServerNames] = {
        "vllm": ("mtp",), "sglang": ("NEXTN", "FROZEN_KV_MTP"), "trtllm": ("MTP",)}
    checkpoint_words = ("mtp", "nextn")
    drafter_kinds = ("mtp", ASSISTANT)
    catalogue_kinds = (ASSISTANT,)
    in_checkpoint = True
    trees = True
    reads_last_block = True
    adapts = True

    def spelt(self, text: str) -> bool:
        return super().spelt(text) or text.endswith("_mtp")  # vLLM's by family: qwen3_5_mtp

    def default_k(self, drafter: Drafter | None) -> int:
        if drafter is not None and drafter.n_predict > 1:
            return drafter.n_predict
        return super().default_k(drafter)

    def k_fault(self, engine: EngineLimits, k: int, drafter: Drafter | None) -> str:
        n = drafter.n_predict if drafter is not None else 1
        if drafter is None or not engine.k_multiple_of_n_predict or k <= n or k % n == 0:
            return ""
        return (
            f"k is {k}, but {engine.name} wants a multiple of the {n} MTP layers of "
            f"{drafter.name}; use {k // n * n} or {(k // n + 1) * n}"
        )

    def measured_as(self, method: str, draft: str) -> bool:
        # Gemma's assistants are catalogued as the small models that they are.
        assistant = method == DraftModelMethod.name and draft.endswith("-assistant")
        return assistant or super().measured_as(method, draft)

    def missing_drafter(self, spec: ModelSpec) -> str:
        return (
            f"{spec.name} ships no MTP head; use another --method "
            "(draft-model, eagle3, ngram) or a checkpoint that has one"
        )

    def server_notes(self, engine: str, k: int, drafter: Drafter | None) -> tuple[str, ...]:
        one = drafter is None or (drafter.n_predict == 1 and not self.takes_batch(drafter))
        if engine != "vllm" or k < 2 or not one:
            return ()
        return ("one MTP layer drafts every position; vLLM warns of it at start-up",)
