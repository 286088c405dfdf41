"""GGUF headers of many architectures, with the keys and tensors that llama.cpp writes for each.

Names from ggml's gguf-py 0.19 (constants.py, MIT) and its converters. Each file is tiny; the model
read from it must have exactly the weights of its tensors.
"""

from math import prod

import pytest

import gguf_maker
from specsim.errors import ModelConfigError
from specsim.formats.gguf_header import read_gguf_model
from specsim.model.counts import parameters
from specsim.model.feedforward import MoE
from specsim.model.mixers import Attention, LatentAttention

H, FFN, HEADS, KV, DIM, VOCAB, EXPERTS, WIDE = 64, 160, 4, 2, 32, 500, 8, 48
WINDOW, ROPE, RANK, Q_RANK, VALUE = 128, 8, 24, 40, 16
EXPERT = {"expert_count": EXPERTS, "expert_used_count": 2, "expert_feed_forward_length": WIDE}
DENSE_FIRST = EXPERT | {"expert_shared_count": 1, "leading_dense_block_count": 1,
                        "expert_weights_norm": True, "expert_weights_scale": 2.5,
                        "expert_gating_func": 2}
SWA = {"attention.sliding_window": WINDOW}
MLA = DENSE_FIRST | {
    "attention.head_count_kv": 1, "attention.kv_lora_rank": RANK,
    "attention.key_length": RANK + ROPE, "attention.value_length": RANK,
    "attention.key_length_mla": DIM + ROPE, "attention.value_length_mla": VALUE,
    "rope.dimension_count": ROPE, "rope.scaling.type": "yarn", "rope.scaling.factor": 40.0,
    "rope.scaling.yarn_log_multiplier": 0.1,
}
DELTA = {"ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.group_count": 2,
         "ssm.time_step_rank": 4, "ssm.inner_size": 64, "full_attention_interval": 2}

NORMS = {"attn_norm.weight": (H,), "ffn_norm.weight": (H,)}
FOUR = NORMS | {"post_attention_norm.weight": (H,), "post_ffw_norm.weight": (H,)}
AFTER = {"post_attention_norm.weight": (H,), "post_ffw_norm.weight": (H,)}
SECOND = {"attn_norm.weight": (H,), "post_attention_norm.weight": (H,)}
QKV = {"attn_q.weight": (H, HEADS * DIM), "attn_k.weight": (H, KV * DIM),
       "attn_v.weight": (H, KV * DIM), "attn_output.weight": (HEADS * DIM, H)}
FUSED = {"attn_qkv.weight": (H, (HEADS + 2 * KV) * DIM), "attn_output.weight": (HEADS * DIM, H)}
BIAS = {"attn_q.bias": (HEADS * DIM,), "attn_k.bias": (KV * DIM,), "attn_v.bias": (KV * DIM,)}
HEAD_NORMS = {"attn_q_norm.weight": (DIM,), "attn_k_norm.weight": (DIM,)}
FULL_NORMS = {"attn_q_norm.weight": (HEADS * DIM,), "attn_k_norm.weight": (KV * DIM,)}
MLP = {"ffn_gate.weight": (H, FFN), "ffn_up.weight": (H, FFN), "ffn_down.weight": (FFN, H)}
FUSED_MLP = {"ffn_up.weight": (H, 2 * FFN), "ffn_down.weight": (FFN, H)}
CORRECTION = {"exp_probs_b.bias": (EXPERTS,)}


def experts(width=WIDE):
    return {"ffn_gate_inp.weight": (H, EXPERTS), "ffn_gate_exps.weight": (H, width, EXPERTS),
            "ffn_up_exps.weight": (H, width, EXPERTS), "ffn_down_exps.weight": (width, H, EXPERTS)}


def shared(width=WIDE, gate=False):
    out = {"ffn_gate_shexp.weight": (H, width), "ffn_up_shexp.weight": (H, width),
           "ffn_down_shexp.weight": (width, H)}
    return out | ({"ffn_gate_inp_shexp.weight": (H,)} if gate else {})


LATENT = {
    "attn_q_a.weight": (H, Q_RANK), "attn_q_a_norm.weight": (Q_RANK,),
    "attn_q_b.weight": (Q_RANK, HEADS * (DIM + ROPE)),
    "attn_kv_a_mqa.weight": (H, RANK + ROPE), "attn_kv_a_norm.weight": (RANK,),
    "attn_k_b.weight": (DIM, RANK, HEADS), "attn_v_b.weight": (RANK, VALUE, HEADS),
    "attn_output.weight": (HEADS * VALUE, H),
}
PLAIN_Q = {"attn_q.weight": (H, HEADS * (DIM + ROPE))} | {
    name: shape for name, shape in LATENT.items() if "attn_q_" not in name}
