"""Hugging Face config of a draft network -> Drafter.

    read_drafter(path)              config.json or its folder
    drafter_from_config(config)     an already parsed object

Known: EAGLE (1 and 2), EAGLE-3 and P-EAGLE (SpecForge, SafeAILab and speculators layouts),
Medusa, DFlash with the parts of DFlash2 and Domino, DSpark, Gemma-4 assistant; any other model is
taken as a whole draft model. A draft network of another name is refused, and so is any field of a
size that nobody reads. Definitions of DFlash2's parts and of cluster heads: SGLang 0.5.23.
Shapes follow the public definitions in SpecForge 0.2 (MIT), speculators 0.9, transformers 5.24
(both Apache-2.0) and the Medusa paper; h is the drafter's width, t the target's.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from specsim.errors import FormatError, ModelConfigError, shown
from specsim.formats.hf_common import attention, layer_kinds, windows
from specsim.formats.hf_config import load_config, model_from_config
from specsim.formats.hf_dense import gemma4_layers
from specsim.formats.hf_draft_shape import BlockFields, DflashConfig, DraftConfig
from specsim.formats.hf_mla import latent_attention
from specsim.formats.hf_unread import refuse_unread
from specsim.methods.base import METHODS
from specsim.methods.draft_model import WHOLE_MODEL
from specsim.model.drafter_counts import drafter_from_spec
from specsim.model.extras import BlockConvolution
from specsim.model.feedforward import DenseMLP
from specsim.model.mixers import Attention, LatentAttention
from specsim.model.spec import Drafter, LayerGroup, ModelSpec
from specsim.model.weights import merge_groups

# In the name of an architecture that is no model of its own.
_DRAFT_WORDS = re.compile("eagle|draft|speculator|dspark|dflash|domino|medusa|nextn|mtp", re.I)

Reader = Callable[[DraftConfig, str, ModelSpec | None], Drafter]
READERS: dict[str, Reader] = {}  # kind of network -> what reads its config


def reads(kind: str) -> Callable[[Reader], Reader]:
    """Registers the reader of a kind of drafter. Which config is of that kind says the method that
    runs it (`DraftMethod.config_names`, `config_fields`)."""

    def added(reader: Reader) -> Reader:
        READERS[kind] = reader
        return reader

    return added


def read_drafter(
    path: str | Path, name: str = "", kind: str = "", target: ModelSpec | None = None
) -> Drafter:
    """The drafter a config.json describes. `kind` overrides what the file says (EAGLE-1 files
    look like a one-layer Llama); `target` supplies the sizes that Medusa files leave out."""
    config, _, default_name = load_config(path)
    drafter = drafter_from_config(config, name or default_name, kind, target)
    return replace(drafter, source=f"file {default_name}")


def drafter_from_config(
    config: dict[str, object], name: str = "drafter", kind: str = "",
    target: ModelSpec | None = None,
) -> Drafter:
    """A parsed drafter config. Raises ModelConfigError naming field, value and rule."""
    if not isinstance(config, dict):
        raise FormatError(f"{name}: a drafter config is an object, not a {type(config).__name__}")
    f = DraftConfig.of(config, name)
    kind = kind or detect_kind(f)
    if kind == WHOLE_MODEL:
        return drafter_from_spec(model_from_config(config, name))
    if kind not in READERS:
        raise ModelConfigError(
            f"{name}: drafter kind {shown(kind)} is not known; known are "
            f"{', '.join((*READERS, WHOLE_MODEL))}"
        )
    drafter = READERS[kind](f, name, target)
    for part in (f, f.dflash_config, f.eagle_config, f.text_config, f.transformer_layer_config):
        if part is not None:
            refuse_unread(part, drafter=True)
    if target is not None:
        _check_target(drafter, target)
    return replace(drafter, target=target.name) if target is not None else drafter


def detect_kind(f: DraftConfig) -> str:
    """The kind of drafter a config describes; 'model' when it is an ordinary model."""
    names: dict[str, str] = {}
    speculators: dict[str, str] = {}
    fields: dict[str, str] = {}
    for method in METHODS.values():
        names |= method.config_names
        speculators |= method.speculators
        fields |= method.config_fields
    speculator = f.speculators_model_type.lower()
    if speculator:
        if speculator not in speculators:
            raise f.fail("speculators_model_type", f"must be one of {', '.join(speculators)}")
        return speculators[speculator]
    kinds = [names[arch.lower()] for arch in f.architectures if arch.lower() in names]
    if not kinds and any(_DRAFT_WORDS.search(arch) for arch in f.architectures):
        raise f.fail("architectures", f"not a known draft network; known are {', '.join(names)}")
    kinds += [kind for field, kind in fields.items() if f.has(field)]
    return kinds[0] if kinds else names.get(f.model_type.lower(), WHOLE_MODEL)


def _check_target(drafter: Drafter, target: ModelSpec) -> None:
    """A drafter that reads the target's hidden states or tables must have its widths."""
    if drafter.own_head:
        return
    if drafter.hidden != target.hidden or drafter.vocab != target.vocab:
        raise ModelConfigError(
            f"{drafter.name}: hidden {drafter.hidden} and vocabulary {drafter.vocab} must equal "
            f"those of {target.name} ({target.hidden}, {target.vocab}), whose head it shares"
        )


