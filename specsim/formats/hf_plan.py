"""The half-way house between a config and a ModelSpec: layers with their module names.

A family reader turns a config into a Plan (shapes in 16 bits, one entry per layer, and what
the checkpoint calls the linears of each layer); `assemble` then asks the checkpoint's
quantisation rules for the format of each part and groups equal layers.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from specsim.formats.hf_quant_rules import Quantisation
from specsim.formats.hf_shape import TextConfig
from specsim.jsonable import taken
from specsim.model.extras import Extra
from specsim.model.feedforward import DenseMLP, FeedForward, MoE
from specsim.model.mixers import (
    Attention,
    ConvolvedAttention,
    DeltaAttention,
    DeltaNet,
    LatentAttention,
    Mixer,
)
from specsim.model.part import BF16, WeightFormat
from specsim.model.sparse_mixers import SparseAttention
from specsim.model.spec import Drafter, LayerGroup, ModelSpec
from specsim.model.weights import merge_groups

FormatOf = Callable[[str], WeightFormat]
R = TypeVar("R", bound=Callable[..., "ModelPlan"])

# model_type -> reader; filled by `family`.
READERS: dict[str, Callable[[TextConfig], "ModelPlan"]] = {}


def family(*model_types: str) -> Callable[[R], R]:
    """Register a reader: a function from the fields of a text config to a Plan."""

    def register(reader: R) -> R:
        READERS.update(dict.fromkeys(model_types, reader))
        return reader

    return register


GATED_MLP = ("gate_proj", "up_proj", "down_proj")
# Quantisable linears by kind of mixer, where they are not in_proj and out_proj.
_LINEARS: dict[type[Mixer], tuple[str, ...]] = {
    Attention: ("q_proj", "k_proj", "v_proj", "o_proj"),
    ConvolvedAttention: ("q_proj", "k_proj", "v_proj", "o_proj"),
    LatentAttention: ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"),
    DeltaAttention: ("q_proj", "k_proj", "v_proj", "o_proj"),
    DeltaNet: ("in_proj_qkv", "in_proj_z", "out_proj"),
    SparseAttention: ("q_proj", "k_proj", "v_proj", "o_proj", "index_q_proj", "index_k_proj"),
}


@dataclass(slots=True)
class Modules:
    """Names of a layer's quantisable linears, relative to the layer."""

    mixer: tuple[str, ...] = ()
    mixer_out: tuple[str, ...] = ()  # latent attention's o_proj
    dense: tuple[str, ...] = ()
    experts: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerNames:
    """What a family calls a layer's modules and their linears (`linears`: the mixer's, where they
    are not its kind's usual ones)."""

    mixer: str = "self_attn"
    ffn: str = "mlp"
    shared: str = "shared_experts"
    linears: tuple[str, ...] = ()
    dense: tuple[str, ...] = GATED_MLP
    experts: tuple[str, ...] = GATED_MLP
    shared_linears: tuple[str, ...] = ()  # where they are not called as those of the experts


@dataclass(slots=True)
class LayerPlan:
    mixer: Mixer | None
    ffn: FeedForward | tuple[FeedForward, ...] | None
    norm_weights: int
    modules: Modules
    extras: tuple[Extra, ...] = ()


@dataclass(slots=True)
class MtpPlan:
    """A drafter in the checkpoint: the layers of one pass, the projection that joins its inputs;
    the rest as in `Drafter`."""

    layers: list[LayerPlan]
    prefix: str  # of its layers' modules, with {i} for the layer's number
    fc_module: str
    extra_weights: int
    copies: int = 1
    kind: str = "mtp"
    fc_in: int = 0  # 0: the hidden state and an embedding
    block_size: int = 0
    extra_matrices: tuple[tuple[int, int], ...] = ()
    lookup_weights: int = 0
    walks_block: bool = False


@dataclass(slots=True)
class ModelPlan:
    family: str
    hidden: int
    vocab: int
    layers: list[LayerPlan]
    tied: bool
    final_norm_weights: int
    max_position: int
    vision_params: int = 0
    extra_weights: int = 0
    tables: tuple[tuple[int, int], ...] = ()
    extra_matrices: tuple[tuple[int, int], ...] = ()
    mtp: MtpPlan | None = None
    kv_dtype: str = ""  # in which engines keep the cache whatever the checkpoint's format
    notes: list[str] = field(default_factory=list)


def decoder_layer(
    mixer: Mixer, ffn: FeedForward | tuple[FeedForward, ...], norm_weights: int,
    names: LayerNames = LayerNames(), extras: tuple[Extra, ...] = (),
) -> LayerPlan:
    """A layer with the module names most families use."""
    modules = Modules()
    linears = names.linears
    if not linears:
        linears = _LINEARS.get(type(mixer), ("in_proj", "out_proj"))
        if isinstance(mixer, LatentAttention) and not mixer.q_lora_rank:
            linears = ("q_proj", *linears[2:])
        if isinstance(mixer, LatentAttention) and mixer.gated:
            linears += ("g_proj",)
    if isinstance(mixer, LatentAttention):
        modules.mixer_out = (f"{names.mixer}.o_proj",)
    modules.mixer = tuple(f"{names.mixer}.{leaf}" for leaf in linears)
    branches = ffn if isinstance(ffn, tuple) else (ffn,)
    for branch in branches:
        if isinstance(branch, DenseMLP):
            modules.dense = tuple(f"{names.ffn}.{leaf}" for leaf in names.dense)
        else:
            name = "" if len(branches) > 1 else f"{names.ffn}."
            modules.experts = tuple(f"{name}experts.0.{leaf}" for leaf in names.experts)
            leaves = names.shared_linears or names.experts
            modules.shared = tuple(f"{name}{names.shared}.{leaf}" for leaf in leaves)
    return LayerPlan(mixer, ffn, norm_weights, modules, extras)


