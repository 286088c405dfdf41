"""Families of 2025 and 2026: totals against what their publishers state, and parts refused.

stated_totals.jsonl: the fields that sizes follow from, of public configs, and the parameters of the
language model that its publisher states, in 1e9 (Mistral-Large-3 675 less its encoder of 2.5,
Muse-Glimmer 30 less 1.9).
"""

import json
from pathlib import Path
from typing import Any

import pytest

from specsim.errors import ModelConfigError
from specsim.formats.hf_config import UNMODELLED, model_from_config
from specsim.formats.hf_plan import READERS
from specsim.model.catalogue import find_model
from specsim.model.counts import kv_bytes_per_token, parameters, state_bytes, weight_bytes
from specsim.model.extras import AttentionResidual
from specsim.model.mixers import (
    Attention,
    ConvolvedAttention,
    DeltaAttention,
    LatentAttention,
    Mamba2,
    ShortConvolution,
)
from specsim.ops.network import MIXERS
from specsim.ops.passes import pass_ops, target_pass
from specsim.ops.work import UNIFORM, Parallel, Work

STATED = [
    json.loads(line)
    for line in Path(__file__).with_name("stated_totals.jsonl").read_text().splitlines()
]
DEEPSEEK = {
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128, "vocab_size": 131_072,
}  # fmt: skip

@pytest.mark.parametrize("case", STATED, ids=[case["config"]["model_type"] for case in STATED])
def test_totals_are_within_one_percent_of_the_stated(case: dict[str, Any]) -> None:
    total = parameters(model_from_config(case["config"], "m")).text
    assert total == pytest.approx(case["billions"] * 1e9, rel=0.01)


@pytest.mark.parametrize(
    ("name", "stated"),
    [  # keras-hub 0.32, encoder included
        ("Qwen3.5-0.8B", 852_985_920), ("Qwen3.5-2B", 2_213_241_664),
        ("Qwen3.5-4B", 4_539_265_536), ("Qwen3.5-9B", 9_409_813_744),
    ],
)  # fmt: skip
def test_small_qwens_are_exact(name: str, stated: int) -> None:
    count = parameters(find_model(name))
    assert count.text + count.vision == stated


def test_stored_sizes_of_large_checkpoints() -> None:
    assert weight_bytes(find_model("Qwen3.8-2.4T-A95B")).total == pytest.approx(
        4_892_388_705_238, rel=1e-5
    )
    mimo = parameters(find_model("MiMo-V2.5-Pro"))  # elements of the file, scales included
    elements = (mimo.text + mimo.mtp) * (1 + 1 / 16384)
    assert elements == pytest.approx(1_023_244_718_976, rel=1e-5)
    kimi = find_model("Kimi-Linear-48B-A3B-Instruct")
    assert weight_bytes(kimi).total == pytest.approx(91.5 * 2**30, rel=2e-3)


def test_cache_and_state_of_hybrids() -> None:
    kimi = find_model("Kimi-Linear-48B-A3B-Instruct")
    assert kv_bytes_per_token(kimi).per_token == 7 * 576 * 2
    assert state_bytes(kimi).recurrent == 20 * 32 * 128 * 128 * 4
    mimo = kv_bytes_per_token(find_model("MiMo-V2-Flash"))
    assert mimo.full == 9 * 4 * (192 + 128) * 2
    assert mimo.sliding == ((128, 39 * 8 * (192 + 128) * 2),)