def _layer_fields(f: DraftConfig) -> DraftConfig:
    """Speculators files nest the layer's fields; others have them at the top."""
    return f.transformer_layer_config or f


def _target_width(f: DraftConfig, hidden: int, target: ModelSpec | None) -> int:
    if f.target_hidden_size is not None:
        return f.target_hidden_size
    return target.hidden if target is not None else hidden


def _mlp(f: DraftConfig) -> DenseMLP:
    return DenseMLP(f.intermediate_size, bias=f.mlp_bias)


def _features(f: DraftConfig) -> int:
    """How many of the target's hidden states are joined; three unless the file lists them."""
    listed = f.eagle_aux_hidden_state_layer_ids
    return len(listed or f.eagle_config.eagle_aux_hidden_state_layer_ids) or 3


@reads("eagle3")
def _eagle3(f: DraftConfig, name: str, target: ModelSpec | None) -> Drafter:
    """fc (features * t -> h), a layer whose q, k, v read [embedding, hidden] (2h), own head over
    the draft vocabulary. Further layers, if any, are ordinary ones."""
    layer = _layer_fields(f)
    hidden = layer.hidden_size
    bias = layer.flag("attention_bias", False)
    mixer: Attention | LatentAttention = (
        latent_attention(layer, indexer=False) if layer.has("kv_lora_rank")
        else attention(layer, qkv_bias=bias, o_bias=bias)
    )
    first = LayerGroup(1, replace(mixer, input_mult=2), _mlp(layer), 3 * hidden)
    more = layer.num_hidden_layers - 1
    layers = (first,) if not more else (first, LayerGroup(more, mixer, _mlp(layer), 2 * hidden))
    vocab = layer.vocab_size
    draft_vocab = f.draft_vocab_size or vocab
    if draft_vocab > vocab:
        raise f.fail("draft_vocab_size", f"must not exceed vocab_size = {vocab}")
    width = _features(f) * _target_width(f, hidden, target)
    extra = hidden  # final norm
    if f.norm_before_fc or f.fc_norm:
        extra += width
    return Drafter(
        name=name, kind="eagle3", hidden=hidden, layers=layers, vocab=vocab,
        draft_vocab=draft_vocab, own_head=True, fc_in=width, fc_out=hidden, extra_weights=extra,
    )


@reads("p-eagle")
def _p_eagle(f: DraftConfig, name: str, target: ModelSpec | None) -> Drafter:
    """EAGLE-3 with more layers that drafts all positions in one pass from a learned hidden."""
    drafter = _eagle3(f, name, target)
    return replace(drafter, kind="p-eagle", extra_weights=drafter.extra_weights + drafter.fc_in)