OLD_LATENT = {name: shape for name, shape in LATENT.items() if "_b.w" not in name or "q_b" in name}
OLD_LATENT["attn_kv_b.weight"] = (RANK, HEADS * (DIM + VALUE))
GATED = QKV | HEAD_NORMS | {"attn_q.weight": (H, 2 * HEADS * DIM)}
SSM = {"ssm_a": (4,), "ssm_dt.bias": (4,), "ssm_norm.weight": (16,), "ssm_out.weight": (64, H),
       "ssm_conv1d.weight": (4, 2 * 32 + 64), "attn_qkv.weight": (H, 2 * 32 + 64),
       "attn_gate.weight": (H, 64)}
BA, ALPHA_BETA = {"ssm_ba.weight": (H, 8)}, {"ssm_alpha.weight": (H, 4), "ssm_beta.weight": (H, 4)}
NEXTN = {"nextn.eh_proj.weight": (2 * H, H), "nextn.enorm.weight": (H,),
         "nextn.hnorm.weight": (H,), "nextn.shared_head_norm.weight": (H,),
         "nextn.embed_tokens.weight": (H, VOCAB), "nextn.shared_head_head.weight": (H, VOCAB)}
MOE = SECOND | QKV | HEAD_NORMS | BIAS
SINKS = {"attn_sinks.weight": (HEADS,), "attn_output.bias": (H,), "ffn_gate_inp.bias": (EXPERTS,),
         "ffn_gate_exps.bias": (WIDE, EXPERTS), "ffn_up_exps.bias": (WIDE, EXPERTS),
         "ffn_down_exps.bias": (H, EXPERTS)}

