"""Attention and the fused kernels against float64 loops; Triton in its interpreter against them."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from decoder_helpers import CONFIGS, SlotHarness, make_model
from specsim.decoder import kernels
from specsim.decoder.attention import (
    BatchRows,
    KVCache,
    PassPlan,
    SlotAttention,
    auto_splits,
    causal_mask,
)
from specsim.decoder.graphs import make_rows, widened
from specsim.decoder.kv_cache import BlockTable

SHAPES = [  # batch, q_len, kv_heads, group, head_dim, page, lengths
    (3, 5, 2, 4, 16, 16, (5, 64, 65)),
    (2, 1, 1, 1, 32, 32, (1, 70)),
    (2, 8, 3, 6, 8, 16, (8, 33)),
    (1, 3, 2, 8, 24, 8, (130,)),
]


def problem(shape, dtype=torch.float32):
    """q, kv, pages, lengths; every page position that must not be read is NaN."""
    batch, q_len, kv_heads, group, dim, page, lengths = shape
    generator = torch.Generator().manual_seed(sum(lengths))
    pages_each = -(-max(lengths) // page)
    count = 1 + batch * pages_each
    kv = torch.full((count, 2, kv_heads, page, dim), float("nan"))
    order = torch.randperm(count - 1, generator=generator) + 1
    pages = torch.zeros((batch, pages_each + 2), dtype=torch.int64)
    for row, length in enumerate(lengths):
        for i in range(-(-length // page)):
            used = order[row * pages_each + i]
            pages[row, i] = used
            filled = min(page, length - i * page)
            kv[used, :, :, :filled] = torch.randn((2, kv_heads, filled, dim), generator=generator)
    q = torch.randn((batch, q_len, kv_heads * group, dim), generator=generator)
    return q.to(dtype), kv.to(dtype), pages, torch.tensor(lengths, dtype=torch.int32)


def by_loops(q, kv, pages, lengths):
    """float64, one query at a time."""
    batch, q_len, heads, dim = q.shape
    kv_heads, page = kv.shape[2], kv.shape[3]
    out = torch.zeros_like(q, dtype=torch.float64)
    for b in range(batch):
        for i in range(q_len):
            seen = int(lengths[b]) - q_len + i + 1
            for h in range(heads):
                kv_head = h // (heads // kv_heads)
                at = [(int(pages[b, t // page]), t % page) for t in range(seen)]
                k = torch.stack([kv[p, 0, kv_head, o] for p, o in at]).double()
                v = torch.stack([kv[p, 1, kv_head, o] for p, o in at]).double()
                weights = (k @ q[b, i, h].double() / dim**0.5).softmax(0)
                out[b, i, h] = weights @ v
    return out


@pytest.mark.parametrize("shape", SHAPES)
def test_the_twin_equals_loops_with_unused_positions_poisoned(shape):
    q, kv, pages, lengths = problem(shape)
    got = kernels.verify_attention_torch(q, kv, pages, lengths, q.shape[-1] ** -0.5, 4)
    assert (got - by_loops(q, kv, pages, lengths)).abs().max() < 2e-6


def test_the_cuda_prompt_mask_equals_ours():
    """torch's lower-right causal bias, which prompts use on CUDA, against our mask."""
    from torch.nn.attention.bias import causal_lower_right


    q, k, v = randn(1, 4, 3, 8), randn(1, 2, 9, 8), randn(1, 2, 9, 9)[..., :8]
    rows = BatchRows(torch.tensor([0]), 9)
    cache = KVCache(torch.zeros(1, 1, 2, 2, 9, 8), BlockTable(1, 9, 9, q.device), SlotAttention())
    plan = PassPlan(rows, 3, torch.tensor([6]), 9, cache)
    attend = torch.nn.functional.scaled_dot_product_attention
    want = attend(q, k, v, attn_mask=causal_mask(plan, q.dtype).unsqueeze(1), enable_gqa=True)
    got = attend(q, k, v, attn_mask=causal_lower_right(3, 9), enable_gqa=True)
    assert (got - want).abs().max() < 1e-6


def test_splits_fill_the_gpu_and_stay_in_range():
    assert auto_splits(1, 8) == 32
    assert auto_splits(64, 8) == 1
    assert auto_splits(8, 8) == 4