@reads("eagle")
def _eagle(f: DraftConfig, name: str, target: ModelSpec | None) -> Drafter:
    """EAGLE-1/2: fc (2h -> h), decoder layers of which the first has no input norm; embedding,
    final norm and head are the target's."""
    inner = f.raw.get("model")
    layer = DraftConfig.of(inner, f"{f.where}.model") if isinstance(inner, Mapping) else f
    hidden = layer.hidden_size
    bias = layer.flag("attention_bias", False)
    qkv_bias = bias or layer.model_type == "qwen2"
    mixer = attention(layer, qkv_bias=qkv_bias, o_bias=bias)
    count = layer.num_hidden_layers
    layers = [LayerGroup(1, mixer, _mlp(layer), hidden)]
    layers += [LayerGroup(1, mixer, _mlp(layer), 2 * hidden)] * (count - 1)
    vocab = layer.vocab_size
    return Drafter(
        name=name, kind="eagle", hidden=hidden, layers=merge_groups(layers), vocab=vocab,
        draft_vocab=vocab, fc_in=2 * hidden, fc_out=hidden,
        extra_weights=hidden if layer.bias else 0,
    )


@reads("medusa")
def _medusa(f: DraftConfig, name: str, target: ModelSpec | None) -> Drafter:
    """Heads of one residual h x h layer and one V x h output each, all in one pass.

    Published files hold no sizes, so `target` is needed. Residual biases are not counted:
    served conversions drop them.
    """
    count = f.heads
    f.require("medusa_num_layers", (1,), "only one residual layer per head is modelled")
    f.require("num_hidden_layers", (1,), "only one residual layer per head is modelled")
    if target is None and not (f.has("hidden_size") and f.has("vocab_size")):
        raise ModelConfigError(
            f"{name}: hidden_size is missing, as in all Medusa files: give the target model too"
        )
    hidden = target.hidden if target is not None else f.hidden_size
    vocab = target.vocab if target is not None else f.vocab_size
    return Drafter(
        name=name, kind="medusa", hidden=hidden, layers=(), vocab=vocab, draft_vocab=vocab,
        own_head=True, n_heads_medusa=count,
    )


def _block_layers(layer: DraftConfig, section: DflashConfig) -> list[LayerGroup]:
    """The layers of a block drafter: latent attention where the file has its ranks, Gemma-4's
    where it says so, Qwen3's otherwise."""
    hidden, count, norms = layer.hidden_size, layer.num_hidden_layers, 2 * layer.hidden_size
    if layer.model_type.startswith("gemma4"):
        plans = gemma4_layers(layer, count, hidden)
        return [LayerGroup(1, plan.mixer, plan.ffn, plan.norm_weights) for plan in plans]
    if layer.has("kv_lora_rank") and section.attention_mode != "gqa":
        layer.require("mla_use_output_gate", (False,), "an output gate is not modelled")
        latent = latent_attention(layer, indexer=False)
        return [
            LayerGroup(1, replace(latent, window=window), _mlp(layer), norms)
            for window in windows(layer, count)
        ]
    if section.use_swa:
        layer = layer.with_default("sliding_window", section.swa_window_size)
    bias = layer.flag("attention_bias", False)
    off = not layer.flag("use_sliding_window", layer.has("sliding_window"))
    layer_kinds(layer, count, ("full_attention", "sliding_attention"))
    mixer = attention(layer, qkv_bias=bias, o_bias=bias, qk_norm="head")
    mixer = replace(mixer, sinks=section.attention_sink_bias)
    return [
        LayerGroup(1, replace(mixer, window=0 if off else window), _mlp(layer), norms)
        for window in windows(layer, count)
    ]


