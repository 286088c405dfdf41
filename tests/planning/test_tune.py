"""Choosing method and draft length: the rule, the table, the robust choice, what matters."""

import math
from dataclasses import replace
from typing import Any

import pytest

from specsim.analytic.closed import closed_loop
from specsim.analytic.predict import best_k_at, predict
from specsim.analytic.prices import PriceCache
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.api.tune_setup import build_offer
from specsim.errors import UsageError
from specsim.options.groups import DeploymentOptions as Options
from specsim.options.tuning import TuneOptions
from specsim.planning.tune import Offer, TuningFigures, tune
from specsim.planning.tune_choices import (
    OfferedLoad,
    best_of,
    draft_lengths,
    evaluate,
)
from specsim.planning.tune_dynamic import SWITCH_GAIN, dynamic_table
from specsim.planning.tune_robust import TrafficCase, margins, range_scenarios, robust_choice
from specsim.speculation.acceptance import Acceptance

QWEN, LLAMA = "qwen3.6-27b", "llama-3.1-8b"
CHAT = Workload(1024, 460)


def system(model: str = QWEN, **options: Any) -> System:
    return build_request(Options(model=model, **options)).system


@pytest.fixture(scope="module")
def qwen() -> System:
    return system(weights="fp8")


# --- choices ------------------------------------------------------------------------------------


def test_systems_at_other_lengths_share_prices_and_agree(qwen: System) -> None:
    for k in (1, 5, 8):
        shared, fresh = qwen.with_(k=k), replace(qwen.with_(k=k), prices=PriceCache())
        for clients in (1, 40):
            assert closed_loop(shared, CHAT, clients) == closed_loop(fresh, CHAT, clients)
    assert qwen.with_(k=0) is qwen.plain()


def test_the_best_k_is_that_of_predict(qwen: System) -> None:
    for clients in (1, 16, 64):
        found = [evaluate(qwen.with_(k=k), CHAT, OfferedLoad(clients), {}) for k in range(9)]
        best = best_of(found, "throughput")
        assert best is not None
        assert best.k == best_k_at(qwen, CHAT, clients, range(1, 9))
        point = predict(qwen, CHAT, [clients], search_k=False).points[0]
        same = next(c for c in found if c.k == qwen.setup.k)
        assert same.speedup == pytest.approx(point.speedup)
        assert same.step_cost_ratio == pytest.approx(point.step_cost_ratio)
        assert list(same.speedup_90 or ()) == pytest.approx(point.interval_90["speedup"])


def test_open_loop_values_are_those_of_predict(qwen: System) -> None:
    point = predict(qwen, CHAT, rates=[3.0], search_k=False).points[0]
    found = evaluate(qwen, CHAT, OfferedLoad(rate=3.0), {})
    assert (found.tpot_s, found.ttft_s) == (point.tpot_s, point.ttft_s)
    assert found.speedup == pytest.approx(point.speedup)
    over = evaluate(qwen, CHAT, OfferedLoad(rate=50.0), {})
    assert not over.feasible
    assert "queue grows without end" in over.reason


def test_lengths_that_a_method_allows() -> None:
    assert draft_lengths(system(acceptance_length=2.0, k=3)) == list(range(1, 9))
    assert draft_lengths(system(acceptance_length=2.0, k=12)) == [*range(1, 13)]
    tree = system(LLAMA, engine="sglang", method="eagle3", k=5, tree="4,8", acceptance_length=3.0)
    assert draft_lengths(tree) == [5]
    assert draft_lengths(tree, 5) == [5]
    assert draft_lengths(tree, 4) == []
    medusa = system("vicuna-7b-v1.3", method="medusa", acceptance_length=2.0)
    heads = medusa.setup.drafter.n_heads_medusa if medusa.setup.drafter else 0
    assert draft_lengths(medusa) == list(range(1, heads + 1))
    assert draft_lengths(medusa.plain()) == []


@pytest.mark.parametrize("method,drafts", [("dflash", 15), ("eagle3", 8)])
def test_a_limit_holds_for_every_drafter(method: str, drafts: int) -> None:
    drafter = system("qwen3-8b", method=method, acceptance_length=3.0, k=7)
    natural = system("qwen3-8b", method=method, acceptance_length=3.0)
    assert draft_lengths(natural) == list(range(1, drafts + 1))
    for given in (drafter, natural):
        assert draft_lengths(given, 4) == [1, 2, 3, 4]
    answer = tune(Offer([natural], CHAT), [OfferedLoad(4)], longest=4).answers[0]
    assert [c.k for c in answer.candidates] == [0, 1, 2, 3, 4]


