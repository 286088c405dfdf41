"""A watched server over time: windows, restarts, silence, and the word on whether it pays."""

import json

import pytest

from diagnose_helpers import GOOD, Counters, predictor, rules
from specsim.diagnose.judge import diagnose
from specsim.diagnose.scrape import Scrape
from specsim.diagnose.watching import Observer, Watcher
from specsim.errors import FormatError

POOR = (0.2, 0.04, 0.01)


def scrape(server, at_s):
    return Scrape(server.text(), at_s)


def observer(predict=None, window_s=30.0):
    return Observer(Watcher("test", window_s), lambda evidence: predict)


def test_a_window_counts_what_happened_between_scrapes():
    server, watcher = Counters(), Watcher("test")
    server.work(1000, batch=2, rates=POOR, step_s=0.5, requests=10)  # before anyone looked
    assert watcher.take(scrape(server, 0.0)).state == "first"
    server.work(200, batch=8, step_s=0.015, requests=4)
    window = watcher.take(scrape(server, 5.0))
    here = window.evidence
    assert (window.state, window.length_s) == ("ok", 5.0)
    assert here.per_position == pytest.approx(GOOD)
    assert here.acceptance_length == pytest.approx(1 + sum(GOOD))
    assert here.step_s == pytest.approx(0.015)
    assert here.running == pytest.approx((1600 + 4) / 200)  # outputs per engine step
    assert here.output_tok_s == pytest.approx((1600 * (1 + sum(GOOD)) + 4) / 5)
    assert here.kv_cache_usage == pytest.approx(0.4)


@pytest.mark.parametrize(("rates", "drafted"), [((0.6, 0.4, 0.0, 0.0), 2), ((0.8, 0.0, 0.0), 1)])
def test_positions_that_a_table_never_drafts_are_no_rejections(rates, drafted):
    server, watcher = Counters(k=len(rates)), Watcher("test")
    server.work(100, rates=rates)
    watcher.take(scrape(server, 0.0))
    server.work(1000, rates=rates)
    server.values["drafted"] -= 8000 * (len(rates) - drafted)
    here = watcher.take(scrape(server, 5.0)).evidence
    assert here.per_position == pytest.approx(rates[:drafted])
    assert here.undrafted_positions == len(rates) - drafted and here.drafted_k == drafted
    seen = observer(predictor(k=drafted))
    assert rules(diagnose(here, predictor(k=drafted))).get("other_k") is None
    assert "would give" not in seen._judge(here, predictor(k=drafted).expect(here))[1]


def test_the_window_slides_and_gauges_are_averaged():
    server, watcher = Counters(), Watcher("test", window_s=10.0)
    for i in range(8):
        server.work(100, rates=POOR if i < 4 else GOOD)
        server.kv = 0.1 * (i % 2)
        window = watcher.take(scrape(server, 5.0 * i))
    assert window.length_s == pytest.approx(10.0)
    assert window.evidence.per_position == pytest.approx(GOOD)  # the poor ones have left it
    assert 0.0 < window.evidence.kv_cache_usage < 0.1


def test_a_restart_is_seen_by_falling_counters_and_by_the_start_time():
    server, watcher = Counters(), Watcher("test")
    server.work(100)
    watcher.take(scrape(server, 0.0))
    server.restart()
    server.work(5)
    assert watcher.take(scrape(server, 5.0)).state == "restarted"
    server.work(100)
    assert watcher.take(scrape(server, 10.0)).state == "ok"
    # counters that have already passed the old ones
    server.restart()
    server.start = 3000.0
    server.work(10_000)
    assert watcher.take(scrape(server, 15.0)).state == "restarted"
    silent = Watcher("test")
    silent.take(scrape(server, 0.0))
    server.values["tokens"] -= 1
    assert silent.take(scrape(server, 5.0)).state == "restarted"


def test_an_idle_server_and_text_that_is_none():
    server, watcher = Counters(), Watcher("test")
    server.work(100)
    watcher.take(scrape(server, 0.0))
    assert watcher.take(scrape(server, 5.0)).state == "idle"
    with pytest.raises(FormatError, match="none of vLLM"):
        watcher.take(Scrape("up 1\n", 6.0))
    server.work(100)
    assert watcher.take(scrape(server, 10.0)).state == "ok"


def test_it_says_when_speculation_stops_paying_and_which_k_would():
    predict = predictor(max_num_seqs=1024)
    server, seen = Counters(), observer(predict, window_s=5.0)
    seen.see(0.0, scrape(server, 0.0))
    said = []
    for i, (batch, rates) in enumerate([(4, GOOD)] * 3 + [(400, (0.55, 0.25, 0.1))] * 3
                                       + [(4, GOOD)] * 2):
        server.work(100, batch=batch, rates=rates)
        said.append(seen.see(5.0 * (i + 1), scrape(server, 5.0 * (i + 1))))
    assert [item.pays for item in said] == [True] * 3 + [False] * 3 + [True] * 2
    assert [item.event for item in said] == [None] * 3 + ["stopped_paying"] + [None] * 2 + [
        "pays_again", None]
    assert "stopped paying" in said[3].message
    lost = said[3].expected
    assert lost.best_k != 3
    wanted = f"k = {lost.best_k} would give" if lost.best_k else "no draft length pays"
    assert wanted in said[3].message
    document = json.loads(json.dumps(said[3].to_dict(), allow_nan=False))
    assert document["kind"] == "watch" and document["pays"] is False
    assert document["best_k"] == lost.best_k
    # measured 15 ms beside the prediction, as a relative error of the latter
    assert document["step_error"] == pytest.approx(lost.itl_s / 0.015 - 1)


