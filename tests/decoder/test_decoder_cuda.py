"""Checks that need a CUDA device, in the order a first run on one should make them.

Their logic has twins that run everywhere: the attention twin against loops (test_decoder_kernels),
padding to buckets, and the engine's equality with plain decoding (test_decoder_engine).
"""

import pytest
import torch

from decoder_helpers import CONFIGS, DRAFT, make_model
from specsim.decoder import kernels
from specsim.decoder.attention import auto_splits
from specsim.decoder.engine import Engine
from specsim.decoder.kernels import verify_attention
from specsim.decoder.options import DecoderOptions, SamplingParams
from specsim.decoder.slots import EngineRequest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SHAPES = [  # batch, q_len, kv_heads, group, head_dim, longest
    (1, 1, 8, 4, 128, 300), (1, 5, 8, 4, 128, 4096), (4, 4, 1, 16, 128, 2000),
    (8, 8, 8, 4, 128, 1024), (64, 1, 8, 4, 128, 512), (3, 5, 2, 7, 64, 129),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_1_triton_attention_equals_its_twin(shape, dtype):
    batch, q_len, kv_heads, group, dim, longest = shape
    page = 64
    each = -(-longest // page)
    generator = torch.Generator("cuda").manual_seed(0)
    kv = torch.randn((1 + batch * each, 2, kv_heads, page, dim), device="cuda",
                     generator=generator).to(dtype)
    q = torch.randn((batch, q_len, kv_heads * group, dim), device="cuda",
                    generator=generator).to(dtype)
    pages = (1 + torch.randperm(batch * each, device="cuda", generator=generator)).view(batch, -1)
    lengths = torch.randint(q_len, longest + 1, (batch,), device="cuda", generator=generator).int()
    want = kernels.verify_attention_torch(q, kv, pages, lengths, dim**-0.5, 1)
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2
    for splits in (1, 4, auto_splits(batch, kv_heads)):
        got = verify_attention(True)(q, kv, pages, lengths, dim**-0.5, splits)
        assert (got.float() - want.float()).abs().max() < tolerance


def answers(use_graphs, method="draft_model", dtype=torch.float32, same=False):
    target = make_model(CONFIGS["llama"], dtype=dtype, device="cuda")
    draft = None
    if method == "draft_model":
        draft = target if same else make_model(DRAFT, dtype=dtype, device="cuda")
    options = DecoderOptions(method=method, num_speculative_tokens=3 if method != "none" else 0,
                             max_num_seqs=5, max_model_len=128)
    engine = Engine(target, options, draft=draft, use_graphs=use_graphs)
    results = engine.run((0.0, EngineRequest(f"r{i}", list(range(1, 3 + 5 * i)),
                                       SamplingParams(max_tokens=30))) for i in range(11))
    engine.check_integrity()
    return [r.token_ids for r in results], engine


@pytest.mark.parametrize("method", ["none", "draft_model", "ngram"])
def test_3_graphs_equal_eager(method):
    assert answers(True, method)[0] == answers(False, method)[0]


def test_4_speculation_equals_plain_decoding_and_a_model_accepts_itself():
    plain = answers(True, "none")[0]
    assert answers(True)[0] == plain
    again, engine = answers(True, same=True)
    assert again == plain
    assert engine.stats.acceptance_length == 4.0
