"""Gemma's assistants: small published models that read the target's cache and fill none.

vLLM runs them under the name of MTP heads, SGLang under one of their own, and users call them
either MTP or draft models. Their first pass too runs over the whole batch of the target, prompts
included (vLLM 0.25.1, spec_decode/autoregressive/speculator.py); then k - 1 passes of one row.
"""

from collections.abc import Mapping
from typing import ClassVar

from specsim.methods.base import DraftMethod
from specsim.model.spec import Drafter

ASSISTANT = "gemma-assistant"
_SERVER_NAMES = {"vllm": ("mtp",), "sglang": ("FROZEN_KV_MTP",)}


class RunsAssistants(DraftMethod):
    """A method that also runs Gemma's assistants."""

    config_names: ClassVar[Mapping[str, str]] = {"gemma4assistantforcausallm": ASSISTANT}

    def takes_batch(self, drafter: Drafter | None) -> bool:
        return drafter is not None and drafter.kind == ASSISTANT

    def server_name(self, engine: str, drafter: Drafter | None) -> str:
        if self.takes_batch(drafter) and engine in _SERVER_NAMES:
            return _SERVER_NAMES[engine][0]
        return super().server_name(engine, drafter)
