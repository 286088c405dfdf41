"""Comparisons: errors, summaries of held-out rows only, and files that are whole."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from specsim.accuracy.compare import AccuracyReport, Row
from specsim.errors import FormatError, UsageError
from specsim.summary import error_summary


def comparison() -> AccuracyReport:
    rows = (
        Row("B=1", "step_s", 0.010, 0.011),
        Row("B=8", "step_s", 0.020, 0.015),
        Row("B=4", "step_s", 0.010, 0.040, split="fitted"),
        Row("c=2", "output_tok_s", 100.0, 100.0),
    )
    return AccuracyReport("records", "a test", rows, {"seed": 1})


def test_error_is_predicted_over_measured_less_one() -> None:
    assert Row("a", "step_s", 2.0, 3.0).error == pytest.approx(0.5)
    assert Row("a", "errors", 0.0, 3.0).error is None


def test_summary_leaves_fitted_rows_out() -> None:
    steps = comparison().summary()["step_s"]
    assert steps["count"] == 2
    assert steps["worst"] == pytest.approx(-0.25)
    assert comparison().summary("fitted")["step_s"]["worst"] == pytest.approx(3.0)


def test_over_names_metrics_by_their_median() -> None:
    assert comparison().over(0.17) == ("step_s",)  # median of 0.10 and 0.25 is 0.175
    assert comparison().over(0.18) == ()


def test_quantiles_are_numpys() -> None:
    errors = [0.3, -0.1, 0.2, 0.05, -0.4]
    assert error_summary(errors)["p90_abs_error"] == pytest.approx(
        np.quantile(np.abs(errors), 0.9)
    )


def test_bad_rows_are_refused() -> None:
    with pytest.raises(UsageError, match="split"):
        Row("a", "step_s", 1.0, 1.0, split="train")
    with pytest.raises(UsageError, match="cannot be compared"):
        Row("a", "step_s", 1.0, math.inf)


def test_written_whole_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "record.json"
    comparison().write(path)
    read = json.loads(path.read_text())
    assert read["kind"] == "validation" and len(read["rows"]) == 4
    assert not list(path.parent.glob("*.part"))
    with pytest.raises(FormatError, match="cannot write"):
        comparison().write(path / "below-a-file.json")
