"""Pasted server log lines (`specsim.formats.spec_log`) as a run in the normal form."""

from collections.abc import Callable, Sequence

from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.record import BenchAcceptance, BenchRun, ServerArgs, ServerSide
from specsim.formats.spec_log import (
    SpecInterval,
    looks_like_spec_log,
    parse_spec_log,
    pooled_counts,
    pooled_positions,
)

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
    rates = pooled_positions(busy)
    generation = _mean(busy, lambda item: item.generation_tok_s)
    acceptance, warnings = _acceptance(busy, engine, rates)
    value, share = _yield(busy)
    warnings.append(
        f"{len(busy)} logging interval{'s' if len(busy) != 1 else ''} with work, whatever the "
        "server was doing; no latencies"
    )
    return BenchRun(
        source=origin,
        format=NAME,
        engine=engine,
        output_tok_s=generation,
        acceptance=acceptance,
        tokens_per_step=value,
        tokens_per_step_basis="counters" if value is not None else None,
        draft_share=share,
        server_args=ServerArgs(num_speculative_tokens=len(rates) or None),
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
        ), [] if exact else [
            "drafts had different lengths; their number is derived from the rounded acceptance "
            "length"
        ]
    lengths = [item for item in busy if item.acceptance_length is not None]
    if not lengths:
        return None, []
    return BenchAcceptance(
        acceptance_length=_mean(lengths, lambda item: item.acceptance_length),
        acceptance_rate=_mean(lengths, lambda item: item.acceptance_rate),
        scope="log intervals",
    ), ["each interval counts the same, as its number of steps is not logged"]


def _yield(busy: Sequence[SpecInterval]) -> tuple[float | None, float | None]:
    """Tokens per step from throughputs of the same interval, and the share that had a draft.

    Accepted tokens are those that took no step of their own, so of g tokens per second g - a
    were made by steps (first tokens of requests included).
    """
    both = [
        (item.generation_tok_s, item.accepted_tok_s, item.num_drafts, item.accepted_tokens)
        for item in busy
        if item.generation_tok_s
        and item.accepted_tok_s
        and item.accepted_tokens
        and item.generation_tok_s > item.accepted_tok_s
    ]
    # both throughputs have the same interval; its length is accepted tokens / their rate
    made = sum(g / a * n for g, a, _, n in both if g and a and n)
    accepted = sum(n for _, _, _, n in both if n)
    if not both or made <= accepted:
        return None, None
    drafts = sum(d for _, _, d, _ in both if d)
    steps = made - accepted
    return made / steps, min(1.0, drafts / steps) if drafts else None
