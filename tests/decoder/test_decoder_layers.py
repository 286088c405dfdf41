"""Linear kinds, norms, rotary embedding and experts against plain references."""

import pytest
import torch
import torch.nn.functional as F

from decoder_helpers import LLAMA, make_model
from specsim.decoder.layers import (
    ExpertLayer,
    GateUp,
    PackedLinear,
    PlainLinear,
    RMSNorm,
    linear_factory,
    packing_works,
    rope_table,
    rotate,
)
from specsim.decoder.weights import pair_rows
from specsim.errors import UsageError

CPU = torch.device("cpu")
needs_packing = pytest.mark.skipif(
    not packing_works(torch.float32), reason="this torch has no packed linears"
)


def randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@needs_packing
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_packed_linears_equal_plain_ones_with_every_post_op(dtype, rows):
    # oneDNN's own answer, so that a CPU that packs bf16 cannot skip because `packing_works` fails.
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN packs bf16 weights only on CPUs with AVX-512 or AVX-NE-CONVERT")
    assert packing_works(dtype)
    weight, bias = randn(96, 64, seed=1, dtype=dtype) * 0.1, randn(96, seed=2, dtype=dtype)
    x, other = randn(rows, 64, seed=3, dtype=dtype), randn(rows, 96, seed=4, dtype=dtype)
    packed, plain = PackedLinear(weight, bias), PlainLinear(weight.float(), bias.float())
    want = plain(x.float())
    tolerance = 1e-5 if dtype == torch.float32 else 0.03
    torch.testing.assert_close(packed(x).float(), want, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(packed.add(x, other.clone()).float(), want + other.float(),
                               rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(packed.silu(x).float(), F.silu(want), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(packed.mul(x, other).float(), want * other.float(),
                               rtol=tolerance, atol=tolerance)


def test_gated_halves_equal_the_joint_product():
    weight, x = randn(64, 32, seed=1), randn(5, 32, seed=2)
    gate, up = (x @ weight.T).chunk(2, -1)
    want = F.silu(gate) * up

    def silu_mul(t):
        a, b = t.chunk(2, -1)
        return F.silu(a) * b

    kinds = [PlainLinear, *([PackedLinear] if packing_works(torch.float32) else [])]
    for kind in kinds:
        torch.testing.assert_close(GateUp(weight, kind, silu_mul)(x), want, rtol=1e-5, atol=1e-5)


class NoOps:
    """A torch without the private ops."""

    def __getattr__(self, name):
        raise AttributeError(name)


class NoCpuSupport:
    """The ops on a CPU without the instructions of a dtype."""

    def _reorder_linear_weight(self, weight, rows):
        raise RuntimeError("mkldnn_reorder_linear_weight: bf16 path needs the cpu support")


@pytest.mark.parametrize("ops", [NoOps, NoCpuSupport])
def test_where_packing_does_not_work_plain_linears_are_used(monkeypatch, ops):
    packing_works.cache_clear()
    monkeypatch.setattr(torch.ops, "mkldnn", ops())
    try:
        assert linear_factory("auto", CPU, torch.float32) is PlainLinear
        with pytest.raises(UsageError, match="linear='auto'"):
            linear_factory("packed", CPU, torch.float32)
        model = make_model(LLAMA)
        assert isinstance(model.layers[0].qkv, PlainLinear)
    finally:
        packing_works.cache_clear()


def test_plain_and_packed_models_agree():
    from decoder_helpers import SlotHarness

    ids = list(range(40))
    plain = SlotHarness(make_model(LLAMA, linear="plain")).prompt(0, ids, 0)
    auto = SlotHarness(make_model(LLAMA)).prompt(0, ids, 0)
    assert (plain - auto).abs().max() < 2e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm_equals_torch(dtype):
    x, weight = randn(7, 48, seed=1, dtype=dtype) * 3, randn(48, seed=2, dtype=dtype)
    x[0] *= 1e-4  # eps matters here
    want = F.rms_norm(x.float(), (48,), weight.float(), 1e-5)
    got = RMSNorm(weight, 1e-5)(x).float()
    tolerance = 2e-6 if dtype == torch.float32 else 2**-7
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def test_rotating_adjacent_pairs_equals_rotating_halves():
    """q.k after our order of rows and rotation is that of the half-split order."""
    q, k = randn(5, 2, 8, seed=1), randn(5, 2, 8, seed=2)
    table = rope_table(LLAMA, 5, CPU)

    def ours(x):
        paired = pair_rows(x.transpose(0, 1).reshape(2, 5, 8).transpose(1, 2).reshape(16, 5), 8)
        return rotate(paired.reshape(2, 8, 5).permute(2, 0, 1).contiguous(), table.unsqueeze(1))

    def halves(x):
        angle = torch.arange(5)[:, None] * LLAMA.rope_theta ** (-torch.arange(4) / 4)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        a, b = x[..., :4], x[..., 4:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    mine = torch.einsum("thd,shd->hts", ours(q), ours(k))
    theirs = torch.einsum("thd,shd->hts", halves(q), halves(k))
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("normalise", [True, False])
def test_both_forms_of_the_experts_equal_a_loop(normalise):
    experts, hidden, inner, top_k = 8, 32, 16, 3
    router = randn(experts, hidden, seed=1)
    gate_up = randn(experts, 2 * inner, hidden, seed=2) * 0.3
    down = randn(experts, hidden, inner, seed=3) * 0.3
    x = randn(20, hidden, seed=4)
    want = torch.zeros_like(x)
    for t in range(20):
        probs = (router @ x[t]).softmax(-1)
        best = probs.topk(top_k)
        weights = best.values / best.values.sum() if normalise else best.values
        for weight, e in zip(weights, best.indices, strict=True):
            gate, up = (gate_up[e] @ x[t]).chunk(2)
            want[t] += weight * (down[e] @ (F.silu(gate) * up))
    for grouped in (True, False):
        got = ExpertLayer(router, gate_up, down, top_k, normalise, grouped)(x)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
