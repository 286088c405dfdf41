"""A live server over time: scrapes become windows, windows become observations (docs/watch.md).

A window is what the counters gained between the oldest kept scrape and the newest, at most
`window_s` apart, so that a figure does not hop with every scrape; gauges are means over its
scrapes. When counters fall or the process start time changes, what was kept is forgotten.
`Observer` adds the prediction and says when speculation stops paying, only beyond a margin around
break-even.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from specsim.diagnose.evidence import Evidence, evidence_of
from specsim.diagnose.expected import Expected, Predictor
from specsim.diagnose.rules_speculation import GAIN
from specsim.diagnose.scrape import Scrape
from specsim.errors import FormatError, SpecSimError
from specsim.formats.bench.server_metrics import run_of
from specsim.formats.metrics_text import Snapshot, difference, parse_metrics
from specsim.jsonable import picked

WINDOW_S = 30.0
FEW_ENDS = 20  # finished requests below which SGLang's own counters say little
FIRST, OK, IDLE, RESTARTED, UNREACHABLE = "first", "ok", "idle", "restarted", "unreachable"
_START_TIMES = ("process_start_time_seconds", "process_start_time")


@dataclass(frozen=True, slots=True)
class ScrapeWindow:
    """state: first (a single scrape: everything since the start), ok, idle or restarted.
    length_s: seconds that the counters cover; None for a single scrape."""

    state: str
    evidence: Evidence
    length_s: float | None = None


class Watcher:
    """Turns scrapes of one server into windows."""

    def __init__(self, origin: str, window_s: float = WINDOW_S) -> None:
        self._origin = origin
        self._window_s = window_s
        self._kept: deque[tuple[float, Snapshot]] = deque()

    def take(self, scraped: Scrape) -> ScrapeWindow:
        """The window that ends with this scrape. FormatError when the text is none of an engine
        known here; what was kept before stays."""
        snapshot = parse_metrics(scraped.text, self._origin)
        alone = evidence_of(run_of(snapshot), live=True)
        if not self._kept:
            self._kept.append((scraped.at_s, snapshot))
            return ScrapeWindow(FIRST, alone)
        if _started(self._kept[-1][1]) != _started(snapshot):
            return self._again(scraped.at_s, snapshot, alone)
        try:
            difference(self._kept[-1][1], snapshot)  # a fall since the last scrape
            while len(self._kept) > 1 and scraped.at_s - self._kept[1][0] >= self._window_s:
                self._kept.popleft()
            first_s, first = self._kept[0]
            gained = difference(first, snapshot)
        except FormatError:
            return self._again(scraped.at_s, snapshot, alone)
        self._kept.append((scraped.at_s, snapshot))
        length = max(1e-3, scraped.at_s - first_s)
        run = run_of(replace(gained, duration_s=length, origin=self._origin))
        evidence = self._with_gauges(evidence_of(run, live=True))
        if not evidence.output_tokens and not (evidence.output_tokens is None
                                               and evidence.output_tok_s):
            idle = evidence.output_tokens == 0 or not evidence.running
            if idle:
                return ScrapeWindow(IDLE, evidence, length)
        return ScrapeWindow(OK, evidence, length)

    def _again(self, at_s: float, snapshot: Snapshot, alone: Evidence) -> ScrapeWindow:
        self._kept.clear()
        self._kept.append((at_s, snapshot))
        return ScrapeWindow(RESTARTED, alone)

    def _with_gauges(self, evidence: Evidence) -> Evidence:
        """Means of the gauges over the window's scrapes; SGLang's acceptance as said above."""
        runs = [run_of(snapshot) for _, snapshot in self._kept]
        sides = [run.server for run in runs if run.server is not None]

        def mean(name: str) -> float | None:
            values = [getattr(side, name) for side in sides]
            known = [value for value in values if value is not None]
            return sum(known) / len(known) if known else None

        running, origin = evidence.running, evidence.running_from
        if running is None or origin == "gauge":
            running, origin = mean("running") or None, "gauge"
        if running is not None and origin != "steps":
            # a step runs on one engine: of data parallel ones each has its share of the streams
            running /= _engines(self._kept[-1][1])
        evidence = replace(
            evidence, waiting=mean("waiting"), kv_cache_usage=mean("kv_cache_usage"),
            running=running, running_from=origin if running is not None else None,
        )
        last = runs[-1].acceptance
        if evidence.engine == "sglang" and (evidence.completed or 0) < FEW_ENDS:
            gauge = self._kept[-1][1].gauge("sglang:spec_accept_length", mean=True)
            length = gauge if gauge and gauge >= 1 else last.acceptance_length if last else None
            step = evidence.step_s
            if length and evidence.tpot_s:
                step = evidence.tpot_s * length
            evidence = replace(
                evidence, acceptance_length=length, tokens_per_step=length, step_s=step,
                step_from="TPOT times tokens per step" if step else None,
            )
        return evidence


def _engines(snapshot: Snapshot) -> int:
    """Data parallel engines behind one /metrics."""
    return max(1, len(snapshot.label("engine")), len(snapshot.label("dp_rank")))


def _started(snapshot: Snapshot) -> float | None:
    return snapshot.gauge(*_START_TIMES)


@dataclass(frozen=True, slots=True)
class Observation:
    """One line of `watch`. pays: None where it cannot be said. event: stopped_paying, pays_again,
    restarted, unreachable, back, or None. message: one sentence for people."""

    at_s: float
    state: str
    event: str | None
    message: str
    window_s: float | None
    evidence: Evidence | None
    expected: Expected | None
    pays: bool | None

    @property
    def step_error(self) -> float | None:
        """predicted / measured - 1 of the time between outputs."""
        if self.expected is None or self.evidence is None or not self.evidence.step_s:
            return None
        return self.expected.itl_s / self.evidence.step_s - 1

    def to_dict(self) -> dict[str, object]:
        return {"kind": "watch", **picked(
            self, "at_s state event message window_s pays speedup=expected.speedup "
                  "best_k=expected.best_k best_speedup=expected.best_speedup step_error "
                  "measured=evidence predicted=expected")}


MakePredictor = Callable[[Evidence], Predictor | None]


class Observer:
    """Windows judged one after the other. make_predictor: the deployment for an evidence (its k
    and whether it speculates); asked again only when those change."""

    def __init__(self, watcher: Watcher, make_predictor: MakePredictor) -> None:
        self._watcher = watcher
        self._make = make_predictor
        self._predictor: Predictor | None = None
        self._key: tuple[object, ...] | None = None
        self._pays: bool | None = None
        self._lost = False

    def unreachable(self, at_s: float, reason: str) -> Observation:
        """A scrape that failed."""
        event = None if self._lost else UNREACHABLE
        self._lost = True
        return Observation(at_s, UNREACHABLE, event, reason, None, None, None, None)

    def see(self, at_s: float, scraped: Scrape) -> Observation:
        """A scrape that came. SpecSimError when the first prediction cannot be made."""
        window = self._watcher.take(scraped)
        event = "back" if self._lost else None
        self._lost = False
        if window.state == RESTARTED:
            self._pays = None
            return Observation(at_s, RESTARTED, RESTARTED, "the server was restarted: counting "
                               "anew", None, window.evidence, None, None)
        if window.state == IDLE:
            return Observation(at_s, IDLE, event, "nothing was generated", window.length_s,
                               window.evidence, None, None)
        here, note = window.evidence, ""
        try:
            expected = self._expect(here)
        except SpecSimError as error:
            if self._predictor is None:
                raise
            expected, note = None, f"no prediction: {error}"
        pays, words = self._judge(here, expected)
        if window.state == OK and pays is not None:
            if self._pays is not None and pays != self._pays:
                event = "pays_again" if pays else "stopped_paying"
            self._pays = pays
        if window.state == FIRST:
            words = f"since the server started: {words}"
        return Observation(at_s, window.state, event, note or words, window.length_s, here,
                           expected, pays)

    def _expect(self, here: Evidence) -> Expected | None:
        if here.running is None:
            return None
        key = (here.speculates, here.drafted_k)
        if key != self._key:
            self._predictor = self._make(here)
            self._key = key
        return self._predictor.expect(here) if self._predictor is not None else None

    def _judge(self, here: Evidence, expected: Expected | None) -> tuple[bool | None, str]:
        """Whether speculation pays now, and the words for it."""
        if here.speculates is False:
            return None, "speculation is off"
        if expected is None:
            return None, "name MODEL and --gpu to see whether this pays"
        if not expected.k:
            return None, "drafts are made that the deployment named does not have"
        gain = expected.speedup
        pays = self._pays
        if gain >= 1 + GAIN:
            pays = True
        elif gain < 1 - GAIN:
            pays = False
        words = f"speculation pays: {gain:.2f}x" if gain >= 1 else (
            f"speculation has stopped paying: {gain:.2f}x")
        best = expected.best_k
        if best is not None and best != expected.k and expected.best_speedup > gain * (1 + GAIN):
            words += (f"; k = {best} would give {expected.best_speedup:.2f}x" if best
                      else "; no draft length pays, plain decoding is faster")
        elif best == expected.k:
            words += f"; k = {best} is the best draft length now"
        return pays, words