PRELUDE = """
import sys
sys.path[:0] = [{root!r}, {here!r}]
import torch
torch.set_num_threads(1)
from decoder_helpers import CONFIGS, SlotHarness, make_model
from specsim.decoder.kernels import TorchOps
from specsim.decoder.layers import PlainLinear, RMSNorm
from specsim.decoder.triton_kernels import TritonOps, verify_attention
from test_decoder_kernels import SHAPES, by_loops, problem, randn
"""
KERNELS = """
worst = 0.0
for shape in SHAPES:
    q, kv, pages, lengths = problem(shape)
    want = by_loops(q, kv, pages, lengths)
    for splits in (1, 3):
        got = verify_attention(q, kv, pages, lengths, q.shape[-1] ** -0.5, splits)
        worst = max(worst, float((got - want).abs().max()))
print("attention", worst)

heads, kv_heads, dim, tokens = 4, 2, 24, 3
for name, norm in (("rope", None), ("norm_rope", RMSNorm(randn(heads + kv_heads, dim), 1e-6))):
    qkv = randn(tokens, (heads + 2 * kv_heads) * dim)
    angles = torch.polar(torch.ones(tokens, heads + 2 * kv_heads, dim // 2),
                         randn(tokens, heads + 2 * kv_heads, dim // 2))
    angles[:, heads + kv_heads :] = 1
    store = torch.randperm(40)[: tokens * 2 * kv_heads].view(tokens, 2 * kv_heads)
    flats = [torch.zeros(40, dim), torch.zeros(40, dim)]
    outs = [ops.qk_norm_rope_store(qkv.clone(), angles, norm, flat, store, heads)
            for ops, flat in zip((TorchOps(), TritonOps()), flats)]
    print(name, float((outs[0] - outs[1]).abs().max()), float((flats[0] - flats[1]).abs().max()))

linear, norm = PlainLinear(randn(40, 56)), RMSNorm(randn(40), 1e-5)
x, y = randn(3, 40), randn(3, 56)
a, b = (ops.project_add_norm(linear, y, x.clone(), norm) for ops in (TorchOps(), TritonOps()))
print("add_norm", float((a[0] - b[0]).abs().max()), float((a[1] - b[1]).abs().max()))
print("rms_norm", float((TorchOps().rms_norm(x, norm) - TritonOps().rms_norm(x, norm)).abs().max()))
print("silu_mul", float((TorchOps().silu_mul(x) - TritonOps().silu_mul(x)).abs().max()))
"""
MODELS = """
for family in ("llama", "qwen2", "qwen3"):
    ids = list(range(3, 22))
    plain = SlotHarness(make_model(CONFIGS[family]), slots=3, tokens=48, page_size=16)
    model = make_model(CONFIGS[family], linear="plain", use_triton=True)
    assert isinstance(model.ops, TritonOps)
    fused = SlotHarness(model, slots=3, tokens=48, page_size=16, use_triton=True)
    difference = (plain.prompt(1, ids, 0) - fused.prompt(1, ids, 0)).abs().max()
    plain.prompt(2, ids[:4], 0), fused.prompt(2, ids[:4], 0)
    rows, starts = [[40, 41, 42], [50, 51, 52]], [19, 4]
    steps = (plain.verify([1, 2], rows, starts) - fused.verify([1, 2], rows, starts)).abs().max()
    print(family, float(difference), float(steps))
"""


def randn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def interpreted(script):
    """Largest differences by name, printed by a script run with Triton's interpreter."""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE.format(root=str(here.parent.parent), here=str(here))
         + script],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    pairs = (line.split(" ", 1) for line in done.stdout.strip().splitlines())
    return {name: max(map(float, numbers.split())) for name, numbers in pairs}


needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


@needs_triton
def test_triton_kernels_in_the_interpreter_equal_loops_and_twins():
    """Attention on poisoned pages against float64 loops, the fused kernels against torch."""
    worst = interpreted(KERNELS)
    assert set(worst) == {"attention", "rope", "norm_rope", "add_norm", "rms_norm", "silu_mul"}
    assert max(worst.values()) < 5e-6


@needs_triton
@pytest.mark.slow
def test_whole_models_on_interpreted_triton_kernels():
    worst = interpreted(MODELS)
    assert set(worst) == {"llama", "qwen2", "qwen3"}
    assert max(worst.values()) < 2e-5


def test_padding_to_a_bucket_changes_no_row():
    model = make_model(CONFIGS["llama"])
    ids = list(range(3, 30))
    plain, padded = SlotHarness(model, slots=5), SlotHarness(model, slots=5)
    for harness in (plain, padded):
        harness.prompt(0, ids, 0)
        harness.prompt(2, ids[:9], 0)
    want = plain.verify([0, 2], [[40, 41], [50, 51]], [27, 9])
    got = padded.verify([0, 2, 4, 4], [[40, 41], [50, 51], [0, 0], [0, 0]], [27, 9, 1, 1])
    assert (got[:2] - want).abs().max() < 1e-5
    rows = make_rows([0, 2], 28, torch.device("cpu"), True, bucket=4, scratch=4)
    assert rows.index.tolist() == [0, 2, 4, 4]
    assert rows.span is None
    assert make_rows([1, 2, 3], 9, torch.device("cpu"), True).span == (1, 4)
    assert not make_rows([1, 2], 9, torch.device("cpu"), True).exact


def test_a_trimmed_record_has_the_layout_of_a_full_one():
    record = torch.tensor([[2, 1, 1, 0, 11, 12, 11]])  # k = 1: header, 2 tokens, 1 draft
    assert widened(record, 1, 3).tolist() == [[2, 1, 1, 0, 11, 12, 0, 0, 11, 0, 0]]
