"""Serving of equal requests, predicted by the simulation: what `validate run` and `records` judge.

A load is equal requests that come at given times, or from clients in a closed loop, to one replica
of the bundled decoder with a forced, independent acceptance. Its figures:

output_tok_s    tokens of all answers / time from the first arrival to the last token
ttft_s_p50, _p95, tpot_s_p50, _p95   quantiles over requests; TPOT: (last - first token) / (n - 1)
tokens_per_step tokens after the first per sequence and step

Predictions are means over simulations with different draws of acceptance, at the same arrivals.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from specsim.analytic.system import System
from specsim.errors import UsageError
from specsim.hardware.profile import HardwareProfile
from specsim.latency.engine_profile import EngineProfile
from specsim.methods.base import SpecSetup
from specsim.model.spec import Drafter, ModelSpec
from specsim.sim.build import Deployment
from specsim.sim.loads import ClosedLoop, Load, OpenLoop
from specsim.sim.request import FINISHED, Request
from specsim.sim.run import simulate
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.acceptance_spread import INDEPENDENT
from specsim.summary import times_summary

JUDGED = ("output_tok_s", "tpot_s_p50", "ttft_s_p95", "tokens_per_step")
FIGURES = ("output_tok_s", "ttft_s_p50", "ttft_s_p95", "tpot_s_p50", "tpot_s_p95",
           "tokens_per_step")


@dataclass(frozen=True, slots=True)
class ServingLoad:
    """arrivals: seconds from the first request on; empty: `requests` requests by `concurrency`
    clients in a closed loop. alpha: acceptance of each draft, independent."""

    method: str
    k: int
    alpha: float
    max_num_seqs: int
    prompt_len: int
    output_len: int
    arrivals: tuple[float, ...] = ()
    concurrency: int = 0
    requests: int = 0

    def __post_init__(self) -> None:
        if not self.arrivals and (self.concurrency < 1 or self.requests < 1):
            raise UsageError("a load needs arrivals, or clients and a number of requests")

    @property
    def name(self) -> str:
        how = f"c={self.concurrency}" if not self.arrivals else f"{len(self.arrivals)} arrivals"
        return f"{self.method} k={self.k}, {how}" if self.k else f"plain, {how}"


def serving_system(
    spec: ModelSpec, profile: HardwareProfile, engine: EngineProfile, load: ServingLoad,
    kv_dtype: str = "bf16", drafter: Drafter | None = None,
) -> System:
    """The deployment that serves a load."""
    setup, acceptance = SpecSetup(), None
    if load.k:
        setup = SpecSetup(load.method, load.k, drafter)
        acceptance = Acceptance.from_rate(load.alpha, load.k)
    return System(spec, profile, engine, kv_dtype=kv_dtype, setup=setup, acceptance=acceptance,
                  max_num_seqs=load.max_num_seqs)


def seeds_for(load: ServingLoad, first: int = 0) -> range:
    """Seeds of enough simulations that the draws of acceptance average out: 1,000 requests in all,
    5 to 60 runs. first: tells predictions apart that should not share their draws."""
    requests = max(1, len(load.arrivals) or load.requests)
    return range(1000 * first, 1000 * first + min(60, max(5, round(1000 / requests))))


def predict_serving(system: System, load: ServingLoad, seeds: Iterable[int]) -> dict[str, float]:
    """Figures of the load, each a mean over the seeds."""
    deployment = Deployment(system, acceptance_spread=INDEPENDENT, prefix_caching=False)
    found = [_simulated(deployment, load, seed) for seed in seeds]
    return {name: sum(run[name] for run in found) / len(found) for name in found[0]}


def _simulated(deployment: Deployment, load: ServingLoad, seed: int) -> dict[str, float]:
    one = Request(0.0, load.prompt_len, load.output_len)
    source: Load = (
        OpenLoop([one._replace(arrival_s=at) for at in load.arrivals]) if load.arrivals
        else ClosedLoop([one] * load.requests, load.concurrency)
    )
    result = simulate(deployment.config, source, deployment.cost, seed)
    done = [r for r in result.records if r.status == FINISHED]
    if not done:
        raise UsageError("no request was served in the simulation; the model does not fit")
    first = min(r.arrival_s for r in done)
    last = max(r.end_s or 0.0 for r in done)
    tokens = sum(r.output_tokens for r in done)
    steps = sum(r.chunks - 1 for r in done)
    return figures(
        [r.ttft_s or 0.0 for r in done], [r.tpot_s or 0.0 for r in done], tokens, last - first,
        sum(r.output_tokens - 1 for r in done) / max(1, steps),
    )


def figures(
    ttft_s: Sequence[float], tpot_s: Sequence[float], tokens: int, span_s: float,
    tokens_per_step: float,
) -> dict[str, float]:
    """The figures of a run from its requests' times."""
    return {"output_tok_s": tokens / span_s, "tokens_per_step": tokens_per_step,
            **times_summary(ttft_s=ttft_s, tpot_s=tpot_s)}


def measured_figures(
    series: Mapping[str, Sequence[float]], output_len: int, tokens_per_step: float
) -> dict[str, float]:
    """The same of a measured run: series of arrival_s, ttft_s, tpot_s, e2el_s per request."""
    ends = [a + e for a, e in zip(series["arrival_s"], series["e2el_s"], strict=True)]
    span = max(ends) - min(series["arrival_s"])
    return figures(series["ttft_s"], series["tpot_s"], output_len * len(ends), span,
                   tokens_per_step)
