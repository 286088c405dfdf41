"""What a pass reads: weights op by op against the exact counts, and published totals by hand."""

import pytest

from ops_helpers import drafter_ops, target_ops
from specsim.model.catalogue import find_drafter, find_model, list_drafters, list_models, variant
from specsim.model.counts import active_weight_bytes
from specsim.model.drafter_counts import drafter_pass_bytes
from specsim.model.mixers import Attention, LatentAttention
from specsim.model.spec import ModelSpec
from specsim.ops.network import context_kv_ops, markov_ops
from specsim.ops.op import OpCost
from specsim.ops.work import Parallel, Work

ONE_TOKEN = Work(seqs=1.0, q_len=1, ctx=0.0, prefill=(), rows=1.0, head_rows=1.0)


def total(ops: list[OpCost], field: str) -> float:
    return sum(getattr(op, field) * op.count for op in ops)


def engine_copies(spec: ModelSpec) -> float:
    """Weight bytes that a kernel reads and no checkpoint holds: key projections loaded into the
    value slot as well (k_eq_v), and the absorbed up-projections of MLA widened to 16 bits."""
    extra = 0.0
    for group in spec.layers:
        a = group.mixer
        if isinstance(a, Attention) and a.k_eq_v:
            keys = spec.hidden * a.n_kv_heads * a.head_dim
            extra += group.count * keys * a.weight.bytes_per_weight
        if isinstance(a, LatentAttention):
            up = a.kv_lora_rank * a.n_heads * (a.qk_nope_head_dim + a.v_head_dim)
            extra += group.count * up * (2.0 - a.weight.bytes_per_weight)
    return extra


@pytest.mark.parametrize("name", [entry.name for entry in list_models()])
def test_one_token_reads_the_active_weights(name: str) -> None:
    spec = find_model(name)
    read = total(target_ops(spec, ONE_TOKEN, Parallel()), "weight_bytes")
    assert read == pytest.approx(active_weight_bytes(spec) + engine_copies(spec), rel=1e-12)


@pytest.mark.parametrize("name", [entry.name for entry in list_drafters()])
def test_one_pass_reads_what_a_drafter_counts(name: str) -> None:
    drafter = find_drafter(name)
    ops = drafter_ops(drafter, ONE_TOKEN, Parallel())
    if drafter.kind in ("dflash", "dspark"):
        # The join projection belongs to the tokens attended to; its k and v products, which run
        # beside those of the block's own tokens, read the same weights a second time.
        context = context_kv_ops(drafter, 1.0, Parallel())
        ops += [op for op in context if op.name.endswith("fc")]
        ops += markov_ops(drafter, 1.0, 1)
    assert total(ops, "weight_bytes") == pytest.approx(drafter_pass_bytes(drafter), rel=1e-12)


@pytest.mark.parametrize(
    "name",
    ["qwen3.6-27b", "qwen3.6-35b-a3b", "qwen3.5-122b-a10b", "nemotron-3-super", "deepseek-v3",
     "glm-4.5"],
)
def test_one_pass_of_an_mtp_head_reads_its_layer_and_the_whole_output_head(name: str) -> None:
    spec = find_model(name)
    assert spec.mtp is not None
    read = total(drafter_ops(spec.mtp, ONE_TOKEN, Parallel()), "weight_bytes")
    copies = engine_copies(
        ModelSpec("mtp", "", spec.hidden, spec.vocab, spec.mtp.layers)
    )
    assert read == pytest.approx(drafter_pass_bytes(spec.mtp) + copies, rel=1e-12)
    head = [
        op for op in drafter_ops(spec.mtp, ONE_TOKEN, Parallel())
        if op.name == "draft.lm_head"
    ]
    assert len(head) == 1
    # The head of V x h in 16 bits is the larger part of a pass.
    assert head[0].weight_bytes == spec.vocab * spec.hidden * 2
    if name in ("qwen3.6-27b", "qwen3.6-35b-a3b"):
        share = head[0].weight_bytes / read
        assert share == pytest.approx(0.75 if "27b" in name else 0.89, abs=0.006)


# Published parameters times 2 bytes, without the input table. (The decoder notes give 15.009,
# 15.136, 1.192 and 6.083 GB: the matrices alone, without norms.)
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("llama-3.1-8b", (8_030_261_248 - 128_256 * 4096) * 2),  # 15.010 GB
        ("qwen3-8b", (8_190_735_360 - 151_936 * 4096) * 2),  # 15.137 GB
        ("qwen3-0.6b", 596_049_920 * 2),  # the tied table is read as the head
        # 30,532,122,624 in all; 120 of 128 experts of 3 x 2048 x 768 rest in each of 48 layers
        ("qwen3-30b-a3b", (30_532_122_624 - 151_936 * 2048 - 48 * 120 * 3 * 2048 * 768) * 2),
    ],
)
def test_bytes_streamed_by_a_decode_step(name: str, read: int) -> None:
    ops = target_ops(find_model(name), ONE_TOKEN, Parallel())
    assert total(ops, "weight_bytes") == read


def test_multiplications_of_qwen3_8b_by_hand() -> None:
    # Per layer h = 4096, 32 heads and 8 KV heads of 128, MLP 12288:
    #   q 4096 x 4096, k and v 4096 x 1024 each, o 4096 x 4096, MLP 3 x 4096 x 12288
    # = 192,937,984 weights, times 36 layers, and the head 151936 x 4096 = 622,329,856
    matrices = 36 * 192_937_984 + 622_329_856
    assert matrices == 7_568_097_280
    ops = target_ops(find_model("qwen3-8b"), ONE_TOKEN, Parallel())
    products = [op for op in ops if op.kind == "gemm"]
    assert total(products, "flops") == 2 * matrices
    # 160 verify rows of 32 sequences: 2.4 TFLOP
    verify = Work(32.0, 5, 2048.0, (), 160.0, 160.0)
    ops = target_ops(find_model("qwen3-8b"), verify, Parallel())
    products = [op for op in ops if op.kind == "gemm"]
    assert total(products, "flops") == 160 * 2 * matrices
    assert total(products, "weight_bytes") == 2 * matrices  # once, whatever the rows


def test_a_tied_head_is_read_in_the_format_of_the_embedding() -> None:
    spec = variant(find_model("qwen3-0.6b"), "fp8")
    ops = target_ops(spec, ONE_TOKEN, Parallel())
    head = next(op for op in ops if op.name == "lm_head")
    assert head.weight_bytes == 151936 * 1024 * spec.embed_weight.bytes_per_weight
