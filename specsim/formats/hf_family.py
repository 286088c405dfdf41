"""Families of known parts: those that `catalog/families.toml` declares, and what functions make of
a few of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from specsim.data import data_table
from specsim.formats.hf_common import (
    SLIDING,
    appended_mtp,
    attention,
    experts,
    kinds_or_every,
    plan,
    sigmoid_moe,
    sparse_after_dense,
    sparse_layers,
    windows,
)
from specsim.formats.hf_plan import LayerNames, ModelPlan, decoder_layer, family
from specsim.formats.hf_shape import TextConfig
from specsim.jsonable import taken
from specsim.model.feedforward import DenseMLP, MoE

Flag = bool | tuple[str, bool]  # fixed, or a field with the architecture's default
_BIAS = ("attention_bias", False)


@dataclass(frozen=True, slots=True)
class Mixture:
    """Mixtures of experts in some layers.

    width: field with the width of an expert. layers: 'all', 'stepped' (decoder_sparse_step) or
    'after_dense' (first_k_dense_replace; dense_first where the file does not say it). shared: field
    with the width of the expert that every token uses. router_bias, expert_bias: biases of theirs.
    sigmoid: DeepSeek-V3's router and shared expert, mtp: its MTP head where the file has one."""

    width: str = "moe_intermediate_size"
    layers: str = "all"
    dense_first: int = 0
    shared: str = ""
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    sigmoid: bool = False
    mtp: bool = False

    def sparse(self, f: TextConfig) -> list[bool]:
        """Which layers are mixtures."""
        count = f.num_hidden_layers
        if self.layers == "all":
            return [True] * count
        if self.layers == "stepped":
            return sparse_layers(f, count)
        return sparse_after_dense(f, count, self.dense_first)

    def of(self, f: TextConfig) -> MoE:
        """The mixture of a config."""
        if self.sigmoid:
            return sigmoid_moe(f)
        shared = f.given(self.shared, getattr(f, self.shared)) if self.shared else 0
        return MoE(
            *experts(f), getattr(f, self.width), shared_intermediate=shared,
            **taken(self, "shared_gate router_bias expert_bias"),
        )


@dataclass(frozen=True, slots=True)
class Parts:
    """What a family of alike layers is made of.

    qkv_bias, o_bias, mlp_bias, head_bias: biases of the projections. norms: of the layer's width, a
    norm with a bias counting as two; final_norms alike. qk_norm: 'none', 'head' or 'full'
    (qk_norm_asked: only with use_qk_norm). windows: layers may see `sliding_window` tokens only
    (windows_asked: only with use_sliding_window; windows_every: without a list of layers all but
    every so many). sinks: a logit of each head that takes attention away. gated: an output gate as
    wide as the queries; mlp_gated: three matrices in the MLP. head_dim_given: the file must say
    head_dim. tied: the architecture's default. positions: rows of a table of learned positions
    beyond the context. intermediate: width of the MLP in hidden sizes, where the file does not say
    it. embedding_norms: norms behind the embedding. any_activation: also in an MLP of three
    matrices. defaults: of fields that the file does not mention. inert: fields that cost nothing
    here. require: (field, values, reason) of fields that may have no others. names: of its modules.
    """

    name: str
    qkv_bias: Flag = _BIAS
    o_bias: Flag = _BIAS
    mlp_bias: Flag = ("mlp_bias", False)
    head_bias: Flag = False
    qk_norm: str = "none"
    qk_norm_asked: bool = False
    norms: int = 2
    final_norms: int = 1
    windows: bool = False
    windows_asked: bool = False
    windows_every: int = 0
    sinks: bool = False
    head_dim_given: bool = False
    tied: bool = False
    any_activation: bool = False
    gated: bool = False
    mlp_gated: bool = True
    positions: int | None = None
    intermediate: int | None = None
    embedding_norms: int = 0
    defaults: Mapping[str, object] | None = None
    inert: tuple[str, ...] = ()
    require: tuple[tuple[str, tuple[object, ...], str], ...] = ()
    names: LayerNames = LayerNames()
    mixture: Mixture | None = None


