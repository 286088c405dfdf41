"""The one answer to "how many tokens does a verify step yield?", with an interval and its grounds.

    estimate = resolve(AcceptanceQuery("Qwen/Qwen3.6-27B", "mtp", work="code"), k=3)
    estimate.tokens_per_step, estimate.low_90, estimate.high_90, estimate.level, estimate.rests_on

Levels, best first: `measured` (this target, method, drafter and kind of work at this k: the value
itself, pooled over sources), `this drafter` (it was measured at another k or on other work),
`this model` (other drafters of the target were), `kind of drafter` (only drafters of that kind for
other targets were), `unknown` (nobody is known to have trained such a drafter for the target; the
numbers are the range of comparable drafters, not a prediction).

What stands at a level is the value measured, or what was measured at the nearest draft length on
the same work, carried along the model's curve, or `acceptance_posterior` after the rows of the
target.
The interval holds nine of ten new sources that would measure the same.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from specsim.errors import UsageError, closest
from specsim.methods.base import find_method
from specsim.methods.registry import known_method, method_name
from specsim.speculation.acceptance import Acceptance, Grounds
from specsim.speculation.acceptance_catalogue import (
    WORKS,
    MeasuredPoint,
    in_few_words,
    measurements,
    offered_by,
    points_of,
    telling,
)
from specsim.speculation.acceptance_model import (
    Condition,
    depth_of,
    flat_logit,
    kind_data,
    tokens_at,
)
from specsim.speculation.acceptance_posterior import (
    QUANTILE_90,
    AcceptanceSpread,
    Posterior,
    PredictedAcceptance,
    fitted_acceptance,
    spread_of,
)
from specsim.speculation.acceptance_rows import condition_of, observations
from specsim.speculation.checks import check_draft_length
from specsim.speculation.names import normalise_dataset, normalise_model
from specsim.speculation.questions import AcceptanceEstimate, AcceptanceQuery, Level, TreeShape
from specsim.speculation.trees import TREE_ERROR_90, eagle_tree_acceptance, ranks_of

# What a user who names no work is taken to do, best first.
_USUAL_WORK = ("chat", "mixed", "unstated")
# Data sets of a single prompt count only where nothing else was measured.
_ONE_PROMPT = ("single-prompt", "one-chat-prompt", "same-prompt", "own-prompt", "log-window")
# Factor in draft length over which a measured value tells of others: from 3 drafts those of 1 to 8
# are met within 2 % in the median (`validation/reports/acceptance.md`).
_CARRIED = 3
# Positions that are worked out beyond the draft length asked for.
_LONGEST = 16


@cache
def resolve(query: AcceptanceQuery, k: int, tree: TreeShape | None = None) -> AcceptanceEstimate:
    """Acceptance of a query at k drafts (for a tree: its depth). UsageError for a method, work or
    draft length that does not exist."""
    check_draft_length(k)
    method = method_name(query.method)
    if not find_method(method).speculates:
        raise UsageError(f"method {query.method!r} drafts nothing, so nothing can be accepted")
    asked = _Asked(query, method)
    found = asked.answer(k)
    if tree is not None and tree.topk > 1:
        found = asked.with_tree(found, k, tree)
    grounds = Grounds(found.level, found.rests_on, k, (found.low_90, found.high_90))
    return replace(found, acceptance=replace(found.acceptance, grounds=grounds))


@cache
def acceptance_spread(query: AcceptanceQuery, longest: int) -> AcceptanceSpread:
    """How unsure the answers of `resolve` are at draft lengths 1 to `longest`, together."""
    asked = _Asked(query, method_name(query.method))
    asked.work = asked.work_at(longest, TreeShape(1, longest + 1))
    ks = (1, max(2, longest))
    first, last = (asked.predict(k) for k in ks)
    found = spread_of(
        [(a.z, b.z) for a, b in zip(first, last, strict=True)],
        [_posterior(query.target, c).spread(c, ks) for c in asked.conditions()], ks,
    )
    if last[0].share is None:
        return found
    return replace(found, level_sd=max(found.level_sd, _mean([p.whole_sd() for p in last])))


def named_work(word: str) -> tuple[str, str]:
    """(kind of work, data set or '') of a word for either. UsageError if it is neither."""
    if word in WORKS:
        return word, ""
    name = normalise_dataset(word)
    of_name = [p.work for p in measurements() if name and normalise_dataset(p.dataset) == name]
    if of_name and of_name[0] in WORKS:
        return of_name[0], name
    hint = closest(word, WORKS)
    raise UsageError(f"work {word!r} is not known; {hint}works: {', '.join(WORKS)}")


class _Asked:
    """One question and the rows of its target."""

    def __init__(self, query: AcceptanceQuery, method: str) -> None:
        self.query = query
        self.points = points_of(query.target)
        offered = [p for p in self.points if offered_by(p, method)]
        own = [p for p in offered if known_method(p.method) == method] or offered
        if query.drafter is not None:
            name = normalise_model(query.drafter)
            named = [p for p in offered if normalise_model(p.draft) == name]
        self.offered = offered
        self.drafter_known = query.drafter is None or bool(named)
        self.rows = own if query.drafter is None else named
        self.method = self.rows[0].method if self.rows else method.replace("-", "_")
        self._named_work, self.dataset = (
            ("", "") if query.work is None else named_work(query.work)
        )
        self.work = "chat"

    def work_at(self, k: int, tree: TreeShape) -> str:
        """The kind of work asked for; by default what users usually do, as far as it was measured
        at this k (else at any), then the one kind of work that was."""
        if self.query.work is not None:
            return self._named_work
        rows = [p for p in self.rows if p.work in WORKS]
        here = [p for p in rows if (p.k, p.tree_topk, p.num_draft_tokens) == (k, *tree)]
        for points in (here, rows):
            usual = [p for p in points if p.work in _USUAL_WORK]
            if usual:
                return min(
                    usual, key=lambda p: (p.work != "chat", p.grade, _USUAL_WORK.index(p.work))
                ).work
        works = {p.work for p in rows}
        return works.pop() if len(works) == 1 else "chat"

    # --- what was measured -------------------------------------------------------------------

    def measured(self, k: int, tree: TreeShape) -> list[MeasuredPoint]:
        """Rows at exactly this k and shape that agree with all that the question states, of each
        drafter those of the better grade."""
        query = self.query
        found = [
            p for p in self.rows
            if (p.k, p.tree_topk, p.num_draft_tokens) == (k, *tree) and p.work == self.work
            and (not self.dataset or normalise_dataset(p.dataset) == self.dataset)
            and query.temperature in (None, p.temperature)
            and query.thinking in (None, p.thinking)
            and (query.language is None or query.language == (p.language or "en"))
        ]
        if query.language is None:  # Chinese is asked for by name.
            found = [p for p in found if p.language != "zh"] or found
        several = [p for p in found if not normalise_dataset(p.dataset).startswith(_ONE_PROMPT)]
        return [p for one in _by_drafter(several or found) for p in _best_grade(one)]

    def pooled(self, points: Sequence[MeasuredPoint], value: Callable[[MeasuredPoint], float],
               ) -> float:
        """Mean over drafters of the mean over sources."""
        return _mean([
            _mean([_mean([value(p) for p in one]) for one in _groups(own, lambda p: p.set_id)])
            for own in _by_drafter(points)
        ])

    # --- the answer --------------------------------------------------------------------------

    def answer(self, k: int) -> AcceptanceEstimate:
        """For a chain of k drafts."""
        self.work = self.work_at(k, TreeShape(1, k + 1))
        points = self.measured(k, TreeShape(1, k + 1))
        predicted = self.predict(k)
        curve = self._curve(k, points, predicted)
        if points and kind_data(self.method).group == "lookup" and curve.draft_probability == 1.0:
            curve = curve.of_drafted_steps(_mean([p.with_draft() for p in self.predict(1)]) - 1.0)
        tokens = curve.tokens_per_step(k)
        low, high = (_bound(predicted, tokens, side * QUANTILE_90) for side in (-1.0, 1.0))
        level, grounds = self._grounds(points)
        source = f"{level}: {'; '.join(grounds)}" if grounds else level
        return AcceptanceEstimate(
            tokens, low, high, replace(curve, source=source, kind="catalogue"), grounds, level
        )

    def _around(self, k: int) -> dict[int, float]:
        """Tokens per step at draft lengths near k at which the work was measured, nearest first."""
        near = {p.k for p in self.rows if max(p.k / k, k / p.k) <= _CARRIED}
        order = sorted(near, key=lambda j: (abs(depth_of(j) - depth_of(k)), j))
        return {j: self.pooled(points, lambda p: p.acceptance_length) for j in order
                if (points := self.measured(j, TreeShape(1, j + 1)))}

    def _moved(self, around: Mapping[int, float], k: int) -> tuple[float, tuple[float, float]]:
        """How far what was measured at the nearest draft length moves the logit at k: by what it
        missed its own prediction, as far as the two vary together by more than who measured. And
        the bounds that those around set, the nearest before others: more drafts yield no less."""
        if not around or kind_data(self.method).group == "lookup":
            return 0.0, (1.0, k + 1.0)
        near, tokens = next(iter(around.items()))
        low, high = 1.0, k + 1.0
        for j, length in around.items():
            if j <= k and length <= high:
                low = max(low, length)
            if j >= k and length >= low:
                high = min(high, length)
        z = _mean([p.z for p in self.predict(near)])
        spreads = [_posterior(self.query.target, c).spread(c, (near, k)) for c in self.conditions()]
        own, both = _mean([one[0] for one in spreads]), _mean([one[1] for one in spreads])
        by_source = fitted_acceptance().source_variance(self.conditions()[0].kind)
        both -= by_source / len({p.set_id for p in self.measured(near, TreeShape(1, near + 1))})
        own += fitted_acceptance().noise(z, near)
        moved = (flat_logit(tokens, near) - z) * min(1.0, max(0.0, both / own))
        return moved, (low, high)

    def _grounds(self, points: Sequence[MeasuredPoint]) -> tuple[Level, tuple[str, ...]]:
        if points:
            return "measured", in_few_words(points)
        rows = telling(self.rows)
        if rows and self.drafter_known and len(_by_drafter(rows)) == 1:
            return "this drafter", in_few_words(rows)
        near = rows or telling(self.points)
        if telling(self.offered) or (near and self.query.drafter is not None):
            return "this model", in_few_words(near)
        method = find_method(method_name(self.query.method))
        trained = not (method.in_checkpoint or method.lookup)
        if trained and self.query.drafter is None:
            return "unknown", ()
        return "kind of drafter", in_few_words(near)

    def predict(self, k: int) -> list[PredictedAcceptance]:
        """The model's answer for each drafter that may be meant."""
        return [_posterior(self.query.target, c).at(c, k) for c in self.conditions()]

    def conditions(self) -> list[Condition]:
        """What is asked, once for each drafter that may be meant."""
        query = self.query
        base = Condition(
            query.target, self.method, query.drafter or "", self.dataset, self.work, 3,
            query.temperature, query.thinking, query.language or "", "a new source",
            query.draft_size,
        )
        if query.drafter is not None and self.rows:
            return [replace(base, draft=self.rows[0].draft)]
        if not self.rows:
            return [base]
        # An unnamed drafter is one per source that does not name it.
        found = []
        for points in _by_drafter(self.rows):
            own = condition_of(points[0])
            source = base.source if own.draft else own.source
            found.append(replace(base, draft=own.draft, method=own.method, source=source))
        return found

    def _curve(self, k: int, points: Sequence[MeasuredPoint], at_k: Sequence[PredictedAcceptance],
               ) -> Acceptance:
        """Acceptance by position whose tokens at k are those measured, or else predicted."""
        share = (self.pooled(points, lambda p: p.draft_probability) if points
                 else _mean([p.draft_share() for p in at_k]))
        if not points:
            around = self._around(k)
            lengths = {}
            for j in range(1, k + 1):
                moved, bounds = self._moved(around, j)
                length = _mean([tokens_at(p.z + moved, j) for p in self.predict(j)])
                lengths[j] = min(max(length, bounds[0]), bounds[1])
        else:
            tokens = self.pooled(points, lambda p: p.acceptance_length)
            # The model's shape, moved to meet the measured mean.
            moved = flat_logit(tokens, k) - _mean([p.z for p in at_k])
            lengths = {
                j: tokens_at(_mean([p.z for p in self.predict(j)]) + moved, j) for j in range(1, k)
            }
            sources = {p.set_id for p in points}
            detailed = [p for p in points if p.per_position]
            for j in range(1, k):
                same = [p for p in self.measured(j, TreeShape(1, j + 1)) if p.set_id in sources]
                if len(detailed) == len(points):
                    lengths[j] = self.pooled(points, partial(_length_at, j))
                elif same:
                    lengths[j] = self.pooled(same, lambda p: p.acceptance_length)
            lengths[k] = tokens
        curve = Acceptance.from_curve(
            {j: min(max(1.0, x), j + 1.0) for j, x in lengths.items()},
            tolerance=float(k), draft_probability=min(1.0, share),
        )
        return self._longer(curve, k, at_k, {p.set_id for p in points})

    def _longer(
        self, curve: Acceptance, k: int, at_k: Sequence[PredictedAcceptance], sources: set[str]
    ) -> Acceptance:
        """The curve up to the longest draft measured, so that lengths can be compared: beyond k
        through what the same sources measured, else along the model's increments."""
        measured = max((p.k for p in telling(self.rows)), default=0)
        rates = list(curve.unconditional)
        moved = flat_logit(curve.expected_tokens(k), k) - _mean([p.z for p in at_k])
        before, anchor = curve.expected_tokens(k), k
        for j in range(k + 1, min(measured, _LONGEST) + 1):
            here = tokens_at(_mean([p.z for p in self.predict(j)]) + moved, j)
            rates.append(min(rates[-1], max(0.0, here - before)))
            same = [p for p in self.measured(j, TreeShape(1, j + 1)) if p.set_id in sources]
            if same and {p.set_id for p in same} == sources:
                here = self.pooled(same, lambda p: p.acceptance_length)
                _stretch(rates, anchor, here - 1.0)
                anchor = j
                moved = flat_logit(here, j) - _mean([p.z for p in self.predict(j)])
            before = 1.0 + math.fsum(rates)
        return replace(curve, unconditional=tuple(rates), measured_positions=min(
            len(rates), measured or len(rates)
        ))

    def with_tree(self, chain: AcceptanceEstimate, k: int, tree: TreeShape) -> AcceptanceEstimate:
        """The same question for a tree: measured, or from the chain's rates."""
        self.work = self.work_at(k, tree)
        points = self.measured(k, tree)
        if points:
            tokens = self.pooled(points, lambda p: p.acceptance_length)
            acceptance = Acceptance.from_curve(
                {k: tokens}, source=f"measured: {'; '.join(in_few_words(points))}"
            )
            return AcceptanceEstimate(
                tokens, tokens * chain.low_90 / chain.tokens_per_step,
                min(k + 1.0, tokens * chain.high_90 / chain.tokens_per_step),
                acceptance, in_few_words(points), "measured",
            )
        acceptance = eagle_tree_acceptance(chain.acceptance, k, *tree, ranks_of(self.method))
        tokens = acceptance.tokens_per_step(k)
        low, high = (
            math.hypot(math.log(bound / chain.tokens_per_step), TREE_ERROR_90)
            for bound in (chain.low_90, chain.high_90)
        )
        level = "this drafter" if chain.level == "measured" else chain.level
        return AcceptanceEstimate(
            tokens, max(1.0, tokens * math.exp(-low)), min(k + 1.0, tokens * math.exp(high)),
            acceptance, chain.rests_on, level,
        )