@pytest.mark.parametrize(
    "mixer",
    [
        DeltaAttention(8, 16),
        DeltaAttention(8, 16, wide_gates=1),
        DeltaAttention(8, 16, wide_gates=2),
        LatentAttention(8, 32, 64, 16, 8, 16, gated=True),
        LatentAttention(8, 32, 64, 16, 8, 16, head_gate=True),
        Attention(8, 2, 48, v_head_dim=32),
        ConvolvedAttention(8, 2, 16, stream=64, bias_dim=4, bias_extent=32, qk_norm="head"),
        ConvolvedAttention(
            8, 2, 16, stream=64, bias_dim=4, bias_extent=32, wide_kernels=True, head_scales=True,
            gated=True, head_gate=True,
        ),
        Attention(8, 2, 32, head_gate=True),
        LatentAttention(8, 32, 64, 16, 8, 16, input_mult=2),
        ShortConvolution(3, True, 64),
        Mamba2(4, 16, 2, 8, gate_norm=False),
    ],
    ids=[
        "kda", "wide gate", "wide gates", "gated latent", "a gate per latent head",
        "narrow values", "convolved", "convolved by token", "a gate per head", "joined input",
        "short convolution", "no gated norm",
    ],
)
def test_a_pass_reads_each_matrix_once(
    mixer: DeltaAttention | Attention | LatentAttention | ShortConvolution | Mamba2
) -> None:
    """What the operations read is what the mixer counts, vectors apart."""
    before, after = MIXERS[type(mixer)].rows(mixer, 64, 4.0, 1, 1.0, "m")
    context = MIXERS[type(mixer)].context(mixer, Work(2, 1, 100, (), 2, 2), 1, "bf16", 1.0, "m")
    read = sum(op.weight_bytes for op in (*before, *after, *context))
    assert read == pytest.approx(2 * mixer.count(64).total, rel=1e-12)
    cached = sum(op.kv_bytes for op in context)
    assert cached == (mixer.cache_row(2.0).size and pytest.approx(mixer.cache_row(2.0).size * 204))


def test_linear_attention_names_each_layer_once() -> None:
    config: dict[str, object] = {
        "model_type": "kimi_linear", **DEEPSEEK, "q_lora_rank": None, "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
        "num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 32,
        "linear_attn_config": {
            "full_attn_layers": [2], "kda_layers": [1], "num_heads": 4, "head_dim": 16,
        },
    }  # fmt: skip
    assert model_from_config(config).n_layers == 2
    with pytest.raises(ModelConfigError, match="must name each of the 3 layers once"):
        model_from_config({**config, "num_hidden_layers": 3})
    plain = parameters(model_from_config(config)).text
    assert isinstance(config["linear_attn_config"], dict)
    linear = {**config["linear_attn_config"], "use_full_rank_gate": True}
    for added, more in (  # what each part of Kimi-K3 adds, by hand
        ({"attn_res_block_size": 2}, 2 * 4 * 64 + 2 * 64),
        ({"mla_use_output_gate": True}, 64 * 4 * 128),
        ({"linear_attn_config": linear}, 64 * 64 - (64 * 16 + 16 * 64)),
        ({"routed_expert_hidden_size": 32}, 2 * (2 * 64 * 32 - 4 * 3 * 32 * 32)),
        ({"routed_expert_hidden_size": 32, "latent_moe_use_norm": True},
         2 * (2 * 64 * 32 - 4 * 3 * 32 * 32 + 32)),
    ):
        assert parameters(model_from_config({**config, **added})).text == plain + more, added


def test_kimi_k3_and_ling_3_are_what_their_checkpoints_hold() -> None:
    k3 = find_model("Kimi-K3")
    assert parameters(k3).text == pytest.approx(2.78e12, rel=1e-3)  # stated as 2.8 T
    assert kv_bytes_per_token(k3, "bf16").per_token == 24 * 576 * 2
    assert state_bytes(k3).recurrent == 69 * 96 * 128 * 128 * 4
    # experts in MXFP4, all else in 16 bits
    experts = 92 * 896 * 3 * 3584 * 3072
    plain = parameters(k3).text - experts
    assert weight_bytes(k3).total == pytest.approx(experts * 0.53125 + plain * 2, rel=1e-9)
    residual = k3.layers[0].extras[0]
    assert isinstance(residual, AttentionResidual)
    assert residual.blocks == pytest.approx(92 / 2 / 12 + 0.5, abs=0.1)  # about one in 12 layers
    ling = parameters(find_model("Ling-3.0-flash"))
    assert ling.text + ling.mtp == 127_486_405_600  # of its safetensors files
    assert state_bytes(find_model("Ling-3.0-flash")).recurrent == 35 * 32 * 128 * 128 * 4


