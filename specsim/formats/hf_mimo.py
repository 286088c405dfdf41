"""Readers of the MiMo families: MiMo-7B, MiMo-V2."""

from dataclasses import replace

from specsim.formats.hf_common import attention, experts, mlp, pattern, plan
from specsim.formats.hf_dense import FAMILIES, dense
from specsim.formats.hf_moe import appended_mtp
from specsim.formats.hf_plan import ModelPlan, decoder_layer, family
from specsim.formats.hf_shape import TextConfig
from specsim.model.feedforward import MoE
from specsim.model.mixers import Attention


@family("mimo")
def mimo(f: TextConfig) -> ModelPlan:
    """MiMo-7B: Qwen2's layers, and one more behind them as MTP head."""
    f.costs_nothing("attention_bias")  # of q, k and v, as Qwen2's
    result = dense(FAMILIES["qwen2",], f)
    result.mtp = appended_mtp(f, result.layers[0])
    return result


@family("mimo_v2_flash", "mimo_v2")
def mimo_v2(f: TextConfig) -> ModelPlan:
    """MiMo-V2: window layers with heads and sinks of their own, values narrower than keys.

    The checkpoints hold three MTP layers (window attention, dense MLP), which the files do not
    mention; where they do (num_nextn_predict_layers) that number counts.
    """
    f.require("n_shared_experts", (0,), "a shared expert is not known for this family")
    f.require("sliding_window_size", (f.sliding_window,), "must equal sliding_window")
    f.require("attention_chunk_size", (f.sliding_window,), "must equal sliding_window")
    count, norms = f.num_hidden_layers, 2 * f.hidden_size
    windowed = pattern(f, "hybrid_layer_pattern", count)
    sparse = pattern(f, "moe_layer_freq", count)
    bias = f.flag("attention_bias", False)
    full = attention(f, qkv_bias=bias, o_bias=bias, head_dim_given=True)
    full = replace(full, v_head_dim=f.v_head_dim, sinks=f.add_full_attention_sink_bias)
    swa = _window_attention(f, full)
    moe = MoE(*experts(f), f.moe_intermediate_size, router_bias=f.topk_method == "noaux_tc")
    layers = [
        decoder_layer(swa if windowed[index] else full, moe if sparse[index] else mlp(f), norms)
        for index in range(count)
    ]
    result = plan(f, "mimo_v2", layers)
    mtp = f.with_default("num_nextn_predict_layers", 3)
    result.mtp = appended_mtp(mtp, decoder_layer(swa, mlp(f), norms))
    return result


def _window_attention(f: TextConfig, full: Attention) -> Attention:
    heads = f.swa_num_attention_heads or full.n_heads
    kv = f.swa_num_key_value_heads or full.n_kv_heads
    if heads % kv:
        raise f.fail("swa_num_attention_heads", f"must be a multiple of its KV heads = {kv}")
    return replace(
        full, n_heads=heads, n_kv_heads=kv, head_dim=f.swa_head_dim or full.head_dim,
        v_head_dim=f.swa_v_head_dim or full.v_head_dim, sinks=f.add_swa_attention_sink_bias,
        window=f.given("sliding_window", f.sliding_window),
    )
