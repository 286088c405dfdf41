"""Intervals of ratios: what cancels, by hand and against single intervals."""

import math
from dataclasses import replace

import pytest

from specsim.analytic import paired
from specsim.analytic.intervals import interval_of
from specsim.analytic.paired import TPOT, Case, Effects, Ends, Side, effects, ratio_interval, spread
from specsim.analytic.system import System
from specsim.api.deployment import build_request
from specsim.options.prediction import PredictOptions

BY_HAND: Effects = {
    "scales": {"source": 0.3, "model": 0.4, "version": 0.1, "server": 0.2, "case": 0.05},
    "factors": {"speculative": math.log(2)},
    "bias": {"": 0.1, "speculative": 0.05},
    "covariance": {"": {"": 0.04, "speculative": 0.0},
                   "speculative": {"": 0.0, "speculative": 0.01}},
    "scales_to_an_end": {"one server": 2.0, "others": 2.0},
}
PLAIN = Case("plain|dense|vllm|measured|one", "m", "v", "m|g|1", "")
SPEC = replace(PLAIN, klass="speculative|dense|vllm|measured|one", drafts="mtp")


def system(**options: object) -> System:
    return build_request(PredictOptions.of_values(
        {"model": "llama-3.1-8b", "gpu": "h200-sxm", "concurrency": "1", **options})).system


def of_tpot(a: System, b: System) -> Ends | None:
    return ratio_interval(Side.of(a, TPOT), Side.of(b, TPOT))


EAGLE = {"method": "eagle3", "k": 3}


def test_alike_cases_differ_by_their_own_scatter_alone() -> None:
    middle, scale = spread(BY_HAND, PLAIN, PLAIN, 1, 1)
    assert middle == 0 and scale == pytest.approx(0.05 * math.sqrt(2))


def test_by_hand_speculation_against_none_on_one_server() -> None:
    middle, scale = spread(BY_HAND, SPEC, PLAIN, 1, 1)
    # twice the scatter on one side: a source and a server of 0.3 and 0.2 remain once
    assert middle == pytest.approx(0.05)
    assert scale == pytest.approx(math.sqrt(0.01 + 0.3**2 + 0.2**2 + 0.1**2 + 0.05**2))


def test_by_hand_another_model() -> None:
    other = replace(PLAIN, model="n", place="n|g|1")
    _, scale = spread(BY_HAND, PLAIN, other, 1, 1)
    assert scale == pytest.approx(math.sqrt(2 * (0.4**2 + 0.2**2 + 0.05**2)))


def test_one_side_alone_is_no_difference() -> None:
    middle, scale = spread(BY_HAND, PLAIN, SPEC, 1, 0)
    assert middle == pytest.approx(0.1)
    assert scale == pytest.approx(math.sqrt(0.04 + 0.3**2 + 0.4**2 + 0.1**2 + 0.2**2 + 0.05**2))


def test_the_shipped_effects_are_a_covariance() -> None:
    import numpy as np

    for known in effects().values():
        names = list(known["bias"])
        matrix = np.array([[known["covariance"][p][q] for q in names] for p in names])
        assert np.allclose(matrix, matrix.T) and np.linalg.eigvalsh(matrix).min() > -1e-6
        assert all(1.2 < z < 3.1 for z in known["scales_to_an_end"].values())


def test_of_speculation_and_none_it_is_the_speedups() -> None:
    with_it = system(**EAGLE)
    pair = interval_of(with_it, "speedup", 1.0)
    assert pair is not None
    found = of_tpot(with_it.plain(), with_it)  # TPOT without over with
    assert found == pytest.approx([math.log(end) for end in pair])


def test_swapped_sides_mirror_the_interval() -> None:
    a, b = system(**EAGLE), system(gpu="l40s")
    for one, two in ((a, b), (a, a.plain()), (a, a.with_(k=2))):
        forth, back = (of_tpot(*pair) for pair in ((one, two), (two, one)))
        assert forth is not None and back is not None
        assert forth == pytest.approx((-back[1], -back[0]))


def test_what_is_shared_makes_it_narrower() -> None:
    a = system(**EAGLE)
    others = [a.with_(k=2), system(gpu="l40s", **EAGLE), system(gpu="l40s", model="qwen3-8b")]
    widths = []
    for b in others:
        found = of_tpot(a, b)
        assert found is not None
        widths.append(found[1] - found[0])
    assert widths == sorted(widths) and widths[0] < widths[-1]
    apart = [interval_of(s, "tpot", 1.0) for s in (a, others[0])]
    reach = [math.log(pair[1] / pair[0]) for pair in apart if pair]
    assert widths[0] < 0.7 * math.hypot(*reach)


def test_errors_of_one_acceptance_cancel_and_of_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a = system(**EAGLE)
    assert a.acceptance is not None and a.acceptance.log_error_90 != (0.0, 0.0)
    assert paired._accepted(a, replace(a), 1, 1) == (0, 0)
    fewer, more = a.acceptance.log_error_90
    # TPOT of plain decoding over that with it: more tokens per step raise the ratio
    assert paired._accepted(a.plain(), a, 1, 1) == pytest.approx((fewer, more))
    given = system(**EAGLE, acceptance_length=2.5)
    assert paired._accepted(given.plain(), given, 1, 1) == (0, 0)


def test_datasheet_bounds_have_none() -> None:
    assert of_tpot(system(fidelity="datasheet"), system()) is None
