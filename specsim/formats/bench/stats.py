"""Statistics of per-request data, in the definitions of `record`.

Percentiles interpolate linearly between order statistics, as numpy does by default and as the
benchmark tools therefore do; standard deviations are of the population, for the same reason.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from specsim.errors import FormatError
from specsim.formats.bench.record import BenchAcceptance, BenchRun, RequestRow, Stat
from specsim.formats.drafted import drafted_positions
from specsim.summary import quantile

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
AGREEMENT = 0.01  # relative; a mean recomputed from details that differs more is reported


def stat_of(values: Iterable[float], basis: str = "requests") -> Stat | None:
    """Mean, median, deviation and percentiles of `values`; None when there are none."""
    ordered = sorted(values)
    if not ordered:
        return None
    mean = math.fsum(ordered) / len(ordered)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in ordered) / len(ordered))
    return Stat(
        mean=mean, median=quantile(ordered, 0.5), std=spread,
        percentiles={f"p{p}": quantile(ordered, p / 100) for p in PERCENTILES}, count=len(ordered),
        basis=basis,
    )


@dataclass(frozen=True)
class Totals:
    """What the per-request rows of a run add up to; failed requests only count as failed."""

    completed: int
    failed: int
    input_tokens: int | None
    output_tokens: int | None
    span_s: float | None  # first request sent -> last token of the last request
    concurrency_mean: float | None  # sum of request times / span
    tokens_per_step: float | None
    chunks: int
    ttft_s: Stat | None
    tpot_s: Stat | None
    itl_s: Stat | None
    e2el_s: Stat | None

    def of_run(self) -> dict[str, Any]:
        """What a run calls as the totals do."""
        return {f.name: getattr(self, f.name) for f in fields(self)
                if f.name not in ("span_s", "chunks")}

    def per_step(self) -> dict[str, Any]:
        """The same of steps alone."""
        return {"tokens_per_step": self.tokens_per_step, "tokens_per_step_basis": "chunks"}


def total(rows: Sequence[RequestRow], where: str, duration_s: float | None = None) -> Totals:
    """Sums and statistics of rows. `duration_s` is the run's own length where it is known.

    FormatError (beginning with `where`) when a request ends before its first token.
    """
    for number, row in enumerate(rows):
        if row.ttft_s is not None and row.e2el_s is not None and row.e2el_s < row.ttft_s - 1e-6:
            raise FormatError(
                f"{where}request {number} took {row.e2el_s:.6g} s in all but {row.ttft_s:.6g} s to "
                "its first token; the first token comes before the end"
            )
    good = [row for row in rows if row.success]
    chunked = [row for row in good if row.itls_s and (row.output_tokens or 0) > 1]
    chunks = sum(len(row.itls_s) for row in chunked)
    decoded = sum((row.output_tokens or 1) - 1 for row in chunked)
    ends = [
        row.arrival_s + row.e2el_s
        for row in good
        if row.arrival_s is not None and row.e2el_s is not None
    ]
    span = max(ends) if ends and len(ends) == len(good) else None
    length = duration_s or span
    times = [row.e2el_s for row in good if row.e2el_s is not None]
    busy = math.fsum(times) / length if length and len(times) == len(good) and times else None
    return Totals(
        completed=len(good), failed=len(rows) - len(good),
        input_tokens=sum_of_all(row.input_tokens for row in good),
        output_tokens=sum_of_all(row.output_tokens for row in good), span_s=span,
        concurrency_mean=busy, tokens_per_step=decoded / chunks if chunks else None, chunks=chunks,
        ttft_s=stat_of(row.ttft_s for row in good if row.ttft_s is not None),
        tpot_s=stat_of(row.tpot_s for row in good if row.tpot_s is not None),
        itl_s=stat_of(gap for row in good for gap in row.itls_s), e2el_s=stat_of(times),
    )


def rounded(value: float | None) -> int | None:
    """A figure that counts something."""
    return None if value is None else round(value)


def tpot_of_means(e2el: Stat | None, ttft: Stat | None, tokens: float | None) -> float | None:
    """(mean latency - mean TTFT) / (mean output tokens - 1); None where that is no time."""
    if e2el is None or ttft is None or e2el.mean is None or ttft.mean is None:
        return None
    if tokens is None or tokens <= 1 or e2el.mean <= ttft.mean:
        return None
    return (e2el.mean - ttft.mean) / (tokens - 1)


def sum_of_all(values: Iterable[int | None]) -> int | None:
    out = 0
    for value in values:
        if value is None:
            return None
        out += value
    return out


def of_rows(run: BenchRun, rows: Sequence[RequestRow], where: str) -> BenchRun:
    """`run` with all that its requests tell; its own length, where it is known, is kept."""
    sums = total(rows, where, run.duration_s)
    length = sums.span_s if run.duration_s is None else run.duration_s
    tokens = sums.output_tokens
    return with_derived(
        replace(
            run, load=replace(run.load, num_prompts=len(rows)), **sums.of_run(), duration_s=length,
            output_tok_s=tokens / length if tokens and length else None,
            request_rate_achieved=sums.completed / length if length else None,
            tokens_per_step_basis="chunks" if sums.tokens_per_step is not None else None,
            requests=tuple(rows),
        )
    )


def in_flight(e2el: Stat | None, completed: int | None, length_s: float | None) -> float | None:
    """Mean requests in flight by Little's law: completed x mean time / length of the run."""
    if e2el is None or not e2el.mean or not completed or not length_s:
        return None
    return e2el.mean * completed / length_s


