"""`simulate`: one run of a load on a cluster, and what comes out of it.

Seeds: everything random in a run (arrivals, lengths, users, acceptance, router) derives from one
seed; the same configuration, load and seed give the same bytes, compiled or not. Two runs with the
same seed see the same requests and random draws, so that their difference is the system's.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from simpy.core import EmptySchedule

from specsim.errors import UsageError
from specsim.latency.shape import StepCost
from specsim.sim.acceptance import DrawSource, SpreadDraws
from specsim.sim.clock import Clock
from specsim.sim.cluster import Cluster, can_supply
from specsim.sim.config import SimConfig
from specsim.sim.figures import Figures
from specsim.sim.loads import ClosedLoop, Load
from specsim.sim.records import Records
from specsim.sim.state import RunContext
from specsim.sim.summary import Window, summarise
from specsim.sim.surface import Surface

PROGRESS_EVERY_S = 0.2  # wall time
EVENTS_BETWEEN_LOOKS = 64
MAKE_FROM_REQUESTS = 1_000  # making the compiled loop takes a second, once; loading it nothing


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is: simulated time, requests sent and ended, share done if that is known."""

    now_s: float
    arrived: int
    ended: int
    share: float | None


@dataclass(frozen=True, slots=True, eq=False)
class SimResult:
    """A run. partial: it was interrupted, or stopped before its load was through.

    records: one RequestRecord per request.
    """

    config: SimConfig
    seed: int
    window: Window
    partial: bool
    compiled: bool
    cluster: Cluster

    @property
    def records(self) -> Records:
        return self.cluster.records

    def summary(self, *, completed: bool = False) -> Figures:
        """All figures of the run, plain types; completed: see `summary`."""
        return summarise(self.cluster, self.window, partial=self.partial, completed=completed)


class _RunOver(Exception):
    """The run's time is up."""


def simulate(
    config: SimConfig, load: Load, cost: StepCost, seed: int = 0, *,
    prefill_cost: StepCost | None = None, progress: Callable[[Progress], None] | None = None,
    keep_trace: bool = False,
) -> SimResult:
    """Run `load` on the cluster of `config`, with engine steps priced by `cost`.

    prefill_cost: prices the steps of prefill replicas (None: as `cost`). progress: called a few
    times per second of wall time. keep_trace: keep every step for
    `export.write_chrome_trace`. Ctrl-C ends the run early; the result then says that it is partial.

    UsageError or CapacityError for what cannot be run.
    """
    clock, compiled = Clock(), _compile(config, load)
    watch = _Watch(config, load, progress)
    inside = load if isinstance(load, ClosedLoop) and can_supply(config) else None
    apart = config.prefill
    run = RunContext(
        config, draw_source(config, seed, compiled=compiled), Surface.of(config, cost), clock, seed,
        coupled=(load.listens and inside is None) or config.max_concurrent > 0 or apart is not None,
        compiled=compiled, keep_trace=keep_trace, pulse=watch.look,
        clients=inside.concurrency if inside else 0,
    )
    computing = None
    if apart is not None:
        of_prefill = config.of_prefill
        surface = Surface.of(of_prefill, prefill_cost or cost)
        computing = replace(run, config=of_prefill, source=None, surface=surface, link=apart.link)
    cluster = Cluster(run, computing)
    watch.cluster = cluster
    tokens_before = [0]
    if config.warmup_s > 0:
        clock.call_at(config.warmup_s, lambda: tokens_before.__setitem__(0, cluster.tokens))
    if math.isfinite(config.duration_s):
        clock.call_at(config.duration_s, _stop)
    if inside is not None:
        inside.start_inside(cluster)
    else:
        load.start(cluster, seed)
    over = interrupted = False
    try:
        while True:
            for _ in range(EVENTS_BETWEEN_LOOKS):
                clock.step()
            watch.look()
    except EmptySchedule:
        pass
    except _RunOver:
        over = True
    except KeyboardInterrupt:
        interrupted = True
    cluster.hand_over()
    end_s = config.duration_s if over else _last_end_s(cluster)
    for replica in cluster.replicas:
        replica.stats.until_s = end_s
    cluster.close()
    if not interrupted:
        for replica in cluster.replicas:
            replica.check()
        assert cluster.counters.inside == 0, "a request was lost"
    window = Window(config.warmup_s, max(end_s, config.warmup_s), cluster.tokens - tokens_before[0])
    return SimResult(config, seed, window, interrupted, compiled, cluster)


def draw_source(config: SimConfig, seed: int, *, compiled: bool = False) -> DrawSource | None:
    """The source of a run; None without speculation."""
    k, recorded = config.speculation.num_speculative_tokens, config.recorded
    if k == 0:
        return None
    if recorded is not None:
        if recorded.k < k:
            raise UsageError(
                f"the recorded acceptance goes up to k = {recorded.k}, but {k} tokens are drafted"
            )
        return recorded
    assert config.acceptance is not None
    return SpreadDraws(
        config.acceptance, config.acceptance_spread, k=k, seed=seed, compiled=compiled
    )


def _stop() -> None:
    raise _RunOver


def _compile(config: SimConfig, load: Load) -> bool:
    """Whether to run compiled: as asked, or if it can be and the machine code is there or pays."""
    if config.compiled is not None:
        return config.compiled
    from specsim.sim.compiled import available, is_cached

    long = load.total is None or load.total >= MAKE_FROM_REQUESTS
    return (long or is_cached()) and available()


def _last_end_s(cluster: Cluster) -> float:
    """When the last request ended; the clock's time if any is still inside."""
    if cluster.counters.inside:
        return cluster.clock.now
    return max(cluster.last_end_s, 0.0)


class _Watch:
    """Reports progress at most every PROGRESS_EVERY_S of wall time."""

    def __init__(
        self, config: SimConfig, load: Load, report: Callable[[Progress], None] | None
    ) -> None:
        self.cluster: Cluster | None = None
        self._config = config
        self._total = load.total
        self._report = report
        self._next = time.monotonic() + PROGRESS_EVERY_S

    def look(self) -> None:
        if self._report is None or self.cluster is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PROGRESS_EVERY_S
        self.cluster.hand_over()
        counters = self.cluster.counters
        ended = counters.arrived - counters.inside
        now_s = max(replica.core.clock_s for replica in self.cluster.replicas)
        shares = []
        if self._total:
            shares.append(ended / self._total)
        if math.isfinite(self._config.duration_s):
            shares.append(now_s / self._config.duration_s)
        share = min(1.0, max(shares)) if shares else None
        self._report(Progress(now_s, counters.arrived, ended, share))
