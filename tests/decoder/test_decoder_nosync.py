"""No phase of a step makes the host wait for a tensor.

A whole step runs under FakeTensorMode, where tensors have shapes but no values: anything that needs
a value (.item(), bool(t), x[mask], nonzero, .tolist(), repeat_interleave) raises. A dispatch mode
also refuses multinomial, whose CUDA version synchronises. On CUDA the same step runs under
torch.cuda.set_sync_debug_mode("error").
"""

import pytest
import torch
from thinned import diagonal
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from decoder_helpers import CONFIGS, DRAFT, make_model
from specsim.decoder.attention import BatchRows
from specsim.decoder.drafters.base import Proposal
from specsim.decoder.drafters.eagle import EagleWeights
from specsim.decoder.engine import Engine
from specsim.decoder.options import DecoderOptions
from specsim.decoder.sampling import SamplingMode

REFUSED = {"aten::multinomial", "aten::_local_scalar_dense", "aten::nonzero", "aten::equal"}
MODES = {
    "greedy": SamplingMode(),
    "mixed": SamplingMode(greedy=False, mixed=True, top_k_max=20, top_p=True),
}
METHODS = {
    "none": 0, "draft_model": 4, "eagle": 3, "eagle_vocab": 3, "ngram": 4, "early_exit": 2,
}


class NoSync(TorchDispatchMode):
    """Refuses ops that read a value on the host."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._schema.name in REFUSED:
            raise AssertionError(f"{func._schema.name} synchronises")
        return func(*args, **(kwargs or {}))


def engine_for(method, family, page_size, forced=False):
    # The shape rules of grouped_mm know bf16 only.
    dtype = torch.bfloat16 if family == "qwen3_moe" else torch.float32
    target = make_model(CONFIGS[family], dtype=dtype, linear="plain", static=True)
    draft = None
    if method == "draft_model":
        draft = make_model(DRAFT, dtype=dtype, linear="plain", static=True)
    elif method.startswith("eagle"):
        draft = EagleWeights.random(target, vocab_size=40 if method == "eagle_vocab" else 0)
    name = "eagle" if method == "eagle_vocab" else method
    options = DecoderOptions(
        method=name, num_speculative_tokens=METHODS[method], max_num_seqs=4, max_model_len=64,
        page_size=page_size, readback_lag=1, trim_drafts=False,
    )
    engine = Engine(target, options, draft=draft)
    if forced:
        from specsim.speculation.acceptance import Acceptance

        engine._step.force(Acceptance.from_rate(0.5, METHODS[method]))
    return engine


def one_step(engine, mode):
    step = engine._step
    rows = BatchRows(torch.tensor([0, 2, 3]), bound=30)
    proposal = step.draft(rows, mode)
    logits = step.verify(rows, proposal.tokens)
    return step.sample(rows, proposal, logits, mode)


@pytest.mark.parametrize(("method", "page_size", "mode"), diagonal(METHODS, [0, 16], MODES, most=2))
def test_a_step_needs_no_value_on_the_host(method, page_size, mode):
    with FakeTensorMode():
        engine = engine_for(method, "llama", page_size)
        with torch.inference_mode(), NoSync():
            record = one_step(engine, MODES[mode])
    k = METHODS[method]
    assert record.shape == (3, 4 + k + 1 + k)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen2", "qwen3", "qwen3_moe"])
def test_every_family_and_forced_acceptance(family):
    with FakeTensorMode():
        engine = engine_for("draft_model", family, 16, forced=True)
        with torch.inference_mode(), NoSync():
            assert one_step(engine, MODES["greedy"]).shape == (3, 13)


@pytest.mark.parametrize(
    "sync",
    [
        lambda t: t.sum().item(),
        lambda t: bool(t.any()),
        lambda t: t[t > 1],
        lambda t: t.tolist(),
        lambda t: torch.multinomial(t.float() + 1, 1),
    ],
)
def test_the_guard_catches_a_sync(sync):
    with FakeTensorMode():
        engine = engine_for("draft_model", "llama", 16)
        draft = engine._step.drafter.propose

        def synchronising(rows, mode):
            proposal = draft(rows, mode)
            sync(proposal.tokens)
            return Proposal(proposal.tokens)

        engine._step.drafter.propose = synchronising
        with torch.inference_mode(), NoSync(), pytest.raises(Exception, match=r"."):
            one_step(engine, MODES["greedy"])


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_on_cuda_no_step_synchronises(method):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    target = make_model(CONFIGS["llama"], device="cuda")
    draft = make_model(DRAFT, device="cuda") if method == "draft_model" else None
    if method.startswith("eagle"):
        draft = EagleWeights.random(target)
    options = DecoderOptions(method="eagle" if method == "eagle_vocab" else method,
                             num_speculative_tokens=METHODS[method], max_num_seqs=4,
                             max_model_len=64)
    engine = Engine(target, options, draft=draft, use_graphs=False)
    rows = BatchRows(torch.tensor([0, 1, 2], device="cuda"), bound=30)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(20):
            proposal = engine._step.draft(rows, MODES["greedy"])
            logits = engine._step.verify(rows, proposal.tokens)
            engine._step.sample(rows, proposal, logits, MODES["greedy"])
    finally:
        torch.cuda.set_sync_debug_mode("default")
