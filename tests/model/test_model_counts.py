"""Exact counts: published totals to the last parameter, hand formulas, cache and state sizes."""

import csv
from pathlib import Path

import pytest

from specsim.errors import UsageError
from specsim.model.catalogue import find_drafter, find_model
from specsim.model.counts import (
    active_parameters,
    active_weight_bytes,
    head_bytes,
    kv_bytes_per_token,
    parameters,
    state_bytes,
    weight_bytes,
)
from specsim.model.drafter_counts import (
    drafter_from_spec,
    drafter_kv_bytes,
    drafter_parameters,
    drafter_pass_bytes,
    drafter_weight_bytes,
)
from specsim.model.feedforward import MoE
from specsim.units import GIB

REFERENCE = Path(__file__).with_name("reference_totals.csv")


def reference_rows() -> list[tuple[str, int]]:
    lines = [line for line in REFERENCE.read_text().splitlines() if not line.startswith("#")]
    return [(row["model"], int(row["parameters"])) for row in csv.DictReader(lines)]


# Families whose router adds one correction bias per expert that the reference keeps as a buffer.
BUFFERED = (
    "deepseek_v3", "deepseek_v32", "glm4_moe", "glm5_next", "minimax_m2", "minimax_m3",
    "nemotron_h", "hy_v3", "lfm2",
)


@pytest.mark.parametrize(("name", "total"), reference_rows())
def test_totals_equal_the_reference_implementation(name: str, total: int) -> None:
    spec = find_model(name)
    biases = 0
    if spec.family in BUFFERED:
        biases = sum(
            group.count * group.ffn.n_experts
            for group in spec.layers
            if isinstance(group.ffn, MoE) and group.ffn.router_bias
        )
    assert parameters(spec).text == total + biases


def test_totals_are_within_two_percent_of_the_published() -> None:
    lines = Path(__file__).with_name("published_sizes.csv").read_text().splitlines()
    stated = {row["model"]: float(row["billions"]) for row in csv.DictReader(lines[1:])}
    assert len(stated) > 120
    for name, billions in stated.items():
        count = parameters(find_model(name))
        assert count.text + count.vision == pytest.approx(billions * 1e9, rel=0.02), name


# Totals their publishers (or keras-hub, for the Qwen rows) state to the last parameter.
PUBLISHED = {
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-1.7B": 1_720_574_976,
    "Qwen3-4B": 4_022_468_096,
    "Qwen3-8B": 8_190_735_360,
    "Qwen3-14B": 14_768_307_200,
    "Qwen3-32B": 32_762_123_264,
    "Qwen3-30B-A3B": 30_532_122_624,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "Mixtral-8x7B": 46_702_792_704,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-2-7B": 6_738_415_616,
    "Mistral-Small-24B-Instruct-2501": 23_572_403_200,
    "SmolLM2-135M": 134_515_008,
    "Phi-4": 14_659_507_200,
    "Qwen2.5-7B": 7_615_616_512,
    "CodeQwen1.5-7B": 7_250_284_544,
    "LFM2-2.6B": 2_569_272_320,
    "Falcon-H1-0.5B": 521_411_104,
    # With their vision towers.
    "Qwen2-VL-2B": 2_208_985_600,
    "Qwen2-VL-7B": 8_291_375_616,
    "Qwen2-VL-72B": 73_405_560_320,
    "InternVL3-8B": 7_944_373_760,
    "InternVL3.5-8B": 8_528_318_464,
}


@pytest.mark.parametrize(("name", "total"), PUBLISHED.items())
def test_published_totals(name: str, total: int) -> None:
    count = parameters(find_model(name))
    assert count.text + count.vision == total


def test_text_and_vision_totals_of_qwen3_6() -> None:
    dense, moe = parameters(find_model("Qwen3.6-27B")), parameters(find_model("Qwen3.6-35B-A3B"))
    assert dense.text + dense.vision == 27_356_728_560
    assert moe.text + moe.vision == 35_107_181_936
    gemma = parameters(find_model("Gemma-4-31B"))
    assert gemma.text + gemma.vision == 31_273_086_512


