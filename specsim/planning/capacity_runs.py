"""Replications of a deployment under an amount of load, in this process or in several.

A `Trial` names a run: which side (with speculation or without), how many slots (max_num_seqs), how
much load, which seed. What comes back is the summary of `sim.summary`. A trial's summary depends on
nothing else, so it does not matter which process ran it or in which order; decisions are made from
waves of a fixed size for the same reason.

Worker processes are forked, so that they begin with all that was priced before; where a system
cannot fork, everything runs in this process.
"""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field

from specsim.analytic.apart import Apart
from specsim.analytic.system import System
from specsim.planning.capacity_loads import LoadShape, People
from specsim.planning.executors.local import begin_worker
from specsim.sim.build import Deployment
from specsim.sim.figures import Figures, value_at
from specsim.sim.run import simulate
from specsim.speculation.acceptance_spread import AcceptanceSpread

WITH, WITHOUT = "with", "without"
Summary = Figures
Heard = Callable[["Trial", Summary], None]


@dataclass(frozen=True, slots=True)
class Trial:
    """One run. slots: max_num_seqs; 0: as the deployment has it. shape: index of the load shape of
    the study (0: the load whose capacity is looked for; others are asked about besides)."""

    side: str
    slots: int
    amount: float
    seed: int
    shape: int = 0


@dataclass(frozen=True)
class Study:
    """What is run: a system under loads of some shapes, judged by gates. settings: further fields
    of `SimConfig` (max_concurrent, max_model_len, ...). prefix_caching: None: as the engine.
    apart: replicas that compute prompts; what is counted is all of both kinds together."""

    system: System
    shapes: tuple[LoadShape, ...]
    slo: dict[str, float]
    settings: tuple[tuple[str, object], ...] = ()
    prefix_caching: bool | None = None
    acceptance_spread: AcceptanceSpread | None = None
    apart: Apart | None = None
    _deployments: dict[tuple[str, int, int], Deployment] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def shape(self) -> LoadShape:
        return self.shapes[0]

    @property
    def gpus(self) -> int:
        """GPUs of what is counted: a replica, or all of both kinds."""
        own = self.system.parallel.all_gpus
        return own if self.apart is None else self.apart.gpus(self.system)

    def apart_of(self, side: str) -> Apart | None:
        return self.apart if self.apart is None or side == WITH else self.apart.plain()

    def system_of(self, side: str, slots: int = 0) -> System:
        """The deployment of one side with other slots; priced steps are shared."""
        system = self.system if side == WITH else self.system.plain()
        return system.with_(max_num_seqs=slots or system.max_num_seqs)

    def deployment(self, side: str, slots: int = 0, shape: int = 0) -> Deployment:
        key = (side, slots, shape)
        found = self._deployments.get(key)
        if found is None:
            load = self.shapes[shape]
            settings = {
                **dict(self.settings),
                "duration_s": load.duration_s,
                "warmup_s": load.warmup_s,
                "slo": self.slo,
            }
            found = self._deployments[key] = Deployment(
                self.system_of(side, slots), context_variation=load.context_variation,
                acceptance_spread=self.acceptance_spread if side == WITH else None,
                prefix_caching=self.prefix_caching, apart=self.apart_of(side),
                settings=tuple(settings.items()),
            )
        return found

    def run(self, trial: Trial) -> Summary:
        """The summary of one run. KeyboardInterrupt if it was cut short."""
        deployment = self.deployment(trial.side, trial.slots, trial.shape)
        load = self.shapes[trial.shape].make(trial.amount, trial.seed)
        result = simulate(
            deployment.config, load, deployment.cost, trial.seed,
            prefill_cost=deployment.prefill_cost,
        )
        if result.partial:
            raise KeyboardInterrupt
        return result.summary(completed=isinstance(self.shapes[trial.shape], People))


_study: Study | None = None  # of a worker process; set before it is forked


def _run(trial: Trial) -> Summary:
    assert _study is not None
    return _study.run(trial)


def default_jobs() -> int:
    """Processes worth starting: two at most, one where forking is not possible."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return 1
    return max(1, min(2, os.cpu_count() or 1))


class Runner:
    """Runs trials and keeps their summaries. Use it as a context manager."""

    def __init__(self, study: Study, jobs: int = 1, heard: Heard | None = None) -> None:
        self.study = study
        self._jobs = jobs if "fork" in multiprocessing.get_all_start_methods() else 1
        self._heard = heard
        self._known: dict[Trial, Summary] = {}
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    @property
    def count(self) -> int:
        """Runs done so far."""
        return len(self._known)

    def summaries(self, trials: Sequence[Trial]) -> list[Summary]:
        """The summaries of these trials, run now where they are not known."""
        missing = [trial for trial in trials if trial not in self._known]
        if self._jobs > 1 and len(missing) > 1 and self._pool is None:
            # One here first: workers begin with the steps that it priced.
            first = missing.pop(0)
            self._keep(first, self.study.run(first))
        if self._jobs > 1 and len(missing) > 1:
            try:
                for trial, summary in zip(missing, self._start().map(_run, missing), strict=True):
                    self._keep(trial, summary)
            except BrokenProcessPool:  # a worker was killed, most likely for its memory
                self._jobs = 1
        for trial in missing:
            if trial not in self._known:
                self._keep(trial, self.study.run(trial))
        return [self._known[trial] for trial in trials]

    def _keep(self, trial: Trial, summary: Summary) -> None:
        self._known[trial] = summary
        if self._heard is not None:
            self._heard(trial, summary)

    def _start(self) -> ProcessPoolExecutor:
        global _study  # noqa: PLW0603 (what a forked worker begins with)
        if self._pool is None:
            _study = self.study
            self._pool = ProcessPoolExecutor(
                self._jobs, multiprocessing.get_context("fork"), begin_worker
            )
        return self._pool


def mean_of(summaries: Sequence[Summary], path: str) -> float | None:
    """Mean of a figure by dotted name; None where a run has none."""
    values = [value_at(summary, path) for summary in summaries]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
