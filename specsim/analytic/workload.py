"""What the requests of an analytic prediction look like: lengths in tokens."""

import math
from dataclasses import dataclass, replace

from specsim.errors import UsageError

MAX_TOKENS = 20_000_000


@dataclass(frozen=True, slots=True)
class Workload:
    """Every request has `input_len` prompt tokens and `output_len` output tokens.

    cached_share: share of the prompt found in the prefix cache (not computed again).
    spread: standard deviation of the output lengths over their mean; 0: all requests have exactly
        these lengths, as in synthetic benchmarks, and clients of an engine that runs prompts before
        decoding stay in step with each other (`specsim.analytic.waves`).
    range_ratio: prompts and outputs vary uniformly by this share of their means, each by itself;
        0: prompts are alike.
    pinned: all requests accept alike in every step, as where a setting of the server dictates the
        acceptance: then it does not pull clients apart.
    requests_per_client: requests each client sends in a run that starts with all clients at once;
        their first prompts queue, which the mean TTFT of a short run keeps. 0: steady state.
    computed_elsewhere: other replicas compute the prompts and the first token; here requests come
        with their cache, and nothing but decoding is timed.
    """

    input_len: int = 1024
    output_len: int = 256
    cached_share: float = 0.0
    name: str = "custom"
    spread: float = 1.0
    range_ratio: float = 0.0
    pinned: bool = False
    requests_per_client: int = 0
    computed_elsewhere: bool = False

    def __post_init__(self) -> None:
        for field in ("input_len", "output_len"):
            value = getattr(self, field)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not 1 <= value <= MAX_TOKENS:
                raise UsageError(
                    f"{field} is {value!r}; it must be a whole number of tokens from 1 to "
                    f"{MAX_TOKENS}"
                )
        if not 0 <= self.cached_share < 1:
            raise UsageError(f"cached_share is {self.cached_share!r}; it must be from 0 to below 1")
        if self.range_ratio and self.cached_share:
            raise UsageError(
                "--cached-share needs prompts of one length; leave out --range-ratio or "
                "--cached-share"
            )

    def ranging(self, ratio: float) -> "Workload":
        """With lengths that vary uniformly by this share of themselves. UsageError beside a share
        of each prompt that is cached."""
        return replace(self, range_ratio=ratio, spread=ratio / math.sqrt(3))

    @property
    def computed_input(self) -> int:
        """Prompt tokens that a prefill computes: at least one, since one must produce a token."""
        return max(1, round(self.input_len * (1 - self.cached_share)))

    @property
    def mean_context(self) -> float:
        """Mean cached tokens of a sequence that decodes: long outputs are met more often."""
        return self.input_len + self.output_len / 2 * (1 + self.range_ratio**2 / 3)


def request_s(ttft_s: float, tpot_s: float, output_len: float) -> float:
    """Seconds of a whole request, to its last token."""
    return ttft_s + tpot_s * max(0.0, output_len - 1)


# Mean lengths of public data sets and of the MindRouter load; sources in catalog/WORKLOADS.md.
WORKLOADS: dict[str, Workload] = {
    "chat": Workload(1024, 460, name="chat"),
    "short": Workload(128, 128, name="short"),
    "summarize": Workload(4096, 256, name="summarize"),
    "code": Workload(2048, 512, name="code"),
    "reasoning": Workload(512, 4096, name="reasoning"),
    "rag": Workload(8192, 512, name="rag"),
    "long-context": Workload(32768, 512, name="long-context"),
}


def find_workload(name: str) -> Workload:
    found = WORKLOADS.get(name.strip().lower())
    if found is None:
        raise UsageError(
            f"workload {name!r} is not known; use one of {', '.join(WORKLOADS)}, "
            "or give --input-len and --output-len"
        )
    return found
