"""Readers of the latent-attention families: DeepSeek-V2/V3/R1/V3.2, Kimi-K2, GLM-5, Mistral Large 3
and 4, Mistral Small 4, MiniCPM3, LongCat-Flash."""

from dataclasses import replace

from specsim.formats.hf_common import (
    appended_mtp,
    layer_kinds,
    mlp,
    plan,
    sigmoid_moe,
    sparse_after_dense,
)
from specsim.formats.hf_plan import LayerPlan, ModelPlan, decoder_layer, family
from specsim.formats.hf_shape import TextConfig
from specsim.model.feedforward import DenseMLP, MoE
from specsim.model.mixers import LatentAttention


def latent_attention(f: TextConfig, *, indexer: bool) -> LatentAttention:
    """MLA; `indexer` for the families with DeepSeek sparse attention."""
    if f.flag("attention_bias", False):
        raise f.fail("attention_bias", "biases in latent attention are not modelled")
    if "q_lora_rank" not in f.raw:
        raise f.fail("q_lora_rank", "this architecture needs it (null: no query latent)")
    rank = f.q_lora_rank
    return LatentAttention(
        n_heads=f.num_attention_heads, q_lora_rank=rank, kv_lora_rank=f.kv_lora_rank,
        qk_nope_head_dim=f.qk_nope_head_dim, qk_rope_head_dim=f.qk_rope_head_dim,
        v_head_dim=f.v_head_dim, index_heads=f.index_n_heads if indexer else 0,
        index_head_dim=f.index_head_dim if indexer else 0,
        index_topk=f.index_topk if indexer else 0,
    )


@family("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite")
def deepseek(f: TextConfig) -> ModelPlan:
    """DeepSeek-V2/V3/R1 and what reuses the architecture (Kimi-K2, GLM-4.7-Flash)."""
    return _deepseek(f, "deepseek_v3", indexer=False)


@family("deepseek_v32", "glm_moe_dsa")
def deepseek_sparse(f: TextConfig) -> ModelPlan:
    """DeepSeek-V3.2 and GLM-5: the same with a sparse indexer, in GLM-5.2 not in every layer."""
    if "q_lora_rank" in f.raw and not f.q_lora_rank:
        raise f.fail("q_lora_rank", "the sparse indexer reads the query latent and needs one")
    return _deepseek(f, "deepseek_v32", indexer=True)


@family("mistral4", "mistral_large3")
def mistral_latent(f: TextConfig) -> ModelPlan:
    """Mistral-Large-3 and Mistral-Small-4: DeepSeek-V3's layers, a router without correction."""
    return _deepseek(f.with_default("topk_method", "greedy"), "mistral4", indexer=False)


@family("mistral_large4_text")
def mistral_large4(f: TextConfig) -> ModelPlan:
    """Mistral-Large-4: sparse latent attention without query latent, an indexer behind a norm of
    its own; every `no_rope_layer_interval`-th layer has no rotary part, neither in its cache."""
    f = f.with_default("q_lora_rank", None).with_default("topk_method", "greedy")
    count, hidden = f.num_hidden_layers, f.hidden_size
    own = list(range(count))
    f.require("kv_source_layers", (own,), "layers that share a cache are not modelled")
    rotary = f.no_rope_layers or tuple((index + 1) % 4 for index in own)
    if len(rotary) != count:
        raise f.fail("no_rope_layers", f"must have one entry for each of the {count} layers")
    f.require("no_rope_layer_interval", (4,), "only 4 is known")
    mixer, moe = latent_attention(f, indexer=True), sigmoid_moe(f)
    sparse = sparse_after_dense(f, count, 1)
    flat = replace(
        mixer, qk_nope_head_dim=mixer.qk_nope_head_dim + mixer.qk_rope_head_dim, qk_rope_head_dim=0
    )
    indexed = _indexed_layers(f, count)

    def layer(index: int) -> LayerPlan:
        found = mixer if rotary[index] else flat
        norms = 2 * hidden + 2 * mixer.n_heads  # two numbers per head scale its scores
        if indexed[index]:
            norms += 2 * hidden + 2 * mixer.index_heads
        else:
            found = replace(found, index_heads=0, index_head_dim=0)
        return decoder_layer(found, moe if sparse[index] else mlp(f), norms)

    result = plan(f, "mistral_large4", [layer(index) for index in own])
    result.extra_weights = mixer.qk_rope_head_dim // 2  # factors of the rotary frequencies
    if not (f.has("indexer_types") and f.has("kv_source_layers")):
        result.notes.append(
            "every layer has an indexer and a cache of its own unless the file says otherwise "
            "(indexer_types, kv_source_layers)"
        )
    return result


