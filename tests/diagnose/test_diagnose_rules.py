"""Every verdict where the physics calls for it, and none where it does not."""

import json
from dataclasses import replace

import pytest

from diagnose_helpers import CHAT, GOOD, as_predicted, evidence, predictor, rules
from specsim.analytic.workload import Workload
from specsim.diagnose.judge import diagnose

ROOM = {"max_num_seqs": 1024}


def judged(found, predict, factor=1.0, **more):
    return rules(diagnose(as_predicted(found, predict, factor), predict, **more))


def test_a_small_batch_trades_spare_compute_well():
    predict = predictor(**ROOM)
    found = judged(evidence(4), predict)
    assert found["trades_well"].level == "good"
    assert "memory" in found["trades_well"].verdict  # plain steps of 4 read the weights
    assert not {"competes", "rejected", "too_costly", "host_gap"} & set(found)


def test_a_large_batch_competes_and_the_same_acceptance_pays_alone():
    predict = predictor(**ROOM)
    expected = predict.expect(evidence(400, rates=(0.55, 0.25, 0.1)))
    assert expected.speedup < 0.97  # the premise, from physics
    assert expected.speedup_alone > 1.03
    found = judged(evidence(400, rates=(0.55, 0.25, 0.1)), predict)
    assert found["competes"].level == "problem"
    assert "trades_well" not in found and "too_costly" not in found
    facts = {fact.what: fact for fact in found["competes"].facts}
    assert facts["speedup"].source == "predicted" and facts["speedup"].value < 0.97
    assert facts["speedup for one client"].value > 1.03
    assert facts["pays below about"].value <= 400
    assert any("num_speculative_tokens_per_batch_size" in step for step in found["competes"].next)


def test_another_k_is_named_with_what_it_brings():
    predict = predictor(k=6, **ROOM)
    tail = (0.7, 0.35, 0.12, 0.05, 0.02, 0.01)
    expected = predict.expect(evidence(128, rates=tail))
    assert expected.best_k < 6 and expected.best_speedup > 1.03 * expected.speedup
    found = judged(evidence(128, rates=tail), predict)
    facts = {fact.what: fact.value for fact in found["other_k"].facts}
    assert facts["best num_speculative_tokens"] == expected.best_k
    # the best length is then no longer a finding
    best = max(1, expected.best_k)
    again = judged(evidence(128, rates=tail[:best]), predictor(k=best, **ROOM))
    assert "other_k" not in again


def test_rejected_drafts_are_told_from_counters_alone():
    found = rules(diagnose(evidence(8, rates=(0.3, 0.1, 0.03))))
    assert found["rejected"].level == "problem"
    assert "rejected" not in rules(diagnose(evidence(8)))
    few = evidence(8, rates=(0.3, 0.1, 0.03), num_drafts=20)
    assert "rejected" not in rules(diagnose(few))
    no_positions = evidence(8, per_position=(), acceptance_length=1.2)
    assert "rejected" in rules(diagnose(no_positions))


def test_acceptance_far_below_what_others_measured_is_a_notice():
    predict = predictor("llama-3.1-8b", "h100", "eagle3", 3)
    from specsim.speculation.resolve import AcceptanceQuery, resolve

    usual = resolve(AcceptanceQuery("llama-3.1-8b", "eagle3"), 3).low_90
    low = (0.51, 0.01, 0.0)  # the first draft is accepted more often than not
    assert sum(low) < 0.75 * (usual - 1)
    found = judged(evidence(4, rates=low), predict)
    facts = {fact.what: fact for fact in found["rejected"].facts}
    assert facts["acceptance length measured in public"].value == usual
    assert "rejected" not in judged(evidence(4), predict)


def test_a_drafter_as_large_as_its_target_is_too_costly_even_alone():
    predict = predictor("qwen3-1.7b", "h100", "draft-model", 4, draft="qwen3-1.7b")
    rates = (0.9, 0.85, 0.8, 0.75)
    expected = predict.expect(evidence(8, rates=rates))
    assert expected.speedup_if_all < 1.03  # a premise: drafting costs k target steps
    found = judged(evidence(8, rates=rates), predict)
    assert found["too_costly"].level == "problem"
    assert "competes" not in found and "trades_well" not in found


def test_rarely_proposing_lookups_and_the_yield_over_all_steps():
    here = evidence(4, draft_share=0.55, tokens_per_step=2.2)
    found = rules(diagnose(here))
    assert "55%" in found["rarely_proposes"].verdict
    assert "rarely_proposes" not in rules(diagnose(evidence(4)))


