"""Files of other versions of a tool, in the key sets that their own code declares."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from specsim.formats.bench import BenchRun
from specsim.formats.bench.load import read_text_as_bench
from specsim.formats.bench.unread import UNREAD

DATA = Path(__file__).parent / "data"


def read(value: object) -> list[BenchRun]:
    runs = read_text_as_bench(json.dumps(value))
    assert not [text for run in runs for text in run.warnings if text.startswith(UNREAD)]
    return runs


def metric(unit: str, value: float) -> dict[str, Any]:
    return {"unit": unit, "avg": value, "p50": value, "p99": value, "min": value, "max": value,
            "std": 0.0}


def aiperf_old(**loadgen: Any) -> dict[str, Any]:
    """AIPerf 0.2: no aiperf_version, load under loadgen."""
    return {
        "request_throughput": {"unit": "requests/sec", "avg": 2.0},
        "request_latency": metric("ms", 2000.0),
        "request_count": {"unit": "requests", "avg": 80.0},
        "time_to_first_token": metric("ms", 100.0),
        "time_to_second_token": metric("ms", 10.0),
        "inter_token_latency": metric("ms", 1900 / 199),
        "inter_chunk_latency": metric("ms", 25.0),
        "output_token_throughput": {"unit": "tokens/sec", "avg": 400.0},
        "output_token_throughput_per_user": metric("tokens/sec/user", 104.7),
        "prefill_throughput": metric("tokens/sec", 4000.0),
        "output_sequence_length": metric("tokens", 200.0),
        "input_sequence_length": metric("tokens", 400.0),
        "output_token_count": metric("tokens", 200.0),
        "goodput": {"unit": "requests/sec", "avg": 1.5},
        "good_request_count": {"unit": "requests", "avg": 60.0},
        "min_request_timestamp": {"unit": "ns", "avg": 1.7e18 / 1e4},
        "benchmark_duration": {"unit": "sec", "avg": 40.0},
        "total_isl": {"unit": "tokens", "avg": 32000.0},
        "error_request_count": {"unit": "requests", "avg": 1.0},
        "input_config": {
            "endpoint": {"model_names": ["m"], "type": "chat", "streaming": True},
            "loadgen": {"request_count": 80, **loadgen}, "input": {"random_seed": 3},
        },
        "was_cancelled": False, "start_time": "2025-11-01T10:00:00",
        "telemetry_data": {"endpoints": {"a": {"gpus": {"gpu_0": {"power": {"avg": 300.0}}}}}},
    }


def test_the_first_versions_of_aiperf_are_no_genai_perf() -> None:
    [run] = read(aiperf_old(concurrency=4))
    assert (run.format, run.format_version, run.model) == ("aiperf", None, "m")
    assert run.load.kind == "closed" and run.load.max_concurrency == 4
    assert run.tpot_s and run.tpot_s.mean == pytest.approx(1.9 / 199)
    assert run.itl_s and run.itl_s.mean == pytest.approx(0.025)
    assert run.duration_s == 40.0 and run.output_tokens == 16000


@pytest.mark.parametrize(("mode", "burstiness"), [("poisson", 1.0), ("constant", math.inf)])
def test_the_load_of_old_aiperf_has_its_mode(mode: str, burstiness: float) -> None:
    [run] = read(aiperf_old(request_rate=3.0, request_rate_mode=mode))
    assert (run.load.request_rate, run.load.burstiness) == (3.0, burstiness)
    [run] = read(aiperf_old(request_rate=3.0, arrival_pattern="gamma", arrival_smoothness=0.5))
    assert run.load.burstiness == 0.5


def spread(value: float, count: int = 2) -> dict[str, Any]:
    it = {"mean": value, "median": value, "mode": value, "variance": 0.0, "std_dev": 0.0,
          "min": value, "max": value, "count": count, "total_sum": value * count,
          "percentiles": {"p001": value, "p50": value, "p99": value, "p999": value}}
    empty = {**it, "count": 0}
    return {"successful": it, "errored": empty, "incomplete": empty, "total": it}


def guidellm_old(strategy: dict[str, Any]) -> dict[str, Any]:
    """GuideLLM 0.2 and 0.3: args.strategy, worker, clocks of a request under other names."""
    requests = [
        {"type_": "generative_text_response", "start_time": 100.0 + i, "end_time": 102.0 + i,
         "first_token_time": 100.5 + i, "last_token_time": 101.9 + i, "prompt_tokens": 64,
         "output_tokens": 15, "request_latency": 2.0, "time_to_first_token_ms": 500.0,
         "time_per_output_token_ms": 1400 / 15, "inter_token_latency_ms": 100.0,
         "tokens_per_second": 39.5, "output_tokens_per_second": 7.5,
         "scheduler_info": {"queued_time": 99.0}}
        for i in range(2)
    ]
    metrics = {
        "requests_per_second": spread(0.66), "request_concurrency": spread(1.3),
        "request_latency": spread(2.0), "prompt_token_count": spread(64.0),
        "output_token_count": spread(15.0), "time_to_first_token_ms": spread(500.0),
        "time_per_output_token_ms": spread(93.0), "inter_token_latency_ms": spread(100.0),
        "output_tokens_per_second": spread(10.0), "tokens_per_second": spread(52.0),
    }
    totals = {"successful": 2, "errored": 1, "incomplete": 0, "total": 3}
    return {"benchmarks": [{
        "type_": "generative_benchmark", "id_": "a", "run_id": "b",
        "args": {"strategy": strategy, "max_number": 3, "profile": {"type_": "sweep"}},
        "run_stats": {"start_time": 99.0, "request_time_avg": 2.0}, "extras": {},
        "worker": {"backend_model": "org/m", "backend_target": "x"},
        "request_loader": {"processor_args": {"n": 1}}, "metrics": metrics,
        "start_time": 100.0, "end_time": 103.0, "duration": 3.0, "request_totals": totals,
        "request_samples": None,
        "requests": {"successful": requests, "errored": [{"start_time": 1.0}], "incomplete": [],
                     "total": None},
    }]}


def test_guidellm_0_2_and_0_3() -> None:
    [run] = read(guidellm_old({"type_": "constant", "rate": 2.0, "max_concurrency": 512}))
    assert (run.model, run.completed, run.failed) == ("org/m", 2, 1)
    assert (run.load.request_rate, run.load.burstiness) == (2.0, math.inf)
    assert run.ttft_s and run.tpot_s and run.e2el_s
    assert (run.ttft_s.mean, run.e2el_s.mean) == (0.5, 2.0)
    assert run.tpot_s.mean == pytest.approx(0.1)
    assert [row.arrival_s for row in run.requests] == [0.0, 1.0]
    [run] = read(guidellm_old({"type_": "concurrent", "streams": 2}))
    assert run.load.kind == "closed" and run.load.max_concurrency == 2


def test_guidellm_0_1_has_requests_only() -> None:
    """TTFT 0.5 s, then 4 chunks 0.1 s apart: 2 s from the first request to the last token."""
    result = {
        "request": {"id": "1", "prompt": "p"}, "prompt": "p", "prompt_word_count": 3,
        "prompt_token_count": 9, "output": "o", "output_word_count": 4, "output_token_count": 5,
        "last_time": 11.0, "first_token_set": True, "start_time": 10.0, "end_time": 11.0,
        "first_token_time": 0.5, "decode_times": {"data": [0.1, 0.1, 0.1, 0.1]},
    }
    point = {
        "mode": "asynchronous", "rate": 1.5, "results": [result, {**result, "start_time": 11.1}],
        "errors": [{"request": {}, "message": "x"}],
        "concurrencies": [{"time": 1.0, "completed": 1, "errored": 0, "processing": 1}],
    }
    [run] = read({"benchmarks": [point], "args": {"model": "org/m", "max_number": 3}})
    assert (run.format, run.format_version, run.model) == ("guidellm", "0.1", "org/m")
    assert (run.completed, run.failed, run.load.request_rate) == (2, 1, 1.5)
    assert run.load.num_prompts == 3 and run.duration_s == pytest.approx(2.0)
    assert run.ttft_s and run.itl_s and run.tpot_s
    assert (run.ttft_s.mean, run.tokens_per_step) == (0.5, 1.0)
    assert run.itl_s.mean == pytest.approx(0.1) and run.tpot_s.mean == pytest.approx(0.1)
