"""The predicted best draft length against measured sweeps, as best_k.py of validation reports."""

from typing import Any

import best_k
import pytest

# Every measured sweep is predicted once for the whole file: 10 s.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return best_k.run()


def test_best_k_holds_in_nine_of_ten_sweeps(found: dict[str, Any]) -> None:
    sweeps = found["sweeps"]
    assert len(sweeps) >= 70
    assert sum(s["good"] for s in sweeps) / len(sweeps) >= 0.9
    assert max(s["loss"] for s in sweeps) < 0.1
    for name in ("VLLMK", "MR27", "MR122"):
        assert all(s["good"] for s in sweeps if s["set"] == name)


def test_no_sweep_is_trivial(found: dict[str, Any]) -> None:
    """Always taking the shortest or the longest draft does worse than the predictions."""
    for pick in (min, max):
        losses = [
            1 - s["measured"][pick(s["measured"], key=int)] / max(s["measured"].values())
            for s in found["sweeps"] if "measured" in s
        ]
        good = sum(loss <= best_k.CLOSE for loss in losses) / len(losses)
        assert good < sum(s["good"] for s in found["sweeps"]) / len(found["sweeps"])


def test_best_k_falls_with_load(found: dict[str, Any]) -> None:
    """At 32 clients it dips: six rows each are more than the fused all-reduce takes, four are not.
    Measured and predicted, 3 is best there, and 5 over 3 gains 8.7% with one client."""
    best = found["dspark_best"]["predicted"]
    assert best == sorted(best, reverse=True)
    assert best[0] >= 5 and best[-1] == found["dspark_best"]["measured"][-1] == 3
    sweeps = sorted((s for s in found["sweeps"] if s["set"] == "DSPARK"), key=lambda s: s["load"])
    by_load = {s["load"]: s["predicted"]["5"] / s["predicted"]["3"] for s in sweeps}
    measured = {s["load"]: s["measured"]["5"] / s["measured"]["3"] for s in sweeps}
    assert by_load == pytest.approx(measured, rel=0.06)  # of two more drafts
    assert by_load.pop(32) < min(by_load[16], by_load[64], 1.01)
    gains = list(by_load.values())
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1.05
    assert gains[-1] < 1.01


def test_gain_of_dense_models_falls_with_load(found: dict[str, Any]) -> None:
    dense = [t for t in found["trends"] if t["set"] == "SDB1"]
    assert len(dense) >= 20
    assert all(t["right"] for t in dense)


def test_gain_of_a_mixture_rises_where_all_experts_are_used_alike(found: dict[str, Any]) -> None:
    even = found["hy3_even"]
    assert len(even) == 3
    assert all(t["predicted_trend"] == t["measured_trend"] == "rises" for t in even)


def test_losses_are_predicted(found: dict[str, Any]) -> None:
    judged = [x["right"] for x in found["losses"] if x["right"] is not None]
    assert len(judged) >= 12
    # 13 of 14 before groups of prompts followed SGLang's scheduler: SDB2-020 (0.94) is now 1.02.
    assert sum(judged) / len(judged) >= 0.85
    clear = [x["right"] for x in found["losses"] if x["right"] is not None and x["measured"] < 0.9]
    assert sum(clear) >= len(clear) - 1  # CLUB3090-005, whose acceptance is another's
