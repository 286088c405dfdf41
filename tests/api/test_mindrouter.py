"""The cluster's six endpoints, and that `predict` says of each what the table says."""

import json
import shlex
from collections.abc import Sequence

import pytest
from typer.testing import CliRunner

from specsim.analytic.mindrouter import ReportedEndpoint
from specsim.api.mindrouter import table
from specsim.commands import app

NAMES = ["qwen3.6-27b", "qwen3.6-35b", "gemma-4-31b", "qwen3.5-122b", "nemotron-3-super",
         "qwen3.5-35b"]


@pytest.fixture(scope="module")
def rows() -> Sequence[ReportedEndpoint]:
    return table().endpoints


def test_the_clusters_six_endpoints(rows: Sequence[ReportedEndpoint]) -> None:
    assert [row.name for row in rows] == NAMES
    assert [row.reported_speedup for row in rows] == [2.3, 2.3, 2.0, 2.0, 1.7, 1.6]
    for row in rows:
        shown = row.to_dict()
        assert shown["predicted_speedup"] > 1
        assert shown["error"] == pytest.approx(row.speedup / row.reported_speedup - 1)
        assert row.notes and row.prediction.system.acceptance is not None
    # The published k sweep: 73 % of three drafts accepted is 3.18 tokens per step (rounded).
    assert rows[0].prediction.acceptance_length == pytest.approx(1 + 3 * 0.73, abs=0.012)


@pytest.mark.parametrize("name", NAMES)
def test_predict_says_of_an_endpoint_what_the_table_says(
    rows: Sequence[ReportedEndpoint], name: str
) -> None:
    row = next(row for row in rows if row.name == name)
    words = [*shlex.split(row.command)[1:], "--concurrency", "1,48", "--json"]
    said = json.loads(CliRunner().invoke(app, words).output)
    assert said["points"][0]["speedup"] == row.speedup
    assert said["break_even_concurrency"] == row.prediction.break_even_concurrency
    if said["break_even_concurrency"] is None:
        assert all(point["speedup"] >= 1 for point in said["points"])