def test_trees_are_no_deeper_than_the_limit() -> None:
    options = {"model": "qwen3-8b", "engine": "sglang", "methods": "eagle3"}
    assert {t.setup.k for t in build_offer(TuneOptions(**options)).trees} == {3, 4, 5, 6, 7}
    assert {t.setup.k for t in build_offer(TuneOptions(**options, max_k=4)).trees} == {3, 4}
    asked = TuneOptions(model="qwen3-8b", engine="sglang", method="eagle3", k=5, tree="4,8",
                        acceptance_length=3.0, max_k=4)
    with pytest.raises(UsageError, match="--max-k is 4, but the tree asked for is 5 deep"):
        build_offer(asked)


def test_gates_make_choices_infeasible(qwen: System) -> None:
    found = evaluate(qwen, CHAT, OfferedLoad(64), {"tpot_mean": 0.005})
    assert "mean tpot" in found.reason
    assert evaluate(qwen, CHAT, OfferedLoad(1), {"tpot_mean": 0.005}).feasible
    slow = evaluate(qwen, CHAT, OfferedLoad(64), {"stream_tok_s_p10": 500})
    assert "below the 500 of stream_tok_s_p10" in slow.reason
    result = tune(Offer([qwen], CHAT), [OfferedLoad(64)], gates={"tpot_mean": 0.001})
    assert result.answers[0].best is None
    assert result.to_dict()["best_k"] is None
    nearest = result.answers[0].nearest
    assert nearest is not None
    assert nearest.output_tok_s == max(c.output_tok_s for c in result.answers[0].candidates)
    over = tune(Offer([qwen], CHAT), [OfferedLoad(rate=100.0)]).answers[0]
    assert over.nearest is not None
    assert over.nearest.capacity_rate == max(c.capacity_rate or 0 for c in over.candidates)


def test_a_request_that_does_not_fit_is_a_reason_not_an_error(qwen: System) -> None:
    found = evaluate(qwen, Workload(5_000_000, 100), OfferedLoad(1), {})
    assert not found.feasible
    assert "needs" in found.reason
    assert found.to_dict()["tpot_s"] is None


# --- the marginal rule --------------------------------------------------------------------------


def test_the_rule_is_the_derivative_of_speed(qwen: System) -> None:
    for seqs in (1, 64):
        for margin in margins(qwen, range(1, 9), seqs, 1000):
            def speed(k: int, seqs: int = seqs) -> float:
                side = qwen.with_(k=k)
                return side.tokens_per_step / side.decoding_s(seqs, 1000)

            assert margin.pays == (speed(margin.next_k) > speed(margin.k))


def test_gains_are_acceptance_over_length(qwen: System) -> None:
    assert qwen.acceptance is not None
    rates = qwen.acceptance.probabilities(8)
    for margin in margins(qwen, range(1, 9), 4, 500):
        expected = rates[margin.k] / qwen.acceptance.expected_tokens(margin.k)
        assert margin.gain == pytest.approx(expected)


# --- the table by batch size --------------------------------------------------------------------


def test_table_covers_every_batch_and_follows_the_best(qwen: System) -> None:
    lengths = draft_lengths(qwen)
    found = dynamic_table(qwen, lengths, CHAT, 3)
    assert found.rows[0][0] == 1
    for before, after in zip(found.rows, found.rows[1:], strict=False):
        assert after[0] == before[1] + 1
        assert after[2] != before[2]
    assert found.system.setup.k == max(k for _, _, k in found.rows)
    for point in found.points:
        side = qwen.with_(k=point.k)
        rates = {
            k: point.seqs * qwen.with_(k=k).tokens_per_step
            / qwen.with_(k=k).decoding_s(point.seqs, CHAT.mean_context)
            for k in lengths
        }
        assert point.output_tok_s >= max(rates.values()) / (1 + SWITCH_GAIN) ** 2
        assert side.setup.k == point.k
    assert found.gain >= -1e-9


def test_staying_on_at_k_0_costs_the_drafters_pass(qwen: System) -> None:
    found = dynamic_table(qwen, draft_lengths(qwen), CHAT, 3)
    assert all(point.tax > 0.02 for point in found.points)
    # A lookup has no network to keep: only the engine's books remain, and that steps are not
    # planned ahead, where they are not.
    lookup = system(weights="fp8", method="ngram", k=3, acceptance_length=2.0)
    rules = replace(lookup.engine.scheduler, sync_methods=())
    lookup = replace(lookup, engine=replace(lookup.engine, scheduler=rules))
    cheap = dynamic_table(lookup, draft_lengths(lookup), CHAT, 3)
    assert 0 < cheap.points[0].tax < found.points[0].tax


def test_hopeless_drafts_turn_off_only_past_the_tax() -> None:
    poor = system(weights="fp8", acceptance="0.2,0.02,0.001", k=3)
    found = dynamic_table(poor, draft_lengths(poor), CHAT, 1)
    assert found.turns_off