def test_searched_layers_have_their_own_sizes() -> None:
    spec = find_model("Llama-3.3-Nemotron-Super-49B-v1")
    assert parameters(spec).text == pytest.approx(49.9e9, rel=2e-3)
    assert sum(group.count for group in spec.layers if group.mixer is None) == 31
    assert kv_bytes_per_token(spec, "bf16").per_token == 49 * 2 * 8 * 128 * 2
    block: dict[str, Any] = {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 2.0}}
    config: dict[str, Any] = {
        "model_type": "nemotron-nas", "hidden_size": 512, "num_hidden_layers": 3,
        "num_attention_heads": 8, "vocab_size": 100,
        "block_configs": [block, {**block, "ffn": {"no_op": True}}, {
            "attention": {"no_op": True}, "ffn": {"ffn_mult": 0.5}}],
    }  # fmt: skip
    attention, wide, thin = 2 * 512 * 512 + 2 * 512 * 128, 3 * 512 * 768, 3 * 512 * 256
    total = 2 * attention + wide + thin + (2 + 1 + 1 + 1) * 512 + 2 * 100 * 512
    assert parameters(model_from_config(config)).text == total
    for lie, rule in (
        ([block], "one entry for each of the 3 layers"),
        ([block, block, 5], "every entry must be an object"),
        ([block, block, {**block, "ffn": {"ffn_mult": 0.0}}], r"block_configs\[2\].ffn: ffn_mult"),
        ([block, block, {**block, "attention": {"n_heads_in_group": 3}}], "must divide"),
        ([block, block, {**block, "ffn": {"replace_with_linear": True}}], "not modelled"),
    ):
        with pytest.raises(ModelConfigError, match=rule):
            model_from_config({**config, "block_configs": lie})


def test_hunyuan_layers_may_differ() -> None:
    case = next(c for c in STATED if c["config"]["model_type"] == "hunyuan_v1_moe")["config"]
    whole = parameters(model_from_config(case)).text
    halved = {**case, "moe_intermediate_size": [1536] + [3072] * 31}
    less = 64 * 3 * 4096 * 1536
    assert parameters(model_from_config(halved)).text == whole - less
    for lie in ([8] * 31, [8] * 31 + [True], 0, "8"):
        with pytest.raises(ModelConfigError, match="moe_topk"):
            model_from_config({**case, "moe_topk": lie})


def test_banks_of_experts_are_stored_once_and_chosen_from_whole() -> None:
    """Mobius stores 4 banks of 2560 experts, as many as 40 layers of 256; each layer chooses 8 of
    all 2560, so a batch shares fewer of them."""
    case = next(c for c in STATED if c["config"]["model_type"] == "interns2_mobius")["config"]
    spec = model_from_config(case)
    own = find_model("Qwen3.5-35B-A3B")
    routers = (4 * 2560 - 40 * 256) * 2048
    text, mtp = parameters(spec), parameters(own)
    assert (text.text, text.mtp) == (mtp.text + routers, mtp.mtp)
    work = Work(8, 1, 100, (), 8, 8)
    read = [
        sum(op.weight_bytes * op.count
            for op in pass_ops(target_pass(model, work, Parallel()), "bf16", UNIFORM)
            if op.name.endswith("experts"))
        for model in (spec, own)
    ]
    assert read[0] > 1.1 * read[1]
    with pytest.raises(ModelConfigError, match="must divide the 40 layers"):
        model_from_config({**case, "text_config": {**case["text_config"], "num_blocks": 3}})


def test_gigachat_has_gated_norms_and_dense_mtp_layers() -> None:
    spec = find_model("GigaChat3.5-432B-A28B")
    count = parameters(spec)
    assert count.text + count.mtp == pytest.approx(432e9, rel=2e-3)
    assert kv_bytes_per_token(spec, "bf16").per_token == 10 * 576 * 2
    assert state_bytes(spec).recurrent == 30 * 64 * 128 * 128 * 4
    gates = sum(group.count * group.extras[0].count(7168).total for group in spec.layers)
    assert gates == 2 * 16 * (40 * 4 * 7168 + 10 * (1536 + 512))


def test_inkling_keeps_windows_of_four_convolutions_and_reads_them_once() -> None:
    case = next(c for c in STATED if c["config"]["model_type"] == "inkling_mm_model")["config"]
    spec = model_from_config(case)
    # transformers' text model, its routers' corrections, the head
    assert parameters(spec).text == 974_105_178_690 + 66 * 256 + 201_024 * 6144
    widths = 11 * (2 * 8 * 128 + 2 * 6144) + 55 * (2 * 16 * 128 + 2 * 6144)
    assert state_bytes(spec).total == widths * 3 * 2
    assert kv_bytes_per_token(spec, "bf16").full == 11 * 2 * 8 * 128 * 2
    group = next(group for group in spec.layers if group.mixer and group.mixer.label == "swa")
    mixer = group.mixer
    assert isinstance(mixer, ConvolvedAttention)
    moved = [
        sum(op.act_bytes * op.count for op in MIXERS[ConvolvedAttention].context(
            mixer, Work(1, q, 100, (), q, q), 1, "bf16", 1.0, "m") if "convs" in op.name)
        for q in (1, 4)
    ]
    width = 2 * 16 * 128 + 2 * 6144
    assert moved == [2 * width * 2 * (q + 3 + q - 1) for q in (1, 4)]