def per_request(tokens: int | None, requests: int | None) -> float | None:
    """Mean tokens per request, where both are known."""
    return tokens / requests if tokens is not None and requests else None


def disagreement(name: str, reported: Stat | None, computed: Stat | None) -> list[str]:
    """A warning when the tool's mean and the mean of its own per-request data differ."""
    if reported is None or computed is None or not reported.mean or computed.mean is None:
        return []
    gap = computed.mean / reported.mean - 1
    if abs(gap) <= AGREEMENT:
        return []
    return [
        f"{name}: the reported mean {reported.mean:.4g} s and the mean of the per-request data "
        f"{computed.mean:.4g} s differ by {gap:+.1%}; the per-request data was used"
    ]


def acceptance_from_counts(
    num_drafts: int | None, draft_tokens: int | None, accepted_tokens: int | None,
    per_position: Sequence[float] = (), scope: str = "run", where: str = "",
) -> BenchAcceptance | None:
    """Acceptance from counters: length 1 + accepted / drafts, rate accepted / drafted.

    FormatError, which begins with `where`, for counts that no server can have: more tokens
    accepted than drafted. (Drafts may outnumber drafted tokens: those that a grammar rules out are
    not counted.)"""
    if not num_drafts or accepted_tokens is None:
        return None
    if draft_tokens is not None and accepted_tokens > draft_tokens:
        raise FormatError(
            f"{where}{': ' if where else ''}{accepted_tokens} tokens accepted of {draft_tokens} "
            "drafted, which cannot be; check that all counters are of one server and one time"
        )
    rate = accepted_tokens / draft_tokens if draft_tokens else None
    drafted = drafted_positions(per_position, num_drafts, draft_tokens)
    return BenchAcceptance(
        acceptance_length=1 + accepted_tokens / num_drafts, acceptance_rate=rate,
        per_position=drafted, num_drafts=num_drafts, draft_tokens=draft_tokens,
        accepted_tokens=accepted_tokens, scope=scope,
        undrafted_positions=len(per_position) - len(drafted),
    )


def survival(histogram: Sequence[int]) -> tuple[float, ...]:
    """Unconditional per-position rates of a histogram of accepted tokens per draft.

    histogram[j] counts drafts of which exactly j tokens were accepted, so position i was
    accepted in all drafts with j > i.
    """
    drafts = sum(histogram)
    if not drafts:
        return ()
    return tuple(sum(histogram[i + 1 :]) / drafts for i in range(len(histogram) - 1))


