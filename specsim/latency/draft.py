"""SpecSetup: how a speculative method drafts, in passes and rows. No acceptance here.

What one engine step of each method runs besides the target's verify of k + 1 tokens
(B decoding sequences; sources: vLLM 0.25.1/0.33.0 and SGLang 0.5.23 code):

mtp, eagle, eagle3   one pass over all B(k+1) verified rows (rejected ones are padding), then
                     k - 1 passes of B rows; every pass reads the drafter's head. Of a tree only
                     the accepted path, padded to k + 1 rows, passes through again.
draft-model          the same with one more row per sequence in the first pass (the draft has not
                     seen the bonus token: vLLM's expanded buffer)
gemma-assistant      reads the target's cache and fills none, but its first pass too runs over the
                     whole batch of the target, prompts included (vLLM 0.25.1, spec_decode/
                     autoregressive/speculator.py); then k - 1 passes of B rows
dflash, dspark       ONE pass of a block per sequence (k + 1 or k rows), and keys and values of
                     the B(k+1) verified rows; dspark adds a small sequential head
medusa               one pass of B rows through all heads
parallel drafting    P-EAGLE, PARD: ONE pass of the verified rows and k - 1 (k) more per sequence
early-exit           the first layers of the target and its head, k passes of B rows
ngram, suffix        no network: a lookup per sequence on the host
"""

from dataclasses import dataclass

from specsim.model.spec import Drafter

METHODS = (
    "none",
    "mtp",
    "draft-model",
    "eagle",
    "eagle3",
    "medusa",
    "ngram",
    "suffix",
    "dflash",
    "dspark",
    "early-exit",
)
AUTOREGRESSIVE = ("mtp", "eagle", "eagle3", "draft-model", "early-exit")
BLOCK = ("dflash", "dspark", "medusa")
LOOKUP = ("ngram", "suffix")


@dataclass(frozen=True, slots=True)
class SpecSetup:
    """method: one of METHODS; k: num_speculative_tokens (draft depth for a tree).

    drafter: the network that drafts (None for lookups and none).
    tree_topk: branches per drafted position (1 = chain); tree_tokens: tokens verified per
        sequence in a tree, root included (chain: k + 1).
    draft_share: share of steps in which a draft exists (n-gram and suffix find one in some).
    exit_layers: layers of the target that an early-exit draft runs.
    draft_tp: GPUs the drafter is split over (0: as the target).
    parallel_drafting: all k drafts come from one pass (P-EAGLE, PARD).
    """

    method: str = "none"
    k: int = 0
    drafter: Drafter | None = None
    tree_topk: int = 1
    tree_tokens: int = 0
    draft_share: float = 1.0
    exit_layers: int = 0
    draft_tp: int = 0
    parallel_drafting: bool = False

    @property
    def verify_tokens(self) -> int:
        """Tokens that one sequence brings into a verify step."""
        if self.k == 0 or self.method == "none":
            return 1
        return self.tree_tokens or self.k + 1

    @property
    def lookahead_tokens(self) -> int:
        """Cache slots a sequence holds for the drafts of the step after (vLLM's lookahead)."""
        if self.method in ("none", "medusa", *LOOKUP):
            return 0
        return self.k + (self.method == "dflash")

    @property
    def fills_cache(self) -> bool:
        """Whether the drafter keeps a cache of its own, which prompts must pass through."""
        if self.drafter is None:
            return False
        return any(getattr(g.mixer, "owns_kv", g.mixer is not None) for g in self.drafter.layers)

    @property
    def takes_batch(self) -> bool:
        """Whether the first pass runs over every token of the target's batch."""
        drafter = self.drafter
        return self.fills_cache or (drafter is not None and drafter.kind == "gemma-assistant")

    def passes(self) -> tuple[int, int]:
        """(first passes over wide rows, further passes over one row per branch)."""
        if self.k < 1:
            return 0, 0
        if self.method in BLOCK or self.parallel_drafting:
            return 1, 0
        return (1, self.k - 1) if self.method in AUTOREGRESSIVE else (0, 0)

    def first_rows(self) -> int:
        """Rows per sequence of the first pass."""
        if self.method == "dflash":
            return self.k + 1
        if self.method == "dspark":
            return self.k
        if not self.takes_batch:
            return 1
        # A draft model with a cache of its own has not seen the bonus token.
        rows = self.k + 1 + (self.method == "draft-model" and self.fills_cache)
        return rows + (self.k - 1 if self.parallel_drafting else 0)