def test_mistral_large_4_layers_that_share_a_cache_are_refused() -> None:
    case: dict[str, Any] = {
        "model_type": "mistral_large4_text", "hidden_size": 64, "num_hidden_layers": 4,
        "num_attention_heads": 4, "intermediate_size": 64, "n_routed_experts": 4, **DEEPSEEK,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "index_topk": 16,
        "index_n_heads": 2, "index_head_dim": 32, "q_lora_rank": None,
    }  # fmt: skip
    spec = model_from_config(case)
    assert kv_bytes_per_token(spec, "bf16").full == (3 * 576 + 512) * 2  # one without rotary part
    assert any("a cache of its own unless the file says" in note for note in spec.notes)
    with pytest.raises(ModelConfigError, match=r"kv_source_layers = .* share a cache"):
        model_from_config({**case, "kv_source_layers": [0, 0, 2, 2]})


def test_ling_3_with_other_gates_is_refused() -> None:
    config = {"no_kda_lora": False, "model_type": "bailing_hybrid"}
    with pytest.raises(ModelConfigError, match="gates of delta attention in two products"):
        model_from_config(config)


@pytest.mark.parametrize("kind", sorted(UNMODELLED))
def test_what_is_not_modelled_is_refused_by_its_parts(kind: str) -> None:
    text = {"model_type": kind, "hidden_size": 64, "text_config": {"model_type": f"{kind}_text"}}
    for config in ({**text, "text_config": None}, text):
        with pytest.raises(ModelConfigError) as error:
            model_from_config(config, "m")
        assert f"not modelled: {UNMODELLED[kind]}" in str(error.value)
    assert kind not in READERS


def test_step_3_5_needs_the_heads_of_its_window_layers() -> None:
    """The 33 window layers have 96 query heads: without them 2.2 G parameters would be missing."""
    config = next(case["config"] for case in STATED if case["config"]["model_type"] == "step3p5")
    wrapped = {"model_type": "step3p7", "text_config": config}
    assert parameters(model_from_config(wrapped)).text == parameters(model_from_config(config)).text
    spec = model_from_config(config)
    heads = {
        (group.mixer.n_heads, group.mixer.window): group.count
        for group in spec.layers if isinstance(group.mixer, Attention) and group.mixer.window
    }  # fmt: skip
    assert set(heads) == {(96, 512)}
    assert parameters(spec).mtp == pytest.approx(0.844e9, rel=0.001)
    with pytest.raises(ModelConfigError, match="heads of the window layers"):
        model_from_config({**config, "attention_other_setting": None})
    with pytest.raises(ModelConfigError, match=r"moe_layers_enum = .*3,4,5"):
        model_from_config({**config, "moe_layers_enum": "3-44"})


def test_mimo_needs_its_patterns() -> None:
    config = {
        "model_type": "mimo_v2", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "v_head_dim": 16,
        "intermediate_size": 64, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "sliding_window": 16, "hybrid_layer_pattern": [0, 1],
        "moe_layer_freq": [0, 1], "swa_num_key_value_heads": 4,
    }  # fmt: skip
    assert model_from_config(config).mtp is not None
    for field, value in (("hybrid_layer_pattern", [0]), ("moe_layer_freq", 1)):
        with pytest.raises(ModelConfigError, match=rf"{field} = .*for each of the 2 layers"):
            model_from_config({**config, field: value})


OPT: dict[str, object] = {
    "model_type": "opt", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": 100, "ffn_dim": 256, "max_position_embeddings": 128, "word_embed_proj_dim": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"do_layer_norm_before": False}, "do_layer_norm_before"),
        ({"word_embed_proj_dim": 32}, "word_embed_proj_dim"),
        ({"ffn_dim": "wide"}, "ffn_dim"),
        ({"ffn_dim": None}, "ffn_dim"),
        ({"model_type": "falcon", "parallel_attn": False}, "parallel_attn"),
        ({"model_type": "falcon", "new_decoder_architecture": True}, "num_kv_heads"),
        ({"model_type": "gpt2", "n_head": 3}, "num_attention_heads"),
        ({"model_type": "phi", "intermediate_size": 64, "qk_layernorm": True}, "qk_layernorm"),
        ({"model_type": "falcon_h1", "projectors_bias": True}, "projectors_bias"),
        ({"model_type": "lfm2", "intermediate_size": 64, "layer_types": ["x", "y"]}, "layer_types"),
    ],
)  # fmt: skip
def test_parts_of_older_families_are_refused_by_name(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelConfigError, match=named):
        model_from_config({**OPT, **changed})


