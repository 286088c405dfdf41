"""vLLM's per-request speculative metrics: counts (summary) and every step (detailed)."""

import json
from pathlib import Path
from typing import Any

import pytest

from specsim.errors import FormatError
from specsim.formats.bench import BenchRun
from specsim.formats.bench.load import read_text_as_bench
from specsim.formats.bench.stats import rates_of_steps, survival

SAMPLE = Path(__file__).parent / "data" / "vllm_completion_spec.json"


def response(**drafts: Any) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads(SAMPLE.read_text())
    raw["metrics"]["speculative_decoding"] = drafts
    return raw


def read(*responses: dict[str, Any]) -> BenchRun:
    [run] = read_text_as_bench("\n".join(map(json.dumps, responses)))
    return run


def test_equal_drafts_give_the_rates_of_the_histogram() -> None:
    took = [0, 3, 3, 3, 2, 0, 3, 0, 0]
    assert rates_of_steps(took, [3] * 9) == pytest.approx(survival([4, 0, 1, 4]))


def test_a_short_draft_is_no_rejection() -> None:
    """Four drafts of 1, all accepted, and four of 2 of which half get past each position: by
    opportunity 6/8, then 1/2; the histogram would say 2 accepted in 1 of 8 drafts."""
    took, made = [1, 1, 1, 1, 2, 1, 0, 0], [1, 1, 1, 1, 2, 2, 2, 2]
    assert rates_of_steps(took, made) == pytest.approx((6 / 8, 6 / 8 * 1 / 2))
    assert survival([2, 5, 1]) == pytest.approx((6 / 8, 1 / 8))


def test_detailed_steps_feed_the_rates_and_the_counts_the_length() -> None:
    run = read(response(
        num_spec_steps=8, num_draft_tokens=12, num_accepted_draft_tokens=7, num_spec_tokens=2,
        acceptance_histogram=[2, 5, 1], per_step_accepted=[1, 1, 1, 1, 2, 1, 0, 0],
        per_step_drafted=[1, 1, 1, 1, 2, 2, 2, 2],
    ))
    assert run.acceptance is not None
    assert run.acceptance.per_position == pytest.approx((0.75, 0.375))
    assert run.acceptance.acceptance_length == pytest.approx(1 + 7 / 8)
    assert run.server_args.num_speculative_tokens == 2


def test_steps_alone_are_enough() -> None:
    run = read(response(per_step_accepted=[2, 0], per_step_drafted=[2, 2]))
    assert run.acceptance is not None and run.acceptance.num_drafts == 2
    assert run.acceptance.acceptance_length == 2.0
    assert run.acceptance.per_position == (0.5, 0.5)


def test_responses_of_one_file_are_pooled() -> None:
    raw = json.loads(SAMPLE.read_text())
    run = read(raw, response(num_spec_steps=1, num_draft_tokens=3, num_accepted_draft_tokens=0,
                             acceptance_histogram=[1, 0, 0, 0]))
    assert run.acceptance is not None and run.completed == 2 and run.output_tokens == 96
    assert run.acceptance.acceptance_length == pytest.approx(1 + 14 / 10)
    assert run.acceptance.per_position == pytest.approx((0.5, 0.5, 0.4))


@pytest.mark.parametrize("drafts", [
    {"per_step_accepted": [1], "per_step_drafted": [1, 1]},
    {"per_step_accepted": [3], "per_step_drafted": [2]},
    {"per_step_accepted": [1], "per_step_drafted": [10**14]},
])
def test_steps_that_cannot_be_are_refused(drafts: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="per_step_accepted"):
        read(response(**drafts))