def test_the_share_of_steps_with_a_draft_prices_a_lookup():
    predict = predictor("llama-3.1-8b", "h100", "ngram", 3)
    half, full = evidence(4, draft_share=0.5, tokens_per_step=1.985), evidence(4)
    assert predict.expect(half).tokens_per_step == pytest.approx(1 + 0.5 * sum(GOOD))
    assert predict.expect(half).step_s < predict.expect(full).step_s


def test_switched_off_says_what_it_would_bring():
    off = evidence(4, per_position=(), acceptance_length=None, acceptance_rate=None,
                   tokens_per_step=1.0, num_drafts=None, draft_share=None,
                   num_speculative_tokens=None)
    found = rules(diagnose(off))
    assert "give MODEL" in found["switched_off"].next[0]
    found = rules(diagnose(off, predictor()))
    assert "would pay" in found["switched_off"].verdict
    assert "trades_well" not in found and "rejected" not in found
    full = replace(off, running=700.0)
    words = rules(diagnose(full, predictor(**ROOM)))
    assert words["switched_off"].facts


def test_memory_pressure_names_the_drafter_only_where_it_takes_room():
    full = evidence(40, kv_cache_usage=0.97, preemptions=12, waiting=9.0)
    found = rules(diagnose(full))
    assert "preempted" in found["memory_pressure"].verdict
    big = predictor("llama-3.3-70b", "h200-sxm", "draft-model", 3, draft="llama-3.1-8b",
                    weights="fp8")
    expected = big.expect(full)
    assert expected.max_requests < 0.97 * expected.plain_max_requests
    assert "the drafter" in rules(diagnose(full, big))["memory_pressure"].verdict
    lookup = predictor("llama-3.1-8b", "h100", "ngram", 3)
    assert "the drafter" not in rules(diagnose(full, lookup))["memory_pressure"].verdict
    assert "memory_pressure" not in rules(diagnose(evidence(40), big))


@pytest.mark.parametrize(("factor", "rule"), [(1.0, None), (1.05, None), (2.5, "host_gap"),
                                              (6.0, "prediction_misfit"),
                                              (0.3, "faster_than_predicted")])
def test_measured_steps_beside_predicted_ones(factor, rule):
    found = judged(evidence(8), predictor(), factor)
    gaps = {"host_gap", "prediction_misfit", "faster_than_predicted"} & set(found)
    assert gaps == ({rule} if rule else set())


def test_a_gap_in_the_mean_alone_is_not_the_hosts():
    """Client-side gaps: the usual step is as predicted, prompts raise the mean."""
    predict = predictor()
    here = as_predicted(evidence(8), predict, 2.5)
    step = predict.expect(here).step_s
    here = replace(here, step_from="gaps between chunks", step_p50_s=step, step_p99_s=12 * step)
    found = rules(diagnose(here, predict))
    assert "host_gap" not in found and "prefill_interference" in found


def test_queueing_and_its_cause():
    slow = evidence(256, queue_s=3.0, ttft_s=3.4, waiting=120.0, max_num_seqs=256)
    found = rules(diagnose(slow))
    assert "256 slots" in found["queueing"].verdict
    sglang = evidence(48, engine="sglang", waiting=30.0, queue_s=None)
    assert "--max-running-requests" in rules(diagnose(sglang))["queueing"].next[0]
    full = evidence(40, queue_s=3.0, ttft_s=3.4, waiting=12.0, kv_cache_usage=0.99)
    assert "KV cache" in rules(diagnose(full))["queueing"].verdict
    assert "queueing" not in rules(diagnose(evidence(8)))
    assert "queueing" not in rules(diagnose(evidence(8, queue_s=0.001, ttft_s=0.002)))


def test_long_prompts_interfere_by_prediction():
    long = predictor(workload=Workload(16384, 64))
    here = evidence(16, input_len=16384.0, output_len=64.0)
    assert "prefill_interference" in judged(here, long)
    short = evidence(16, input_len=64.0, output_len=1024.0)
    assert "prefill_interference" not in judged(short, predictor(workload=CHAT))


def test_a_run_without_speculation_measures_the_gain():
    plain = evidence(8, per_position=(), acceptance_length=None, acceptance_rate=None,
                     tokens_per_step=1.0, num_drafts=None, step_s=0.010, tpot_s=0.010)
    spec = evidence(8, step_s=0.016, tpot_s=0.016 / (1 + sum(GOOD)))
    found = rules(diagnose(spec, plain=plain))
    facts = {fact.what: fact for fact in found["trades_well"].facts}
    assert facts["speedup"].value == pytest.approx(0.010 / (0.016 / 2.97))
    assert facts["speedup"].source.startswith("measured")
    slow = replace(spec, step_s=0.034, tpot_s=0.034 / 2.97)
    assert "competes" in rules(diagnose(slow, plain=plain))


