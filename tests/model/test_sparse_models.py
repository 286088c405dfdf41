"""Models that choose what they attend to: exact sizes, cache by kind of layer, reads of a step.

Stated: elements and bytes of the published checkpoints. The cache of DeepSeek-V4 is counted in the
584-byte entries and 132-byte index keys of vLLM and SGLang.
"""

import json

import pytest

from specsim.errors import ModelConfigError
from specsim.formats.hf_config import model_from_config
from specsim.model.catalogue import catalogue_root, find_model
from specsim.model.counts import kv_bytes_per_token, parameters, state_bytes, weight_bytes
from specsim.model.feedforward import MoE
from specsim.model.mixers import Mixer
from specsim.model.sparse_mixers import CompressedAttention, SparseAttention
from specsim.model.spec import LayerGroup, ModelSpec
from specsim.ops.network import MIXERS, markov_ops
from specsim.ops.op import OpCost
from specsim.ops.work import Work

ENTRY, KEY = 584, 132


def test_stored_elements_of_deepseek_v4_pro() -> None:
    """Every element of the checkpoint: experts two to a byte with a scale per 32 weights, a scale
    per 128 x 128 block of the FP8 matrices, a table of six experts per token id in three layers."""
    spec = find_model("DeepSeek-V4-Pro")
    assert spec.mtp is not None
    routed = matrices = 0
    for hidden, group in [(spec.hidden, g) for g in (*spec.layers, *spec.mtp.layers)]:
        moe, mixer = group.ffn, group.mixer
        assert isinstance(moe, MoE)
        assert isinstance(mixer, CompressedAttention)
        assert (moe.weight.name, moe.shared_weight.name) == ("mxfp4_w4a8", "fp8_block")
        routed += group.count * moe.count(hidden).routed
        matrices += group.count * (moe.count(hidden).shared + mixer.count(hidden).matrices)
    matrices += spec.mtp.fc_in * spec.mtp.fc_out
    total = parameters(spec)
    packed = routed * (1 - 1 / 2 - 1 / 32)
    assert total.text + total.mtp - packed + matrices / 128**2 == 861_608_274_846


@pytest.mark.parametrize(
    ("name", "stated", "rel"),
    [
        ("DeepSeek-V4-Pro", 805.32 * 2**30, 1e-4),
        ("DeepSeek-V4-Pro-0813", 892_727_580_904, 2e-4),
        ("DeepSeek-V4-Flash-0731", 166_878_536_440, 5e-4),
    ],
)
def test_stored_bytes(name: str, stated: float, rel: float) -> None:
    """Vectors and compressors that the files keep in fp32 count as 16 bits here."""
    assert weight_bytes(find_model(name)).total == pytest.approx(stated, rel=rel)


@pytest.mark.parametrize(
    ("name", "weights", "experts", "mtp_experts"),
    [
        ("DeepSeek-V4-Flash", "mxfp4", "mxfp4_w4a8", "mxfp4_w4a8"),
        ("DeepSeek-V4-Flash-FP8", "fp8_block", "fp8_block", "fp8_block"),
        ("DeepSeek-V4-Flash-NVFP4", "nvfp4", "nvfp4", "mxfp4_w4a8"),
    ],
)
def test_only_the_routed_experts_differ_in_format(
    name: str, weights: str, experts: str, mtp_experts: str
) -> None:
    spec = find_model(name)
    assert spec.weights == weights
    assert spec.mtp is not None

    def formats(groups: tuple[LayerGroup, ...]) -> set[tuple[str, str, str]]:
        return {
            (part.weight.name, part.shared_weight.name, group.mixer.weight.name)
            for group in groups for part in group.branches
            if isinstance(part, MoE) and group.mixer is not None
        }  # fmt: skip

    assert formats(spec.layers) == {(experts, "fp8_block", "fp8_block")}
    assert formats(spec.mtp.layers) == {(mtp_experts, "fp8_block", "fp8_block")}


