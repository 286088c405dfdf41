"""Names, buckets and arithmetic of /metrics."""

import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from specsim.serve.metrics import RequestTimes, ServeMetrics
from specsim.serve.replies import spec_metrics


@pytest.fixture
def metrics():
    return ServeMetrics("tiny", 3, 2048, running=lambda: 2, waiting=lambda: 5,
                        cache_usage=lambda: 0.25)


def read(metrics):
    out = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k not in ("model_name", "engine")}
            out[sample.name, *labels.values()] = sample.value
    return out


# What `vllm serve` of vLLM 0.32 (CPU, n-gram, k = 3) shows at /metrics, of what this engine has.
NAMES = [
    "spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total", "spec_decode_num_accepted_tokens_per_pos_total",
    "num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason",
    "kv_cache_usage_perc", "prefix_cache_queries_total", "prefix_cache_hits_total",
    "num_preemptions_total", "prompt_tokens_total", "prompt_tokens_cached_total",
    "generation_tokens_total", "request_success_total", "admission_rejections_total",
    "request_prompt_tokens_bucket", "request_generation_tokens_bucket",
    "iteration_tokens_total_bucket", "request_params_max_tokens_bucket",
    "time_to_first_token_seconds_bucket", "inter_token_latency_seconds_bucket",
    "request_time_per_output_token_seconds_bucket", "e2e_request_latency_seconds_bucket",
    "request_queue_time_seconds_bucket", "request_inference_time_seconds_bucket",
    "request_prefill_time_seconds_bucket", "request_decode_time_seconds_bucket",
]


def test_names_and_labels_are_vllms(metrics):
    families = {s.name: s for f in text_string_to_metric_families(metrics.text().decode())
                for s in f.samples}
    for name in NAMES:
        sample = families[f"vllm:{name}"]
        assert sample.labels["model_name"] == "tiny"
        assert sample.labels["engine"] == "0"


def test_buckets_are_vllms(metrics):
    found = {}
    for name, *labels in read(metrics):
        if name.endswith("_bucket"):
            found.setdefault(name, []).append(labels[-1])
    assert found["vllm:time_to_first_token_seconds_bucket"][:4] == ["0.001", "0.005", "0.01",
                                                                   "0.02"]
    assert found["vllm:time_to_first_token_seconds_bucket"][-3:] == ["640.0", "2560.0", "+Inf"]
    assert found["vllm:inter_token_latency_seconds_bucket"][-3:] == ["40.0", "80.0", "+Inf"]
    assert found["vllm:e2e_request_latency_seconds_bucket"][0] == "0.3"
    assert found["vllm:request_prompt_tokens_bucket"] == [
        "1.0", "2.0", "5.0", "10.0", "20.0", "50.0", "100.0", "200.0", "500.0", "1000.0",
        "2000.0", "+Inf"]


def test_gauges_read_the_engine_when_asked(metrics):
    found = read(metrics)
    assert found["vllm:num_requests_running",] == 2
    assert found["vllm:num_requests_waiting",] == 5
    assert found["vllm:num_requests_waiting_by_reason", "capacity"] == 5
    assert found["vllm:kv_cache_usage_perc",] == 0.25


def test_positions_are_prefix_counts_and_steps_without_drafts_do_not_count(metrics):
    steps = [(3, 3), (3, 0), (0, 0), (2, 1), (3, 2), (0, 0), (1, 1)]
    for proposed, accepted in steps:
        metrics.drafted(proposed, accepted)
    found = read(metrics)
    drafts = found["vllm:spec_decode_num_drafts_total",]
    accepted = found["vllm:spec_decode_num_accepted_tokens_total",]
    per_position = [found["vllm:spec_decode_num_accepted_tokens_per_pos_total", str(i)]
                    for i in range(3)]
    assert drafts == 5
    assert found["vllm:spec_decode_num_draft_tokens_total",] == 12
    assert accepted == 7
    assert per_position == [4, 2, 1]
    # Acceptance length, from the counters alone: tokens of the steps with drafts per such step.
    assert 1 + accepted / drafts == sum(a + 1 for p, a in steps if p) / 5
    assert sum(n / drafts for n in per_position) == pytest.approx(accepted / drafts)


def test_times_of_a_request(metrics):
    metrics.finished("length", RequestTimes(
        arrival_s=10.0, admitted_s=10.5, first_token_s=11.0, last_token_s=14.0,
        num_prompt_tokens=7, num_generation_tokens=5, max_tokens=5))
    metrics.finished("abort")
    # An answer of one token has no time per token.
    metrics.finished("stop", RequestTimes(0.0, 0.0, 1.0, 1.0, 1, 1, 9))
    found = read(metrics)
    total = {"e2e_request_latency": 4.0 + 1.0, "request_queue_time": 0.5,
             "request_prefill_time": 0.5 + 1.0, "request_decode_time": 3.0,
             "request_inference_time": 3.5 + 1.0, "request_time_per_output_token": 0.75}
    for name, value in total.items():
        assert found[f"vllm:{name}_seconds_sum",] == pytest.approx(value), name
    assert found["vllm:request_time_per_output_token_seconds_count",] == 1
    assert found["vllm:e2e_request_latency_seconds_count",] == 2
    assert found["vllm:request_prompt_tokens_sum",] == 8
    assert found["vllm:request_generation_tokens_sum",] == 6
    assert found["vllm:request_params_max_tokens_sum",] == 14
    counts = {r: found["vllm:request_success_total", r] for r in ("stop", "length", "abort")}
    assert counts == {"stop": 1, "length": 1, "abort": 1}


def test_a_scrape_waits_for_the_step_being_recorded(metrics):
    done = threading.Event()
    with metrics.lock:
        scrape = threading.Thread(target=lambda: (metrics.text(), done.set()))
        scrape.start()
        assert not done.wait(0.05)
    scrape.join(5)
    assert done.is_set()


def test_per_request_numbers_match_vllms_own_sample():
    """A response that vLLM 0.32 gave (n-gram, k = 3): 9 steps with these accepted drafts."""
    accepted = [0, 3, 3, 3, 2, 0, 3, 0, 0]
    found = spec_metrics([(3, a) for a in accepted], 3, detailed=True)
    assert found == {
        "mean_acceptance_length": pytest.approx(2.5555555555555554),
        "draft_acceptance_rate": pytest.approx(0.5185185185185185),
        "acceptance_histogram": [4, 0, 1, 4], "num_spec_steps": 9,
        "num_accepted_draft_tokens": 14, "num_draft_tokens": 27, "num_spec_tokens": 3,
        "per_step_accepted": accepted, "per_step_drafted": [3] * 9,
    }
    assert spec_metrics([], 3, detailed=False)["mean_acceptance_length"] is None