@family("minicpm3")
def minicpm3(f: TextConfig) -> ModelPlan:
    """MiniCPM3: latent attention and a dense MLP; its scalings are factors."""
    f.costs_nothing("dim_model_base")
    layer = decoder_layer(latent_attention(f, indexer=False), mlp(f), 2 * f.hidden_size)
    return plan(f, "minicpm3", [layer] * f.num_hidden_layers, tied=True)


@family("longcat_flash")
def longcat_flash(f: TextConfig) -> ModelPlan:
    """LongCat-Flash: each layer is two attentions and two dense MLPs, and a mixture beside the
    first. Of top_k choices those among `zero_expert_num` experts return their input and cost
    nothing; the others are counted by their mean share. Its MTP layer is dense."""
    f.require("zero_expert_type", ("identity",), "only identity experts cost nothing")
    f.costs_nothing("mla_scale_q_lora", "mla_scale_kv_lora")  # factors
    total, zero, top_k = f.experts, f.zero_expert_num, f.moe_topk
    real = top_k * total / (total + zero)
    f = f.with_default("num_hidden_layers", 2 * f.num_layers)
    mixer, dense = latent_attention(f, indexer=False), DenseMLP(f.ffn_hidden_size)
    moe = MoE(total, max(1, round(real)), f.expert_ffn_hidden_size, router_bias=True)
    hidden, extra = f.hidden_size, zero * (f.hidden_size + 1)  # router of the others
    pair = [
        decoder_layer(mixer, (dense, moe), 2 * hidden + extra),
        decoder_layer(mixer, dense, 2 * hidden),
    ]
    result = plan(f, "longcat_flash", pair * f.num_layers)
    result.mtp = appended_mtp(f, decoder_layer(mixer, dense, 2 * hidden))
    result.notes.append(
        f"{top_k} of {total + zero} experts are chosen, of which {zero} cost nothing: counted as "
        f"{max(1, round(real))} of {total}"
    )
    return result


def _indexed_layers(f: TextConfig, count: int) -> list[bool]:
    """Which layers run their own indexer; the others reuse the selection of the one before
    (GLM-5.2: after an offset, every index_topk_freq-th layer)."""
    layer_kinds(f, count, ("deepseek_sparse_attention", "indexed_attention"))
    kinds = f.indexer_types
    f.per_layer("indexer_types", kinds, count)
    if kinds is not None:
        return [kind == "full" for kind in kinds]
    f.require("index_topk_pattern", (), "only index_topk_freq is understood")
    every = f.index_topk_freq
    offset = f.index_skip_topk_offset
    return [max(index - offset + 1, 0) % every == 0 for index in range(count)]


def _deepseek(f: TextConfig, family: str, *, indexer: bool) -> ModelPlan:
    count, norms = f.num_hidden_layers, 2 * f.hidden_size
    mixer, moe = latent_attention(f, indexer=indexer), sigmoid_moe(f)
    sparse = sparse_after_dense(f, count, 1 if f.model_type == "glm4_moe_lite" else 0)
    every = f.moe_layer_freq
    indexed = _indexed_layers(f, count) if indexer else [True] * count
    reuses = replace(mixer, index_heads=0, index_head_dim=0)
    layers = [
        decoder_layer(
            mixer if indexed[index] else reuses,
            moe if sparse[index] and index % every == 0 else mlp(f), norms,
        )
        for index in range(count)
    ]
    result = plan(f, family, layers)
    result.mtp = appended_mtp(f, decoder_layer(mixer, moe, norms))
    return result
