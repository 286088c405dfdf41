"""The trend test: how often it cries wolf on stationary queues, and whether it sees what drifts."""

import numpy as np
import pytest
from thinned import slow

from specsim.sim.figures import Figures
from specsim.sim.stationarity import BATCHES, LEVEL, judge_trends, trend_of
from specsim.sim.steplog import Timeline


def mm1_batches(load: float, span_s: float, generator: np.random.Generator) -> np.ndarray:
    """Mean number in an M/M/1 queue (service rate 1) by batch, begun in its steady state."""
    count = int(span_s * 4) + 200
    up = generator.random(count)
    waits_s = generator.exponential(size=count)
    number = int(generator.geometric(1 - load)) - 1
    timeline, now_s = Timeline(span_s / BATCHES / 8), 0.0
    starts, ends, levels = [], [], []
    for i in range(count):
        rate = load + (number > 0)
        end_s = min(now_s + waits_s[i] / rate, span_s * (1 - 1e-9))
        starts.append(now_s)
        ends.append(end_s)
        levels.append(number)
        now_s = end_s
        if now_s >= span_s * (1 - 1e-9):
            break
        number += 1 if up[i] < load / rate else -1
    values = np.zeros((len(Timeline.FIELDS), len(ends)))
    values[0] = levels
    timeline.add(np.array(starts), np.array(ends), values)
    return timeline.area[0, : BATCHES * 8].reshape(BATCHES, 8).sum(axis=1) / (span_s / BATCHES)


def figures(values: np.ndarray) -> Figures:
    return {"trend": {"running": trend_of(values)}}  # type: ignore[typeddict-item]


@pytest.mark.parametrize(("load", "span_s"), [(0.5, 200.0), (0.8, 500.0), slow(0.9, 2000.0)])
def test_a_stationary_queue_is_seldom_said_to_drift(load: float, span_s: float) -> None:
    """No more often than LEVEL, up to three standard errors of the share; one run and several."""
    generator = np.random.default_rng(3)
    runs = [figures(mm1_batches(load, span_s, generator)) for _ in range(240)]
    for size in (1, 4):
        groups = [runs[i : i + size] for i in range(0, len(runs), size)]
        wolf = sum(judge_trends(group).stationary is False for group in groups) / len(groups)
        assert wolf <= LEVEL + 3 * (LEVEL * (1 - LEVEL) / len(groups)) ** 0.5, (size, wolf)


def test_a_queue_that_grows_is_seen() -> None:
    generator = np.random.default_rng(4)
    ramp = np.linspace(0.0, 6.0, BATCHES)
    runs = [figures(mm1_batches(0.5, 400.0, generator) + ramp) for _ in range(80)]
    seen = sum(judge_trends([run]).stationary is False for run in runs) / len(runs)
    assert seen >= 0.8
    found = judge_trends(runs[:4])
    assert found.stationary is False and "running requests rise from" in found.sentence
    assert found.series["running"].change == pytest.approx(6.0, rel=0.3)


def test_correlated_batches_count_as_fewer() -> None:
    generator = np.random.default_rng(5)
    noise = generator.normal(size=400)
    walk = np.zeros(400)
    for i in range(1, 400):
        walk[i] = 0.7 * walk[i - 1] + noise[i]
    alone, together = ([trend_of(x[i : i + BATCHES])["independent"] for i in range(0, 400, BATCHES)]
                       for x in (noise, walk))
    assert np.median(alone) > 1.5 * np.median(together)


def test_what_does_not_change_or_hardly_changes_is_stationary() -> None:
    assert judge_trends([figures(np.full(BATCHES, 7.0))]).stationary is True
    slight = np.linspace(100.0, 105.0, BATCHES)  # sure, but below MATERIAL
    found = judge_trends([figures(slight)])
    assert found.stationary is True and found.series["running"].p < 1e-6
    assert judge_trends([{"trend": {}}]).stationary is None  # type: ignore[list-item]