def test_llama_by_hand() -> None:
    # two tables, 32 layers of q and o (h*h), k and v (h*1024), three MLP matrices, two norms
    h, i = 4096, 14336
    layer = 2 * h * h + 2 * h * 1024 + 3 * h * i + 2 * h
    assert parameters(find_model("Llama-3.1-8B")).text == 2 * 128_256 * h + 32 * layer + h


def test_qwen3_6_27b_by_hand() -> None:
    h, i, vocab = 5120, 17408, 248_320
    mlp = 3 * h * i
    # full attention: 24 heads of 256, q doubled by the output gate, 4 KV heads, q/k norms
    full = 2 * h * 6144 + 2 * h * 1024 + 6144 * h + 2 * 256
    # Gated DeltaNet: q, k of 16*128, v and z of 48*128, out; a and b; conv of 4; A_log, dt; norm
    linear = h * (2 * 2048 + 2 * 6144) + 6144 * h + h * 96 + (2 * 2048 + 6144) * 4 + 96 + 128
    total = 48 * linear + 16 * full + 64 * (mlp + 2 * h) + h + 2 * vocab * h
    assert parameters(find_model("Qwen3.6-27B")).text == total == 26_895_998_464
    # MTP: one full-attention layer, fc 2h -> h, three norms
    assert parameters(find_model("Qwen3.6-27B")).mtp == full + mlp + 2 * h + 2 * h * h + 3 * h


def test_deepseek_v3_by_hand() -> None:
    h, heads, q_rank, kv_rank, nope, rope, v = 7168, 128, 1536, 512, 128, 64, 128
    mla = h * q_rank + q_rank * heads * (nope + rope) + h * (kv_rank + rope)
    mla += kv_rank * heads * (nope + v) + heads * v * h + q_rank + kv_rank
    moe = h * 256 + 256 + 257 * 3 * h * 2048  # router, its bias, routed and shared experts
    layer = mla + moe + 2 * h
    total = 58 * layer + 3 * (mla + 3 * h * 18432 + 2 * h) + h + 2 * 129_280 * h
    spec = find_model("DeepSeek-V3")
    assert parameters(spec).text == total == 671_026_419_200
    # the MTP layer: enorm, hnorm, shared-head norm, eh_proj, one mixture layer
    assert parameters(spec).mtp == layer + 2 * h * h + 3 * h == 11_610_068_224


def test_nemotron_3_super_by_hand() -> None:
    h, inner, groups_state = 4096, 128 * 64, 2 * 8 * 128
    conv = inner + groups_state
    mamba = h * (inner + conv + 128) + inner * h + conv * 5 + 3 * 128 + inner + h
    attention = 2 * h * 32 * 128 + 2 * h * 2 * 128 + h
    experts = 512 * 2 * 1024 * 2688 + 2 * h * 5376 + 2 * h * 1024  # latent width 1024
    moe = experts + h * 512 + 512 + h
    total = 40 * mamba + 8 * attention + 40 * moe + h + 2 * 131_072 * h
    spec = find_model("nemotron-3-super")
    assert parameters(spec).text == total
    # MTP pattern '*E': one attention block, one mixture block, eh_proj, three norms
    assert parameters(spec).mtp == attention + moe + 2 * h * h + 3 * h


def test_sparse_indexer_adds_what_it_should() -> None:
    # per layer: wq_b ql*64*128, wk h*128, weights_proj h*64, LayerNorm of 128
    extra = 61 * (1536 * 64 * 128 + 7168 * 128 + 7168 * 64 + 2 * 128)
    v3, v32 = find_model("DeepSeek-V3"), find_model("DeepSeek-V3.2")
    assert parameters(v32).text - parameters(v3).text == extra


