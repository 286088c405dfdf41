"""How much of a device a load uses: share of its bandwidth and of its arithmetic, over the time
that kernels take (docs/planning.md).

Bytes count every operand once, FLOP a multiply-add as 2, both per GPU; peaks are the datasheet's. A
product of FP8 weights counts against the FP8 peak, attention against the 16-bit one. Of a served
load (closed loop) a request ends every 1 / request rate seconds, and its work is

    bytes = steps x step bytes / running + (mixed step - decode step)
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from specsim.analytic.closed import SteadyState, decode_steps
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.latency.breakdown import StepLatency
from specsim.latency.shape import PrefillChunk, StepShape
from specsim.roofline.device import compute_peak

_LINKS = ("all_reduce", "all_gather", "all_to_all")
MAX_CHUNKS = 16  # of one prompt that are priced; evenly spaced ones stand for more


class KernelDemand(NamedTuple):
    """What kernels ask of one GPU: memory traffic, and seconds of arithmetic at the peak."""

    bytes: float
    peak_s: float

    def times(self, factor: float) -> "KernelDemand":
        return KernelDemand(self.bytes * factor, self.peak_s * factor)

    def plus(self, other: "KernelDemand") -> "KernelDemand":
        return KernelDemand(self.bytes + other.bytes, self.peak_s + other.peak_s)

    def minus(self, other: "KernelDemand") -> "KernelDemand":
        return KernelDemand(
            max(0.0, self.bytes - other.bytes), max(0.0, self.peak_s - other.peak_s)
        )


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Shares of the peaks, 0 to 1."""

    bandwidth: float
    compute: float


def demand(system: System, step: StepLatency) -> KernelDemand:
    """What a step's kernels ask. Traffic of links between GPUs is not memory traffic."""
    moved = peak_s = 0.0
    for timed in step.ops:
        op = timed.op
        if op.kind in _LINKS:
            continue
        moved += op.bytes * op.count
        if op.flops:
            fmt = op.fmt if op.kind in ("gemm", "moe") else "bf16"
            peak_s += op.flops * op.count / compute_peak(system.profile, fmt)
    return KernelDemand(moved, peak_s)


def _shares(system: System, asked: KernelDemand, seconds: float) -> Utilisation:
    return Utilisation(
        asked.bytes / (seconds * system.profile.mem_bytes_per_s), asked.peak_s / seconds
    )


def step_utilisation(system: System, shape: StepShape) -> Utilisation:
    """Shares during one step."""
    step = system.latency.step(shape)
    return _shares(system, demand(system, step), step.total_s)


def served_utilisation(system: System, workload: Workload, state: SteadyState) -> Utilisation:
    """Shares over a closed loop in its steady state, prompts included."""
    shape = system.decode_shape(state.running, workload.mean_context)
    decode = KernelDemand(0.0, 0.0)
    for share, step in shape.by_drafts(system.setup.draft_share):
        decode = decode.plus(demand(system, system.latency.step(step)).times(share))
    steps = decode_steps(workload.output_len, system.tokens_per_step)
    asked = decode.times(steps / state.running)
    return _shares(
        system, asked.plus(_prompt_demand(system, workload, shape)), 1 / state.request_rate
    )


def _prompt_demand(system: System, workload: Workload, decode: StepShape) -> KernelDemand:
    """What one prompt adds to the steps it takes part in."""
    prompt = workload.computed_input
    cached = workload.input_len - prompt
    shares_steps = system.mixes and decode.decode_seqs > 1
    room = system.batched_tokens
    if shares_steps:
        room = max(1, room - decode.decode_seqs * decode.decode_q_len)
    count = -(-prompt // room)
    priced = min(count, MAX_CHUNKS)
    alone = demand(system, system.latency.step(decode)) if shares_steps else KernelDemand(0.0, 0.0)
    total = KernelDemand(0.0, 0.0)
    for i in range(priced):
        start = round(i * count / priced) * room
        size = min(room, prompt - start)
        chunk = PrefillChunk(size, cached + start, last=start + size == prompt)
        if shares_steps:
            both = replace(decode, prefill=(chunk,))
        else:
            drafts = decode.num_drafts if chunk.last else 0
            both = StepShape(prefill=(chunk,), num_drafts=drafts)
        total = total.plus(demand(system, system.latency.step(both)).minus(alone))
    return total.times(count / priced)
