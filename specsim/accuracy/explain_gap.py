"""What explains a gap between measured and predicted: one ingredient at a time is swapped.

The causes and what each is measured from are listed in docs/validate.md. The quantity looked at is
the mean time of a whole request (or TTFT + (tokens - 1) x TPOT where only those are known), because
every ingredient is in it; the gap of a session is the mean over its points of |predicted / measured
- 1|. Step cost and host gap come from the typical gap between chunks of each point, measured = s x
predicted + g, by least squares of relative errors; both at once need predicted steps that differ by
SPREAD or more. A cause's share is how much of the gap goes when it alone is swapped; `gap_after` is
the gap with it and all causes above it in the list swapped together.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from specsim.accuracy.live_replay import Figures, MeasuredLoad, Replay, Swap

SPREAD = 1.3
SMALL_GAP = 0.03
SAME_TOKENS = 0.03
MOST_SCALE = 20.0
Predict = Callable[[MeasuredLoad, Swap, bool], Replay]


@dataclass(frozen=True)
class Seen:
    """A point with what was measured and predicted."""

    point: MeasuredLoad
    measured: Figures
    predicted: Replay


@dataclass(frozen=True)
class Cause:
    """One ingredient: its swap, whether it takes the measured acceptance or queue, evidence.
    group: of causes of one group only one is taken on."""

    name: str
    evidence: str
    swap: Swap = Swap()
    acceptance: bool = False
    queue: bool = False
    group: str = ""


def explain(seen: Sequence[Seen], predict: Predict) -> tuple[dict[str, object], ...]:
    """Causes of the gap, largest first, then what is left. predict(point, swap, acceptance):
    simulate a point again; acceptance: with the measured one."""
    usable = [item for item in seen if _whole(item.measured, item.point) is not None]
    if not usable:
        return ({"cause": "unknown", "evidence": "no times of whole requests were measured"},)
    before = _gap(usable, [item.predicted.figures for item in usable], queue=False)
    if before < SMALL_GAP:
        words = f"predicted and measured request times differ by {before:.1%}: no gap to explain"
        return ({"cause": "none", "evidence": words, "gap": before, "gap_after": before},)
    found = []
    for cause in _causes(usable, predict):
        figures = [_again(item, cause, predict) for item in usable]
        after = _gap(usable, figures, queue=cause.queue)
        found.append((1.0 - after / before, cause))
    found.sort(key=lambda pair: -pair[0])
    reasons, done = [], Cause("", "")
    remaining, groups = before, set[str]()
    for share, cause in found:
        kept = False
        if cause.group not in groups:
            joined = _join(done, cause)
            figures = [_again(item, joined, predict) for item in usable]
            after = _gap(usable, figures, queue=joined.queue)
            kept = after < remaining
            if kept:
                done, remaining = joined, after
                groups |= {cause.group} - {""}
        reasons.append({
            "cause": cause.name, "evidence": cause.evidence, "share": share,
            "gap": before, "gap_after": remaining, "explains": kept and share > 0.05,
        })
    reasons.append({
        "cause": "unexplained", "share": remaining / before, "gap": before,
        "gap_after": remaining,
        "evidence": f"{remaining:.1%} of the {before:.1%} remain with all of it swapped",
    })
    return tuple(reasons)


def _again(item: Seen, cause: Cause, predict: Predict) -> Figures:
    if cause.swap == Swap() and not cause.acceptance:
        return item.predicted.figures
    return predict(item.point, cause.swap, cause.acceptance).figures


def _join(one: Cause, two: Cause) -> Cause:
    a, b = one.swap, two.swap
    swap = Swap(
        a.step_scale * b.step_scale, a.step_add_s + b.step_add_s,
        a.prefill_scale * b.prefill_scale, a.request_s if b.request_s is None else b.request_s,
    )
    return Cause("", "", swap, one.acceptance or two.acceptance, one.queue or two.queue)


def _whole(figures: Mapping[str, float], point: MeasuredLoad) -> float | None:
    """Mean seconds of a whole request."""
    if figures.get("e2el_mean_s"):
        return figures["e2el_mean_s"]
    tokens = point.run.output_tokens_mean
    if tokens and figures.get("ttft_mean_s") and figures.get("tpot_mean_s"):
        return figures["ttft_mean_s"] + (tokens - 1) * figures["tpot_mean_s"]
    return None


def _gap(seen: Sequence[Seen], figures: Sequence[Figures], *, queue: bool) -> float:
    """Mean of |predicted / measured - 1|. queue: with the measured wait in place of the other."""
    total = 0.0
    for item, predicted in zip(seen, figures, strict=True):
        measured, value = _whole(item.measured, item.point), _whole(predicted, item.point)
        assert measured is not None and value is not None
        if queue and "queue_mean_s" in item.measured:
            value += item.measured["queue_mean_s"] - predicted["queue_mean_s"]
        total += abs(value / measured - 1)
    return total / len(seen)


def _causes(seen: Sequence[Seen], predict: Predict) -> list[Cause]:
    causes = [_acceptance(seen)]
    causes += _steps(seen)
    causes.append(_prefill(seen, predict))
    causes += [_front_end(seen), _queueing(seen)]
    return [cause for cause in causes if cause is not None]


def _acceptance(seen: Sequence[Seen]) -> Cause | None:
    """Only where the prediction assumed one: replayed or counted acceptance has no gap."""
    pairs = []
    for item in seen:
        tokens, assumed = item.measured.get("tokens_per_step"), item.predicted.figures.get(
            "tokens_per_step")
        if item.predicted.system.speculative and tokens and assumed:
            pairs.append((tokens, assumed))
    if not pairs:
        return None
    if all(abs(predicted / measured - 1) < SAME_TOKENS for measured, predicted in pairs):
        return None  # it was taken from the measurement
    measured, predicted = (_mean([p[i] for p in pairs]) for i in (0, 1))
    words = f"tokens per step: {measured:.3g} measured, {predicted:.3g} predicted"
    return Cause("acceptance", words, acceptance=True)


def step_pairs(seen: Sequence[Seen]) -> list[tuple[float, float]]:
    """(predicted, measured) seconds of a typical decode step of each point: the median gap between
    chunks, which prompts hardly touch. With n-gram and suffix the mean: steps with and without a
    draft differ in what is measured, and are priced alike in what is predicted."""
    pairs = []
    for item in seen:
        lookup = item.predicted.system.setup.drafting.lookup
        ours, theirs = item.predicted.figures, item.measured
        name = "itl_mean_s" if lookup else "itl_p50_s"
        measured, predicted = theirs.get(name), ours.get(name)
        if not measured:
            tpot, steps = theirs.get("tpot_mean_s"), theirs.get("tokens_per_step", 1.0)
            measured = tpot * steps if tpot else None
            predicted = ours.get("tpot_mean_s", 0.0) * ours.get("tokens_per_step", 1.0)
        if measured and predicted:
            pairs.append((predicted, measured))
    return pairs


def fit_scale(pairs: Sequence[tuple[float, float]]) -> float:
    """s of measured = s x predicted: the geometric mean of the ratios."""
    return math.exp(_mean([math.log(m / p) for p, m in pairs]))


def fit_constant(pairs: Sequence[tuple[float, float]]) -> float:
    """g of measured = predicted + g with least relative error."""
    weights = [1 / m**2 for _, m in pairs]
    return sum(w * (m - p) for w, (p, m) in zip(weights, pairs, strict=True)) / sum(weights)


def fit_both(pairs: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """(s, g) of measured = s x predicted + g with least relative error; None where the predicted
    steps are too alike to tell them apart, or the scale would be negative."""
    predicted = [p for p, _ in pairs]
    if len(pairs) < 2 or max(predicted) < SPREAD * min(predicted):
        return None
    # Weighted normal equations with weights 1 / measured^2.
    a = sum((p / m) ** 2 for p, m in pairs)
    b = sum(p / m**2 for p, m in pairs)
    c = sum(1 / m**2 for _, m in pairs)
    u, v = sum(p / m for p, m in pairs), sum(1 / m for _, m in pairs)
    determinant = a * c - b * b
    if determinant <= 0:
        return None
    s, g = (u * c - v * b) / determinant, (a * v - b * u) / determinant
    return (s, g) if s > 0 else None


def _steps(seen: Sequence[Seen]) -> list[Cause]:
    pairs = step_pairs(seen)
    if not pairs:
        return []
    scale, gap_s, both = fit_scale(pairs), fit_constant(pairs), fit_both(pairs)
    words = (
        f"typical step at {seen[0].point.name}: {pairs[0][1] * 1e3:.3g} ms measured, "
        f"{pairs[0][0] * 1e3:.3g} ms predicted"
    )
    alike = "" if both else "; these points cannot tell a scale from a constant"
    causes = [
        Cause("step cost", f"{words}; steps x {scale:.3g}{alike}", Swap(scale), group="steps"),
        Cause("host gap", f"{words}; {gap_s * 1e3:+.3g} ms in every step{alike}",
              Swap(step_add_s=gap_s), group="steps"),
    ]
    if both:
        more = (
            f"{words}; over {len(pairs)} points measured = {both[0]:.3g} x predicted "
            f"{both[1] * 1e3:+.3g} ms"
        )
        causes.append(Cause("step cost and host gap", more, Swap(*both), group="steps"))
    return causes


def _lightest(seen: Sequence[Seen]) -> Seen:
    return min(seen, key=lambda item: item.measured.get("open_requests_mean", math.inf))


def _prefill(seen: Sequence[Seen], predict: Predict) -> Cause | None:
    item = _lightest(seen)
    measured, ours = item.measured, item.predicted.figures
    if "prefill_mean_s" in measured:
        target, what = measured["prefill_mean_s"], "scheduled to first token (server)"
        now = ours["prefill_mean_s"]
    elif "ttft_mean_s" in measured:
        wait = measured.get("queue_mean_s", ours["queue_mean_s"])
        target, what = measured["ttft_mean_s"] - wait, "time to first token (client)"
        now = ours["ttft_mean_s"] - ours["queue_mean_s"]
    else:
        return None
    key = "prefill_mean_s"
    twice = predict(item.point, Swap(prefill_scale=2.0), False).figures[key]
    slope = twice - ours[key]
    if slope <= 0 or target <= 0:
        return None
    scale = min(max(1.0 + (target - now) / slope, 1 / MOST_SCALE), MOST_SCALE)
    words = (
        f"{what} at {item.point.name}: {target * 1e3:.3g} ms measured, {now * 1e3:.3g} ms "
        f"predicted; prompt work x {scale:.3g}"
    )
    if "prefix_hit_rate" in measured:
        words += (
            f"; prefix cache hits {measured['prefix_hit_rate']:.0%} measured, "
            f"{ours.get('prefix_hit_rate', 0.0):.0%} simulated"
        )
    return Cause("prefill", words, Swap(prefill_scale=scale))


def _front_end(seen: Sequence[Seen]) -> Cause | None:
    item = _lightest(seen)
    m = item.measured
    if not {"ttft_mean_s", "queue_mean_s", "prefill_mean_s"} <= set(m):
        return None
    measured = max(0.0, m["ttft_mean_s"] - m["queue_mean_s"] - m["prefill_mean_s"])
    predicted = item.predicted.system.engine.overheads.request_s
    words = (
        f"TTFT less the server's queue and prefill at {item.point.name}: {measured * 1e3:.3g} ms "
        f"per request measured, {predicted * 1e3:.3g} ms predicted"
    )
    return Cause("front end", words, replace(Swap(), request_s=measured))


def _queueing(seen: Sequence[Seen]) -> Cause | None:
    known = [i for i in seen if "queue_mean_s" in i.measured]
    if not known:
        return None
    worst = max(known, key=lambda i: abs(
        i.measured["queue_mean_s"] - i.predicted.figures["queue_mean_s"]))
    words = (
        f"mean wait for admission at {worst.point.name}: "
        f"{worst.measured['queue_mean_s'] * 1e3:.3g} ms measured, "
        f"{worst.predicted.figures['queue_mean_s'] * 1e3:.3g} ms predicted"
    )
    return Cause("queueing", words, queue=True)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
