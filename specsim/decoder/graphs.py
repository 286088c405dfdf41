"""Running the phases of a step: eagerly, or as CUDA graphs per (batch bucket, mode).

Both runners have one call, `run(slots, bound, mode, clock) -> record`.

Graphs: draft, verify and sample are captured separately, so events between replays time the phases.
A batch is padded with the scratch slot. Capture runs on scratch rows (which are finished, so
nothing is committed), after warm-up runs on a side stream that let Triton and cuBLAS initialise.
Buckets are captured when first needed; `capture_all` does so ahead, largest first, so that smaller
graphs reuse the pool's memory. What crosses phases is copied to buffers outside the pool, because
a replay of another graph may reuse the pool's memory. Bounds that eager steps take from the host
are the maximum here; the attention kernel reads lengths on the device.

What touches CUDA is in `CudaCapture`. Its twin `Capture` replays a phase by running it again, so
that padding, buffers, staging and bounds of the graph runner are tested where no GPU is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from specsim.decoder.attention import BatchRows
from specsim.decoder.drafters.base import Proposal
from specsim.decoder.sampling import SamplingMode
from specsim.decoder.step import HEADER, PROPOSED, Step
from specsim.decoder.timing import PhaseClock

T = TypeVar("T")
_WARMUPS = 3
_STAGING = 4  # more than the steps that can be in flight


def make_rows(
    slots: Sequence[int], bound: int, device: torch.device, exact: bool, bucket: int = 0,
    scratch: int = 0,
) -> BatchRows:
    """Rows of the slots, padded with the scratch slot to `bucket`."""
    padded = list(slots) + [scratch] * (bucket - len(slots))
    lo, hi = padded[0], padded[-1] + 1
    contiguous = padded == list(range(lo, hi))
    index = torch.tensor(padded, dtype=torch.int64).to(device, non_blocking=True)
    return BatchRows(index, bound, (lo, hi) if contiguous else None, exact and len(padded) == 1,
                tuple(padded))


class EagerRunner:
    """run(): one decode step of `slots`; rows of the record beyond len(slots) are padding.

    exact: the host knows every length (readback lag 0). bucket: padded batch, None for as is.

    trim: verify no more positions than the longest proposal of the batch; needs exact.
    """

    def __init__(
        self, step: Step, exact: bool, trim: bool, bucket: Callable[[int], int] | None = None
    ) -> None:
        self._step, self._exact, self._trim, self._bucket = step, exact, trim, bucket
        self.last_q_len = 1

    def run(
        self, slots: Sequence[int], bound: int, mode: SamplingMode, clock: PhaseClock
    ) -> Tensor:
        step = self._step
        device = step.state.n.device
        bucket = self._bucket(len(slots)) if self._bucket else 0
        rows = make_rows(slots, bound, device, self._exact, bucket, step.state.scratch)
        proposal = step.draft(rows, mode)
        full = proposal.tokens.shape[1]
        if self._trim and proposal.lengths is not None:
            proposal = _trimmed(proposal)
        clock.mark("draft")
        logits = step.verify(rows, proposal.tokens)
        clock.mark("verify")
        record = step.sample(rows, proposal, logits, mode)
        clock.mark("sample")
        self.last_q_len = proposal.tokens.shape[1] + 1
        return record if self.last_q_len == full + 1 else widened(record, self.last_q_len - 1, full)


def _trimmed(proposal: Proposal) -> Proposal:
    assert proposal.lengths is not None
    longest = int(proposal.lengths.max())
    probs = proposal.probs if proposal.probs is None else proposal.probs[:, :longest]
    return Proposal(proposal.tokens[:, :longest], probs, proposal.lengths)


def widened(record: Tensor, k: int, full: int) -> Tensor:
    """A record of k drafts in the layout of `full` drafts (missing columns 0)."""
    gap = record.new_zeros((record.shape[0], full - k))
    head = PROPOSED + 2
    emitted, drafts = record[:, : head + k + 1], record[:, head + k + 1 :]
    return torch.cat((emitted, gap, drafts, gap), dim=1)


class NoEvent:
    """A point in the work of a device that has always done what it was told."""

    def record(self) -> None:
        return

    def synchronize(self) -> None:
        return


class Capture:
    """Turns a phase, a function of fixed buffers, into something that can be replayed: here by
    running it again, which is the twin of `CudaCapture`."""

    def capture(self, phase: Callable[[], None]) -> Callable[[], None]:
        self.warm(phase)
        return phase

    def warm(self, run: Callable[[], T]) -> T:
        """Run before a capture, often enough; what it returned last."""
        return run()

    def pinned(self, count: int) -> Tensor:
        """int64 [count] on the host that the device can copy from."""
        return torch.empty(count, dtype=torch.int64)

    def event(self) -> NoEvent | torch.cuda.Event:
        return NoEvent()


class CudaCapture(Capture):
    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, phase: Callable[[], None]) -> Callable[[], None]:
        self.warm(phase)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            phase()
        replay: Callable[[], None] = graph.replay
        return replay

    def warm(self, run: Callable[[], T]) -> T:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARMUPS):
                out = run()
        torch.cuda.current_stream().wait_stream(side)
        return out

    def pinned(self, count: int) -> Tensor:
        return super().pinned(count).pin_memory()

    def event(self) -> torch.cuda.Event:
        return torch.cuda.Event()  # type: ignore[no-untyped-call]


class GraphRunner:
    """Phases captured once per bucket and mode, then replayed."""

    def __init__(
        self, step: Step, bucket: Callable[[int], int], max_bound: int, max_bucket: int,
        capture: Capture,
    ) -> None:
        self._step, self._bucket, self._bound, self._capture = step, bucket, max_bound, capture
        device = step.state.n.device
        self._index = torch.full((max_bucket,), step.state.scratch, dtype=torch.int64,
                                 device=device)
        self._staging = [capture.pinned(max_bucket) for _ in range(_STAGING)]
        self._copied = [capture.event() for _ in self._staging]
        self._turn = 0
        self._buffers = PhaseBuffers.new(max_bucket, step.drafter.num_speculative_tokens,
                                     step.target.config.vocab_size, device)
        self._graphs: dict[tuple[int, SamplingMode], _Captured] = {}
        self.last_q_len = step.drafter.num_speculative_tokens + 1

    def capture_all(self, buckets: Sequence[int], mode: SamplingMode) -> None:
        for size in sorted(buckets, reverse=True):
            self._get(size, mode)

    def run(
        self, slots: Sequence[int], bound: int, mode: SamplingMode, clock: PhaseClock
    ) -> Tensor:
        size = self._bucket(len(slots))
        graphs = self._get(size, mode)
        padded = (*slots, *[self._step.state.scratch] * (size - len(slots)))
        self._stage(padded)
        if self._step.drafter.host_side:
            rows = BatchRows(self._index[:size], self._bound, slots=padded)
            graphs.buffers.load(self._step.draft(rows, mode))
        else:
            graphs.draft()
        clock.mark("draft")
        graphs.verify()
        clock.mark("verify")
        graphs.sample()
        clock.mark("sample")
        return graphs.buffers.record

    def _stage(self, slots: Sequence[int]) -> None:
        """Copy the slot ids to the device through a pinned buffer no copy is reading."""
        turn = self._turn
        self._turn = (turn + 1) % len(self._staging)
        buffer, copied = self._staging[turn], self._copied[turn]
        copied.synchronize()
        size = len(slots)
        buffer[:size] = torch.tensor(slots, dtype=torch.int64)
        self._index[:size].copy_(buffer[:size], non_blocking=True)
        copied.record()

    def _get(self, size: int, mode: SamplingMode) -> "_Captured":
        key = (size, mode)
        if key not in self._graphs:
            self._index.fill_(self._step.state.scratch)
            rows = BatchRows(self._index[:size], self._bound)
            self._graphs[key] = _Captured(self._step, rows, mode, self._buffers.rows(size),
                                          self._capture)
        return self._graphs[key]


@dataclass(slots=True)
class PhaseBuffers:
    """What one phase hands to the next, outside any graph's memory; graphs use the first rows.

    One set serves every bucket and mode, since steps run one after another on one stream.
    """

    tokens: Tensor  # int64 [B, k]
    lengths: Tensor  # int64 [B]
    record: Tensor  # int64, as in `step`
    probs: Tensor  # fp32 [B, k, V]
    logits: Tensor  # fp32 [B, k+1, V]

    @classmethod
    def new(cls, capacity: int, k: int, vocab: int, device: torch.device) -> "PhaseBuffers":
        def ints(*shape: int) -> Tensor:
            return torch.zeros((capacity, *shape), dtype=torch.int64, device=device)

        return cls(ints(k), ints(), ints(HEADER + 2 * k + 1),
                   torch.empty((capacity, k, vocab), device=device),
                   torch.empty((capacity, k + 1, vocab), device=device))

    def rows(self, size: int) -> "PhaseBuffers":
        """The first `size` rows of the same memory."""
        return PhaseBuffers(self.tokens[:size], self.lengths[:size], self.record[:size],
                            self.probs[:size], self.logits[:size])

    def load(self, made: Proposal) -> None:
        """Copy a proposal in."""
        self.tokens.copy_(made.tokens, non_blocking=True)
        if made.lengths is not None:
            self.lengths.copy_(made.lengths, non_blocking=True)
        if made.probs is not None:
            self.probs.copy_(made.probs, non_blocking=True)

    def proposal(self, like: Proposal) -> Proposal:
        """The buffered proposal, with the optional parts that `like` has."""
        return Proposal(self.tokens, None if like.probs is None else self.probs,
                        None if like.lengths is None else self.lengths)


def _nothing() -> None:
    """The draft phase of a host drafter, whose proposal is copied in instead."""


class _Captured:
    """The three phases of one bucket and mode, reading and writing `buffers`."""

    def __init__(
        self, step: Step, rows: BatchRows, mode: SamplingMode, buffers: PhaseBuffers,
        capture: Capture,
    ) -> None:
        self.buffers = buffers
        if step.drafter.host_side:
            made = Proposal(buffers.tokens, None, buffers.lengths)
        else:
            made = capture.warm(partial(step.draft, rows, mode))
        proposal = buffers.proposal(made)

        def draft() -> None:
            buffers.load(step.draft(rows, mode))

        def verify() -> None:
            buffers.logits.copy_(step.verify(rows, proposal.tokens))

        def sample() -> None:
            buffers.record.copy_(step.sample(rows, proposal, buffers.logits, mode))

        self.draft = _nothing if step.drafter.host_side else capture.capture(draft)
        self.verify = capture.capture(verify)
        self.sample = capture.capture(sample)