def test_spellings_of_older_families() -> None:
    own = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "vocab_size": 100}
    given = model_from_config({"model_type": "gpt2", **own, "n_inner": 256})
    assert model_from_config({"model_type": "gpt2", **own, "n_inner": None}).layers == given.layers
    assert parameters(model_from_config(OPT)).text == (
        100 * 64 + 130 * 64 + 2 * (4 * 64 * 64 + 4 * 64 + 2 * 64 * 256 + 256 + 64 + 4 * 64) + 128
    )


QWEN = {
    "model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 160, "hidden_act": "silu",
}


@pytest.mark.parametrize(
    "wrapped",
    [
        {"model_type": "internvl_chat", "llm_config": QWEN},
        {"model_type": "deepseek_vl_v2", "language_config": QWEN},
        {"model_type": "llava", "text_config": QWEN},
        {"model_type": "qwen2_5_omni", "thinker_config": {
            "model_type": "qwen2_5_omni_thinker",
            "text_config": {**QWEN, "model_type": "qwen2_5_omni_text"}}},
    ],
)
def test_the_text_part_is_found_whatever_it_is_called(wrapped: dict[str, Any]) -> None:
    text = parameters(model_from_config(QWEN, "m")).text
    assert parameters(model_from_config(wrapped, "m")).text == text


JAMBA: dict[str, object] = {
    "model_type": "jamba", "hidden_size": 192, "num_attention_heads": 8, "num_key_value_heads": 4,
    "num_hidden_layers": 6, "intermediate_size": 256, "vocab_size": 500, "num_experts": 4,
    "num_experts_per_tok": 2, "attn_layer_period": 3, "attn_layer_offset": 2, "mamba_d_state": 16,
    "expert_layer_period": 3, "expert_layer_offset": 0, "mamba_d_conv": 3,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"attn_layer_offset": 3}, "attn_layer_offset = 3: must be below attn_layer_period = 3"),
        ({"expert_layer_offset": 64}, "expert_layer_offset = 64: must be below"),
        ({"mamba_dt_rank": "banana"}, "mamba_dt_rank = 'banana': must be an integer"),
        ({"mamba_expand": 0}, "mamba_expand = 0: must be an integer from 1"),
    ],
)  # fmt: skip
def test_parts_that_would_vanish_are_refused(changed: dict[str, Any], said: str) -> None:
    assert model_from_config(JAMBA).family == "jamba"
    with pytest.raises(ModelConfigError, match=said):
        model_from_config({**JAMBA, **changed})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 99,
          "state_size": 16, "expand": 0}, ": expand = 0: must be"),
        ({"model_type": "mpt", "d_model": -1, "n_heads": 4, "n_layers": 2, "vocab_size": 99},
         ": d_model = -1: must be"),
        ({"model_type": "mpt", "n_heads": 4, "n_layers": 2, "vocab_size": 99},
         ": d_model is missing"),
        ({"model_type": "mpt", "hidden_size": -1, "n_heads": 4, "n_layers": 2, "vocab_size": 99},
         ": hidden_size = -1: must be"),
        ({"model_type": "mpt", "d_model": 64, "n_heads": 5, "n_layers": 2, "vocab_size": 99},
         ": d_model = 64: must be a multiple"),
        ({"model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 99,
          "expansion_ratio": 0}, ": expansion_ratio = 0: must be an integer from 1"),
    ],
)  # fmt: skip
def test_errors_call_fields_as_the_file_does(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelConfigError, match=said):
        model_from_config(config)


def test_lfm2_attends_in_every_layer_where_none_is_named() -> None:
    config = {
        "model_type": "lfm2", "hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 99,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
    }  # fmt: skip
    per_layer = 2 * 2 * 16 * 2  # keys and values of two heads, 16 bits
    assert kv_bytes_per_token(model_from_config(config)).per_token == 3 * per_layer
    some = model_from_config({**config, "full_attn_idxs": [1]})
    assert kv_bytes_per_token(some).per_token == per_layer
