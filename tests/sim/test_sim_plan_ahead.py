"""Steps planned one ahead (asynchronous scheduling), by hand: 10 ms per step whatever it holds."""

import pytest

from specsim.latency.launches import Launches
from specsim.latency.shape import StepShape
from specsim.sim.config import SimConfig
from specsim.sim.engine_rules import EngineRules
from specsim.sim.loads import OpenLoop
from specsim.sim.request import Request
from specsim.sim.run import simulate


class TenMilliseconds:
    def seconds(self, shape: StepShape) -> float:
        return 0.010


def first_tokens(arrivals: list[float], *, ahead: bool, output: int = 200) -> list[float]:
    rules = EngineRules(plan_ahead=ahead, readback_lag_steps=int(ahead))
    config = SimConfig(num_kv_blocks=1000, rules=rules)
    load = OpenLoop([Request(t, 16, output) for t in arrivals])
    records = simulate(config, load, TenMilliseconds()).records
    return [record.first_token_s for record in records]


def test_a_request_that_comes_during_a_step_waits_for_the_planned_one() -> None:
    # Steps are [0, 10), [10, 20), ... At 15 ms the step of [20, 30) was planned (at 10 ms).
    assert first_tokens([0.0, 0.015], ahead=False) == pytest.approx([0.010, 0.030])
    assert first_tokens([0.0, 0.015], ahead=True) == pytest.approx([0.010, 0.040])


def test_one_that_is_there_when_a_step_starts_is_in_the_next() -> None:
    # Ready at 20 ms, when [20, 30) starts and [30, 40) is planned.
    assert first_tokens([0.0, 0.020], ahead=True)[1] == pytest.approx(0.040)


def test_an_idle_engine_takes_a_request_at_once() -> None:
    # The first has a single token, so nothing runs from 10 ms on.
    assert first_tokens([0.0, 0.5], ahead=True, output=1) == pytest.approx([0.010, 0.510])
    # Nor was anything planned behind its only step when the second came.
    assert first_tokens([0.0, 0.005], ahead=True, output=1) == pytest.approx([0.010, 0.020])


class Launched:
    """Prompt steps of 30 ms, 25 of them waiting for launches; decode steps of 10 ms."""

    def seconds(self, shape: StepShape) -> float:
        return 0.030 if shape.prefill else 0.010

    def launches(self, shape: StepShape) -> Launches:
        return Launches(0.025, 0.002) if shape.prefill else Launches(0.0, 0.010)


@pytest.mark.parametrize("exact", [False, True])
def test_launches_hide_behind_the_step_before(exact: bool) -> None:
    def firsts(arrivals: list[float], ahead: bool) -> list[float]:
        rules = EngineRules(
            plan_ahead=ahead, readback_lag_steps=int(ahead), max_num_batched_tokens=16
        )
        config = SimConfig(num_kv_blocks=1000, rules=rules, exact_cost=exact)
        load = OpenLoop([Request(t, 15, 200) for t in arrivals])
        records = simulate(config, load, Launched()).records
        return [record.first_token_s for record in records]

    # An idle engine hides nothing. The second prompt came during the decode step of [80, 90), for
    # which [90, 100) was planned; its own step saves the 10 ms of that one.
    assert firsts([0.0, 0.085], ahead=True) == pytest.approx([0.030, 0.120])
    assert firsts([0.0, 0.085], ahead=False) == pytest.approx([0.030, 0.120])
    # Two prompts, one step each: the first step leaves the host 2 ms of its 30.
    assert firsts([0.0, 0.0], ahead=True) == pytest.approx([0.030, 0.058])
    assert firsts([0.0, 0.0], ahead=False) == pytest.approx([0.030, 0.060])