def test_without_a_model_only_counters_are_shown():
    server, seen = Counters(), observer()
    seen.see(0.0, scrape(server, 0.0))
    server.work(100)
    item = seen.see(5.0, scrape(server, 5.0))
    assert item.pays is None and item.expected is None and "MODEL" in item.message
    off, seen = Counters(k=0), observer()
    off.work(10)
    seen.see(0.0, scrape(off, 0.0))
    off.work(100)
    assert "off" in seen.see(5.0, scrape(off, 5.0)).message


def test_failures_are_events_once():
    server, seen = Counters(), observer()
    server.work(10)
    seen.see(0.0, scrape(server, 0.0))
    assert seen.unreachable(5.0, "gone").event == "unreachable"
    assert seen.unreachable(10.0, "gone").event is None
    server.work(10)
    assert seen.see(15.0, scrape(server, 15.0)).event == "back"


SGLANG = """\
sglang:num_running_reqs{{model_name="m"}} {running}
sglang:num_queue_reqs{{model_name="m"}} 0
sglang:token_usage{{model_name="m"}} 0.5
sglang:spec_accept_length{{model_name="m"}} 2.5
sglang:spec_num_steps{{model_name="m"}} 3
sglang:spec_num_draft_tokens{{model_name="m"}} 4
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{{model_name="m"}} {tokens}
# TYPE sglang:inter_token_latency_seconds histogram
sglang:inter_token_latency_seconds_sum{{model_name="m"}} {gap_s}
sglang:inter_token_latency_seconds_bucket{{le="+Inf",model_name="m"}} {tokens}
sglang:inter_token_latency_seconds_count{{model_name="m"}} {tokens}
# TYPE sglang:request_time_per_output_token_seconds histogram
sglang:request_time_per_output_token_seconds_sum{{model_name="m"}} {tpot_s}
sglang:request_time_per_output_token_seconds_bucket{{le="+Inf",model_name="m"}} {done}
sglang:request_time_per_output_token_seconds_count{{model_name="m"}} {done}
"""


def test_sglang_between_few_ends_uses_its_gauges():
    watcher = Watcher("test")
    first = SGLANG.format(running=4, tokens=1000, gap_s=6.0, tpot_s=0.06, done=10)
    second = SGLANG.format(running=6, tokens=3000, gap_s=18.0, tpot_s=0.072, done=12)
    watcher.take(Scrape(first, 0.0))
    here = watcher.take(Scrape(second, 5.0)).evidence
    assert here.acceptance_length == here.tokens_per_step == 2.5
    assert here.running == pytest.approx(5.0)  # mean of both scrapes
    assert here.step_s == pytest.approx(0.006 * 2.5)
    assert here.num_speculative_tokens == 3


def test_data_parallel_engines_share_the_streams():
    def twice(text):
        lines = [line.replace('model_name="m"', f'model_name="m",dp_rank="{rank}"')
                 for line in text.splitlines() for rank in (0, 1)]
        return "\n".join(dict.fromkeys(lines)) + "\n"

    watcher = Watcher("test")
    first = twice(SGLANG.format(running=4, tokens=1000, gap_s=6.0, tpot_s=0.06, done=10))
    second = twice(SGLANG.format(running=6, tokens=3000, gap_s=18.0, tpot_s=0.072, done=12))
    watcher.take(Scrape(first, 0.0))
    here = watcher.take(Scrape(second, 5.0)).evidence
    assert here.running == pytest.approx(5.0)  # of each engine
    assert here.output_tokens == 4000  # of both


TRTLLM = """\
trtllm_num_requests_running{{model_name="m"}} {running}
trtllm_num_requests_waiting{{model_name="m"}} 2
trtllm_kv_cache_utilization{{model_name="m"}} 0.3
trtllm_avg_decoded_tokens_per_iter{{model_name="m"}} 2.4
trtllm_spec_decode_acceptance_length{{model_name="m"}} 2.4
# TYPE trtllm_spec_decode_num_draft_tokens_total counter
trtllm_spec_decode_num_draft_tokens_total{{model_name="m"}} {drafted}
# TYPE trtllm_spec_decode_num_accepted_tokens_total counter
trtllm_spec_decode_num_accepted_tokens_total{{model_name="m"}} {accepted}
# TYPE trtllm_time_per_output_token_seconds histogram
trtllm_time_per_output_token_seconds_sum{{model_name="m"}} {tpot_s}
trtllm_time_per_output_token_seconds_bucket{{le="+Inf",model_name="m"}} {done}
trtllm_time_per_output_token_seconds_count{{model_name="m"}} {done}
"""


def test_tensorrt_llm_gauges_and_counters():
    watcher = Watcher("test")
    first = TRTLLM.format(running=4, drafted=3000, accepted=1400, tpot_s=0.1, done=10)
    second = TRTLLM.format(running=6, drafted=6000, accepted=2900, tpot_s=0.16, done=20)
    watcher.take(Scrape(first, 0.0))
    window = watcher.take(Scrape(second, 5.0))
    here = window.evidence
    assert window.state == "ok" and here.engine == "trtllm"
    assert here.acceptance_rate == pytest.approx(0.5) and here.tokens_per_step == 2.4
    assert here.running == pytest.approx(5.0)
    assert here.step_s == pytest.approx(0.006 * 2.4)
    still = TRTLLM.format(running=0, drafted=6000, accepted=2900, tpot_s=0.16, done=20)
    idle = Watcher("test")
    idle.take(Scrape(still, 0.0))
    assert idle.take(Scrape(still, 5.0)).state == "idle"
