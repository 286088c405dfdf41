"""n-gram and suffix decoding: drafts are copied from text seen before.

No network runs: a lookup per sequence on the host, which finds a draft in a share of the steps.
Sequences without one bring a single token into the step. vLLM schedules such methods step by step,
because the lookup needs the tokens of the step before.
"""

from typing import ClassVar

from specsim.methods.base import DraftMethod, ServerNames
from specsim.methods.registry import register

DEVICE_LOOKUP = "ngram_gpu"  # vLLM's word for the n-gram lookup on the device


class LookupMethod(DraftMethod):
    """What both have in common."""

    lookup = True
    one_number = True


@register
class NgramMethod(LookupMethod):
    """The last tokens are looked up in the prompt and the output (prompt lookup)."""

    name = "ngram"
    scans_context = True
    listed = 6
    spellings = (
        "prompt-lookup", "prompt-lookup-decoding", "pld", "lookup", "n-gram", "[ngram]",
        "ngram-gpu",
    )
    server_names: ClassVar[ServerNames] = {
        "vllm": ("ngram",), "sglang": ("NGRAM",), "trtllm": ("NGram",)}

    def acceptance_spread(self, draft_probability: float) -> str:
        return "ngram-spec_bench" if draft_probability < 1.0 else "ngram-sharegpt"


@register
class SuffixMethod(LookupMethod):
    """The longest match in a suffix tree over all requests."""

    name = "suffix"
    listed = 7
    spellings = ("suffix-decoding",)
    server_names: ClassVar[ServerNames] = {"vllm": ("suffix",)}

    def acceptance_spread(self, draft_probability: float) -> str:
        return "suffix-spec_bench"
