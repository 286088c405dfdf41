"""Pasted server log lines (`specsim.formats.spec_log`) as a run in the normal form."""

from collections.abc import Callable, Sequence

from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.record import BenchAcceptance, BenchRun, ServerArgs, ServerSide
from specsim.formats.drafted import undrafted_note
from specsim.formats.log_intervals import (
    LogPeriod,
    StepYield,
    period_of,
    step_yield,
    without_pauses,
)
from specsim.formats.spec_log import (
    SpecInterval,
    looks_like_spec_log,
    parse_spec_log,
    pooled_counts,
    pooled_positions,
)
from specsim.units import counted

NAME = "server log lines"


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
    acceptance, notes = _acceptance(busy, engine, rates)
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
        source=origin,
        format=NAME,
        engine=engine,
        output_tok_s=generation,
        acceptance=acceptance,
        tokens_per_step=found.tokens_per_step if found else None,
        tokens_per_step_basis="counters" if found else None,
        draft_share=found.draft_share if found else None,
        server_args=ServerArgs(num_speculative_tokens=_usual_k(busy)),
        server=ServerSide(
            running=_mean(busy, lambda item: item.running),
            waiting=_mean(busy, lambda item: item.waiting),
            kv_cache_usage=_mean(busy, lambda item: item.kv_cache_usage),
            gauges="mean",
            prefix_cache_hit_rate=busy[-1].prefix_cache_hit_rate,
            generation_tok_s=generation,
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
    busy: Sequence[SpecInterval], engine: str, rates: tuple[float, ...]
) -> tuple[BenchAcceptance | None, list[str]]:
    counts = pooled_counts(busy)
    if counts is not None:
        drafts, drafted, accepted = counts
        exact = drafts == int(drafts)
        return BenchAcceptance(
            acceptance_length=1 + accepted / drafts,
            acceptance_rate=accepted / drafted if drafted else None,
            per_position=rates,
            num_drafts=round(drafts),
            draft_tokens=drafted,
            accepted_tokens=accepted,
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
        acceptance_rate=_mean(lengths, lambda item: item.acceptance_rate),
        scope="log intervals",
    ), ["each interval counts the same, as its number of steps is not logged"]


def _rate_alone(busy: Sequence[SpecInterval]) -> tuple[BenchAcceptance | None, list[str]]:
    """vLLM up to 0.8 printed accepted and drafted tokens only."""
    told = [(i.accepted_tokens, i.draft_tokens) for i in busy if i.accepted_tokens is not None]
    accepted, drafted = sum(a or 0 for a, _ in told), sum(d or 0 for _, d in told)
    if not drafted:
        return None, []
    return BenchAcceptance(
        acceptance_rate=accepted / drafted,
        draft_tokens=drafted,
        accepted_tokens=accepted,
        scope="log intervals",
    ), [
        "these lines state neither the number of drafts nor the acceptance length, which is "
        f"1 + k x {accepted / drafted:.3g} where every draft had k tokens"
    ]
