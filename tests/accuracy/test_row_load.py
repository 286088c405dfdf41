"""The load that a published row states, and its cells."""

import pytest

from accuracy_samples import PUBLISHED_2, ROW_2
from specsim.accuracy.lookups import SkipRow
from specsim.accuracy.rows import PublishedCase, published_case
from specsim.accuracy.score import burst, overflows, read_rows, score_case, score_rows
from specsim.analytic.closed import closed_loop


def row(**changes: str) -> PublishedCase:
    return published_case({**ROW_2, **changes})


def test_cached_tokens_are_not_computed_again() -> None:
    assert row(cached_tokens="").workload.computed_input == 1000
    assert row(cached_tokens="900").workload.computed_input == 100


def test_prompts_of_a_run_are_shared_out_to_its_clients() -> None:
    assert row(num_prompts="", batch_or_concurrency="4").workload.requests_per_client == 10
    assert row(num_prompts="256", batch_or_concurrency="4").workload.requests_per_client == 64
    assert row(num_prompts="4", batch_or_concurrency="4").workload.requests_per_client == 1


def test_a_limit_of_the_answers_is_not_their_length() -> None:
    """SpecBundle asks for at most 2048 tokens; answers to GSM8K have some 200."""
    load = row(dataset="gsm8k", isl="", osl="<=2048").workload
    assert (load.input_len, load.output_len) == (100, 200)
    assert row(dataset="gsm8k", isl="", osl="< 128").workload.output_len == 128
    assert row(dataset="gsm8k", isl="", osl="2048").workload.output_len == 2048


def test_arrival_and_pinned_acceptance() -> None:
    assert (row().arrives, row().workload.pinned) == ("closed", False)
    assert row(arrival="burst").arrives == "burst"
    assert row(batch_or_concurrency="500 prompts at once (saturated)").arrives == "burst"
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


@pytest.mark.slow
def test_the_second_file_is_read_and_judged() -> None:
    report = score_rows(read_rows(PUBLISHED_2))
    assert report.rows == 248 == report.predicted + sum(report.skipped.values())
    judged = {case.set_id for case in report.cases}
    assert {"DEPTHC", "DEPTHB", "GLM53", "SFORGE", "ASLIM"} <= judged
    assert report.skipped["acceptance only: no time and no rate measured"] == 29
    assert report.skipped["grade C"] == 66


def test_equal_and_unequal_lengths() -> None:
    """SGLang draws uniformly from 1; a table that states means (610, 421) tells it by them."""
    sglang = {"engine": "SGLang", "engine_version": "0.5.6", "dataset": "random", "isl": "1024"}
    assert row(**sglang, osl="256").workload.spread == 0.0
    means = row(**{**sglang, "isl": "610"}, osl="421").workload
    assert means.spread == pytest.approx(0.577, abs=1e-3)
    assert row(osl="256").workload.spread == 1.0  # prompts of a data set


def test_how_long_runs_are_whose_commands_are_known() -> None:
    random = {"dataset": "random", "isl": "1024", "osl": "1024", "batch_or_concurrency": "16"}
    assert row(**random).workload.requests_per_client == 1  # one burst, as in recipes
    assert row(**random, source="SGLang cookbook X").workload.requests_per_client == 5
    inferencex = row(**random, source="InferenceX issue #1").workload
    assert (inferencex.requests_per_client, inferencex.input_len) == (10, 922)
    assert inferencex.spread == pytest.approx(0.2 / 12**0.5 / 0.9)


def test_medians_are_judged_as_medians() -> None:
    assert not row().median
    case = row(notes="P50 TTFT/TPOT, random", source="SGLang cookbook X", engine="SGLang",
               ttft_ms="900", method="none", k="", isl="8192", osl="1024",
               batch_or_concurrency="16")
    assert case.median and case.workload.spread == 0.0
    judged = {score.quantity: score.predicted for score in score_case(case)}
    one = closed_loop(case.system, case.workload, 1).ttft_s
    assert 7 * one < judged["ttft"] < 8.6 * one  # plain and equal: all in one wave


def test_waiting_for_admission_is_told_from_waiting_for_prompts() -> None:
    sglang = {"engine": "SGLang", "engine_version": "0.5.6", "notes": "random", "method": "none",
              "k": "", "source": "SGLang cookbook X", "isl": "8192", "osl": "1024",
              "batch_or_concurrency": "64", "baseline_tok_s": "1500", "baseline_tpot_ms": "30",
              "target_model": "meta-llama/Llama-3.1-70B-Instruct", "tp": "8"}
    wave = row(**sglang, ttft_ms="9000")
    assert (wave.concurrency, "ttft_s" in wave.measured) == (64, True)
    queue = row(**sglang, ttft_ms="90000")
    assert (queue.concurrency, "ttft_s" in queue.measured) == (45, False)
    assert queue.workload.spread == 1.0


def test_a_burst_beyond_the_cache_is_simulated() -> None:
    small = row(arrival="burst", num_prompts="64", batch_or_concurrency="64", isl="2000", osl="50")
    assert not overflows(small.system, small)
    large = row(arrival="burst", num_prompts="400", batch_or_concurrency="400", isl="4000",
                osl="50", method="none", k="", gpu="RTX 4090")
    assert overflows(large.system, large)
    state = closed_loop(large.system, large.workload, large.concurrency)
    found = burst(large.system, large, state)
    # Waves of what fits: nobody waits longer than the run, and it makes all its tokens.
    span_s = 400 * 50 / found.output_tok_s
    assert 0.3 * span_s < found.ttft_s < 0.7 * span_s
    assert found.tpot_s > state.step_s
    assert burst(large.system, large, state) == found


def test_a_burst_under_speculation_has_the_engines_own_places() -> None:
    """SGLang runs 48 requests at a time with drafts unless told otherwise (GPUStack measured 3253
    tokens per second plain, 1060 with drafts)."""
    case = row(engine="SGLang", engine_version="0.5.3", target_model="DeepSeek-R1-0528",
               weight_dtype="fp8", gpu="H200", tp="8", method="mtp", k="1", isl="4000", osl="200",
               batch_or_concurrency="500 prompts at once (saturated)", mean_accepted_length="")
    sides = []
    for system in (case.system.plain(), case.system):
        assert overflows(system, case)
        state = closed_loop(system, case.workload, case.concurrency)
        sides.append(burst(system, case, state))
    assert sides[1].output_tok_s < sides[0].output_tok_s


def test_which_ratio_a_stated_speedup_is() -> None:
    both = {"baseline_tok_s": "1000", "spec_tok_s": "1100", "baseline_tpot_ms": "20",
            "spec_tpot_ms": "10"}
    assert row(**both, speedup="1.1").gain_of_rates
    assert not row(**both, speedup="2.0").gain_of_rates
    assert not row(speedup="1.1").gain_of_rates