@cache
def parts_of(name: str) -> Parts:
    """The parts that the file declares under a name; `like` takes over those of another one."""
    raw: dict[str, Any] = {"name": name}
    row: Mapping[str, Any] = data_table("catalog", "families.toml")[name]
    if "like" in row:
        raw |= data_table("catalog", "families.toml")[row["like"]]
        raw |= {"name": name}
    raw |= row
    given = {key: _tuples(value) for key, value in raw.items() if key not in ("types", "like")}
    if "names" in raw:
        given["names"] = LayerNames(**{key: _tuples(text) for key, text in raw["names"].items()})
    if "mixture" in raw:
        given["mixture"] = Mixture(**raw["mixture"])
    return Parts(**given)


def _tuples(value: object) -> Any:
    """Lists of the file as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def built(parts: Parts, f: TextConfig) -> ModelPlan:
    """The plan of a family with known parts."""
    mixture = parts.mixture
    if not parts.any_activation and mixture is None:
        gated = ("silu", "gelu_pytorch_tanh", "swish")
        f.require("hidden_act", gated, "is not a gated activation")
    for name, value in (parts.defaults or {}).items():
        f = f.with_default(name, value)
    if parts.intermediate:
        f = f.with_default("intermediate_size", parts.intermediate * f.hidden_size)
    for name, allowed, reason in parts.require:
        f.require(name, allowed, reason)
    f.costs_nothing(*parts.inert)
    if parts.qkv_bias is True:
        f.costs_nothing("attention_bias")  # it has them whether the file says so or not
    hidden, count, qk_norm = f.hidden_size, f.num_hidden_layers, parts.qk_norm
    if parts.windows_every:
        kinds = kinds_or_every(f, count, parts.windows_every, SLIDING)
        f = f.with_default("layer_types", list(kinds))
    sizes = windows(f, count) if parts.windows else [0] * count
    if parts.windows_asked and not f.flag("use_sliding_window", False):
        sizes = [0] * count
    if parts.qk_norm_asked and not f.flag("use_qk_norm", False):
        qk_norm = "none"
    mixers = {
        size: replace(attention(
            f, qkv_bias=_flag(f, parts.qkv_bias), o_bias=_flag(f, parts.o_bias), qk_norm=qk_norm,
            window=size, gated=parts.gated, head_dim_given=parts.head_dim_given,
        ), sinks=parts.sinks)
        for size in sizes
    }
    sparse = mixture.sparse(f) if mixture else [False] * count
    moe = mixture.of(f) if mixture else None
    ffn = moe if moe and all(sparse) else DenseMLP(
        f.intermediate_size, parts.mlp_gated, _flag(f, parts.mlp_bias))
    norms = parts.norms * hidden
    layers = [
        decoder_layer(mixers[size], moe if moe and mixed else ffn, norms, parts.names)
        for size, mixed in zip(sizes, sparse, strict=True)
    ]
    result = plan(f, parts.name, layers, tied=parts.tied)
    result.final_norm_weights = parts.final_norms * hidden
    result.extra_weights = parts.embedding_norms * hidden
    result.extra_weights += f.vocab_size if _flag(f, parts.head_bias) else 0
    if mixture and moe and mixture.mtp:
        result.mtp = appended_mtp(f, decoder_layer(mixers[sizes[-1]], moe, norms, parts.names))
    if parts.positions is not None:
        result.tables = ((f.max_position_embeddings + parts.positions, hidden),)
    return result


def _flag(f: TextConfig, flag: Flag) -> bool:
    return flag if isinstance(flag, bool) else f.flag(*flag)


def _declared(name: str, f: TextConfig) -> ModelPlan:
    return built(parts_of(name), f)


for _name, _row in data_table("catalog", "families.toml").items():
    family(*_row.get("types", ()))(partial(_declared, _name))
