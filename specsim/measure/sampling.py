"""Part D: verifying drafts and drawing the next token, from fp32 logits to the committed tokens.

The decoder's own `Step.sample` on rows that are finished, so that every repeat starts from the same
state: all its work is done, nothing is committed.
"""

from functools import partial

import torch

from specsim.calibrate.records import Measurement
from specsim.decoder.attention import BatchRows, SlotAttention
from specsim.decoder.drafters.base import NoDraft, Proposal
from specsim.decoder.kv_cache import BlockTable
from specsim.decoder.sampling import SamplingMode
from specsim.decoder.state import SlotState
from specsim.decoder.step import Step
from specsim.measure.models import MeasuredModel
from specsim.measure.session import JobCost, MeasureJob, MeasurePoint, Session, measured

MODES = {
    "greedy": SamplingMode(),
    "temperature": SamplingMode(greedy=False),
    "top_p": SamplingMode(greedy=False, top_p=True),
}
_PASSES = {"greedy": 1, "temperature": 8, "top_p": 75}  # over the logits, for the estimate


def jobs(
    model: MeasuredModel, shapes: tuple[tuple[int, int], ...], draft_probs: bool
) -> list[MeasureJob]:
    """shapes: (rows, k). draft_probs: also with a drafter that gives its distribution."""
    vocab = model.config.vocab_size
    out = []
    for mode in MODES:
        for rows, k in shapes:
            for with_probs in (0, 1) if draft_probs and k and mode != "greedy" else (0,):
                point = MeasurePoint("sample", {"rows": rows, "k": k, "vocab": vocab, "mode": mode,
                                         "draft_probs": with_probs})
                size = 4.0 * rows * (k + 1) * vocab
                work = JobCost(bytes=size * _PASSES[mode], calls=40, setup_bytes=3 * size)
                out.append(MeasureJob("D", (point,), work, (model.name,),
                               partial(_run, point, model.name)))
    return out


def _run(point: MeasurePoint, name: str, session: Session) -> list[Measurement]:
    model, device = session.model(name), session.device
    rows, k, vocab = (int(point.shape[key]) for key in ("rows", "k", "vocab"))
    state = SlotState.new(rows, k + 4, k, device)
    state.temperature.fill_(0.8)
    state.top_p.fill_(0.95)
    state.seed.copy_(torch.arange(rows + 1, device=device))
    table = BlockTable(rows + 1, 1, 1, device)  # not touched: nothing is attended to
    step = Step(model, NoDraft(), state, model.new_cache(1, table, SlotAttention(), layers=1))
    logits = session.normal(rows, k + 1, vocab, dtype=torch.float32).mul_(3.0)
    probs = None
    if point.shape["draft_probs"]:
        probs = session.normal(rows, k, vocab, dtype=torch.float32).softmax(-1)
    drafts = torch.randint(vocab, (rows, k), device=device, generator=session.generator(1))
    proposal = Proposal(drafts, probs)
    call = partial(step.sample, BatchRows(torch.arange(rows, device=device), 2), proposal, logits,
                   MODES[str(point.shape["mode"])])
    return [measured(point, session.time([call]))]