LLAMA = NORMS | QKV | MLP
# name: (architecture, keys, layers, tied)
FILES = {
    "llama": ("llama", {"rope.dimension_count": DIM}, [LLAMA] * 2, False),
    "mixtral": ("llama", {"expert_count": EXPERTS, "expert_used_count": 2},
                [NORMS | QKV | experts(FFN)] * 2, False),
    "mistral3": ("mistral3", {"attention.temperature_scale": 0.1, "rope.scaling.type": "yarn"},
                 [LLAMA] * 2, False),
    "granite": ("granite", {"logit_scale": 8.0, "residual_scale": 0.2, "embedding_scale": 12.0,
                            "attention.scale": 0.01}, [LLAMA] * 2, True),
    "smollm3": ("smollm3", {}, [LLAMA] * 2, True),
    "ernie4_5": ("ernie4_5", {}, [LLAMA] * 2, True),
    "phi3": ("phi3", SWA | {"rope.scaling.attn_factor": 1.2}, [NORMS | FUSED | FUSED_MLP] * 2,
             False),
    "seed_oss": ("seed_oss", {}, [SECOND | QKV | BIAS | MLP] * 2, False),
    "olmo2": ("olmo2", {}, [AFTER | QKV | FULL_NORMS | MLP] * 2, False),
    "olmo3": ("olmo2", SWA | {"attention.sliding_window_pattern": [1, 0]},
              [AFTER | QKV | FULL_NORMS | MLP] * 2, False),
    "glm4": ("glm4", {"rope.dimension_count": 16}, [FOUR | QKV | BIAS | FUSED_MLP] * 2, False),
    "hunyuan-dense": ("hunyuan-dense", {}, [LLAMA | HEAD_NORMS] * 2, True),
    "qwen2": ("qwen2", {}, [LLAMA | BIAS] * 2, True),
    "qwen2vl": ("qwen2vl", {"rope.dimension_sections": [4, 6, 6, 0]}, [LLAMA | BIAS] * 2, False),
    "qwen3": ("qwen3", {}, [LLAMA | HEAD_NORMS] * 2, False),
    "qwen3vl": ("qwen3vl", {"n_deepstack_layers": 3}, [LLAMA | HEAD_NORMS] * 2, False),
    "gemma": ("gemma", {}, [LLAMA] * 2, True),
    "gemma2": ("gemma2", SWA | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
               [FOUR | QKV | MLP] * 2, True),
    "gemma3": ("gemma3", SWA | {"rope.freq_base_swa": 10000.0},
               [FOUR | QKV | HEAD_NORMS | MLP] * 6, True),
    "qwen2moe": ("qwen2moe", EXPERT | {"expert_shared_feed_forward_length": 96},
                 [NORMS | QKV | BIAS | experts() | shared(96, True)] * 2, False),
    "qwen3moe": ("qwen3moe", EXPERT, [NORMS | QKV | HEAD_NORMS | experts()] * 2, False),
    "qwen3vlmoe": ("qwen3vlmoe", EXPERT, [NORMS | QKV | HEAD_NORMS | experts()] * 2, False),
    "qwen3next": ("qwen3next", EXPERT | DELTA | {"expert_shared_feed_forward_length": 40},
                  [SECOND | SSM | BA | experts() | shared(40, True),
                   SECOND | GATED | experts() | shared(40, True)], False),
    "qwen35": ("qwen35", DELTA, [SECOND | SSM | ALPHA_BETA | MLP, SECOND | GATED | MLP], True),
    "qwen35moe": ("qwen35moe", EXPERT | DELTA | {"expert_shared_feed_forward_length": 40},
                  [SECOND | SSM | ALPHA_BETA | experts() | shared(40, True),
                   SECOND | GATED | experts() | shared(40, True)], False),
    "gpt-oss": ("gpt-oss", EXPERT | SWA | {"feed_forward_length": WIDE},
                [SECOND | QKV | BIAS | experts() | SINKS] * 2, False),
    "minimax-m2": ("minimax-m2", EXPERT | {"feed_forward_length": WIDE, "expert_gating_func": 2},
                   [NORMS | QKV | FULL_NORMS | experts() | CORRECTION] * 2, False),
    "glm4moe": ("glm4moe", DENSE_FIRST | {"nextn_predict_layers": 1},
                [MOE | MLP, MOE | experts() | shared() | CORRECTION,
                 MOE | experts() | shared() | CORRECTION | NEXTN], False),
    "glm4moe-cut": ("glm4moe", DENSE_FIRST | {"nextn_predict_layers": 1, "block_count": 3},
                    [MOE | MLP, MOE | experts() | shared() | CORRECTION], False),
    "dots1": ("dots1", DENSE_FIRST,
              [LLAMA | HEAD_NORMS,
               NORMS | QKV | HEAD_NORMS | experts() | shared() | CORRECTION], False),
    "ernie4_5-moe": ("ernie4_5-moe", DENSE_FIRST | {"interleave_moe_layer_step": 1},
                     [LLAMA, NORMS | QKV | experts() | shared() | CORRECTION], True),
    "deepseek3": ("deepseek2", MLA | {"attention.q_lora_rank": Q_RANK, "expert_group_count": 2,
                                      "expert_group_used_count": 1},
                  [NORMS | LATENT | MLP, NORMS | LATENT | experts() | shared() | CORRECTION],
                  False),
    "deepseek2-lite": ("deepseek2", MLA | {"expert_shared_count": 2},
                       [NORMS | PLAIN_Q | MLP, NORMS | PLAIN_Q | experts() | shared(2 * WIDE)],
                       False),
    "deepseek-old": ("deepseek2", {k: v for k, v in MLA.items() if "_mla" not in k} | {
        "attention.q_lora_rank": Q_RANK, "attention.head_count_kv": HEADS,
        "attention.key_length": DIM + ROPE, "attention.value_length": VALUE},
        [NORMS | OLD_LATENT | MLP, NORMS | OLD_LATENT | experts() | shared()], False),
    "mistral4": ("mistral4", MLA | {"attention.q_lora_rank": Q_RANK,
                                    "leading_dense_block_count": 0},
                 [NORMS | LATENT | experts() | shared()] * 2, False),
}


def write(tmp_path, arch, keys, layers, tied=False, outer=()):
    """The file and the number of weights in it, less those that repeat others."""
    own = {"block_count": len(layers), "context_length": 4096, "embedding_length": H,
           "feed_forward_length": FFN, "attention.head_count": HEADS, "attention.head_count_kv": KV,
           "attention.key_length": DIM, "attention.value_length": DIM, "rope.freq_base": 1e6,
           "rope.dimension_count": DIM, "attention.layer_norm_rms_epsilon": 1e-6} | keys
    meta = {"general.architecture": arch, "general.type": "model", "general.name": "Tiny",
            "general.file_type": 1, "general.quantization_version": 2,
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"] * VOCAB,
            **{f"{arch}.{key}": value for key, value in own.items()}}
    tensors = {"token_embd.weight": (H, VOCAB), "output_norm.weight": (H,), **dict(outer)}
    tensors |= {} if tied else {"output.weight": (H, VOCAB)}
    for index, layer in enumerate(layers):
        tensors |= {f"blk.{index}.{name}": shape for name, shape in layer.items()}
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf_maker.gguf(meta, [(name, shape, 1) for name, shape in tensors.items()]))
    repeated = ("rope_f", "embed_tokens", "shared_head_head")
    return path, sum(prod(shape) for name, shape in tensors.items()
                     if not any(part in name for part in repeated))


