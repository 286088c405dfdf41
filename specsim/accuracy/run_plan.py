"""What `specsim validate run` does on a machine: its loads, their order, and the share of time.

First the grid of `specsim measure` (kernels, whole steps, prompts), then a profile is fitted on the
kernels and prompts, the whole steps are predicted, and each serving load is simulated before it is
served. Loads: clients in a closed loop, and Poisson arrivals at shares of the capacity that the
simulation predicts; plain, and drafted by a one-layer head of random weights with forced acceptance
(a head drafts in every step, unlike an n-gram lookup); each `repeats` times with other arrivals.
"""

import random
from dataclasses import asdict, dataclass
from itertools import accumulate

from specsim.accuracy.run_serving import ServingLoad
from specsim.errors import UsageError

MEASURE_SHARE = 0.45  # of the budget
LEAST_REQUESTS = 8
STEPS_METRIC = "step_s"
# Bars of the full run: metric -> (median error or None, 90th percentile or None)
BARS: dict[str, tuple[float, float | None]] = {
    STEPS_METRIC: (0.08, 0.20),
    "output_tok_s": (0.08, None),
    "tpot_s_p50": (0.10, None),
    "ttft_s_p95": (0.30, None),
}


@dataclass(frozen=True, slots=True)
class RunPlan:
    """models: names that `specsim measure` takes, small to large; the first one serves. methods:
    (method, k). closed: numbers of clients. shares: of the predicted capacity. seconds: of
    arrivals, and about as long for closed loops. short: tiny random models."""

    models: tuple[str, ...]
    grid: str = "full"
    methods: tuple[tuple[str, int], ...] = (("none", 0), ("eagle", 3))
    alpha: float = 0.6
    max_num_seqs: int = 16
    prompt_len: int = 128
    output_len: int = 64
    closed: tuple[int, ...] = (4, 16)
    shares: tuple[float, ...] = (0.3, 0.6, 0.9)
    repeats: int = 3
    measure_s: float = 270.0
    seconds: float = 12.0
    seed: int = 0
    short: bool = False

    @property
    def runs(self) -> int:
        """Serving runs in all."""
        return len(self.methods) * (len(self.closed) + len(self.shares)) * self.repeats

    def to_dict(self) -> dict[str, object]:
        """What a work folder belongs to: all but the times, which follow from the budget."""
        return {
            name: value for name, value in asdict(self).items()
            if name not in ("measure_s", "seconds")
        }


def full_plan(
    budget_s: float, models: tuple[str, ...], seed: int = 0, grid: str = "full", repeats: int = 3
) -> RunPlan:
    """The plan for a budget; UsageError when it is too short for its serving runs."""
    bare = RunPlan(models, grid, seed=seed, repeats=repeats)
    seconds = (1 - MEASURE_SHARE) * budget_s / bare.runs * 0.8  # a run also ends and warms up
    if seconds < 3.0:
        raise UsageError(
            f"--budget of {budget_s:g} s leaves {seconds:.1f} s for each of {bare.runs} serving "
            "runs; give at least 4m, or --short for a quick check"
        )
    return RunPlan(models, grid, seed=seed, repeats=repeats, measure_s=MEASURE_SHARE * budget_s,
                   seconds=min(40.0, seconds))


def short_plan(seed: int = 0) -> RunPlan:
    """Under a minute with two tiny models: whether everything works, not how exact it is."""
    return RunPlan(
        ("tiny", "tiny-wide"), "small", methods=(("none", 0), ("eagle", 3)), max_num_seqs=4,
        prompt_len=16, output_len=24, closed=(4,), shares=(0.6,), repeats=1, measure_s=30.0,
        seconds=2.0, seed=seed, short=True,
    )


def load_for(
    plan: RunPlan, method: tuple[str, int], *, share: float = 0.0, clients: int = 0,
    capacity_req_s: float = 1.0, repeat: int = 0,
) -> ServingLoad:
    """A closed loop of `clients`, or Poisson arrivals at `share` of the capacity."""
    name, k = method
    if clients:
        count = max(LEAST_REQUESTS, 2 * clients, round(
            capacity_req_s * plan.seconds * min(1.0, clients / plan.max_num_seqs)))
        return ServingLoad(name, k, plan.alpha, plan.max_num_seqs, plan.prompt_len,
                           plan.output_len, (), clients, count)
    rate = share * capacity_req_s
    rng = random.Random(f"{plan.seed} {name} {k} {share} {repeat}")
    count = max(LEAST_REQUESTS, round(rate * plan.seconds))
    gaps = [0.0, *(rng.expovariate(rate) for _ in range(count - 1))]
    return ServingLoad(name, k, plan.alpha, plan.max_num_seqs, plan.prompt_len, plan.output_len,
                       tuple(accumulate(gaps)))