def test_missing_evidence_is_said_with_the_way_to_get_it():
    bare = diagnose(evidence(8, per_position=(), queue_s=None, waiting=None, kv_cache_usage=None,
                             step_s=None))
    said = " ".join(item.what for item in bare.missing)
    for words in ("prediction", "by position", "queue", "cache use", "between outputs"):
        assert words in said
    idle = diagnose(evidence(0, output_tokens=0, acceptance_length=None))
    assert [item.what for item in idle.missing] == ["any output token"]


def test_a_diagnosis_is_plain_json():
    predict = predictor()
    found = diagnose(as_predicted(evidence(8), predict), predict)
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["predicted"]["batch"] == 8


def test_a_batch_that_cannot_be_is_a_warning():
    small = predictor(max_num_seqs=16)
    found = diagnose(evidence(64), small)
    assert any("64 sequences ran, but 16 fit" in text for text in found.warnings)
    assert not diagnose(evidence(16), small).warnings


def test_advice_has_the_names_of_the_engine_that_runs():
    """SGLang knows none of vLLM's flags for memory, running requests and the tokens of a step."""
    full = {"kv_cache_usage": 0.97, "preemptions": 12, "waiting": 9.0}
    spiky = {"step_s": 0.03, "step_p50_s": 0.02, "step_p99_s": 0.2, "steps_counted": 5000}
    for engine, running, budget, memory in (
        ("vllm", "--max-num-seqs", "--max-num-batched-tokens", "--gpu-memory-utilization"),
        ("sglang", "--max-running-requests", "--chunked-prefill-size", "--mem-fraction-static"),
    ):
        found = rules(diagnose(evidence(40, engine=engine, **full, **spiky)))
        advice = " ".join(found["memory_pressure"].next + found["prefill_interference"].next)
        assert all(name in advice for name in (running, budget, memory)), advice
    # the default of 48 is only named where it is the limit
    wide = evidence(64, engine="sglang", waiting=30.0, queue_s=None, max_num_seqs=64)
    assert rules(diagnose(wide))["queueing"].next[0].startswith("raise --max-running-requests")


def hybrid():
    """Recurrent states per draft: a request takes more of the cache under speculation."""
    return predictor("qwen3.6-35b-a3b-nvfp4", "rtx-5090", "mtp", 2, kv="fp8",
                     workload=Workload(16000, 4000))


@pytest.mark.parametrize("waiting", [60, 25])
def test_with_the_cache_full_the_load_is_judged_and_memory_has_the_only_verdict(waiting):
    from specsim.analytic.compare import compared

    predict = hybrid()
    here = evidence(9, rates=(0.85, 0.65), kv_cache_usage=0.96, waiting=float(waiting),
                    input_len=None, output_len=None)
    told = diagnose(here, predict)
    expected, found = told.case.expected, rules(told)
    assert expected.load == 9 + waiting
    system = predict.measured_system(here)
    assert expected.speedup == pytest.approx(
        compared(system, predict.workload, expected.load).speedup)
    assert expected.speedup_in_batch > 1.3 > expected.speedup  # a premise: plain holds more
    low, high = expected.speedup_interval
    assert low < 1 < high
    assert "is open" in found["memory_pressure"].verdict
    assert not {"trades_well", "break_even", "competes"} & set(found)
    assert not any("keep" in step for finding in told.findings for step in finding.next)
    # what waits for a slot while the cache has room is no reason to judge another batch
    slots = diagnose(replace(here, kv_cache_usage=0.3), predict)
    assert slots.case.expected.load == 9 and "trades_well" in rules(slots)


def test_a_drafter_that_displaces_requests_is_a_loss_or_a_gain_by_the_load():
    predict = hybrid()
    full = {"kv_cache_usage": 0.97, "waiting": 200.0, "input_len": None, "output_len": None}
    poor = rules(diagnose(evidence(9, rates=(0.3, 0.1), **full), predict))
    assert "cost more than its drafts bring" in poor["memory_pressure"].verdict
    assert "switch speculation off" in poor["memory_pressure"].next[0]
    plain = evidence(18, per_position=(), acceptance_length=None, acceptance_rate=None,
                     tokens_per_step=1.0, num_drafts=None, tpot_s=0.04)
    measured = evidence(9, rates=(0.85, 0.65), tpot_s=0.02, **full)
    told = rules(diagnose(measured, predict, plain=plain))
    assert "still bring more" in told["memory_pressure"].verdict  # measured, so no doubt is left


