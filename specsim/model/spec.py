"""ModelSpec: what a language model is, in shapes, with nothing about hardware.

A model is a list of *layer groups*. Every layer has one optional token mixer
(attention, latent attention, Gated DeltaNet, Mamba-2) and one optional feed-forward
part (dense or mixture of experts); layers that are alike in shape and dtype form one
group with a count, so that costs are computed once per group.

Widths are in elements, dtypes are the names of `specsim.units.DTYPE_BYTES`; a `WeightFormat`
gives bytes per *weight* including block scales.
"""

from dataclasses import dataclass, field

from specsim.model.extras import Extra
from specsim.model.feedforward import FeedForward, MoE
from specsim.model.mixers import Mixer
from specsim.model.part import BF16, WeightFormat


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """`count` layers of one shape.

    norm_weights: norm (and scalar) weights that belong to the layer itself. What a mixer or a
    feed-forward part owns (q/k norms, latent norms, sinks, convolutions, biases, router) follows
    from its fields and is counted there.
    """

    count: int
    mixer: Mixer | None
    ffn: FeedForward | tuple[FeedForward, ...] | None  # tuple: parallel branches (Gemma-4 MoE)
    norm_weights: int = 0
    extras: tuple[Extra, ...] = ()  # beside mixer and feed-forward part

    @property
    def branches(self) -> tuple[FeedForward, ...]:
        """The parallel feed-forward branches: none, one or several."""
        if self.ffn is None:
            return ()
        return self.ffn if isinstance(self.ffn, tuple) else (self.ffn,)


@dataclass(frozen=True, slots=True)
class Drafter:
    """A small network that proposes tokens for a target, or the target's own MTP head.

    kind: 'mtp' | 'eagle' | 'eagle3' | 'p-eagle' | 'medusa' | 'dflash' | 'dspark'
        | 'gemma-assistant' | 'model'
    hidden, layers, ...: its own shapes; `layers` is what ONE pass runs. `fc_in`/`fc_out`: the
    projection that joins the target's hidden state and the token embedding (0: none).
    draft_vocab: rows of the head it multiplies (EAGLE-3: 32000); own_head/own_embed: whether
    these weights are its own or the target's; tied_embeddings: one matrix serves as both.
    n_predict: physical copies of `layers` and fc (MTP modules), one per draft position;
    block_size: tokens of one block drafter pass, 0: its config does not say.
    candidates: per draft, the rows that are read of a head whose clusters were scored first
    (Gemma's centroids, `clustered`), else of the lookup tables.
    """

    name: str
    kind: str
    hidden: int
    layers: tuple[LayerGroup, ...]
    vocab: int
    draft_vocab: int
    own_head: bool = False
    own_embed: bool = False
    fc_in: int = 0
    fc_out: int = 0
    extra_weights: int = 0  # norms and other vectors outside layers
    n_predict: int = 1
    block_size: int = 0
    head_weight: WeightFormat = BF16
    fc_weight: WeightFormat = BF16
    n_heads_medusa: int = 0  # medusa: number of parallel heads
    extra_matrices: tuple[tuple[int, int], ...] = ()  # further (in, out) linears, once per pass
    tied_embeddings: bool = False  # own_head and own_embed are one matrix
    walks_block: bool = False  # the further linears run token by token (DSpark, Domino)
    lookup_weights: int = 0  # further tables of which a pass reads single rows
    candidates: int = 0
    clustered: bool = False
    target: str = ""  # model it was trained for ('' = any)
    source: str = ""
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A target model. All counts are per whole model, before any tensor parallelism."""

    name: str  # canonical name, e.g. 'Qwen3.6-27B-FP8'
    family: str  # e.g. 'qwen3.5', 'llama'
    hidden: int
    vocab: int
    layers: tuple[LayerGroup, ...]
    tied_embeddings: bool = False
    final_norm_weights: int = 0
    extra_weights: int = 0  # learned vectors and scalars outside layers
    tables: tuple[tuple[int, int], ...] = ()  # further (rows, width), of which a token reads a row
    extra_matrices: tuple[tuple[int, int], ...] = ()  # further (in, out) linears, once per pass
    vision_params: int = 0
    embed_weight: WeightFormat = BF16
    head_weight: WeightFormat = BF16
    mtp: Drafter | None = None  # the head shipped in the checkpoint
    weights: str = "bf16"  # what people call the checkpoint: 'bf16', 'fp8', 'nvfp4', ...
    default_kv_dtype: str = "bf16"
    max_position: int = 0
    source: str = ""  # where the config came from
    notes: tuple[str, ...] = field(default=())

    @property
    def outside_layers(self) -> int:
        """Parameters outside layers, input table and head."""
        shapes = (*self.tables, *self.extra_matrices)
        return self.extra_weights + sum(rows * width for rows, width in shapes)

    @property
    def n_layers(self) -> int:
        return sum(group.count for group in self.layers)

    @property
    def has_experts(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return any(isinstance(part, MoE) for group in self.layers for part in group.branches)
