"""What time the throughputs of a server's log cover, and what follows from it.

vLLM (v1/metrics/loggers.py, v1/spec_decode/metrics.py) logs at every tick of a timer,
VLLM_LOG_STATS_INTERVAL, 10 s unless set. "Avg generation throughput" covers the time since the last
tick. A SpecDecoding line is only written, and its counts only begin anew, at ticks with a draft: so
its tokens are of the last tick, but its throughputs divide them by the time since the SpecDecoding
line before, idle time included. An idle server hides its lines, except for the first.

SGLang divides the tokens of some decode batches by the time since the Decode line before, idle time
included: the first line after a pause reads low. Its acceptance counts no time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from specsim.formats.spec_log import SpecInterval

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
