"""Results of tools and versions without a sample of their own, in the key sets of their code."""

from typing import Any

SGLANG = """\
============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    inf
Max request concurrency:                 16
Successful requests:                     80
Benchmark duration (s):                  100.00
Total input tokens:                      80000
Total input text tokens:                 80000
Total input vision tokens:               0
Total generated tokens:                  40000
Total generated tokens (retokenized):    39990
Request throughput (req/s):              0.80
Input token throughput (tok/s):          800.00
Output token throughput (tok/s):         400.00
Peak output token throughput (tok/s):    500.00
Peak concurrent requests:                19
Total token throughput (tok/s):          1200.00
Concurrency:                             15.80
Accept length:                           2.90
----------------End-to-End Latency----------------
Mean E2E Latency (ms):                   19750.00
Median E2E Latency (ms):                 19800.00
---------------Time to First Token----------------
Mean TTFT (ms):                          400.00
Median TTFT (ms):                        380.00
P99 TTFT (ms):                           900.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          38.78
Median TPOT (ms):                        38.00
P99 TPOT (ms):                           51.00
---------------Inter-Token Latency----------------
Mean ITL (ms):                           38.80
Median ITL (ms):                         20.00
P95 ITL (ms):                            90.00
P99 ITL (ms):                            120.00
Max ITL (ms):                            400.00
==================================================
"""
VLLM = """\
============ Serving Benchmark Result ============
Successful requests:                     16
Failed requests:                         1
Maximum request concurrency:             4
Benchmark duration (s):                  29.30
Total input tokens:                      2840
Total generated tokens:                  1760
Request throughput (req/s):              0.55
Output token throughput (tok/s):         60.07
Peak output token throughput (tok/s):    40.00
Peak concurrent requests:                8.00
Total token throughput (tok/s):          157.00
---------------Time to First Token----------------
Mean TTFT (ms):                          578.86
Median TTFT (ms):                        500.10
P99 TTFT (ms):                           966.85
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          51.84
---------------Inter-token Latency----------------
Mean ITL (ms):                           115.74
---------------Speculative Decoding---------------
Acceptance rate (%):                     71.56
Acceptance length:                       3.15
Drafts:                                  443
Draft tokens:                            1329
Accepted tokens:                         951
Per-position acceptance (%):
  Position 0:                            81.94
  Position 1:                            72.01
  Position 2:                            60.72
==================================================
"""
SWEEP_CSV = (
    ",run_number,completed,duration,request_rate,total_input_tokens,total_output_tokens,"
    "output_throughput,mean_ttft_ms,mean_tpot_ms,errors,speculative_config\n"
    "0,0,8,12.5,inf,1420,880,70.4,380.5,42.1,\"['', '']\",\"{'method': 'ngram'}\"\n"
)
CELL: dict[str, Any] = {
    "hw": "h200", "tp": 8, "ep": 1, "dp_attention": "false", "conc": 64, "model": "org/m",
    "framework": "sglang", "precision": "fp8", "spec_decoding": "mtp", "isl": 1024,
    "osl": 1024, "tput_per_gpu": 2400.0, "output_tput_per_gpu": 1200.0,
    "input_tput_per_gpu": 1200.0, "mean_ttft": 0.4, "median_ttft": 0.39, "p99_ttft": 0.9,
    "mean_tpot": 0.02, "median_tpot": 0.02, "mean_intvty": 50.0, "median_intvty": 50.0,
    "mean_itl": 0.05, "mean_e2el": 20.86,
}
SECONDS: dict[str, Any] = {
    "date": "20260301-120000", "model_id": "org/model-a", "num_prompts": 40,
    "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 4, "duration": 50.0,
    "completed": 40, "total_input_tokens": 40000, "total_output_tokens": 8000,
    "request_throughput": 0.8, "output_throughput": 160.0, "median_ttft": 0.4, "p99_ttft": 0.9,
    "median_e2el": 4.4, "p99_e2el": 5.5, "median_tpot": 0.02, "p99_tpot": 0.03,
}
_RESULT: dict[str, Any] = {
    "request": {"id": "1", "prompt": "p"}, "prompt": "p", "prompt_word_count": 3,
    "prompt_token_count": 9, "output": "o", "output_word_count": 4, "output_token_count": 5,
    "last_time": 11.0, "first_token_set": True, "start_time": 10.0, "end_time": 11.0,
    "first_token_time": 0.5, "decode_times": {"data": [0.1, 0.1, 0.1, 0.1]},
}
_POINT: dict[str, Any] = {
    "mode": "asynchronous", "rate": 1.5, "results": [_RESULT, {**_RESULT, "start_time": 11.1}],
    "errors": [{"request": {}, "message": "x"}],
    "concurrencies": [{"time": 1.0, "completed": 1, "errored": 0, "processing": 1}],
}
FIRST: dict[str, Any] = {
    "benchmarks": [_POINT], "args": {"model": "org/m", "max_number": 3},
}


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


def _times(unit: str, **means: float) -> dict[str, Any]:
    return {name: {"units": unit, "mean": value, "mode": value, "stddev": 0.0, "min": value,
                   "p0p1": value, "p50": value, "p99": value, "p99p9": value, "max": value}
            for name, value in means.items()}


def llm_d_old(tool: str) -> dict[str, Any]:
    """llm-d's report 0.1, 40 requests of 201 tokens; times in ms."""
    return {
        "version": "0.1",
        "scenario": {"model": {"name": "org/m"}, "load": {"name": tool, "args": {"rate": 3}},
                     "host": {"accelerator": [{"count": 8, "memory": 80}]}},
        "metrics": {
            "time": {"duration": 50.0, "start": 1.7e9, "stop": 1.7e9},
            "requests": {"total": 41, "failures": 1, "incomplete": 0,
                         **_times("count", input_length=1000.0, output_length=201.0)},
            "latency": {
                **_times("ms", time_to_first_token=400.0, request_latency=4400.0),
                **_times("ms/token", time_per_output_token=20.0, inter_token_latency=50.0,
                         normalized_time_per_output_token=22.0),
            },
            "throughput": {"output_tokens_per_sec": 160.8, "requests_per_sec": 0.8,
                           "total_tokens_per_sec": 960.8, "input_tokens_per_sec": 800.0},
            "resources": {"accelerator": [{"power": 300.0}]},
        },
    }


def llm_d_new(tool: str) -> dict[str, Any]:
    """The same figures as report 0.2 has them."""
    old = llm_d_old(tool)["metrics"]
    return {
        "version": "0.2",
        "run": {"uid": "a", "time": {"duration": "PT50S"}},
        "scenario": {
            "stack": [{"metadata": {}, "standardized": {
                "kind": "inference_engine", "model": {"name": "org/m"}, "replicas": 1,
                "accelerator": {"count": 2, "parallelism": {"tp": 2, "dp": 1}}}}],
            "load": {"standardized": {"tool": tool, "concurrency": 4, "stage": 0},
                     "native": {"args": {"seed": 1}}},
        },
        "results": {
            "request_performance": {"aggregate": {
                "requests": old["requests"], "latency": old["latency"],
                "throughput": _times("tokens/s", output_token_rate=160.8, request_rate=0.8,
                                     total_token_rate=960.8),
            }},
            "observability": {"drawn": {"kv": [1.0]}},
        },
    }