def test_minimax_m3() -> None:
    """57 of 60 layers read 16 blocks of 128 tokens; their index keys are 128 numbers in 16 bits."""
    spec = find_model("MiniMax-M3")
    cached = kv_bytes_per_token(spec)
    assert (cached.full, cached.index) == (60 * 2048, 57 * 256)
    short, long = _context(spec, "sparse", 1000), _context(spec, "sparse", 131_072)
    assert short["sparse.decode"].kv_bytes == 2 * 4 * 128 * (1000 + 2)
    assert long["sparse.decode"].kv_bytes == 2 * 4 * 128 * (2048 + 2)
    assert long["sparse.index_scores"].kv_bytes == 256 * (131_072 + 2)
    nvfp4 = find_model("MiniMax-M3-NVFP4")
    for group in nvfp4.layers:
        assert group.mixer is not None
        assert group.mixer.weight.bytes_per_weight == 1 + 1 / 32  # MXFP8
    assert {part.weight.name for group in nvfp4.layers for part in group.branches
            if isinstance(part, MoE)} == {"nvfp4"}  # fmt: skip


def test_qwen_3_8_flash_next() -> None:
    """A budget of 2048 tokens; 24 KiB of keys and values and 3 KiB of index keys per token."""
    spec = find_model("Qwen3.8-Flash-Next")
    cached = kv_bytes_per_token(spec)
    assert (cached.full, cached.index) == (24 * 1024, 3 * 1024)
    assert _context(spec, "sparse", 131_072)["sparse.decode"].kv_bytes == 2 * 2 * 256 * (2048 + 2)
    assert any("n-gram table of about 51.2e9 weights" in note for note in spec.notes)
    ((one,),) = {group.extras for group in spec.layers}
    assert one.parameters(2560) == 2 * (4 * 2560) * (1 + 2 * 320 + 4)


def test_glm_5_3_flash() -> None:
    """Eleven latent layers score one key per four tokens and read 2048 tokens."""
    spec = find_model("GLM-5.3-Flash")
    cached = kv_bytes_per_token(spec)
    assert (cached.full, cached.index) == (11 * 512 * 2, 11 * KEY / 4)
    assert kv_bytes_per_token(spec, "fp8").full == 11 * (512 + 16)
    assert state_bytes(spec).recurrent == 34 * 64 * 128 * 128 * 4
    long = _context(spec, "mla", 131_072)
    assert long["mla.index_scores"].kv_bytes == KEY * (131_072 + 2) / 4
    assert parameters(spec).total == pytest.approx(321e9, rel=2e-3)  # stated, MTP layer included


@pytest.mark.parametrize(
    ("name", "csa", "hca", "window_only"),
    [("DeepSeek-V4-Flash", 21, 20, 2), ("DeepSeek-V4-Pro", 30, 31, 0)],
)
def test_cache_of_deepseek_v4(name: str, csa: int, hca: int, window_only: int) -> None:
    spec = find_model(name)
    assert spec.default_kv_dtype == "fp8"
    cached = kv_bytes_per_token(spec)
    assert cached.index == csa * KEY / 4
    assert cached.full == csa * ENTRY / 4 + hca * ENTRY / 128
    # The window, and the fp32 projections of open compression windows: value and weight of 512
    # columns for 128 tokens, or of 1024 (and 256 of the index key) for 8.
    window = (csa + hca + window_only) * ENTRY * 128
    held = hca * 128 * 2 * 512 * 4 + csa * 8 * 2 * (1024 + 256) * 4
    ((tokens, size),) = cached.sliding
    assert tokens == 128
    assert size == pytest.approx((window + held) / 128)


def _context(spec: ModelSpec, label: str, ctx: float) -> dict[str, OpCost]:
    mixer = next(g.mixer for g in spec.layers if g.mixer is not None and g.mixer.label == label)
    work = Work(1, 1, ctx, (), 1, 1)
    return {op.name: op for op in MIXERS[type(mixer)].context(mixer, work, 1, "fp8", 1.0, label)}


@pytest.mark.parametrize("ctx", [1024, 131_072])
def test_reads_of_a_decode_step(ctx: int) -> None:
    """All index keys, the best entries and the window; the new token is written and read."""
    flash = find_model("DeepSeek-V4-Flash")
    csa = _context(flash, "csa", ctx)
    assert csa["csa.index_scores"].kv_bytes == (ctx + 2) / 4 * KEY
    best = min(512, ctx / 4)
    assert csa["csa.decode"].kv_bytes == ENTRY * (best + 128 + 2.25)
    assert csa["csa.decode"].flops == 4 * (best + 128) * 64 * 512
    hca = _context(flash, "hca", ctx)
    assert list(hca) == ["hca.decode"]
    assert hca["hca.decode"].kv_bytes == pytest.approx(ENTRY * (ctx / 128 + 128 + 2 + 1 / 128))
    assert _context(flash, "swa", ctx)["swa.decode"].kv_bytes == ENTRY * (128 + 2)


