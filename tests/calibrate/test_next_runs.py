"""Regret, and which run is worth most, against integrals done another way."""

import math
from typing import Any

import numpy as np
import pytest

from specsim.calibrate.beliefs import Joint
from specsim.calibrate.next_runs import Outlook

SURE = 1e6  # degrees of freedom of what is as good as normal


def normal(mean: list[float], sds: list[float], noise: float = 0.0) -> Joint:
    """Independent settings, each read by its own run."""
    count = len(mean)
    return Joint(np.array(mean), np.diag(sds), np.full(count, noise),
                 tuple((i,) for i in range(count)), {}, SURE)


def outlook(joint: Joint) -> Outlook:
    return Outlook(joint, [(i,) for i in range(len(joint.mean))], draws=40_000)


def expected_loss(gap: float, sd: float) -> float:
    """E[1 - exp(-max(0, d))] of d normal around -gap: the integral on a fine grid."""
    d = np.linspace(-gap - 8 * sd, -gap + 8 * sd, 200_001)
    density = np.exp(-(((d + gap) / sd) ** 2) / 2) / (sd * math.sqrt(2 * math.pi))
    return float(np.trapezoid((1 - np.exp(-np.maximum(0.0, d))) * density, d))


def test_regret_of_two_settings_is_the_integral() -> None:
    found = outlook(normal([0.05, 0.0], [0.1, 0.08]))
    (verdict,) = found.verdicts()
    sd = math.hypot(0.1, 0.08)
    assert verdict.setting == 0
    assert verdict.rival == 1
    assert verdict.regret == pytest.approx(expected_loss(0.05, sd), rel=0.03)
    assert verdict.probability == pytest.approx(
        (1 + math.erf(0.05 / sd / math.sqrt(2))) / 2, abs=0.01)


def test_reading_all_without_noise_leaves_no_regret() -> None:
    found = outlook(normal([0.0, 0.02, -0.03], [0.1, 0.1, 0.1]))
    assert found.regret_after([0, 1, 2]) == pytest.approx(0.0, abs=1e-12)
    assert found.regret_after([]) == found.regret


def test_more_runs_leave_less_regret_and_noise_more() -> None:
    quiet = outlook(normal([0.0, 0.02, -0.03], [0.1, 0.05, 0.2]))
    noisy = outlook(normal([0.0, 0.02, -0.03], [0.1, 0.05, 0.2], noise=0.01))
    left = [quiet.regret_after(list(range(count))) for count in range(4)]
    assert left == sorted(left, reverse=True)
    assert noisy.regret_after([2]) > quiet.regret_after([2])


def test_the_run_worth_most_is_the_least_known_contender() -> None:
    """Of settings alike on average, the widest; one that cannot win is never run."""
    found = outlook(normal([0.0, 0.0, -3.0], [0.01, 0.2, 0.2]))
    assert found.next([0, 1, 2])[0] == 1
    planned = found.plan([0, 1, 2])
    assert [run for run, _ in planned] == [1]
    assert planned[0][1] < 0.01


def test_a_run_that_shares_its_cause_is_as_good() -> None:
    """Settings 0 and 1 move together against 2: one run of either settles both."""
    root = np.array([[0.2], [0.2], [0.0]])
    joint = Joint(np.array([0.0, 0.01, 0.0]), root, np.full(3, 1e-8), ((0,), (1,), (2,)), {},
                  SURE)
    found = outlook(joint)
    assert found.regret > 0.05
    assert found.regret_after([0]) == pytest.approx(found.regret_after([1]), abs=1e-6)
    assert found.regret_after([0]) < 1e-3
    assert found.regret_after([2]) == pytest.approx(found.regret, abs=1e-6)


def test_nothing_is_planned_where_the_choice_is_clear() -> None:
    found = outlook(normal([0.0, -1.0], [0.01, 0.01]))
    assert found.plan([0, 1]) == []
    (verdict,) = found.verdicts()
    assert verdict.probability == 1.0


def test_few_degrees_of_freedom_leave_more_regret() -> None:
    joint = normal([0.1, 0.0], [0.05, 0.05])
    heavy = Joint(joint.mean, joint.root, joint.noise, joint.readings, {}, 3.0)
    assert outlook(heavy).regret > 1.3 * outlook(joint).regret


def test_choices_at_two_loads_are_made_apart() -> None:
    joint = normal([0.0, 1.0, 0.5, 0.2], [0.01] * 4)  # choice 0 at two loads, choice 1 at two
    found = Outlook(joint, [(0, 1), (2, 3)])
    assert [v.setting for v in found.verdicts()] == [2, 1]


def test_thousands_of_readings_of_few_causes_are_no_work() -> None:
    """8,000 readings of 130 settings: decompositions of their whole covariance took minutes. Only
    matrices of the causes' size are decomposed."""
    sizes, decompose = [], np.linalg.eigh
    rng = np.random.default_rng(1)
    root = rng.standard_normal((8000, 150)) * 0.02
    joint = Joint(np.zeros(8000), root, np.full(8000, 1e-4),
                  tuple((i, *range(200 + 50 * i, 250 + 50 * i)) for i in range(130)), {})

    def eigh(matrix: np.ndarray) -> Any:
        sizes.append(len(matrix))
        return decompose(matrix)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np.linalg, "eigh", eigh)
        found = Outlook(joint.after(range(40)), [(i,) for i in range(130)], draws=200)
    assert found.regret_after([3, 4]) <= found.regret
    assert sizes == [150]
