"""Public curves: which points are fitted, and that two points help on those that were not."""

import json
import statistics
from pathlib import Path

import fewshot
import pytest
from fewshot_curves import curves

from specsim.calibrate.fewshot_priors import PRIORS

REPORTS = Path(__file__).resolve().parents[2] / "validation" / "reports"


@pytest.mark.slow
@pytest.mark.parametrize("set_id", ["NEMLIT", "GPUSTK8"])
def test_two_points_take_a_quarter_of_the_error_or_more(set_id: str) -> None:
    found, _ = curves(set_id)
    rows = [row for curve in found for row in fewshot.judge(curve, "middle", PRIORS)[0]]
    assert len(rows) >= 3
    before, after = (
        statistics.median(abs(row.error(when)) for row in rows) for when in ("before", "after")
    )
    assert after < 0.75 * before
    for curve in found:
        at = {rule: fewshot.chosen(curve, rule) for rule in fewshot.RULES}
        assert at["lowest"] == min(curve.paired) == at["ends"]
        points = fewshot.fitted_points(curve, "lowest")
        assert len(points) == (1 if "speedup" in points[0].measured else 2)
        assert {p.concurrency for p in points} == {at["lowest"]}


def test_the_report_is_that_of_its_numbers() -> None:
    kept = json.loads((REPORTS / "fewshot.json").read_text(encoding="utf-8"))
    for item in kept.values():
        item["rows"] = [fewshot.Judged(**row) for row in item["rows"]]
    text = (REPORTS / "fewshot.md").read_text(encoding="utf-8")
    assert text == "\n".join(fewshot.document(kept)) + "\n"
    for rule in fewshot.RULES:
        found = fewshot.summary(r for item in kept.values() for r in item["rows"] if r.rule == rule)
        assert found["after"]["median"] < 0.75 * found["before"]["median"]
