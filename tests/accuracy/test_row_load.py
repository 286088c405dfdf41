"""The load that a published row states, and its cells."""

import pytest

from accuracy_samples import PUBLISHED_2, ROW_2
from specsim.accuracy.cells import SkipRow
from specsim.accuracy.rows import PublishedCase, published_case
from specsim.accuracy.score import read_rows, score_rows


def row(**changes: str) -> PublishedCase:
    return published_case({**ROW_2, **changes})


def test_cached_tokens_are_not_computed_again() -> None:
    assert row(cached_tokens="").workload.computed_input == 1000
    assert row(cached_tokens="900").workload.computed_input == 100


def test_prompts_of_a_run_are_shared_out_to_its_clients() -> None:
    assert row(num_prompts="", batch_or_concurrency="4").workload.requests_per_client == 10
    assert row(num_prompts="256", batch_or_concurrency="4").workload.requests_per_client == 64
    assert row(num_prompts="4", batch_or_concurrency="4").workload.requests_per_client == 1


def test_arrival_and_pinned_acceptance() -> None:
    assert (row().arrives, row().workload.pinned) == ("closed", False)
    assert row(arrival="burst").arrives == "burst"
    assert row(acceptance_pinned="yes").workload.pinned


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"cached_tokens": "1000"}, "cached_tokens is 1000, but the prompt has 1000"),
     ({"cached_tokens": "-5"}, "cached_tokens is '-5'; it must be a whole number"),
     ({"num_prompts": "many"}, "num_prompts is 'many'"),
     ({"arrival": "lognormal gaps"}, "arrival not modelled: lognormal gaps"),
     ({"acceptance_pinned": "maybe"}, "acceptance_pinned is 'maybe'; it must be yes, no"),
     ({"notes": "k as printed: dynamic 3/1/0 by batch"}, "draft length changes"),
     ({"notes": "k as printed: 1 (tier); dynamic SD [[1,64,3]]"}, "draft length changes"),
     ({"baseline_tpot_ms": "", "spec_tpot_ms": "", "speedup": ""}, "acceptance only")],
)
def test_cells_that_leave_a_row_out(changes: dict[str, str], reason: str) -> None:
    with pytest.raises(SkipRow) as caught:
        row(**changes)
    assert reason in str(caught.value) and "\n" not in str(caught.value)


def test_token_rates_without_a_meaning_are_the_systems() -> None:
    rates = {"spec_tok_s": "400", "baseline_tok_s": "250", "baseline_tpot_ms": "",
             "spec_tpot_ms": ""}
    measured = row(**rates).measured
    assert (measured["baseline_output_tok_s"], measured["spec_output_tok_s"]) == (250, 400)
    assert "spec_output_tok_s" not in row(**rates, notes="tok/s are per GPU").measured


def test_a_time_to_first_token_in_the_notes() -> None:
    assert row(notes="TP8; TTFT 372 ms; random").measured["ttft_s"] == 0.372
    pair = "TTFT 540/583 ms (plain/spec)"
    assert row(notes=pair).measured["ttft_s"] == 0.583
    assert row(notes=pair, method="none", k="").measured["ttft_s"] == 0.54
    assert row(notes=pair, ttft_ms="99").measured["ttft_s"] == 0.099


@pytest.mark.parametrize(
    ("changes", "length"),
    [({"per_pos_acceptance": "86/66/50"}, 3.02), ({"per_pos_acceptance": ".5|.25|.125"}, 1.875),
     ({"acceptance_rate": "0.52"}, 2.56), ({"acceptance_rate": "0.79-0.80"}, None),
     ({"per_pos_acceptance": "0.6|0.3"}, None)],  # not all three positions
)
def test_an_acceptance_length_stated_otherwise(
    changes: dict[str, str], length: float | None
) -> None:
    found = row(mean_accepted_length="", **changes).acceptance_length
    assert found == (None if length is None else pytest.approx(length))


def test_the_second_file_is_read_and_judged() -> None:
    report = score_rows(read_rows(PUBLISHED_2))
    assert report.rows == 248 == report.predicted + sum(report.skipped.values())
    judged = {case.set_id for case in report.cases}
    assert {"DEPTHC", "DEPTHB", "GLM53", "SFORGE", "ASLIM"} <= judged
    assert report.skipped["acceptance only: no time and no rate measured"] == 21
    assert report.skipped["grade C"] == 66
