"""Pasted server log lines (`specsim.formats.spec_log`) as a run in the normal form: what time their
throughputs cover, and what follows from it.

vLLM (v1/metrics/loggers.py, v1/spec_decode/metrics.py) logs at every tick of a timer,
VLLM_LOG_STATS_INTERVAL, 10 s unless set. "Avg generation throughput" covers the time since the last
tick. A SpecDecoding line is only written, and its counts only begin anew, at ticks with a draft: so
its tokens are of the last tick, but its throughputs divide them by the time since the SpecDecoding
line before, idle time included. An idle server hides its lines, except for the first.

SGLang divides the tokens of some decode batches by the time since the Decode line before, idle time
included: the first line after a pause reads low. Its acceptance counts no time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.record import BenchAcceptance, BenchRun, ServerArgs, ServerSide
from specsim.formats.drafted import undrafted_note
from specsim.formats.spec_log import (
    SpecInterval,
    looks_like_spec_log,
    parse_spec_log,
    pooled_counts,
    pooled_positions,
)
from specsim.units import counted

NAME = "server log lines"
DEFAULT_S = 10.0
ROUNDING = 0.03  # of a length in seconds that follows from a printed throughput
CUT = 1.2  # counted over generated tokens: drafts are accepted past the ends of short answers
STAMP_S = 1.0  # stamps are whole seconds
PAUSED = 0.5  # of the usual steps per second: a line after a pause


@dataclass(frozen=True)
class LogPeriod:
    """Seconds between ticks, and how they are known."""

    seconds: float
    why: str


@dataclass(frozen=True)
class StepYield:
    """tokens_per_step: over all decode steps, first tokens of requests among them; draft_share: of
    those steps; both over `intervals` log intervals."""

    tokens_per_step: float
    draft_share: float
    intervals: int


def matches(document: ResultFile) -> bool:
    return not document.is_json and looks_like_spec_log(document.text)


def read(document: ResultFile) -> list[BenchRun]:
    """One run per engine found, its intervals pooled; idle intervals do not enter the means."""
    intervals = parse_spec_log(document.text, document.origin)
    engines = dict.fromkeys(item.engine for item in intervals)
    return [
        _run([item for item in intervals if item.engine == engine], engine, document.origin)
        for engine in engines
    ]


def _run(intervals: Sequence[SpecInterval], engine: str, origin: str) -> BenchRun:
    busy = [item for item in intervals if item.generation_tok_s or item.accepted_tokens] or list(
        intervals
    )
    warnings: list[str] = []
    if engine == "sglang":
        ranks = dict.fromkeys(item.label for item in busy)
        parted = [without_pauses([i for i in busy if i.label == rank]) for rank in ranks]
        busy, paused = [i for items, _ in parted for i in items], sum(n for _, n in parted)
        if paused:
            warnings.append(
                f"the throughput of {counted(paused, 'line')} was left out: it "
                "covers the time since the Decode line before, and nothing ran in a part of it"
            )
    rates = pooled_positions(busy)
    acceptance, notes = _acceptance(busy, rates)
    period = period_of(intervals) if engine == "vllm" else None
    found = step_yield(intervals, period)
    warnings += notes + _drafting_notes(busy, period, found)
    labels = dict.fromkeys(item.label for item in busy)
    if len(labels) > 1:
        warnings.append(f"{len(labels)} engines: batch, queue and cache are the mean of one")
    shown = sum(not item.since_start for item in busy)
    warnings.append(
        f"{counted(shown, 'logging interval')} with work, whatever the "
        "server was doing; no latencies"
    )
    parts = [
        _mean([item for item in busy if item.label == label], lambda item: item.generation_tok_s)
        for label in labels
    ]
    known = [part for part in parts if part is not None]
    generation = sum(known) if known else None
    return BenchRun(
        source=origin, format=NAME, engine=engine, output_tok_s=generation, acceptance=acceptance,
        tokens_per_step=found.tokens_per_step if found else None,
        tokens_per_step_basis="counters" if found else None,
        draft_share=found.draft_share if found else None,
        server_args=ServerArgs(num_speculative_tokens=_usual_k(busy)),
        server=ServerSide(
            running=_mean(busy, lambda item: item.running),
            waiting=_mean(busy, lambda item: item.waiting),
            kv_cache_usage=_mean(busy, lambda item: item.kv_cache_usage), gauges="mean",
            prefix_cache_hit_rate=busy[-1].prefix_cache_hit_rate, generation_tok_s=generation,
        ),
        warnings=tuple(warnings),
    )


def _configured(busy: Sequence[SpecInterval]) -> int:
    return max((item.configured_k or 0 for item in busy), default=0)


def _usual_k(busy: Sequence[SpecInterval]) -> int | None:
    """Positions that most drafts had: a table by batch size changes them from time to time."""
    drafts: dict[int, float] = {}
    for item in busy:
        if k := len(item.per_position) or item.configured_k:
            drafts[k] = drafts.get(k, 0.0) + (item.num_drafts or 0.0)
    return max(drafts, key=lambda k: (drafts[k], k)) if drafts else None


def _drafting_notes(
    busy: Sequence[SpecInterval], period: LogPeriod | None, found: StepYield | None
) -> list[str]:
    """What time figures are of, or why they are left out; positions that were never drafted."""
    notes = []
    if found is not None and period is not None:
        notes.append(
            f"tokens per step and the share of steps with a draft are over {period.seconds:.3g} s "
            f"per interval ({period.why})"
        )
    elif any(item.num_drafts and item.generation_tok_s for item in busy):
        longest = max((item.since_s or 0.0 for item in busy), default=0.0)
        covers = f" (up to {longest:.3g} s here)" if longest else ""
        notes.append(
            "tokens per step and the share of steps with a draft are left out, and every step is "
            "taken to carry a draft: the accepted throughput covers the time since the "
            f"SpecDecoding line before{covers}, the generation throughput only the last interval, "
            "whose length the log does not tell; more lines in a row would"
        )
    if any(item.since_start for item in busy):
        notes.append("acceptance is of all drafts since the server's start, as vLLM 0.7 counts it")
    deep = max((len(item.per_position) for item in busy), default=0)
    notes += undrafted_note(_configured(busy), deep)
    return notes


def _mean(
    items: Sequence[SpecInterval], value: Callable[[SpecInterval], float | None]
) -> float | None:
    found = [number for item in items if (number := value(item)) is not None]
    return sum(found) / len(found) if found else None


def _acceptance(
    busy: Sequence[SpecInterval], rates: tuple[float, ...]
) -> tuple[BenchAcceptance | None, list[str]]:
    counts = pooled_counts(busy)
    if counts is not None:
        drafts, drafted, accepted = counts
        exact = drafts == int(drafts)
        return BenchAcceptance(
            acceptance_length=1 + accepted / drafts,
            acceptance_rate=accepted / drafted if drafted else None, per_position=rates,
            num_drafts=round(drafts), draft_tokens=drafted, accepted_tokens=accepted,
            scope="log intervals",
            undrafted_positions=_configured(busy) - len(rates) if rates else 0,
        ), [] if exact else [
            "drafts had different lengths; their number is derived from the rounded acceptance "
            "length"
        ]
    lengths = [item for item in busy if item.acceptance_length is not None]
    if not lengths:
        return _rate_alone(busy)
    return BenchAcceptance(
        acceptance_length=_mean(lengths, lambda item: item.acceptance_length),
        acceptance_rate=_mean(lengths, lambda item: item.acceptance_rate), scope="log intervals",
    ), ["each interval counts the same, as its number of steps is not logged"]


def _rate_alone(busy: Sequence[SpecInterval]) -> tuple[BenchAcceptance | None, list[str]]:
    """vLLM up to 0.8 printed accepted and drafted tokens only."""
    told = [(i.accepted_tokens, i.draft_tokens) for i in busy if i.accepted_tokens is not None]
    accepted, drafted = sum(a or 0 for a, _ in told), sum(d or 0 for _, d in told)
    if not drafted:
        return None, []
    return BenchAcceptance(
        acceptance_rate=accepted / drafted, draft_tokens=drafted, accepted_tokens=accepted,
        scope="log intervals",
    ), [
        "these lines state neither the number of drafts nor the acceptance length, which is "
        f"1 + k x {accepted / drafted:.3g} where every draft had k tokens"
    ]


def busy_pairs(items: Sequence[SpecInterval]) -> list[tuple[SpecInterval, SpecInterval]]:
    """Lines of one engine that follow each other without a hidden tick between them."""
    out: list[tuple[SpecInterval, SpecInterval]] = []
    for label in dict.fromkeys(item.label for item in items):
        own = [item for item in items if item.label == label]
        out += [(one, two) for one, two in pairwise(own) if one.generation_tok_s]
    return out


def period_of(items: Sequence[SpecInterval]) -> LogPeriod | None:
    """The timer's period as far as a vLLM log shows it; None where it does not.

    In order: the time that drafts cover where the line before had drafts too; stamps of lines
    that follow each other; one that is at the default; tokens that make up what the default time
    generated."""
    pairs = busy_pairs(items)
    covered = [
        two.since_s for one, two in pairs
        if one.draft_tokens and two.since_s and _stamps_agree(one, two, two.since_s)
    ]
    if covered:
        return LogPeriod(median(covered), "the time between two SpecDecoding lines at work")
    gaps = [
        two.at_s - one.at_s for one, two in pairs if one.at_s is not None and two.at_s is not None
    ]
    gaps = [gap for gap in gaps if gap > 0]
    if gaps:
        gap = median(gaps)
        if abs(gap - DEFAULT_S) <= STAMP_S:
            return LogPeriod(DEFAULT_S, "vLLM's default, which the stamps agree with")
        even = all(abs(one - gap) <= STAMP_S for one in gaps)  # else lines were cut out
        if even and gap * ROUNDING >= STAMP_S / len(gaps):
            return LogPeriod(sum(gaps) / len(gaps), "the stamps of lines at work")
        return None
    if any(item.since_s and abs(item.since_s / DEFAULT_S - 1) <= ROUNDING for item in items):
        return LogPeriod(DEFAULT_S, "vLLM's default, which the drafts' throughput agrees with")
    told = [item for item in items if item.generation_tok_s and item.num_drafts]
    made = sum((item.generation_tok_s or 0.0) * DEFAULT_S for item in told)
    counted = sum((item.num_drafts or 0.0) + (item.accepted_tokens or 0) for item in told)
    if made and abs(counted / made - 1) <= ROUNDING:
        return LogPeriod(DEFAULT_S, "vLLM's default, in which the counted steps made all tokens")
    return None


def _stamps_agree(one: SpecInterval, two: SpecInterval, seconds: float) -> bool:
    """Whether stamps allow this time between two lines; lines may have been cut out."""
    if one.at_s is None or two.at_s is None:
        return True
    return abs(two.at_s - one.at_s - seconds) <= STAMP_S + ROUNDING * seconds


def step_yield(items: Sequence[SpecInterval], period: LogPeriod | None) -> StepYield | None:
    """Tokens per step of a vLLM log; None where the period, or what was drafted, is not known.

    Of n generated tokens the accepted ones took no step of their own; every draft was a step. An
    interval at work without a SpecDecoding line had no draft, but the last one may be cut."""
    if period is None:
        return None
    told = [
        item for item in items if item.generation_tok_s
        and (item.num_drafts is not None or (item.draft_tokens is None and item is not items[-1]))
    ]
    made = sum((item.generation_tok_s or 0.0) for item in told) * period.seconds
    drafts = sum(item.num_drafts or 0.0 for item in told)
    accepted = sum(item.accepted_tokens or 0 for item in told)
    if not drafts or drafts + accepted > CUT * made:
        return None  # more than was generated: another period
    steps = max(drafts, made - accepted)
    return StepYield((steps + accepted) / steps, drafts / steps, len(told))


def without_pauses(items: Sequence[SpecInterval]) -> tuple[list[SpecInterval], int]:
    """SGLang's intervals without the throughput of those that hold a pause, and how many.

    A line may hold one when it is the first, when a prompt came while nothing ran, or, in a log
    without Prefill lines, when its stamp is late. It does when its streams then made less than
    half of the usual steps per second; where no other line tells the usual, the first is left out.
    """
    paces = [_pace(item) for item in items]
    known = [pace for pace in paces if pace is not None]
    usual = median(known) if len(known) > 1 else None
    stamps = [item.at_s for item in items]
    gaps = [two - one for one, two in pairwise(stamps) if one is not None and two is not None]
    late = 2 * max(STAMP_S, median(gaps)) if gaps else None
    out, paused = [], 0
    for i, (item, pace) in enumerate(zip(items, paces, strict=True)):
        last, here = stamps[i - 1] if i else None, item.at_s
        if i == 0:
            may = True
        elif item.after_idle is not None:
            may = item.after_idle
        else:
            may = late is None or last is None or here is None or here - last > late
        slow = pace is not None and (usual is None or pace < PAUSED * usual)
        paused += may and slow
        out.append(replace(item, generation_tok_s=None) if may and slow else item)
    return out, paused


def _pace(item: SpecInterval) -> float | None:
    """Steps per second of one stream."""
    if not item.generation_tok_s or not item.running:
        return None
    return item.generation_tok_s / item.running / (item.acceptance_length or 1.0)