# (main text, MTP, body, body + head, body + both tables) in billions, as published or derived.
TABLE = {
    "Qwen3.6-27B": (26.896, 0.425, 24.35, 25.62, 26.90),
    "Qwen3.6-35B-A3B": (34.661, 0.845, 2.44, 2.95, 3.45),
    "Qwen3.5-122B-A10B": (122.112, 2.524, 8.25, 9.01, 9.77),
    "Nemotron-3-Super-120B-A12B": (120.669, 2.942, 11.70, 12.23, 12.77),
    "Nemotron-3-Nano-30B-A3B": (31.578, 0.0, 2.88, 3.23, 3.58),
    "DeepSeek-V3": (671.026, 11.610, 35.70, 36.63, 37.55),
    "gpt-oss-120b": (116.829, 0.0, 4.55, 5.13, 5.71),
    "Qwen3-Next-80B-A3B": (79.674, 1.650, 3.25, 3.56, 3.87),
    "GLM-4.5": (352.798, 3.988, 32.08, 32.86, 33.63),
    "GLM-4.5-Air": (106.852, 2.375, 12.18, 12.80, 13.42),
    "Kimi-K2-Instruct": (1026.408, 0.0, 30.51, 31.69, 32.86),
    "MiniMax-M2": (228.690, 0.0, 9.80, 10.42, 11.03),
}


@pytest.mark.parametrize(("name", "row"), TABLE.items())
def test_table_of_totals_and_active_parameters(name: str, row: tuple[float, ...]) -> None:
    spec = find_model(name)
    count, active = parameters(spec), active_parameters(spec)
    found = (
        count.text,
        count.mtp,
        active.body,
        active.body + active.head,
        active.total,
    )
    for value, expected, digits in zip(found, row, (3, 3, 2, 2, 2), strict=True):
        assert round(value / 1e9, digits) == pytest.approx(expected, abs=1e-9)


def test_active_share_of_the_mtp_heads() -> None:
    # 35B 64.5 M, 122B 183 M, Nemotron 245 M, DeepSeek-V3 688 M, GLM-4.5 402 M
    expected = {
        "Qwen3.6-35B-A3B": 64.5,
        "Qwen3.5-122B-A10B": 183.3,
        "Nemotron-3-Super-120B-A12B": 244.9,
        "DeepSeek-V3": 688.1,
        "GLM-4.5": 401.9,
    }
    for name, millions in expected.items():
        mtp = find_model(name).mtp
        assert mtp is not None
        assert drafter_parameters(mtp, active=True) / 1e6 == pytest.approx(millions, abs=0.05)


def test_drafter_sizes() -> None:
    h, vocab = 4096, 32_000
    # EAGLE-3 of an 8B: fc 3h*h, q of 2h, k and v of 2h to 1024, o, MLP, head of 32000, four norms
    own = 3 * h * h + 2 * h * h + 2 * 2 * h * 1024 + h * h + 3 * h * 14336 + vocab * h + 4 * h
    assert drafter_parameters(find_drafter("EAGLE3-Llama-3.1-8B")) == own == 424_689_664
    assert drafter_parameters(find_drafter("Gemma-4-31B-it-assistant")) == 469_518_592
    medusa = find_drafter("medusa-vicuna-7b-v1.3")
    assert drafter_parameters(medusa) == 5 * (h * h + vocab * h)
    assert drafter_weight_bytes(medusa) / 1e9 == pytest.approx(1.478, abs=5e-4)
    for name, billions in {
        "EAGLE3-Llama-3.1-70B": 1.40,
        "EAGLE3-Qwen3-32B": 0.78,
        "EAGLE3-gpt-oss-120b": 0.31,
        "DFlash-Qwen3.6-27B": 1.73,
        "DFlash-Qwen3.5-35B-A3B": 0.47,
        # As the README of EAGLE has them.
        "yuhuili/EAGLE-Vicuna-7B-v1.3": 0.24,
        "yuhuili/EAGLE-llama2-chat-13B": 0.37,
        "yuhuili/EAGLE-llama2-chat-70B": 0.99,
    }.items():
        assert round(drafter_parameters(find_drafter(name)) / 1e9, 2) == billions


def test_bytes_of_one_drafter_pass() -> None:
    for name, gigabytes in (
        ("DFlash-Qwen3.6-27B", 6.00),
        ("DFlash-Qwen3.5-35B-A3B", 1.97),
        ("Gemma-4-31B-it-assistant", 0.94),
    ):
        assert drafter_pass_bytes(find_drafter(name)) / 1e9 == pytest.approx(gigabytes, abs=0.006)
    # the head is 75 % of a pass of the 27B's MTP layer, 89 % of the 35B's, 69 % of Nemotron's
    for name, share in (
        ("Qwen3.6-27B", 0.75),
        ("Qwen3.6-35B-A3B", 0.89),
        ("nemotron-3-super", 0.69),
    ):
        spec = find_model(name)
        assert spec.mtp is not None
        assert head_bytes(spec) / drafter_pass_bytes(spec.mtp) == pytest.approx(share, abs=0.005)


