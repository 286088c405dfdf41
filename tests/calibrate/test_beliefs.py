"""Beliefs about settings of one server: what a run of one tells of the others."""

import math
from dataclasses import replace

import numpy as np
import pytest

from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.calibrate.beliefs import Beliefs, Joint, SeenRun, Setting, drafting_setting
from specsim.calibrate.fewshot import FewShotPoint
from specsim.options.groups import DeploymentOptions as Options
from specsim.speculation.acceptance_model import depth_of, flat_logit
from specsim.speculation.acceptance_posterior import AcceptanceSpread, spread_of
from specsim.speculation.resolve import AcceptanceQuery, acceptance_spread, resolve

LENGTHS = (1, 3, 5)
WORK = Workload(650, 256)
SPREAD = AcceptanceSpread(0.3, 0.2, depth_of(3))


def settings(*loads: int, method: str = "mtp") -> list[Setting]:
    """Plain decoding, then MTP with 1, 3, 5 drafts, at each load."""
    base = build_request(Options(model="qwen3.6-27b", weights="fp8", method=method, k=5)).system
    found = []
    for k in (0, *LENGTHS):
        for load in loads:
            point = FewShotPoint(f"k{k}", base.with_(k=k), WORK, load)
            found.append(drafting_setting(point, "output_tok_s", method, SPREAD) if k
                         else Setting(point, "output_tok_s"))
    return found


@pytest.fixture(scope="module")
def beliefs() -> Beliefs:
    return Beliefs(settings(8))


def sd(joint: Joint, place: int) -> float:
    return float(joint.covariance[place, place] ** 0.5)


def test_told_is_the_conditional_of_a_t_distribution() -> None:
    joint = Joint(np.array([1.0, 2.0]), np.array([[2.0, 0.0], [0.6, 0.8]]), np.array([0.0, 0.44]),
                  ((0,), (1,)), {}, freedom=4.0)
    found = joint.told([1], [3.0])
    # By hand, of the covariance ((4, 1.2), (1.2, 1)): the reading has variance 1 + 0.44; one more
    # degree of freedom, and the scale (4 + surprise) / (4 + 1) with surprise = 1 / 1.44.
    assert found.mean[0] == pytest.approx(1 + 1.2 / 1.44)
    scale = (4 + 1 / 1.44) / 5
    assert found.covariance[0, 0] == pytest.approx(scale * (4 - 1.2**2 / 1.44))
    assert found.freedom == 5
    assert joint.told([], []) is joint


def test_factors_are_the_covariance_of_the_causes(beliefs: Beliefs) -> None:
    """Against the whole matrices: before any run, and what is left after two were read."""
    joint, count = beliefs.prior_at(np.zeros(beliefs.width)), len(beliefs.settings)
    maps = joint.root[:, : beliefs.width]
    whole = maps @ maps.T
    whole[:count, :count] += beliefs.scatter()
    assert joint.covariance == pytest.approx(whole, abs=1e-12)
    at = [0, 2]
    own = whole[np.ix_(at, at)] + np.diag(joint.noise[at])
    assert joint.gain([3, 1], at) == pytest.approx(whole[np.ix_([3, 1], at)] @ np.linalg.inv(own))
    left = whole - whole[:, at] @ np.linalg.inv(own) @ whole[at]
    assert joint.after(at).covariance == pytest.approx(left, abs=1e-10)
    assert joint.after(at).left(joint, [1, 3]) == pytest.approx(
        ((left[1, 1] + left[3, 3]) / (whole[1, 1] + whole[3, 3])) ** 0.5)


def test_the_order_of_readings_does_not_matter(beliefs: Beliefs) -> None:
    joint = beliefs.prior_at(np.zeros(beliefs.width))
    values = [float(joint.mean[i]) + 0.1 * (i + 1) for i in (0, 2)]
    at_once = joint.told([0, 2], values)
    for order in ((0, 1), (1, 0)):
        found = joint
        for i in order:
            found = found.told([(0, 2)[i]], [values[i]])
        assert found.mean == pytest.approx(at_once.mean, abs=1e-9)
        assert found.covariance == pytest.approx(at_once.covariance, abs=1e-9)
        assert found.freedom == at_once.freedom


def test_before_any_run_it_is_the_prediction(beliefs: Beliefs) -> None:
    from specsim.analytic.closed import closed_loop

    joint = beliefs.joint()
    for place, setting in enumerate(beliefs.settings):
        state = closed_loop(setting.point.system, WORK, 8)
        assert joint.mean[place] == pytest.approx(math.log(state.output_tok_s))
        assert 0.05 < sd(joint, place) < 0.6