@pytest.mark.slow
def test_no_problem_beside_a_good_for_the_same_thing():
    """Batches, acceptances and fillings: one verdict about speculation each."""
    told = {"trades_well", "break_even", "competes", "too_costly"}
    for predict in (predictor(**ROOM), hybrid()):
        for running in (1, 9, 60, 400):
            for rates in ((0.9, 0.8, 0.7), (0.3, 0.1, 0.02)):
                for usage, waiting in ((0.3, 0.0), (0.97, 0.0), (0.97, 80.0)):
                    found = judged(evidence(running, rates, kv_cache_usage=usage, waiting=waiting,
                                            input_len=None, output_len=None), predict)
                    verdicts = [found[rule] for rule in told if rule in found]
                    if "takes part of it:" in getattr(found.get("memory_pressure"), "verdict", ""):
                        verdicts.append(found["memory_pressure"])
                    assert len(verdicts) <= 1 or "good" not in {v.level for v in verdicts}
                    if "rejected" in found and "trades_well" in found:
                        assert found["rejected"].level == "notice"
                    if "other_k" in found and "trades_well" in found:
                        assert "plain decoding is faster" not in found["other_k"].verdict


def test_trees_wake_experts_where_few_are_active():
    tree = predictor("qwen3-30b-a3b", "h100", "eagle3", 3, engine="sglang", tree="4,16")
    here = evidence(2, rates=(0.8, 0.6, 0.4), engine="sglang")
    found = rules(diagnose(here, tree))["wakes_experts"]
    facts = {fact.what: fact.value for fact in found.facts}
    read = [facts[what] for what in ("experts read by a step with the tree",
                                     "with a chain of 3 drafts", "by a plain step")]
    assert read == sorted(read, reverse=True) and read[0] > 1.25 * read[1]
    chain = predictor("qwen3-30b-a3b", "h100", "eagle3", 3, engine="sglang")
    assert "wakes_experts" not in rules(diagnose(here, chain))
    dense = predictor("qwen3-8b", "h100", "eagle3", 3, engine="sglang", tree="4,16")
    assert "wakes_experts" not in rules(diagnose(here, dense))
    full = replace(here, running=400.0)  # every expert is read by plain decoding too
    assert "wakes_experts" not in rules(diagnose(full, tree))


def test_drafting_over_slow_links():
    split = predictor("qwen3-32b", "rtx-4090", "eagle3", 3, tp=4, weights="int4")
    found = rules(diagnose(evidence(64), split))["drafts_over_links"]
    facts = {fact.what: fact.value for fact in found.facts}
    assert facts["of it waiting for links"] < facts["drafting, of each step"]
    one = predictor("qwen3-32b", "h100", "eagle3", 3)
    assert "drafts_over_links" not in rules(diagnose(evidence(64), one))
    fast = predictor("llama-3.3-70b", "h200-sxm", "eagle3", 3, tp=2, weights="fp8")
    assert "drafts_over_links" not in rules(diagnose(evidence(1), fast))


def test_a_drafter_that_rests_is_not_off():
    predict = predictor()
    found = rules(diagnose(evidence(64, draft_share=0.4, tokens_per_step=1.8), predict))
    assert "rarely_proposes" not in found
    facts = {fact.what: fact.value for fact in found["rests"].facts}
    assert facts["a step at k = 0"] > facts["a plain step"]  # its cache is kept up to date
    assert facts["weights of the drafter"] > 0
    lookup = predictor("llama-3.1-8b", "h100", "ngram", 3)
    here = rules(diagnose(evidence(64, draft_share=0.4, tokens_per_step=1.8), lookup))
    assert "rests" not in here and "rarely_proposes" in here
    assert "rests" not in rules(diagnose(evidence(64), predict))


def test_no_tail_is_wasted_that_is_seldom_drafted():
    """A lookup of up to 4 tokens that drafts 1.5 on average."""
    rates = (0.8, 0.2, 0.1, 0.05)
    seldom = evidence(4, rates=rates, acceptance_rate=sum(rates) / 1.5)
    assert "wasted_tail" not in rules(diagnose(seldom))
    assert "wasted_tail" in rules(diagnose(evidence(4, rates=rates)))


def test_off_is_never_called_zero_drafts():
    predict = predictor("qwen3-1.7b", "h100", "draft-model", 4, draft="qwen3-1.7b")
    for rates in ((0.9, 0.85, 0.8, 0.75), (0.2, 0.05, 0.01, 0.0)):
        told = diagnose(evidence(8, rates=rates), predict)
        assert not any("num_speculative_tokens 0" in step
                       for finding in told.findings for step in finding.next)