def test_drafter_cache() -> None:
    assert drafter_kv_bytes(find_drafter("EAGLE3-Llama-3.1-8B")).per_token == 4096
    assert drafter_kv_bytes(find_drafter("Gemma-4-31B-it-assistant")).per_token == 0
    # four window layers of 2048 and a full one: 2 * 8 * 128 * 2 bytes each
    kv = drafter_kv_bytes(find_drafter("DFlash-Qwen3.6-27B"))
    assert kv.full == 4096
    assert kv.sliding == ((2048, 4 * 4096.0),)
    with pytest.raises(UsageError, match="fp7"):
        drafter_kv_bytes(find_drafter("EAGLE3-Llama-3.1-8B"), "fp7")


def test_small_model_as_drafter_has_its_own_tables() -> None:
    for name in ("Qwen3-0.6B", "Qwen3-8B"):
        spec = find_model(name)
        drafter = drafter_from_spec(spec)
        assert drafter.kind == "model"
        assert drafter_parameters(drafter) == parameters(spec).text
        assert drafter_weight_bytes(drafter) == weight_bytes(spec).text
        assert drafter_pass_bytes(drafter) == active_weight_bytes(spec)


# KiB of bf16 cache per token; ssm and conv state per sequence in MB.
@pytest.mark.parametrize(
    ("name", "kib"),
    [
        ("Qwen3.6-27B", 64),
        ("Qwen3.6-35B-A3B", 20),
        ("Qwen3.5-122B-A10B", 24),
        ("Qwen3-Next-80B-A3B", 24),
        ("Nemotron-3-Super-120B-A12B", 8),
        ("Nemotron-3-Nano-30B-A3B", 6),
        ("Llama-3.1-8B", 128),
        ("Llama-3.1-70B", 320),
        ("GLM-4.5", 368),
        ("MiniMax-M2", 248),
        ("DeepSeek-V3", 68.625),  # 61 layers * 576 elements * 2 bytes
    ],
)
def test_cache_per_token(name: str, kib: float) -> None:
    kv = kv_bytes_per_token(find_model(name), "bf16")
    assert kv.per_token == kib * 1024
    assert kv.sliding == ()


def test_cache_of_sliding_windows_is_capped() -> None:
    kv = kv_bytes_per_token(find_model("Gemma-4-31B"), "bf16")
    assert kv.full == 80 * 1024
    assert kv.sliding == ((1024, 800 * 1024.0),)
    assert kv.held(1024) == 880 * 1024 * 1024
    assert kv.held(10_000) == 80 * 1024 * 10_000 + 800 * 1024 * 1024
    oss = kv_bytes_per_token(find_model("gpt-oss-120b"), "bf16")
    assert (oss.full, oss.sliding) == (36 * 1024, ((128, 36 * 1024.0),))


def test_cache_dtypes() -> None:
    spec = find_model("Llama-3.1-8B")
    assert kv_bytes_per_token(spec, "fp8").per_token == 64 * 1024
    assert kv_bytes_per_token(spec, "auto") == kv_bytes_per_token(spec, "bf16")
    with pytest.raises(UsageError, match="'fp3' is not known"):
        kv_bytes_per_token(spec, "fp3")
    # V3.2: 656-byte rows in FP8 and 132 bytes of index key per layer, whatever the cache dtype
    sparse = find_model("DeepSeek-V3.2")
    assert kv_bytes_per_token(sparse, "fp8").full == 61 * 656
    assert kv_bytes_per_token(sparse, "fp8").index == 61 * 132
    assert kv_bytes_per_token(sparse, "bf16").full == 61 * 576 * 2


