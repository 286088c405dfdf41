"""People met in mid-life: renewal theory, and a stage that does not drift."""

import numpy as np
import pytest

from specsim.analytic.system import System
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.model.catalogue import find_model
from specsim.planning.capacity_loads import People
from specsim.planning.capacity_runs import WITH, Study, Trial
from specsim.sim.behaviour import PLAYED_TOK_S, ChatBehaviour, begun, user_stream
from specsim.sim.lengths import Constant, law_from
from specsim.sim.run import simulate
from specsim.sim.stationarity import judge_trends

PEOPLE = 1500


def met(habits: ChatBehaviour, people: int = PEOPLE) -> list:
    return [begun(habits, user_stream(7, n), thinking=True, settled=True) for n in range(people)]


def test_what_is_left_of_a_turn_is_its_mean_square_over_twice_its_mean() -> None:
    """Pauses of 10 to 90 s, one-turn conversations: E[D^2] / 2 E[D] (inspection paradox)."""
    pause = law_from({"dist": "uniform", "low": 10, "high": 90}, "test")
    habits = ChatBehaviour(Constant(100.0), Constant(1.0), Constant(1.0), pause, read_tok_s=1e9)
    left = np.array([user.at_s for user in met(habits)])
    answer = 1 / PLAYED_TOK_S
    mean, square = 50 + answer, 80**2 / 12 + (50 + answer) ** 2
    expected = square / (2 * mean)
    assert left.mean() == pytest.approx(expected, abs=4 * left.std() / PEOPLE**0.5)
    assert abs(left.mean() - mean / 2) > 4 * left.std() / PEOPLE**0.5  # not of any turn


@pytest.mark.slow
def test_turns_done_are_those_of_a_conversation_met_in_proportion_to_its_length() -> None:
    """Turns alike: the moment lies in the n-th with P(at least n turns) / E[turns]."""
    habits = ChatBehaviour(
        Constant(100.0), Constant(20.0), Constant(40.0), Constant(30.0), another_turn=0.8,
        max_turns=8, read_tok_s=1e9,
    )
    found = met(habits)
    weights = 0.8 ** np.arange(8)
    # The next call's turn is that of the conversation at hand, 0 where a new one begins.
    share_new = weights @ np.r_[np.full(7, 0.2), 1.0] / weights.sum()
    turns = np.array([user.call.turn for user in found])
    error = (share_new * (1 - share_new) / PEOPLE) ** 0.5
    assert (turns == 0).mean() == pytest.approx(share_new, abs=4 * error)
    for n in range(1, 8):
        expected = weights[n] / weights.sum()
        assert (turns == n).mean() == pytest.approx(
            expected, abs=4 * (expected * (1 - expected) / PEOPLE) ** 0.5
        )
    # History: an opener, and a message and an answer for each turn since.
    for user in found:
        if user.call.turn:
            assert user.context == 100 + 40 * user.call.turn + 20 * (user.call.turn - 1)


@pytest.mark.slow
def test_a_settled_stage_does_not_drift_where_beginners_do() -> None:
    """Long conversations: as run they grow over the stage, settled they are as long throughout."""
    habits = ChatBehaviour(
        law_from({"dist": "uniform", "low": 20, "high": 400}, "test"), Constant(200.0),
        law_from({"dist": "lognormal", "mean": 150, "sigma": 0.4}, "test"), Constant(8.0),
        another_turn=0.93, max_turns=60, start_s=law_from(
            {"dist": "uniform", "low": 0, "high": 10}, "test"),
    )
    system = System(
        find_model("llama-3.1-8b"), load_profile("h200-sxm"), find_engine("vllm", "0.25.1")
    )
    beginners = People(habits, duration_s=200.0, warmup_s=40.0)
    shapes = (beginners, People(habits, 200.0, 40.0, settled=True))
    study = Study(system, shapes, {"ttft_p95": 2.0})
    as_run, settled = (
        judge_trends([study.run(Trial(WITH, 0, 40.0, seed, shape)) for seed in range(3)])
        for shape in (0, 1)
    )
    assert as_run.stationary is False and as_run.series["context"].drifts
    assert settled.stationary is True, settled.sentence
    assert settled.series["context"].first > 1.3 * as_run.series["context"].first


def test_a_study_runs_what_a_simulation_runs() -> None:
    """Prices that a study keeps say all that the step cost says, launches hidden behind the step
    before too: one load and seed has one result."""
    habits = ChatBehaviour(
        Constant(900.0), Constant(60.0), Constant(80.0), Constant(1.0), another_turn=0.5,
        max_turns=4, start_s=law_from({"dist": "uniform", "low": 0, "high": 5}, "test"),
    )
    system = System(find_model("qwen3-0.6b"), load_profile("h200-sxm"), find_engine("sglang"))
    people = People(habits, duration_s=30.0, warmup_s=5.0)
    study = Study(system, (people,), {"ttft_p95": 2.0})
    deployment = study.deployment(WITH)
    assert system.plans_ahead and hasattr(deployment.cost, "launches")
    alone = simulate(deployment.config, people.make(24.0, 1), deployment.cost, 1)
    assert study.run(Trial(WITH, 0, 24.0, 1)) == alone.summary(completed=True)