def test_prompts_attend_to_window_and_entries() -> None:
    """A query far into a prompt sees 128 tokens and 512 entries, whatever lies before it."""
    flash = find_model("DeepSeek-V4-Flash")
    mixer = next(g.mixer for g in flash.layers if g.mixer is not None and g.mixer.label == "csa")
    for cached in (65_536, 131_072):
        work = Work(0, 1, 0, ((4096, cached),), 4096, 1)
        ops = {o.name: o for o in MIXERS[type(mixer)].context(mixer, work, 4, "fp8", 1.0, "csa")}
        assert ops["csa.prefill"].flops == 4 * 4096 * (128 + 512) * 16 * 512
        keys = (cached + 4097 / 2) / 4
        assert ops["csa.index_prefill"].flops == 2 * 4096 * keys * 64 * 128


@pytest.mark.parametrize(
    "mixer",
    [
        CompressedAttention(8, 32, 16, 4, 24, window=128),
        CompressedAttention(8, 32, 16, 4, 24, 128, 128),
        CompressedAttention(8, 32, 16, 4, 24, 128, 4, 2, 8, 64),
        SparseAttention(8, 2, 32, qk_norm="head", index_heads=2, index_head_dim=16, index_topk=64),
    ],
    ids=["window", "hca", "csa", "blocks"],
)
def test_a_pass_reads_each_matrix_once(mixer: Mixer) -> None:
    before, after = MIXERS[type(mixer)].rows(mixer, 64, 4.0, 1, 1.0, "m")
    read = sum(op.weight_bytes for op in (*before, *after))
    assert read == pytest.approx(2 * mixer.parameters(64), rel=1e-12)


def test_residual_streams_are_mixed_around_both_parts() -> None:
    """24 numbers from four streams for each part of a layer, in fp32."""
    ((one,),) = {group.extras for group in find_model("DeepSeek-V4-Flash").layers}
    assert one.parameters(4096) == 2 * (24 * 4 * 4096 + 24 + 3)
    assert one.weight_bytes(4096) == 4 * one.parameters(4096)


def test_dspark_stages_ship_in_the_checkpoint() -> None:
    spec = find_model("deepseek-ai/DeepSeek-V4-Flash-DSpark")
    assert spec.name == "DeepSeek-V4-Flash-0731"
    assert spec.mtp is not None
    assert (spec.mtp.kind, spec.mtp.block_size, spec.mtp.fc_in) == ("dspark", 5, 3 * 4096)
    walked = markov_ops(spec.mtp, 8, 7)
    assert [(op.count, op.flops) for op in walked] == [(7, 2 * 8 * 256 * 129_280)]
    assert parameters(spec).total == pytest.approx(304.2e9, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "changes", "match"),
    [
        ("DeepSeek-V4-Flash", {"compress_ratios": [4] * 43 + [4]}, "0 for those behind"),
        ("DeepSeek-V4-Flash", {"compress_ratios": [4, 8] * 22}, "must be 0, 4 or 128"),
        ("DeepSeek-V4-Flash", {"compress_ratios": [4] * 42}, "each of the 43 layers"),
        ("DeepSeek-V4-Flash", {"num_key_value_heads": 2}, "one latent of all heads"),
        ("DeepSeek-V4-Flash", {"o_groups": 7}, "must divide num_attention_heads = 64"),
        ("DeepSeek-V4-Flash", {"sliding_window": 0}, "sliding_window = 0: must be positive"),
        ("DeepSeek-V4-Flash", {"expert_dtype": "fp2"}, "must be fp4 or fp8"),
        ("DeepSeek-V4-Flash", {"kv_source_layer_ids": [2, 8]}, "kv_source_layer_ids"),
        ("DeepSeek-V4-Flash-0731", {"dspark_target_layer_ids": []}, "must name the layers"),
        ("MiniMax-M3", {"attention_output_gate": True}, "output gate"),
        ("MiniMax-M3", {"sparse_attention_config": {}}, "sparse_attention_freq is missing"),
    ],
)
def test_what_is_refused(name: str, changes: dict[str, object], match: str) -> None:
    config = json.loads((catalogue_root() / f"models/{name}.json").read_text())["config"]
    with pytest.raises(ModelConfigError, match=match):
        model_from_config({**config, **changes}, name)
