"""Running statistics of records that are not kept: logarithmic histograms instead of columns."""

from dataclasses import dataclass, field

from specsim.sim.histogram import LogHistogram
from specsim.sim.request import FINISHED, STATUSES, TIMEOUT, UNFINISHED, RequestRecord
from specsim.sim.slo import meets

TIMES = ("ttft_s", "tpot_s", "e2el_s", "queue_s")
COUNTS = (
    "prompt_tokens", "cached_tokens", "output_tokens", "chunks", "verify_steps", "drafted_tokens",
    "accepted_tokens", "stalls",
)


@dataclass(slots=True)
class Tallies:
    """Counts and histograms of the measured requests (sent at or after warmup_s)."""

    warmup_s: float = 0.0
    limits: dict[str, float] = field(default_factory=dict)  # of single requests, for goodput
    good: int = 0
    measured: int = 0
    status: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATUSES, 0))
    finished_in_window: int = 0
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    censored_ttft: int = 0
    stalled: int = 0
    times: dict[str, LogHistogram] = field(
        default_factory=lambda: {name: LogHistogram() for name in TIMES}
    )
    stream_tok_s: LogHistogram = field(default_factory=LogHistogram)

    def add(self, record: RequestRecord, now_s: float) -> None:
        """Count a record. Where a time never came because the run ended or the client gave up,
        the time waited so far is taken: it is short of the truth, but nobody is left out."""
        if record.status == FINISHED and (record.end_s or 0.0) >= self.warmup_s:
            self.finished_in_window += 1
        if record.arrival_s < self.warmup_s:
            return
        self.measured += 1
        self.status[record.status] += 1
        if record.scheduled_s is not None:
            for name in COUNTS:
                self.sums[name] += getattr(record, name)
        for name in TIMES:
            value = getattr(record, name)
            if value is not None:
                self.times[name].add(value)
        if record.status in (UNFINISHED, TIMEOUT):
            waited_s = (now_s if record.end_s is None else record.end_s) - record.arrival_s
            self.times["e2el_s"].add(waited_s)
            if record.first_token_s is None:
                self.censored_ttft += 1
                self.times["ttft_s"].add(waited_s)
        if record.stalls:
            self.stalled += 1
        rate = record.stream_tok_s
        if rate is not None:
            self.stream_tok_s.add(rate)
        if record.status == FINISHED and self.limits:
            values = {name[:-2]: getattr(record, name) for name in TIMES}
            self.good += meets(self.limits, {**values, "stream_tok_s": rate})