def _stretch(rates: list[float], start: int, total: float) -> None:
    """Scales the rates from `start` on so that all add up to `total`; they never rise."""
    gap, tail = total - math.fsum(rates[:start]), math.fsum(rates[start:])
    factor = max(0.0, gap) / tail if tail > 0 else 0.0
    rates[start:] = [min(rates[start - 1], rate * factor) for rate in rates[start:]]


@cache
def _posterior(target: str, condition: Condition) -> Posterior:
    return Posterior(observations(points_of(target)), condition)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _length_at(k: int, point: MeasuredPoint) -> float:
    return 1.0 + math.fsum(point.per_position[:k])


def _groups(points: Sequence[MeasuredPoint], key: Callable[[MeasuredPoint], str],
            ) -> list[list[MeasuredPoint]]:
    found: dict[str, list[MeasuredPoint]] = defaultdict(list)
    for point in points:
        found[key(point)].append(point)
    return list(found.values())


def _by_drafter(points: Sequence[MeasuredPoint]) -> list[list[MeasuredPoint]]:
    """By drafter; heads of the checkpoint and lookups are one each, other unnamed drafters one
    per source."""
    def key(p: MeasuredPoint) -> str:
        named = p.draft or kind_data(p.method).per_target
        return f"{p.method} {normalise_model(p.draft)}" if named else f"{p.method} {p.set_id}"

    return _groups(points, key)


def _best_grade(points: Sequence[MeasuredPoint]) -> list[MeasuredPoint]:
    best = min(p.grade for p in points)
    return [p for p in points if p.grade == best]


def _bound(predicted: Sequence[PredictedAcceptance], tokens: float, quantile: float) -> float:
    """A bound around `tokens`: the spread of the drafters that may be meant, and of each."""
    k, share = predicted[0].k, _mean([p.draft_share() for p in predicted])
    middle = _mean([p.z for p in predicted])
    variance = _mean([p.sd * p.sd + (p.z - middle) ** 2 for p in predicted])
    if predicted[0].share is not None:
        gained = _mean([(p.tokens(quantile) - 1.0) / (p.tokens() - 1.0) for p in predicted])
        return min(k + 1.0, 1.0 + (tokens - 1.0) * gained)
    z = flat_logit(1.0 + (tokens - 1.0) / share, k)
    return tokens_at(z + quantile * math.sqrt(variance), k)