def test_acceptance_at_k_tells_of_every_shorter_k(beliefs: Beliefs) -> None:
    """A run at 5 drafts that counted every position, at the speed expected for what it counted."""
    long = beliefs.settings[3]
    lengths = {j: long.expected(j) for j in range(1, 6)}
    before = beliefs.joint()
    after = before.told(*beliefs.reads([SeenRun(3, math.exp(before.mean[3]), lengths)]))
    for place in (1, 2):
        assert sd(after, place) < 0.8 * sd(before, place)
    short = before.told(*beliefs.reads([
        SeenRun(1, math.exp(before.mean[1]), {1: beliefs.settings[1].expected(1)})]))
    for cause in ("acceptance:mtp", "acceptance slope:mtp"):
        place = before.causes[cause]
        assert sd(after, place) < sd(short, place) < sd(before, place)


def test_more_acceptance_and_slower_steps_carry_over(beliefs: Beliefs) -> None:
    expected = np.exp(beliefs.joint().mean)
    length = beliefs.settings[2].expected(3)
    better = beliefs.joint([SeenRun(2, 1.1 * expected[2], {3: min(3.95, 1.1 * length)})])
    slower = beliefs.joint([SeenRun(2, 0.8 * expected[2], {3: length})])
    for place in (1, 3):
        assert better.mean[place] > math.log(expected[place]) + 0.03
        assert slower.mean[place] < math.log(expected[place]) - 0.08
    # What is slow with drafts at their expected acceptance is slow without them in part.
    assert math.log(0.8) < slower.mean[0] - math.log(expected[0]) < 0


def test_a_result_that_fits_nothing_leaves_more_doubt(beliefs: Beliefs) -> None:
    expected = np.exp(beliefs.joint().mean)
    near = beliefs.joint([SeenRun(2, expected[2]), SeenRun(1, expected[1])])
    far = beliefs.joint([SeenRun(2, 2.0 * expected[2]), SeenRun(1, 0.5 * expected[1])])
    assert sd(far, 3) > 1.5 * sd(near, 3)


def test_a_load_tells_of_others_less_than_of_itself() -> None:
    two = Beliefs(settings(8, 64))
    before = two.joint()
    after = before.told([4], [float(before.mean[4])])  # k = 3 at 8 clients
    assert sd(after, 4) / sd(before, 4) < sd(after, 5) / sd(before, 5) < 1


def test_the_speed_of_plain_decoding_over_itself_is_known() -> None:
    plain, *drafting = (replace(s, metric="speedup") for s in settings(8))
    joint = Beliefs([plain, *drafting]).joint()
    assert joint.mean[0] == 0.0
    assert sd(joint, 0) == 0.0


# --- the spread of acceptance -------------------------------------------------------------------


def test_level_and_slope_give_back_the_covariance() -> None:
    first, both, last, ks = 0.09, 0.05, 0.16, (1, 8)
    found = spread_of([(1.0, 0.5)], [(first, both, last)], ks)
    weights = [found.weights(k) for k in ks]
    for i, j, value in ((0, 0, first), (0, 1, both), (1, 1, last)):
        dot = sum(a * b for a, b in zip(weights[i], weights[j], strict=True))
        assert dot == pytest.approx(value)


def test_drafters_that_differ_are_spread() -> None:
    alike = spread_of([(1.0, 0.5)] * 2, [(0.01, 0.01, 0.01)] * 2, (1, 8))
    apart = spread_of([(1.0, 0.5), (2.0, 1.5)], [(0.01, 0.01, 0.01)] * 2, (1, 8))
    assert alike.level_sd == pytest.approx(0.1)
    assert apart.level_sd == pytest.approx(math.sqrt(0.01 + 0.25))


def test_the_spread_is_that_of_the_resolver() -> None:
    """Half the 90 % interval of tokens per step, as z, less the noise of one row."""
    query, k = AcceptanceQuery("qwen3.6-27b", "mtp"), 3
    found, answer = acceptance_spread(query, 8), resolve(query, k)
    low, high = (flat_logit(x, k) for x in (answer.low_90, answer.high_90))
    wanted = (high - low) / (2 * 1.6449)
    assert math.hypot(*found.weights(k)) == pytest.approx(wanted, rel=0.1)
    assert math.hypot(*found.weights(k)) <= wanted


def test_given_positions_are_known_and_further_ones_are_not() -> None:
    spread = AcceptanceSpread(0.0, 0.36, depth_of(3), known=3)
    assert [spread.weights(k)[1] for k in (1, 2, 3)] == [0.0, 0.0, 0.0]
    assert spread.weights(6)[1] > 0.05