# --- robust -------------------------------------------------------------------------------------


def test_minimax_regret_and_expected_value(qwen: System) -> None:
    choices = [qwen.with_(k=k) for k in range(1, 9)]
    scenarios = range_scenarios(CHAT, 2.0, 3.8, 3, "mtp")
    found = robust_choice(choices, scenarios, OfferedLoad(64), "throughput")
    assert found is not None
    assert [s[1] for s in found.scenarios] == pytest.approx([0.2] * 5)
    best = [max(c.speedups[i] for c in found.choices) for i in range(5)]
    for choice in found.choices:
        regret = max(1 - v / top for v, top in zip(choice.speedups, best, strict=True))
        assert choice.worst_regret == pytest.approx(regret)
        assert choice.expected == pytest.approx(math.fsum(choice.speedups) / 5)
        assert found.by_regret.worst_regret <= choice.worst_regret
        assert found.by_expected.expected >= choice.expected
    plain = next(c for c in found.choices if c.k == 0)
    assert plain.speedups == pytest.approx((1.0,) * 5)


def test_a_mix_weighs_its_parts(qwen: System) -> None:
    easy = Acceptance.from_mean_length(3.9, 3)
    hard = Acceptance.from_mean_length(1.3, 3)
    choices = [qwen.with_(k=k) for k in range(1, 9)]

    def best(share: float) -> int:
        scenarios = [TrafficCase("easy", share, CHAT, {"mtp": easy}),
                     TrafficCase("hard", 1 - share, CHAT, {"mtp": hard})]
        found = robust_choice(choices, scenarios, OfferedLoad(16), "tpot")
        assert found is not None
        return found.by_expected.k

    assert best(0.95) > best(0.05)


# --- the whole ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def both() -> TuningFigures:
    offer = Offer([system(LLAMA), system(LLAMA, method="ngram")], CHAT)
    return tune(offer, [OfferedLoad(1), OfferedLoad(64)])


def test_methods_compete(both: TuningFigures) -> None:
    for answer in both.answers:
        assert {c.method for c in answer.candidates} == {"none", "eagle3", "ngram"}
        assert answer.best is not None
        assert answer.best.output_tok_s == max(c.output_tok_s for c in answer.candidates)
        assert answer.flags is not None
    found = both.to_dict()
    assert found["kind"] == "tune"
    assert set(found["best_k"]) == {"1", "64"}
    assert len(found["candidates"]) == 2 * 17
    assert found["dynamic"]["flags"]["speculative_config"]["method"] == "eagle3"


def test_one_load_gives_a_number(qwen: System) -> None:
    found = tune(Offer([qwen], CHAT), [OfferedLoad(8)], objective="tpot").to_dict()
    best = min(found["candidates"], key=lambda candidate: candidate["tpot_s"])
    assert found["best_k"] == best["k"] > 0
    assert found["flags"]["command"].startswith("vllm serve")


def test_beyond_the_measured_positions_is_said(qwen: System) -> None:
    assert qwen.acceptance is not None
    short = qwen.with_(acceptance=replace(qwen.acceptance, measured_positions=3))
    result = tune(Offer([short], CHAT), [OfferedLoad(1)])
    best = result.answers[0].best
    assert best is not None
    assert best.extrapolated
    assert any("extrapolated" in text for text in result.warnings)
    flat = qwen.with_(acceptance=Acceptance.from_rate(0.8, 3))
    assert not evaluate(flat.with_(k=6), CHAT, OfferedLoad(1), {}).extrapolated


def test_plain_wins_where_nothing_is_accepted() -> None:
    poor = system(weights="fp8", acceptance_length=1.02, k=3)
    result = tune(Offer([poor], CHAT), [OfferedLoad(64)])
    assert result.to_dict()["best_k"] == 0
    flags = result.answers[0].flags
    assert flags is not None
    assert flags.speculative_config is None


def test_rules_of_objectives(qwen: System) -> None:
    with pytest.raises(UsageError, match="'speed'; it must be throughput, tpot or goodput"):
        TuneOptions(objective="speed")
    with pytest.raises(UsageError, match="--slo"):
        tune(Offer([qwen], CHAT), [OfferedLoad(1)], objective="goodput")
    with pytest.raises(UsageError, match="not predicted analytically"):
        tune(Offer([qwen], CHAT), [OfferedLoad(1)], gates={"error_rate": 0.1})
    gates = {"ttft_p95": 2.0}
    result = tune(Offer([qwen], CHAT), [OfferedLoad(1)], objective="goodput", gates=gates)
    assert any("compared with predicted means" in text for text in result.warnings)
