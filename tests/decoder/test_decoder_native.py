"""numba's kernels against the torch ones, alone, in models and in the engine."""

import math

import pytest
import torch

from decoder_helpers import CONFIGS, SlotHarness, make_model
from specsim.decoder.drafters.eagle import EagleWeights
from specsim.decoder.engine import Engine
from specsim.decoder.kernels import TorchOps
from specsim.decoder.layers import RMSNorm
from specsim.decoder.options import DecoderOptions, SamplingParams
from specsim.decoder.slots import EngineRequest
from specsim.errors import UsageError

pytest.importorskip("numba", reason="native kernels need numba")

from specsim.decoder import native_ops
from specsim.decoder.native_ops import NativeOps

DTYPES = [torch.float32, torch.bfloat16]


def randn(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_equals_the_fp32_formula_rounded_once(dtype):
    x, weight = randn(5, 37, dtype=dtype) * 4, randn(37, dtype=dtype)
    x[1] *= 1e-4
    wide = x.double()
    exact = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    got = NativeOps(dtype).rms_norm(x, RMSNorm(weight, 1e-5))
    if dtype == torch.bfloat16:
        # One rounding: at most half a unit in the last of 8 bits, up to fp32's own error.
        assert ((got.double() - exact).abs() <= exact.abs() * (2**-8 + 1e-5)).all()
    else:
        torch.testing.assert_close(got.double(), exact, rtol=2e-6, atol=1e-7)


def both(family, dtype, monkeypatch, attending=True):
    """Two harnesses with the same weights: torch ops and native ops."""
    if not attending:
        monkeypatch.setattr(native_ops, "_MOST_FLOP", 0.0)
        monkeypatch.setattr(native_ops, "_MOST_FLOP_ONE_QUERY", 0.0)
    models = [make_model(CONFIGS[family], dtype=dtype, std=0.1, native=n) for n in (False, True)]
    assert type(models[0].ops) is TorchOps
    assert isinstance(models[1].ops, NativeOps)
    return [SlotHarness(m) for m in models]


def assert_agree(got, want, dtype, roundings):
    """fp32: equal to 1e-5. bf16: two runs apart by no more than their roundings explain.

    One rounding moves a value by up to half a unit in the last of 8 bits, evenly spread: the root
    mean square is the largest / sqrt(3). Independent errors add like a random walk, and there are
    two runs, hence sqrt(2 roundings). How many differ depends on the CPU: packed linears round once
    after their post-ops, plain ones (bf16 without AVX-512) before and after; these are counted.
    """
    difference = got.float() - want.float()
    if dtype == torch.float32:
        assert difference.abs().max() < 1e-5
        return
    largest = math.sqrt(2 * roundings) * torch.finfo(dtype).eps / 2
    assert difference.abs().max() <= largest * want.float().abs().max()
    mean_square = difference.square().mean() / want.float().square().mean()
    assert mean_square.sqrt() <= largest / math.sqrt(3)


@pytest.mark.parametrize("attending", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_models_agree_in_every_kind_of_pass(family, dtype, attending, monkeypatch):
    """Prompts, one and several tokens per row, slots out of order, rows of unlike length."""
    pair = both(family, dtype, monkeypatch, attending)
    # norm, q k v, (norm of heads,) rotation | attention, output, sum, norm, gate and up, silu,
    # product, down, sum
    before_cache = 4 if CONFIGS[family].qk_norm else 3
    per_layer, layers = before_cache + 9, CONFIGS[family].num_layers
    ids = list(range(3, 60))
    passes = [
        lambda h: h.prompt(1, ids[:30], 0),
        lambda h: h.prompt(3, ids[:7], 0),
        lambda h: h.verify([1], [ids[30:31]], [30]),
        lambda h: h.verify([1], [ids[31:36]], [31]),
        lambda h: h.verify([3, 1], [ids[7:10], ids[36:39]], [7, 36]),
        lambda h: h.verify([1, 2, 3], [[5], [6], [7]], [39, 0, 10]),
    ]
    for run in passes:
        torch_logits, native_logits = (run(h) for h in pair)
        # The last norm and the head round once each.
        assert_agree(native_logits, torch_logits, dtype, layers * per_layer + 2)
    torch_cache, native_cache = (h.cache.data for h in pair)
    for i in range(layers):
        assert_agree(native_cache[i], torch_cache[i], dtype, i * per_layer + before_cache)
        assert torch_cache[i].abs().max() > 0.1


def test_exponential_of_the_softmax():
    """Through attention: one key with a large lead, one far behind, equal keys."""
    ops = NativeOps(torch.float32)
    for spread in (0.0, 1.0, 30.0, 1000.0):
        keys = torch.tensor([0.0, spread, spread * 0.999])
        exact = (keys.double() - keys.max()).exp()
        got = softmax_through(ops, keys)
        torch.testing.assert_close(got, exact / exact.sum(), rtol=2e-6, atol=1e-30)


def softmax_through(ops, scores):
    """Softmax of scores: one head of width 2; key s is (score_s, 0), value s the s-th unit."""
    native, out = ops._native, []
    table = torch.view_as_real(torch.ones(4, 1, dtype=torch.complex64)).contiguous()
    for wanted in range(len(scores)):
        cache = torch.zeros(1, 2, 1, 4, 2)
        cache[0, 0, 0, : len(scores), 0] = scores
        cache[0, 1, 0, wanted, 0] = 1.0
        last = len(scores) - 1
        qkv = torch.tensor([[math.sqrt(2.0), 0.0], [float(scores[last]), 0.0],
                            [float(wanted == last), 0.0]])
        start, rows, work = torch.tensor([last]), torch.tensor([0]), torch.empty(16)
        block = torch.zeros(native.PARAMS, dtype=torch.int64)
        for at, value in ((native.P_BATCH, 1), (native.P_Q, 1), (native.P_HEADS, 1),
                          (native.P_KV_HEADS, 1), (native.P_DIM, 2), (native.P_PAGE, 4),
                          (native.P_START, start.data_ptr()), (native.P_ROWS, rows.data_ptr()),
                          (native.P_ANGLES, table.data_ptr()), (native.P_WORK, work.data_ptr()),
                          (native.P_ATTEND, 1)):
            block[at] = value
        result = torch.empty(2)
        ops._attend(block.data_ptr(), qkv.data_ptr(), 0, cache.data_ptr(), result.data_ptr(), 0.0)
        out.append(float(result[0]))
    return torch.tensor(out, dtype=torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["draft_model", "eagle", "early_exit"])
def test_the_engine_is_lossless_on_native_kernels(tiny, method):
    target = make_model(CONFIGS["llama"], native=True)
    draft = {"draft_model": tiny["draft"], "eagle": EagleWeights.random(target)}.get(method)
    requests = [EngineRequest(f"r{i}", list(range(2, 4 + 6 * i)), SamplingParams(max_tokens=20))
                for i in range(7)]

    def answers(model, method, k, draft, **options):
        settings = DecoderOptions(method=method, num_speculative_tokens=k, max_num_seqs=3,
                                  max_model_len=100, max_num_batched_tokens=9, **options)
        engine = Engine(model, settings, draft=draft)
        return [r.token_ids for r in engine.run((0.0, r) for r in requests)]

    want = answers(tiny["llama"], "none", 0, None)
    assert answers(target, "none", 0, None) == want
    assert answers(target, method, 3, draft) == want
    late = {"readback_lag": 1, "trim_drafts": False}
    assert answers(target, method, 3, draft, **late) == want
    assert answers(target, method, 3, draft, page_size=16) == want


def test_positions_outside_the_page_write_inside_it():
    harness = SlotHarness(make_model(CONFIGS["llama"], native=True), slots=3, tokens=16)
    before = harness.cache.data.clone()
    harness.verify([1], [[4, 5]], [14])
    harness.verify([1], [[4]], [15])
    changed = (harness.cache.data != before).flatten(2).any(2).any(0)
    assert changed.tolist() == [False, True, False]


def test_without_numba_asking_for_native_kernels_is_an_error(monkeypatch):
    monkeypatch.setattr(native_ops, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"specsim-llm\[fast\]"):
        make_model(CONFIGS["llama"], native=True)