@pytest.mark.parametrize("name", FILES)
def test_a_header_has_the_weights_of_its_tensors(tmp_path, name):
    arch, keys, layers, tied = FILES[name]
    path, weights = write(tmp_path, arch, keys, layers, tied)
    spec = read_gguf_model(path)
    assert parameters(spec).total == weights
    blocks = keys.get("block_count", len(layers))
    assert spec.n_layers == blocks - keys.get("nextn_predict_layers", 0)
    assert (spec.hidden, spec.vocab, spec.tied_embeddings) == (H, VOCAB, tied)
    assert (spec.mtp is not None) == ("nextn.eh_proj.weight" in layers[-1])
    for group in spec.layers:
        if isinstance(group.mixer, Attention):
            mixer = group.mixer
            assert (mixer.n_heads, mixer.n_kv_heads, mixer.head_dim) == (HEADS, KV, DIM)
        if isinstance(group.mixer, LatentAttention):
            assert (group.mixer.kv_lora_rank, group.mixer.v_head_dim) == (RANK, VALUE)
    last = spec.layers[-1].ffn
    assert isinstance(last, MoE) == ("expert_count" in keys)
    if isinstance(last, MoE):
        assert (last.n_experts, last.top_k) == (EXPERTS, 2)


@pytest.mark.parametrize(("name", "windows"), [
    ("llama", [0, 0]), ("phi3", [WINDOW] * 2), ("olmo3", [WINDOW, 0]), ("gemma2", [WINDOW, 0]),
    ("gemma3", [WINDOW] * 5 + [0]), ("gpt-oss", [WINDOW, 0]),
])
def test_windows_are_those_of_the_architecture(tmp_path, name, windows):
    path, _ = write(tmp_path, *FILES[name])
    groups = read_gguf_model(path).layers
    assert [group.mixer.window for group in groups for _ in range(group.count)] == windows


@pytest.mark.parametrize(("arch", "layer", "outer", "words"), [
    ("llama", LLAMA | {"attn_magic.weight": (H, H)}, {}, "blk.0.attn_magic.weight"),
    ("gemma3", FOUR | QKV | MLP, {"per_layer_token_embd.weight": (H, 900)}, "per_layer_token_embd"),
    ("llama", LLAMA | shared(), {}, "a part of it is not known for 'llama'"),
    ("falcon", LLAMA, {}, "'falcon' is not read"), ("gemma4", LLAMA, {}, "'gemma4' is not read"),
    ("granitemoe", LLAMA, {}, "'granitemoe' is not read"),
])
def test_parts_that_are_not_read_are_refused_by_name(tmp_path, arch, layer, outer, words):
    path, _ = write(tmp_path, arch, {}, [layer] * 2, False, outer)
    with pytest.raises(ModelConfigError, match=words) as caught:
        read_gguf_model(path)
    assert "config.json" in str(caught.value) and "\n" not in str(caught.value)


def test_copies_and_positions_are_no_weights_and_a_split_file_is_read(tmp_path):
    path, weights = write(tmp_path, "llama", {}, [LLAMA] * 2, outer={"rope_freqs.weight": (16,)})
    assert parameters(read_gguf_model(path)).total == weights
    kv_b = {"blk.0.attn_kv_b.weight": OLD_LATENT["attn_kv_b.weight"]}  # beside its two halves
    both, weights = write(tmp_path, *FILES["deepseek3"], kv_b)
    assert parameters(read_gguf_model(both)).total == weights - prod(*kv_b.values())
    meta = {"general.architecture": "llama", "split.count": 2, "llama.block_count": 2,
            "llama.embedding_length": H, "llama.feed_forward_length": FFN,
            "llama.attention.head_count": HEADS}
    first = [("token_embd.weight", (H, VOCAB), 1)]
    path.write_bytes(gguf_maker.gguf(meta, first))
    assert read_gguf_model(path).n_layers == 2
