"""How much of a device a load uses: share of its bandwidth and of its arithmetic, over the time
that kernels take (docs/planning.md).

Bytes count every operand once, FLOP a multiply-add as 2, both per GPU; peaks are the datasheet's. A
product of FP8 weights counts against the FP8 peak, attention against the 16-bit one. Of a served
load (closed loop) a request ends every 1 / request rate seconds, and its work is

    bytes = steps x step bytes / running + (mixed step - decode step)
"""

from dataclasses import dataclass, replace

from specsim.analytic.closed import SteadyState, decode_steps
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.latency.power import KernelDemand
from specsim.latency.shape import PrefillChunk, StepShape

MAX_CHUNKS = 16  # of one prompt that are priced; evenly spaced ones stand for more

Steps = list[tuple[float, StepShape]]  # (how many, of which shape)


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Shares of the peaks, 0 to 1."""

    bandwidth: float
    compute: float


def _shares(system: System, asked: KernelDemand, seconds: float) -> Utilisation:
    return Utilisation(
        asked.bytes / (seconds * system.profile.mem_bytes_per_s), asked.peak_s / seconds
    )


def step_utilisation(system: System, shape: StepShape) -> Utilisation:
    """Shares during one step."""
    asked = system.latency.demand(shape)
    return _shares(system, asked, asked.wall_s)


def served_utilisation(system: System, workload: Workload, state: SteadyState) -> Utilisation:
    """Shares over a closed loop in its steady state, prompts included."""
    decode, prompts = served_steps(system, workload, state.running)
    asked = KernelDemand()
    for count, shape in decode + prompts:
        asked = asked.plus(system.latency.demand(shape).times(count))
    return _shares(system, asked, 1 / state.request_rate)


def served_steps(system: System, workload: Workload, running: float) -> tuple[Steps, Steps]:
    """One request's share of the steps of a replica with so many running: of decode steps, and of
    those that its prompt takes part in (beside decoding: with the prompt, less without)."""
    shape = system.decode_shape(running, workload.mean_context)
    each = decode_steps(system, workload.output_len) / running
    decode = [(each * share, step) for share, step in shape.by_drafts(system.draft_share)]
    return decode, [] if workload.computed_elsewhere else _prompt_steps(system, workload, shape)


def _prompt_steps(system: System, workload: Workload, decode: StepShape) -> Steps:
    """What one prompt adds to the steps it takes part in."""
    prompt = workload.computed_input
    cached = workload.input_len - prompt
    shares_steps = system.mixes and decode.decode_seqs > 1
    room = system.group_tokens
    if shares_steps:
        group = -(-decode.decode_seqs // system.parallel.attention_dp)
        room = max(1, room - group * decode.decode_q_len)
    count = -(-prompt // room)
    priced = min(count, MAX_CHUNKS)
    weight = count / priced
    found: Steps = [(-float(count), decode)] if shares_steps else []
    for i in range(priced):
        start = round(i * count / priced) * room
        size = min(room, prompt - start)
        chunk = PrefillChunk(size, cached + start, last=start + size == prompt)
        if shares_steps:
            both = replace(decode, prefill=(chunk,))
        else:
            drafts = decode.num_drafts if chunk.last else 0
            both = StepShape(prefill=(chunk,), num_drafts=drafts)
        found.append((weight, both))
    return found