def rates_of_steps(accepted: Sequence[int], drafted: Sequence[int]) -> tuple[float, ...]:
    """Per-position rates from the accepted and drafted tokens of every step.

    Position i is judged in the steps that drafted it and accepted all before it; the product of
    these conditional rates is the share of drafts that gets past i, were all long enough (Kaplan
    and Meier's estimate: a draft that ends early is no rejection). With drafts of one length these
    are `survival`'s. Lengths are bounded by the caller.
    """
    most = max(drafted, default=0)
    judged, passed = [0] * (most + 2), [0] * (most + 2)
    for took, made in zip(accepted, drafted, strict=True):
        judged[min(made, took + 1)] += 1
        passed[took] += 1
    for i in range(most, 0, -1):
        judged[i] += judged[i + 1]
        passed[i] += passed[i + 1]
    rates, share = [], 1.0
    for i in range(1, most + 1):
        if not judged[i] and share > 0:
            break  # what got this far was not drafted further
        share *= passed[i] / judged[i] if judged[i] else 0.0
        rates.append(share)
    return tuple(rates)


def tokens_per_step_from_counts(
    output_tokens: int | None, completed: int | None, accepted_tokens: int | None, num_drafts: int
) -> float | None:
    """Tokens per decode step when only counters are known.

    Each request's first token comes from its prefill; every accepted draft token saves one step,
    so n decode tokens took n - accepted steps. Drafts accepted past the end of a request are
    counted by the engine although they were cut, which makes that number of steps a little low;
    it cannot be below the number of drafts, each of which was a step.
    """
    if output_tokens is None or completed is None or accepted_tokens is None:
        return None
    decoded = output_tokens - completed
    steps = max(decoded - accepted_tokens, num_drafts)
    return decoded / steps if steps > 0 and decoded > 0 else None


def with_derived(run: BenchRun) -> BenchRun:
    """Fill what follows from the rest: `tokens_per_step` by the best means the run allows,
    `draft_share` from it, mean tokens per request."""
    value, basis = run.tokens_per_step, run.tokens_per_step_basis
    acceptance, warnings = run.acceptance, list(run.warnings)
    counted = acceptance if acceptance is not None and acceptance.scope == "run" else None
    if value is None and counted is not None and counted.num_drafts and not run.failed:
        value = tokens_per_step_from_counts(
            run.output_tokens, run.completed, counted.accepted_tokens, counted.num_drafts
        )
        basis = "counters" if value is not None else None
    if value is None and run.itl_s is not None and run.tpot_s is not None:
        gap, tpot = run.itl_s.mean, run.tpot_s.mean
        if gap and tpot:
            value, basis = gap / tpot, "ratio of means"
            warnings.append(
                "tokens per step is mean ITL / mean TPOT, which weighs steps and requests "
                "differently; per-request details would make it exact"
            )
    share = run.draft_share
    if share is None and counted is not None and value and run.output_tokens and run.completed:
        steps = (run.output_tokens - run.completed) / value
        if counted.num_drafts is not None and steps > 0 and basis != "ratio of means":
            share = min(1.0, counted.num_drafts / steps)
    length = acceptance.acceptance_length if acceptance is not None else None
    if share is not None and length and share < 0.95 and length > 1.05:
        warnings.append(
            f"only {share:.0%} of the decode steps carried a draft: {value:.3g} tokens per step, "
            f"although the acceptance length is {length:.3g}"
        )
    return replace(
        run, input_tokens_mean=_filled(run.input_tokens_mean, run.input_tokens, run.completed),
        output_tokens_mean=_filled(run.output_tokens_mean, run.output_tokens, run.completed),
        tokens_per_step=value, tokens_per_step_basis=basis if value is not None else None,
        draft_share=share, warnings=tuple(warnings),
    )


def _filled(mean: float | None, tokens: int | None, requests: int | None) -> float | None:
    return per_request(tokens, requests) if mean is None else mean
