"""EAGLE and EAGLE-3: a small head that reads hidden states of the target.

EAGLE (1 and 2) joins the last hidden state with the token embedding in every pass; EAGLE-3 joins
several layers' states once and goes on from its own. One pass over all B (k + 1) verified rows,
then k - 1 passes of B rows; of a tree only the accepted path, padded to k + 1 rows, passes through
again. P-EAGLE is EAGLE-3 with more layers that drafts all positions in one pass: the verified rows
and k - 1 more per sequence.

Where nobody published a head, the usual shape stands in, with notes that say so: that of the public
SpecForge training configs (MIT), one decoder layer with the attention shape of the target, its MLP
width for dense targets and six times the width for mixtures (gpt-oss), draft vocabulary 32000.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from specsim.methods.base import DraftMethod, ServerNames, assumed_network
from specsim.methods.registry import register
from specsim.model.feedforward import DenseMLP
from specsim.model.mixers import Attention
from specsim.model.spec import Drafter, LayerGroup, ModelSpec

EAGLE3_VOCAB = 32_000
EAGLE3_FEATURES = 3
MOE_WIDTHS = 6


@register
class EagleMethod(DraftMethod):
    """EAGLE-1 and -2."""

    name = "eagle"
    listed = 3
    spellings = ("eagle-1", "eagle1", "eagle-2", "eagle2", "hass")
    server_names: ClassVar[ServerNames] = {"vllm": ("eagle",), "sglang": ("EAGLE",)}
    checkpoint_words = ("eagle-",)
    config_names: ClassVar[Mapping[str, str]] = {
        "llamaforcausallmeagle": "eagle", "eaglellamaforcausallm": "eagle",
        "eagleqwen2forcausallm": "eagle", "eagle": "eagle",
    }
    drafter_kinds = ("eagle",)
    catalogue_kinds = ("eagle",)
    trees = True
    reads_last_block = True
    adapts = True
    default_rank = 4

    def assumed_drafter(self, spec: ModelSpec) -> Drafter:
        """fc (2h -> h), one layer; embedding and head are the target's."""
        hidden = spec.hidden
        return assumed_network(
            spec, "EAGLE", "eagle", _note(spec, "the target's whole vocabulary"), own_head=False,
            layers=(LayerGroup(1, _attention(spec), _mlp(spec), hidden),),
            fc_in=2 * hidden, fc_out=hidden, extra_weights=hidden,
            head_weight=spec.embed_weight if spec.tied_embeddings else spec.head_weight,
        )


@register
class Eagle3Method(DraftMethod):
    """EAGLE-3, and P-EAGLE."""

    name = "eagle3"
    listed = 4
    spellings = ("eagle-3", "eagle3-one-model", "eagle3.1", "eagle-3.1")
    server_names: ClassVar[ServerNames] = {
        "vllm": ("eagle3",), "sglang": ("EAGLE3",), "trtllm": ("Eagle", "Eagle3")}
    checkpoint_words = ("eagle3", "eagle-3")
    config_names: ClassVar[Mapping[str, str]] = {
        "llamaforcausallmeagle3": "eagle3", "eagle3llamaforcausallm": "eagle3",
        "eagle3deepseekv2forcausallm": "eagle3", "eagle3speculator": "eagle3",
        "peagledraftmodel": "p-eagle", "peaglespeculator": "p-eagle",
    }
    speculators: ClassVar[Mapping[str, str]] = {"eagle3": "eagle3", "peagle": "p-eagle"}
    config_fields: ClassVar[Mapping[str, str]] = {"draft_vocab_size": "eagle3"}
    drafter_kinds = ("eagle3", "p-eagle")
    catalogue_kinds = ("eagle3",)
    measured_names = ("p-eagle",)
    trees = True
    parallel = True
    reads_last_block = True
    adapts = True
    joins_once = True
    default_rank = 2

    def drafts_at_once(self, drafter: Drafter | None) -> bool:
        return drafter is not None and drafter.kind == "p-eagle"

    def assumed_drafter(self, spec: ModelSpec) -> Drafter:
        """fc of three hidden states, one layer of 2h input, own head."""
        hidden = spec.hidden
        draft_vocab = min(EAGLE3_VOCAB, spec.vocab)
        mixer = replace(_attention(spec), input_mult=2)
        return assumed_network(
            spec, "EAGLE3", "eagle3", _note(spec, f"draft vocabulary {draft_vocab}"),
            layers=(LayerGroup(1, mixer, _mlp(spec), 3 * hidden),), draft_vocab=draft_vocab,
            own_head=True, fc_in=EAGLE3_FEATURES * hidden, fc_out=hidden, extra_weights=hidden,
        )


def _attention(spec: ModelSpec) -> Attention:
    """The target's full attention without its extras; for others, heads of 128 and 8 KV heads."""
    for group in spec.layers:
        mixer = group.mixer
        if isinstance(mixer, Attention) and not mixer.window:
            return Attention(mixer.n_heads, mixer.n_kv_heads, mixer.head_dim)
    heads = max(1, spec.hidden // 128)
    return Attention(heads, next(kv for kv in (8, 4, 2, 1) if heads % kv == 0), 128)


def _mlp(spec: ModelSpec) -> DenseMLP:
    """The target's width where it is dense throughout, else that of heads for mixtures."""
    branches = [branch for group in spec.layers for branch in group.branches]
    dense = [branch for branch in branches if isinstance(branch, DenseMLP)]
    if dense and len(dense) == len(branches):
        return DenseMLP(dense[0].intermediate)
    return DenseMLP(MOE_WIDTHS * spec.hidden)


def _note(spec: ModelSpec, vocabulary: str) -> str:
    width = _mlp(spec).intermediate
    return f"assumed shape: one layer like the target's attention, MLP width {width}, {vocabulary}"
