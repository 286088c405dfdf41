"""A gap as factors of step cost and acceptance, and whether an acceptance is pinned: by hand."""

import math

import pytest

from specsim.accuracy.split import check_pinned, split_of
from specsim.api.deployment import build_request
from specsim.errors import UsageError
from specsim.formats.bench.record import BenchAcceptance, BenchRun
from specsim.options.prediction import PredictOptions
from specsim.planning.flags import ServedNames
from specsim.planning.pinned import pinned_command


def figures(tpot_s: float, tokens: float | None, rate: float) -> dict[str, float]:
    found = {"tpot_mean_s": tpot_s, "output_tok_s": rate}
    return found if tokens is None else {**found, "tokens_per_step": tokens}


def test_by_hand_a_step_too_dear_and_an_acceptance_too_high() -> None:
    # measured: steps of 20 ms, 2 tokens each; predicted: 24 ms, 3 tokens
    found = split_of("c=1", figures(0.010, 2.0, 90.0), figures(0.008, 3.0, 110.0), None)
    assert found is not None
    assert found.step_cost == pytest.approx(24 / 20)
    assert found.acceptance == pytest.approx(2 / 3)
    assert found.tpot == pytest.approx(0.8) == pytest.approx(found.step_cost * found.acceptance)
    assert found.output_tok_s == pytest.approx(110 / 90)
    assert found.rest == pytest.approx(110 / 90 * 0.8)
    logs = [math.log(x) for x in (found.tpot, found.step_cost, found.acceptance)]
    assert logs[0] == pytest.approx(logs[1] + logs[2])
    rate, rest = math.log(found.output_tok_s or 0), math.log(found.rest or 0)
    assert rate == pytest.approx(rest - logs[0])


def test_a_measured_acceptance_is_judged_by_what_was_expected() -> None:
    # the prediction took the 2 measured tokens: 12 ms for 10 ms is all cost
    found = split_of("c=1", figures(0.010, 2.0, 100.0), figures(0.012, 2.0, 80.0), 2.5)
    assert found is not None
    assert (found.step_cost, found.acceptance) == pytest.approx((1.2, 0.8))
    assert found.tpot == pytest.approx(0.96)  # what would have been predicted: 24 ms / 2.5
    assert found.output_tok_s == pytest.approx(0.8 * 2.5 / 2)
    assert found.expected_tokens_per_step == 2.5 and found.tokens_per_step == 2.0


def test_plain_decoding_is_all_cost_and_nothing_measured_is_no_split() -> None:
    found = split_of("c=1", figures(0.010, None, 100.0), figures(0.011, None, 90.0), None)
    assert found is not None and found.acceptance == 1 and found.step_cost == pytest.approx(1.1)
    assert split_of("c=1", {}, figures(0.01, 2.0, 1.0), None) is None
    assert split_of("c=1", figures(0.01, None, 1.0), figures(0.01, 2.0, 1.0), None) is None


def run(length: float | None, drafts: int | None = 1000, chunks: float | None = None) -> BenchRun:
    counted = None if length is None else BenchAcceptance(length, num_drafts=drafts)
    return BenchRun("x", "vllm", acceptance=counted, tokens_per_step=chunks,
                    tokens_per_step_basis="chunks" if chunks else None)


def test_pinned_is_what_lies_within_two_per_cent_and_the_scatter_of_its_fraction() -> None:
    assert check_pinned(run(2.53), 2.5, "u", "start") == 2.53
    # of 30 drafts half take one more: 3 x 0.5 / sqrt(30) = 0.27 of scatter
    assert check_pinned(run(2.75, 30), 2.5, "u", "start") == 2.75
    with pytest.raises(UsageError, match=r"2.75 tokens per step.*not the 2.5.*start"):
        check_pinned(run(2.75), 2.5, "u", "start")
    with pytest.raises(UsageError, match=r"3.1 tokens"):
        check_pinned(run(3.1, 30), 3.0, "u", "start")  # a whole number does not scatter
    assert check_pinned(run(9.0, 10), 2.5, "u", "start") is None  # too few to tell


def test_without_counters_chunks_tell_and_without_both_nothing_does() -> None:
    assert check_pinned(run(None, chunks=2.4), 2.5, "u", "start") == 2.4
    with pytest.raises(UsageError, match=r"not the 2.5"):
        check_pinned(run(None, chunks=2.2), 2.5, "u", "start")
    with pytest.raises(UsageError, match=r"neither /metrics nor the chunks.*start"):
        check_pinned(run(None), 2.5, "u", "start")


def started(engine: str, **names: str) -> str:
    system = build_request(PredictOptions.of_values(
        {"model": "llama-3.1-8b", "method": "eagle3", "k": 3, "engine": engine})).system
    return pinned_command(system, 2.5, ServedNames(**names))


def test_flags_by_engine_and_version() -> None:
    text = started("vllm")
    assert '"rejection_sample_method": "synthetic"' in text
    assert '"synthetic_acceptance_length": 2.5' in text and text.startswith(
        "vLLM 0.25.1: vllm serve ")
    text = started("sglang")
    assert text.startswith(
        "SGLang 0.5.23: SGLANG_SIMULATE_ACC_LEN=2.5 python -m sglang.launch_server")
    with pytest.raises(UsageError, match=r"vLLM 0.10.1 cannot be told"):
        started("vllm==0.10.1", version="0.10.1")
    with pytest.raises(UsageError):
        started("trtllm")