def test_glm_5_2_runs_the_indexer_in_some_layers_only() -> None:
    # 78 layers; own indexer where max(i - 2, 0) % 4 == 0: layers 0, 1, 2 and every fourth after
    own = len([index for index in range(78) if max(index - 2, 0) % 4 == 0])
    assert kv_bytes_per_token(find_model("GLM-5.2"), "bf16").index == own * 132


@pytest.mark.parametrize(
    ("name", "recurrent", "conv"),
    [
        ("Qwen3.6-27B", 151.0, 2.9),
        ("Qwen3.6-35B-A3B", 62.9, 1.5),
        ("Qwen3.5-122B-A10B", 151.0, 2.7),
        ("Qwen3-Next-80B-A3B", 75.5, 1.8),
        ("Nemotron-3-Super-120B-A12B", 167.8, 2.5),
        ("Nemotron-3-Nano-30B-A3B", 48.2, 0.85),
    ],
)
def test_recurrent_state(name: str, recurrent: float, conv: float) -> None:
    state = state_bytes(find_model(name))
    assert state.recurrent / 1e6 == pytest.approx(recurrent, abs=0.05)
    assert state.conv / 1e6 == pytest.approx(conv, abs=0.05)


def test_state_of_a_plain_transformer_is_nothing() -> None:
    assert state_bytes(find_model("Llama-3.1-8B")).total == 0


def test_bytes_streamed_by_one_decode_step() -> None:
    # everything but the input table, 2 bytes each; a tied table is read as the head
    for name, total, table, cache in (
        ("Llama-3.1-8B", 8_030_261_248, 128_256 * 4096, 131_072),  # 15.01 GB
        ("Qwen3-8B", 8_190_735_360, 151_936 * 4096, 147_456),  # 15.14 GB
        ("Qwen3-0.6B", 596_049_920, 0, 114_688),  # 1.192 GB
    ):
        spec = find_model(name)
        assert active_weight_bytes(spec) == 2 * (total - table)
        assert kv_bytes_per_token(spec, "bf16").per_token == cache
    # of a mixture the experts of one token only: 8 of 128, 3 * 2048 * 768 each, in 48 layers
    spec = find_model("Qwen3-30B-A3B")
    idle = 48 * 120 * 3 * 2048 * 768
    assert active_weight_bytes(spec) == 2 * (30_532_122_624 - 151_936 * 2048 - idle)
    assert kv_bytes_per_token(spec, "bf16").per_token == 98_304


def test_families_whose_publishers_round_their_counts() -> None:
    # name: total, active with both tables, MTP; in billions, as on the publishers' pages
    for name, total, active, mtp in (
        ("Hy3-295B-A21B", 295, 21, 3.8),
        ("Ling-flash-2.0", 103, 6.1, 0),
        ("Ling-mini-2.0", 16.26, 1.43, 0),
        ("Ministral-3-14B-Instruct-2512", 13.5, 13.5, 0),
    ):
        spec = find_model(name)
        assert parameters(spec).text / 1e9 == pytest.approx(total, rel=0.01)
        assert active_parameters(spec).total / 1e9 == pytest.approx(active, rel=0.03)
        if mtp:
            assert parameters(spec).mtp / 1e9 == pytest.approx(mtp, rel=0.02)


def test_bytes_of_quantised_checkpoints() -> None:
    # a load of Qwen3.6-27B-FP8 was reported as 27.66 GiB; the text alone is 0.8 % below it
    spec = find_model("Qwen3.6-27B-FP8")
    text = weight_bytes(spec).text / GIB
    assert text == pytest.approx(27.45, abs=0.01)
    assert abs(text - 27.66) / 27.66 < 0.01
    assert weight_bytes(spec).total / 1e9 == pytest.approx(30.9, abs=0.05)
    for name, total in (
        ("Qwen3.6-27B", 55.6),
        ("Qwen3.6-35B-A3B", 71.9),
        ("Qwen3.6-35B-A3B-FP8", 37.5),
        ("Qwen3.5-122B-A10B", 250.2),
        ("Nemotron-3-Super-120B-A12B", 247.2),
        ("Nemotron-3-Super-120B-A12B-FP8", 127.7),
    ):
        assert weight_bytes(find_model(name)).total / 1e9 == pytest.approx(total, abs=0.1)
