"""An engine whose requests begin in the middle of their answers.

Timing a step at 64 rows of 4,096 tokens should not cost 262,144 prompt tokens first. `preload` puts
requests where they would be after their prompt: random keys and values in the cache, one token
drawn, state of the drafter set. Kernels, shapes and host work of the following steps are real.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from specsim.calibrate.records import Timing
from specsim.decoder.drafters.eagle import EagleWeights
from specsim.decoder.engine import Engine
from specsim.decoder.options import DecoderOptions, SamplingParams
from specsim.decoder.slots import EngineRequest
from specsim.decoder.timing import StepTiming
from specsim.decoder.transformer import Transformer
from specsim.measure.session import refill
from specsim.measure.timer import RepeatLimits, repeat
from specsim.speculation.acceptance import Acceptance


class PreloadedEngine(Engine):
    """`Engine` with `preload`."""

    def preload(self, seqs: int, ctx: int, max_tokens: int, seed: int = 0) -> None:
        """Admit `seqs` greedy requests with `ctx` tokens in the cache and one pending."""
        device, vocab = self.target.device, self.target.config.vocab_size
        draw = torch.Generator().manual_seed(seed)
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        for row in range(seqs):
            prompt = torch.randint(vocab, (ctx,), generator=draw).tolist()
            self.add(EngineRequest(f"row-{row}", prompt, params))
        self._admit()
        generator = torch.Generator(device).manual_seed(seed)
        state, drafter = self.state, self._step.drafter
        for cache in (self._step.cache, drafter.cache):
            if cache is not None:
                refill(cache.data, generator)
        pending = torch.randint(vocab, (seqs,), generator=draw)
        for slot in self._slots.values():
            index = slot.index
            slot.prompt_done = slot.prompt_len
            slot.known = ctx + 1
            state.token_ids[index, ctx] = pending[index]
            state.n[index] = ctx + 1
        if drafter.needs_hidden:
            state.hidden.normal_(0.0, 1.0, generator=generator)
            state.base[:seqs] = ctx - 1


class StepCase(NamedTuple):
    """Steps to time: seqs rows with ctx tokens in the cache, k drafts each by `method`."""

    method: str
    k: int
    seqs: int
    ctx: int


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Timings of equal steps. ctx: mean tokens in the cache per row over them. cpu_over_wall: CPU
    seconds of this process per wall second meanwhile."""

    wall: Timing
    phases_s: dict[str, float]
    ctx: float
    q_len: int
    cpu_over_wall: float = 0.0


def run_steps(
    target: Transformer, shape: StepCase, limits: RepeatLimits,
    draft: Transformer | EagleWeights | None = None, seed: int = 0,
    use_graphs: bool | None = None, lag: int | None = None,
) -> StepTimes:
    """Time engine steps of equal rows that verify k drafts each, none of which is accepted.

    Forced acceptance of 0 keeps every step alike and the context as short as it was: one token is
    emitted per row and step, the work of drafting and verifying k tokens is done all the same.
    """
    method, k, seqs, ctx = shape
    room = limits.warmups + limits.most + 2
    options = DecoderOptions(
        method=method, num_speculative_tokens=k, max_num_seqs=seqs, readback_lag=lag,
        max_model_len=ctx + room + k + 2, trim_drafts=False,
    )
    acceptance = Acceptance((0.0,) * k) if k else None
    engine = PreloadedEngine(target, options, draft=draft, acceptance=acceptance,
                             use_graphs=use_graphs)
    engine.preload(seqs, ctx, room, seed)
    for _ in range(limits.warmups):
        engine.step()
    engine.timings.clear()
    _, busy = repeat(replace(limits, warmups=0), engine.step, engine.clock)
    return replace(summary(list(engine.timings), seqs), cpu_over_wall=busy)


def summary(timings: list[StepTiming], seqs: int) -> StepTimes:
    """Quantiles over decode steps of `seqs` rows; medians of their phases."""
    kept = [t for t in timings if t.decode_seqs == seqs and not t.prompt_tokens]
    phases = {name for t in kept for name in t.phases_s}
    medians = {
        name: Timing.of(t.phases_s.get(name, 0.0) for t in kept).median_s
        for name in sorted(phases)
    }
    # The last of the known tokens is pending: it is not in the cache yet.
    ctx = sum(t.context_tokens / seqs - 1 for t in kept) / len(kept)
    return StepTimes(Timing.of(t.wall_s for t in kept), medians, ctx, kept[-1].decode_q_len)
