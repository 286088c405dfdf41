"""Reader of DeepSeek-V4: compressed sparse attention, hash-routed layers, hyper-connections, and an
MTP layer or DSpark stages. Shapes: every tensor of deepseek-ai/DeepSeek-V4-Pro."""

from dataclasses import replace

from specsim.formats.hf_common import plan
from specsim.formats.hf_moe import sigmoid_moe
from specsim.formats.hf_plan import LayerNames, LayerPlan, ModelPlan, MtpPlan, decoder_layer, family
from specsim.formats.hf_shape import TextConfig
from specsim.model.extras import HyperConnections
from specsim.model.feedforward import MoE
from specsim.model.sparse_mixers import CompressedAttention

_CSA, _HCA = 4, 128  # tokens to an entry of layers with and without an indexer
_DSPARK_STAGES = 3  # in the checkpoints of -0731, -0813 and -Vision-Exp
_NAMES = LayerNames(
    mixer="attn", ffn="ffn", experts=("w1", "w2", "w3"),
    linears=("wq_a", "wq_b", "wkv", "wo_a", "wo_b"),
)


@family("deepseek_v4", "deepseek_ref")
def deepseek_v4(f: TextConfig) -> ModelPlan:
    """The first num_hash_layers choose experts by a table of token ids; their router
    only weighs them. Engines keep the cache in FP8 whatever the weights are in."""
    f.require("num_key_value_heads", (1,), "key and value are one latent of all heads")
    f.costs_nothing("hc_sinkhorn_iters", "compress_rope_theta")
    count, hidden, ratios = f.num_hidden_layers, f.hidden_size, f.compress_ratios
    streams, moe = HyperConnections(f.hc_mult), sigmoid_moe(f)
    if len(ratios) < count or set(ratios) - {0, _CSA, _HCA} or any(ratios[count:]):
        raise f.fail(
            "compress_ratios",
            f"must be 0, {_CSA} or {_HCA} for each of the {count} layers, and 0 for those behind",
        )
    by_ratio = {ratio: _attention(f, ratio) for ratio in (0, *ratios)}
    hashed = replace(moe, router_bias=False)
    layers = [
        _layer(f, by_ratio[ratio], hashed if index < f.num_hash_layers else moe, streams)
        for index, ratio in enumerate(ratios[:count])
    ]
    result = plan(f, "deepseek_v4", layers)
    result.kv_dtype = "fp8"
    join = streams.join_parameters(hidden)
    tables = f.num_hash_layers * f.vocab_size * moe.top_k
    result.extra_weights = join + tables
    last = _layer(f, by_ratio[0], moe, streams)
    result.mtp = _dspark(f, last, join) if f.dspark_block_size else _mtp(f, last, join)
    return result


def _attention(f: TextConfig, ratio: int) -> CompressedAttention:
    heads, groups = f.num_attention_heads, f.o_groups
    if heads % groups:
        raise f.fail("o_groups", f"must divide num_attention_heads = {heads}")
    f.costs_nothing("qk_rope_head_dim")  # a part of head_dim
    window = f.given("sliding_window", f.sliding_window)
    if not window or not f.q_lora_rank:
        raise f.fail("q_lora_rank" if window else "sliding_window", "must be positive")
    mixer = CompressedAttention(
        heads, f.given("head_dim", f.head_dim), f.q_lora_rank, groups, f.o_lora_rank, window,
        ratio,
    )
    if ratio != _CSA:
        return mixer
    return replace(
        mixer, index_heads=f.index_n_heads, index_head_dim=f.index_head_dim,
        index_topk=f.index_topk,
    )


def _layer(
    f: TextConfig, mixer: CompressedAttention, moe: MoE, streams: HyperConnections
) -> LayerPlan:
    return decoder_layer(mixer, moe, 2 * f.hidden_size, _NAMES, (streams,))


def _mtp(f: TextConfig, layer: LayerPlan, join: int) -> MtpPlan | None:
    """One window layer; two projections join hidden state and embedding; three norms."""
    copies = f.num_nextn_predict_layers or 0
    if not copies:
        return None
    return MtpPlan([layer], "mtp.{i}.", "mtp.0.e_proj", 3 * f.hidden_size + join, copies)


def _dspark(f: TextConfig, layer: LayerPlan, join: int) -> MtpPlan:
    """Stages of window layers that draft a block from the states of a few target layers, and a
    Markov head: a table of the previous token and one product."""
    hidden, rank, vocab = f.hidden_size, f.dspark_markov_rank, f.vocab_size
    taps = f.dspark_target_layer_ids
    if not taps:
        raise f.fail("dspark_target_layer_ids", "must name the layers whose states are joined")
    f.costs_nothing("num_nextn_predict_layers")  # 1 or 3 in files of the same shapes
    return MtpPlan(
        [layer] * _DSPARK_STAGES, "mtp.{i}.", "mtp.0.main_proj", 3 * hidden + join,
        kind="dspark", fc_in=len(taps) * hidden, block_size=f.dspark_block_size,
        extra_matrices=((rank, vocab),) if rank else (), lookup_weights=vocab * rank,
        walks_block=True,
    )
