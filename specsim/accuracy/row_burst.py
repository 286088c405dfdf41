"""A burst that the cache does not hold, which no steady state describes: it is simulated.

All requests come at once; those that do not fit wait for the memory of others, and the batch
shrinks at the end. Same requests, same draws (seed 0), so that both sides of a row differ by the
system alone.
"""

from dataclasses import replace

from specsim.accuracy.rows import PublishedCase
from specsim.analytic.closed import SteadyState, running_limit
from specsim.analytic.system import System
from specsim.sim.build import Deployment
from specsim.sim.loads import OpenLoop
from specsim.sim.request import Request
from specsim.sim.run import simulate

SHARED = 0  # key of the piece that all prompts begin with, where some of it is cached


def overflows(system: System, case: PublishedCase) -> bool:
    """Whether the row is one burst of more requests than run together."""
    limit = running_limit(system.with_(max_num_seqs=0), case.workload)
    return case.arrives == "burst" and limit < case.concurrency


def burst(system: System, case: PublishedCase, state: SteadyState) -> SteadyState:
    """`state` with the times and rates of the simulated burst."""
    load, count = case.workload, case.concurrency
    cached = load.input_len - load.computed_input
    deployment = Deployment(system.with_(max_num_seqs=0), prefix_caching=cached > 0)
    spans = ((SHARED, cached),) if cached else ()
    requests = [Request(0.0, load.input_len, load.output_len, spans)] * count
    run = simulate(deployment.config, OpenLoop(requests, total=count), deployment.cost)
    found = run.summary()
    ttft_s, tpot_s = found["ttft_s"], found["tpot_s"]
    return replace(
        state,
        ttft_s=ttft_s["mean"] or 0.0,
        typical_ttft_s=ttft_s["p50"] or 0.0,
        tpot_s=tpot_s["mean"] or 0.0,
        output_tok_s=found["output_tok_s"],
    )
