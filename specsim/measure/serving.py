"""Part H: the decoder serving requests against the clock.

First all requests at once, which gives the capacity in requests per second; then Poisson arrivals
at shares of it. Acceptance is forced, so that a simulation can be made with exactly the same
acceptance, arrivals and lengths; every request's times are kept.
"""

import random
import time
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Protocol

from specsim.calibrate.records import Measurement, Timing
from specsim.decoder.engine import Engine
from specsim.decoder.graphs import GraphRunner
from specsim.decoder.options import DecoderOptions, SamplingParams
from specsim.decoder.sampling import SamplingMode
from specsim.decoder.slots import EngineRequest, RequestResult
from specsim.measure.models import MeasuredModel
from specsim.measure.session import JobCost, MeasureJob, MeasurePoint, Session, measured
from specsim.measure.timer import Timed, cpu_ratio
from specsim.speculation.acceptance import Acceptance
from specsim.summary import times_summary

_LEAST_REQUESTS = 8


@dataclass(frozen=True, slots=True)
class DecoderLoad:
    """Equal requests of prompt_len and output_len tokens; acceptance: i.i.d. rate per draft.

    burst: requests of the capacity run, all at once. seconds: how long arrivals last under each
    other load.
    """

    method: str
    k: int
    acceptance: float
    max_num_seqs: int
    prompt_len: int
    output_len: int
    burst: int
    seconds: float


class ServedLoad(Protocol):
    """What the loads of `specsim measure` and `validate run` have in common."""

    @property
    def method(self) -> str: ...
    @property
    def k(self) -> int: ...
    @property
    def max_num_seqs(self) -> int: ...
    @property
    def prompt_len(self) -> int: ...
    @property
    def output_len(self) -> int: ...


def options_for(load: ServedLoad, seed: int) -> DecoderOptions:
    """Those of an engine for such loads."""
    return DecoderOptions(
        method=load.method, num_speculative_tokens=load.k, max_num_seqs=load.max_num_seqs,
        max_model_len=load.prompt_len + load.output_len + 1, seed=seed, trim_drafts=False,
    )


def any_request(load: ServedLoad, vocab: int, number: int, rng: random.Random) -> EngineRequest:
    """A request of the load. Any ids do, since acceptance is forced."""
    prompt = [rng.randrange(vocab) for _ in range(load.prompt_len)]
    params = SamplingParams(max_tokens=load.output_len, ignore_eos=True)
    return EngineRequest(f"request-{number}", prompt, params)


@dataclass(slots=True)
class _Server:
    """The jobs of one load share it: capacity is known after the first."""

    model: str
    vocab: int
    load: DecoderLoad
    capacity: list[float] = field(default_factory=list)

    def run(self, point: MeasurePoint, session: Session) -> list[Measurement]:
        load, share = self.load, float(point.shape["load"])
        rng = random.Random(f"{session.seed} {share}")
        engine = self._engine(session)
        self._burst(engine, rng, count=1)  # a warm-up
        if share and not self.capacity:  # a continued run, whose first part has that record
            begun = time.perf_counter()
            done = self._burst(engine, rng, load.burst)
            self.capacity.append(len(done) / (time.perf_counter() - begun))
        rate = share * self.capacity[0] if share else 0.0
        arrivals = [0.0] * load.burst
        if share:
            count = max(_LEAST_REQUESTS, round(rate * load.seconds))
            arrivals = list(accumulate(rng.expovariate(rate) for _ in range(count)))
        steps, drafts = engine.stats.num_steps, engine.stats.num_row_steps
        cpu, begun = time.process_time(), time.perf_counter()
        done = engine.run(
            [(at, any_request(load, self.vocab, i, rng)) for i, at in enumerate(arrivals)])
        wall = time.perf_counter() - begun
        busy = cpu_ratio(cpu, wall)
        if not share:
            self.capacity.append(len(done) / wall)
        values = _values(done, wall)
        values |= {"rate_req_s": rate, "steps": engine.stats.num_steps - steps,
                   "tokens_per_step": (sum(len(r.token_ids) - 1 for r in done)
                                       / max(1, engine.stats.num_row_steps - drafts))}
        timed = Timed(Timing.of(r.finished_s - r.arrival_s for r in done), busy)
        return [replace(measured(point, timed, **values), series=series_of(done))]

    def _engine(self, session: Session) -> Engine:
        load = self.load
        options = options_for(load, session.seed)
        acceptance = Acceptance.from_rate(load.acceptance, load.k) if load.k else None
        engine = Engine(session.model(self.model), options, acceptance=acceptance)
        if isinstance(engine.runner, GraphRunner):  # captures must not fall into the timed run
            most = options.bucket(load.max_num_seqs)
            sizes = [size for size in options.batch_buckets if size <= most]
            engine.runner.capture_all(sizes, SamplingMode())
        return engine

    def _burst(self, engine: Engine, rng: random.Random, count: int) -> list[RequestResult]:
        return engine.run(
            [(0.0, any_request(self.load, self.vocab, i, rng)) for i in range(count)])


def jobs(
    model: MeasuredModel, load: DecoderLoad, shares: tuple[float, ...], dtype: str
) -> list[MeasureJob]:
    """shares of the capacity, 0 for all at once. Empty where the model has too few positions."""
    if load.prompt_len + load.output_len + load.k + 2 > model.config.max_position:
        return []
    server = _Server(model.name, model.config.vocab_size, load)
    out = []
    for share in shares:
        point = MeasurePoint("serving", {
            "model": model.name, "method": load.method, "k": load.k,
            "max_num_seqs": load.max_num_seqs, "prompt_len": load.prompt_len,
            "output_len": load.output_len, "load": share, "acceptance": load.acceptance,
            "dtype": dtype,
        })
        work = JobCost(extra_s=1.5 * load.seconds)
        out.append(MeasureJob("H", (point,), work, (model.name,), partial(server.run, point)))
    return out


def _values(done: list[RequestResult], wall: float) -> dict[str, float]:
    tokens = sum(len(r.token_ids) for r in done)
    return {"requests": float(len(done)), "wall_s": wall, "output_tok_s": tokens / wall,
            "request_rate_s": len(done) / wall,
            **times_summary(ttft_s=[r.ttft_s for r in done], tpot_s=[r.tpot_s for r in done])}


def series_of(done: list[RequestResult]) -> dict[str, list[float]]:
    """One value per request, in their order; arrivals from the first one's on."""
    first = min(r.arrival_s for r in done)
    return {
        "arrival_s": [round(r.arrival_s - first, 6) for r in done],
        "ttft_s": [round(r.ttft_s, 6) for r in done],
        "tpot_s": [round(r.tpot_s, 6) for r in done],
        "e2el_s": [round(r.finished_s - r.arrival_s, 6) for r in done],
    }
