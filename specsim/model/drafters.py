"""Drafters that follow from their target: what to assume when no published one is catalogued.

Each states its assumptions in `notes`; a catalogued drafter or the user's own config is
always better. The usual shapes are those of the public SpecForge training configs (MIT):
one decoder layer with the attention shape of the target, its MLP width for dense targets and
six times the width for mixtures (gpt-oss), and a draft vocabulary of 32000.
"""

from dataclasses import replace

from specsim.model.counts import ffn_branches
from specsim.model.spec import Attention, DenseMLP, Drafter, LayerGroup, ModelSpec

EAGLE3_VOCAB = 32_000
EAGLE3_FEATURES = 3
MOE_WIDTHS = 6
MEDUSA_HEADS = 5


def assumed_drafter(spec: ModelSpec, method: str) -> Drafter | None:
    """A drafter of the usual shape for `method` ('eagle', 'eagle3', 'medusa'), else None."""
    makers = {"eagle": eagle_like, "eagle3": eagle3_like, "medusa": medusa_like}
    return makers[method](spec) if method in makers else None


def eagle3_like(spec: ModelSpec) -> Drafter:
    """An EAGLE-3 head for `spec`: fc of three hidden states, one layer of 2h input, own head."""
    hidden = spec.hidden
    mixer = replace(_attention(spec), input_mult=2)
    draft_vocab = min(EAGLE3_VOCAB, spec.vocab)
    return Drafter(
        name=f"EAGLE3-{spec.name} (assumed)",
        kind="eagle3",
        hidden=hidden,
        layers=(LayerGroup(1, mixer, _mlp(spec), 3 * hidden),),
        vocab=spec.vocab,
        draft_vocab=draft_vocab,
        own_head=True,
        own_embed=False,
        fc_in=EAGLE3_FEATURES * hidden,
        fc_out=hidden,
        extra_weights=hidden,
        target=spec.name,
        source="assumed",
        notes=(_note(spec, f"draft vocabulary {draft_vocab}"),),
    )


def eagle_like(spec: ModelSpec) -> Drafter:
    """An EAGLE-1/2 head: fc (2h -> h), one layer; embedding and head are the target's."""
    hidden = spec.hidden
    return Drafter(
        name=f"EAGLE-{spec.name} (assumed)",
        kind="eagle",
        hidden=hidden,
        layers=(LayerGroup(1, _attention(spec), _mlp(spec), hidden),),
        vocab=spec.vocab,
        draft_vocab=spec.vocab,
        own_head=False,
        own_embed=False,
        fc_in=2 * hidden,
        fc_out=hidden,
        extra_weights=hidden,
        head_weight=spec.embed_weight if spec.tied_embeddings else spec.head_weight,
        target=spec.name,
        source="assumed",
        notes=(_note(spec, "the target's whole vocabulary"),),
    )


def medusa_like(spec: ModelSpec, heads: int = MEDUSA_HEADS) -> Drafter:
    """Medusa heads (h x h and V x h each), all read in one pass."""
    return Drafter(
        name=f"Medusa-{spec.name} (assumed)",
        kind="medusa",
        hidden=spec.hidden,
        layers=(),
        vocab=spec.vocab,
        draft_vocab=spec.vocab,
        own_head=True,
        own_embed=False,
        n_heads_medusa=heads,
        target=spec.name,
        source="assumed",
        notes=(f"assumed: {heads} heads of one residual layer each",),
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
    widths = [
        branch.intermediate
        for group in spec.layers
        for branch in ffn_branches(group.ffn)
        if isinstance(branch, DenseMLP)
    ]
    return DenseMLP(widths[0] if _is_dense(spec) and widths else MOE_WIDTHS * spec.hidden)


def _is_dense(spec: ModelSpec) -> bool:
    return all(
        isinstance(branch, DenseMLP) for group in spec.layers for branch in ffn_branches(group.ffn)
    )


def _note(spec: ModelSpec, vocabulary: str) -> str:
    width = _mlp(spec).intermediate
    return f"assumed shape: one layer like the target's attention, MLP width {width}, {vocabulary}"
