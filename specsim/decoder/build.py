"""Build the drafter an engine's options ask for."""

from specsim.decoder.attention import KVCache
from specsim.decoder.drafters.base import NoDraft, Proposer
from specsim.decoder.drafters.draft_model import DraftModelProposer, EarlyExitProposer
from specsim.decoder.drafters.eagle import EagleProposer, EagleWeights
from specsim.decoder.drafters.lookup import NGramProposer, SuffixProposer
from specsim.decoder.options import DecoderOptions
from specsim.decoder.state import SlotState
from specsim.decoder.transformer import Transformer
from specsim.errors import UsageError


def build_drafter(
    options: DecoderOptions, target: Transformer, draft: object, state: SlotState, cache: KVCache
) -> Proposer:
    """draft: a Transformer for 'draft_model', EagleWeights for 'eagle', else None. cache: the
    target's."""
    k = options.num_speculative_tokens
    wanted = {"draft_model": Transformer, "eagle": EagleWeights}.get(options.method)
    if wanted is not None and not isinstance(draft, wanted):
        what = "a draft model" if wanted is Transformer else "a head file"
        raise UsageError(f"method {options.method!r} needs {what}; give one with draft=")
    if wanted is None and draft is not None:
        raise UsageError(f"method {options.method!r} takes no draft model; leave draft out")
    if isinstance(draft, Transformer):
        return DraftModelProposer(draft, target, k, state, cache)
    if isinstance(draft, EagleWeights):
        return EagleProposer(draft, target, k, state, cache)
    if options.method == "ngram":
        return NGramProposer(k, options.prompt_lookup_max, options.prompt_lookup_min, state)
    if options.method == "suffix":
        return SuffixProposer(k)
    if options.method == "early_exit":
        layers = options.early_exit_layers or max(1, target.config.num_layers * 5 // 6)
        return EarlyExitProposer(target, layers, k, state, cache)
    return NoDraft()
