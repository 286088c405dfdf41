"""The course of a run in at most 120 intervals: sums, levels, percentiles, the last interval."""

import json

import numpy as np
import pytest

from sim_costs import Linear, config, plain_requests
from specsim.sim.arrivals import gamma_times
from specsim.sim.compare import MOST_POINTS, over_time
from specsim.sim.lengths import Uniform
from specsim.sim.loads import OpenLoop, requests_of
from specsim.sim.run import simulate


def load(rate=20.0, count=400, seed=1):
    return OpenLoop(
        requests_of(gamma_times(rate, seed), Uniform(5, 300), Uniform(1, 80), seed, limit=count),
        total=count,
    )


def spans(found, end_s):
    edges = np.append(found["t_s"], end_s)
    return np.diff(edges)


@pytest.mark.parametrize("replicas", [1, 3])
def test_the_intervals_add_up_to_the_run(replicas):
    result = simulate(config(n_replicas=replicas), load(), Linear())
    found = over_time(result)
    end_s = max(r.stats.timeline.end_s for r in result.cluster.replicas)
    widths = spans(found, end_s)
    assert sum(found["output_tok_s"] * widths) == pytest.approx(result.cluster.tokens, rel=1e-3)
    area = sum(r.stats.running_area for r in result.cluster.replicas)
    assert sum(found["running"] * widths) == pytest.approx(area, rel=1e-3)
    busy = sum(r.stats.busy_s for r in result.cluster.replicas)
    assert sum(found["busy"] * widths) * replicas == pytest.approx(busy, rel=1e-3)
    assert max(found["busy"]) <= 1.0 + 1e-9 and max(found["kv_usage"]) <= 1.0
    assert json.loads(json.dumps(found)) == found


def test_a_long_run_has_few_points_and_a_short_one_enough():
    long = simulate(config(), OpenLoop(plain_requests(*[(50.0 * i, 5, 5) for i in range(200)])),
                    Linear())
    found = over_time(long)
    assert MOST_POINTS / 2 < len(found["t_s"]) <= MOST_POINTS
    assert found["t_s"][1] - found["t_s"][0] == found["width_s"]
    short = over_time(simulate(config(), load(rate=100.0, count=200), Linear()))
    assert len(short["t_s"]) >= 10


def test_ttft_is_that_of_the_requests_sent_in_the_interval():
    result = simulate(config(max_num_seqs=2), load(rate=40.0), Linear())
    found = over_time(result)
    arrival = result.records.times("arrival_s")
    ttft = result.records.times("first_token_s") - arrival
    last = len(found["t_s"]) - 1
    for i, start in enumerate(found["t_s"]):
        inside = (arrival >= start) & ((arrival < start + found["width_s"]) | (i == last))
        if not inside.any():
            assert found["ttft_p95_s"][i] is None
            continue
        assert found["ttft_p50_s"][i] == pytest.approx(np.percentile(ttft[inside], 50), rel=1e-4)
        assert found["ttft_p95_s"][i] == pytest.approx(np.percentile(ttft[inside], 95), rel=1e-4)
    # An overloaded server: who comes later waits longer.
    known = [value for value in found["ttft_p50_s"] if value is not None]
    assert known[-1] > 5 * known[0] and max(found["waiting"]) > 50


def test_a_level_that_lasts_is_that_level_to_the_end():
    """One request that runs from start to end: mean running is 1 in the last, shorter interval
    too."""
    result = simulate(config(), OpenLoop(plain_requests((0.0, 5, 400))), Linear())
    found = over_time(result)
    assert found["running"] == pytest.approx([1.0] * len(found["t_s"]), rel=1e-3)