@reads("dflash")
def _dflash(f: DraftConfig, name: str, target: ModelSpec | None) -> Drafter:
    """Qwen3-style layers that draft a block in one non-causal pass; fc joins the target's
    hidden states; embedding and head are the target's unless a draft vocabulary is named.

    DFlash2 adds convolutions over the block in every layer and a selector: two tables of rank r and
    a product h -> r, which score pairs of neighbouring candidates. Domino adds a GRU over the
    drafted tokens and [h, state] -> narrow -> vocabulary, walked token by token."""
    layer, section = _layer_fields(f), f.dflash_config
    f.costs_nothing("emb_dim")  # Domino's files have it here too
    hidden = layer.hidden_size
    features = len(section.target_layer_ids or f.target_layer_ids or f.aux_hidden_state_layer_ids)
    if not features:
        raise f.fail("dflash_config", "target_layer_ids must list the target's layers it reads")
    vocab = layer.vocab_size
    if section.conv_kernel_size and hidden % section.conv_group_size:
        raise section.fail("conv_group_size", f"must divide hidden_size = {hidden}")
    convolution = BlockConvolution(section.conv_kernel_size, section.conv_group_size)
    extras = (convolution,) if section.conv_kernel_size else ()
    layers = [replace(group, extras=extras) for group in _block_layers(layer, section)]
    rank, gru, narrow = section.selector_rank, section.gru_hidden_dim, section.emb_dim
    walked = (
        ((hidden, 3 * gru), (gru, 3 * gru), (hidden + gru, narrow), (narrow, vocab)) if gru else ()
    )
    return Drafter(
        name=name, kind="dflash", hidden=hidden, layers=merge_groups(layers), vocab=vocab,
        draft_vocab=f.draft_vocab_size or vocab, own_head=(f.draft_vocab_size or vocab) != vocab,
        fc_in=features * _target_width(f, hidden, target), fc_out=hidden,
        extra_weights=2 * hidden,  # norms of the joined hidden states and of the output
        block_size=f.block_size or 0,
        extra_matrices=(*walked, *(((hidden, rank),) if rank else ())), walks_block=bool(gru),
        lookup_weights=2 * vocab * rank, candidates=section.selector_top_k if rank else 0,
    )


@reads("dspark")
def _dspark(f: DraftConfig, name: str, target: ModelSpec | None) -> Drafter:
    """DFlash with a Markov head: a rank-r table of the previous token and r -> V logits, walked
    position by position, and a confidence head of one output."""
    drafter = _dflash(f, name, target)
    section: BlockFields = f.dflash_config if f.dflash_config.has("markov_rank") else f
    rank = section.markov_rank
    kind = section.markov_head_type.lower()
    matrices: tuple[tuple[int, int], ...] = ()
    extra = drafter.extra_weights
    if rank:
        matrices = ((rank, drafter.vocab),)
        if kind == "gated":
            matrices += ((drafter.hidden + rank, rank),)
            extra += rank
        elif kind == "rnn":
            matrices += ((2 * rank + drafter.hidden, 3 * rank),)
            extra += 3 * rank
        elif kind != "vanilla":
            raise section.fail("markov_head_type", "must be vanilla, gated or rnn")
    if section.enable_confidence_head:
        with_markov = section.confidence_head_with_markov
        extra += drafter.hidden + (rank if with_markov else 0) + 1
    return replace(
        drafter, kind="dspark", extra_weights=extra, extra_matrices=matrices, walks_block=True,
        lookup_weights=drafter.vocab * rank,
    )


@reads("gemma-assistant")
def _gemma_assistant(f: DraftConfig, name: str, target: ModelSpec | None) -> Drafter:
    """Query-only layers that read the cache of the target's last window layer and last full
    layer; pre-projection 2t -> h, post-projection h -> t, own tied head. Those of E2B and E4B score
    clusters of tokens first, and then the tokens of the best."""
    text = f.text_config
    if text is None:
        raise f.fail("text_config", "must be an object")
    hidden = text.hidden_size
    wide = f.backbone_hidden_size
    if target is not None and wide != target.hidden:
        raise f.fail("backbone_hidden_size", f"must equal the target's width {target.hidden}")
    plans = gemma4_layers(text, text.num_hidden_layers, hidden, owns_kv=False)
    layers = [LayerGroup(1, plan.mixer, plan.ffn, plan.norm_weights) for plan in plans]
    vocab, clusters, chosen = text.vocab_size, 0, 0
    f.costs_nothing("num_centroids", "centroid_intermediate_top_k")  # without ordered embeddings
    if f.use_ordered_embeddings:
        clusters, chosen = f.num_centroids, f.centroid_intermediate_top_k
        if vocab % clusters or chosen > clusters:
            raise f.fail("num_centroids", f"must divide the {vocab} tokens, {chosen} at least")
    return Drafter(
        name=name, kind="gemma-assistant", hidden=hidden, layers=merge_groups(layers), vocab=vocab,
        draft_vocab=vocab, own_head=True, fc_in=2 * wide, fc_out=hidden, extra_weights=hidden,
        extra_matrices=((hidden, wide), *(((hidden, clusters),) if clusters else ())),
        candidates=chosen * vocab // clusters if clusters else 0, clustered=bool(clusters),
    )