def _pick(
    names: tuple[str, ...], prefix: str, format_of: FormatOf, mixed: set[str],
    *, equal: bool = False,
) -> WeightFormat:
    """The format of a part: that of most of its linears; a mixture is remembered. equal: they are
    of one size (a fused one of two), so a mixture has the mean of their bytes."""
    if not names:
        return BF16
    found = Counter(format_of(prefix + name) for name in names)
    usual = found.most_common(1)[0][0]
    if len(found) == 1:
        return usual
    part = names[0].rsplit(".", 1)[0]
    if not equal:
        mixed.add(part)
        return usual
    mixed.add(f"{part} (bytes: the mean)")
    sizes = [2 if name.endswith("gate_up_proj") else 1 for name in names]
    total = sum(
        size * format_of(prefix + name).bytes_per_weight
        for name, size in zip(names, sizes, strict=True)
    )
    return replace(usual, bytes_per_weight=total / sum(sizes))


def _formatted(layer: LayerPlan, prefix: str, format_of: FormatOf, mixed: set[str]) -> LayerGroup:
    names = layer.modules
    mixer = layer.mixer
    if mixer is not None:
        mixer = mixer.in_format(_pick(names.mixer, prefix, format_of, mixed))
        if isinstance(mixer, LatentAttention):
            out = _pick(names.mixer_out, prefix, format_of, mixed)
            mixer = replace(mixer, o_weight=None if out == mixer.weight else out)
    if layer.ffn is None:
        return LayerGroup(1, mixer, None, layer.norm_weights, layer.extras)
    branches: list[FeedForward] = []
    for branch in layer.ffn if isinstance(layer.ffn, tuple) else (layer.ffn,):
        if isinstance(branch, MoE):
            experts = _pick(names.experts, prefix, format_of, mixed, equal=True)
            shared = BF16
            if branch.shared_intermediate or branch.latent:
                shared = _pick(names.shared, prefix, format_of, mixed, equal=True)
            branches.append(replace(branch, weight=experts, shared_weight=shared))
        else:
            dense = _pick(names.dense, prefix, format_of, mixed, equal=True)
            branches.append(branch.in_format(dense))
    ffn = tuple(branches) if isinstance(layer.ffn, tuple) else branches[0]
    return LayerGroup(1, mixer, ffn, layer.norm_weights, layer.extras)


def assemble(plan: ModelPlan, name: str, quant: Quantisation, source: str = "") -> ModelSpec:
    """The ModelSpec of a plan, with each part in the format the checkpoint stores it in."""
    format_of = quant.format_of
    mixed: set[str] = set()
    layers = [
        _formatted(layer, f"model.layers.{index}.", format_of, mixed)
        for index, layer in enumerate(plan.layers)
    ]
    head = BF16 if plan.tied else format_of("lm_head")
    mtp = None
    if plan.mtp is not None:
        mtp = _mtp_drafter(plan, plan.mtp, name, format_of, head, mixed)
    notes = list(plan.notes)
    if mixed:
        parts = ", ".join(sorted(mixed))
        notes.append(f"{parts}: linears of several formats, all counted in the commonest one")
    return ModelSpec(
        name=name,
        **taken(plan, "family hidden vocab tied_embeddings=tied final_norm_weights extra_weights "
                      "tables extra_matrices vision_params max_position"),
        weights=quant.label, default_kv_dtype=plan.kv_dtype or quant.kv_dtype,
        layers=merge_groups(layers), head_weight=head, mtp=mtp, source=source,
        notes=(*notes, *quant.notes),
    )


def _mtp_drafter(
    plan: ModelPlan, mtp: MtpPlan, name: str, format_of: FormatOf, head: WeightFormat,
    mixed: set[str],
) -> Drafter:
    layers = [
        _formatted(layer, mtp.prefix.replace("{i}", str(index)), format_of, mixed)
        for index, layer in enumerate(mtp.layers)
    ]
    return Drafter(
        name=f"{name}-{mtp.kind.upper()}", hidden=plan.hidden, layers=merge_groups(layers),
        vocab=plan.vocab, draft_vocab=plan.vocab, fc_in=mtp.fc_in or 2 * plan.hidden,
        fc_out=plan.hidden,
        **taken(mtp, "kind extra_weights block_size extra_matrices lookup_weights "
                     "walks_block"),
        n_predict=mtp.copies, head_weight=head, fc_weight=format_of(mtp.fc_module), target=name,
    )
