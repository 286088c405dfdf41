"""A deployment at one load beside the same deployment without speculation."""

from dataclasses import dataclass

from specsim.analytic.apart import Apart, apart_open, decode_load
from specsim.analytic.closed import SteadyState, closed_loop
from specsim.analytic.open import OpenState, open_loop
from specsim.analytic.system import System
from specsim.analytic.workload import Workload


@dataclass(frozen=True, slots=True)
class Compared:
    """found: what the deployment does; base: plain decoding. state, base_state: their steady
    states (in an open loop those of the batch that keeps up).

    speedup: output tokens per second over plain decoding; in an open loop that both sustain, where
    both serve the same tokens, TPOT without / with. step_cost_ratio: r, both sides stepping the
    same sequences."""

    found: SteadyState | OpenState
    base: SteadyState | OpenState
    state: SteadyState
    base_state: SteadyState
    speedup: float
    step_cost_ratio: float


def compared(
    system: System, workload: Workload, clients: int = 1, rate: float | None = None,
    apart: Apart | None = None,
) -> Compared:
    """Both sides with so many clients (closed loop), or at a rate (open loop). apart: prompts are
    computed by replicas of their own, at a rate."""
    plain = system.plain()
    if rate is None:
        state = closed_loop(system, workload, clients)
        base = closed_loop(plain, workload, clients) if system.speculative else state
        speedup = state.output_tok_s / base.output_tok_s
        ratio = _step_ratio(plain, workload, state, base)
        return Compared(state, base, state, base, speedup, ratio)
    found = at_rate(system, workload, rate, apart)
    alone = found
    if system.speculative:
        alone = at_rate(plain, workload, rate, apart.plain() if apart is not None else None)
    if found.stable and alone.stable:
        speedup = alone.tpot_s / found.tpot_s if found.tpot_s > 0 else 1.0
    else:
        speedup = found.output_tok_s / alone.output_tok_s
    seen = workload if apart is None else decode_load(workload)
    ratio = _step_ratio(plain, seen, found.state, alone.state)
    return Compared(found, alone, found.state, alone.state, speedup, ratio)


def at_rate(
    system: System, workload: Workload, rate: float, apart: Apart | None
) -> OpenState:
    """The steady state of one side, whether or not prompts are computed apart."""
    if apart is None:
        return open_loop(system, workload, rate)
    return apart_open(apart, system, workload, rate)


def _step_ratio(
    plain: System, workload: Workload, state: SteadyState, base: SteadyState
) -> float:
    """r of `state`: `base` may run more sequences (an engine that admits fewer under speculation,
    a server that keeps up with fewer)."""
    if base.running != state.running:
        base = closed_loop(plain, workload, max(1, round(state.running)))
    return state.step_s / base.step_s
