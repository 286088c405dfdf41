"""What every sample means, against figures computed by hand from the samples' own details.

The literals come from the raw per-request lists by the definitions in `bench.record`: TPOT =
(last - first token) / (tokens - 1) per request and then averaged, ITL = gaps between chunks.
"""

import json
import math
from pathlib import Path

import pytest

from specsim.formats.bench import BenchRun, read_bench

DATA = Path(__file__).parent / "data"


def one(name: str) -> BenchRun:
    runs = read_bench(DATA / name)
    assert len(runs) == 1
    return runs[0]


# name: TTFT mean, TTFT p99, TPOT mean, TPOT p90, ITL mean, ITL p99, E2EL mean, tokens per step,
# share of steps with a draft, requests in flight
VLLM = {
    "vllm_base_codeedit_c1": (
        0.377751590,
        0.477193570,
        0.050024281,
        0.059095545,
        0.049618025,
        0.173739045,
        6.673038532,
        1.000985222,
        None,
        0.999962042,
    ),
    "vllm_draftself_k2_c1": (
        1.121085060,
        2.251383441,
        0.040923347,
        0.043949104,
        0.122770040,
        0.279858357,
        3.699255904,
        3.0,
        1.0,
        0.999948026,
    ),
    "vllm_ngram3_codeedit_c1": (
        0.378827295,
        0.461669677,
        0.042075054,
        0.063798715,
        0.089916810,
        0.262112001,
        5.425408266,
        2.262806236,
        0.583518931,
        0.999787313,
    ),
    "vllm_ngram3_codeedit_c4": (
        0.578863798,
        0.966853483,
        0.051844613,
        0.068924900,
        0.115742965,
        0.566724389,
        6.387713833,
        2.171855542,
        0.551681196,
        3.473461416,
    ),
    "vllm_ngram3_openloop_crate": (
        0.288622744,
        0.635127875,
        0.036219693,
        0.050791786,
        0.086558927,
        0.430606801,
        1.990948301,
        2.389830509,
        0.622881356,
        0.919785368,
    ),
}


@pytest.mark.parametrize("name", VLLM)
def test_vllm_details_give_the_hand_computed_figures(name: str) -> None:
    ttft, ttft99, tpot, tpot90, itl, itl99, e2el, step, share, busy = VLLM[name]
    run = one(f"{name}.json")
    assert run.format == "vllm bench serve"
    assert run.ttft_s and run.tpot_s and run.itl_s and run.e2el_s
    got = (
        run.ttft_s.mean,
        run.ttft_s.percentiles["p99"],
        run.tpot_s.mean,
        run.tpot_s.percentiles["p90"],
        run.itl_s.mean,
        run.itl_s.percentiles["p99"],
        run.e2el_s.mean,
        run.tokens_per_step,
        run.concurrency_mean,
    )
    hand = (ttft, ttft99, tpot, tpot90, itl, itl99, e2el, step, busy)
    assert got == pytest.approx(hand, rel=1e-7)
    assert run.draft_share == (None if share is None else pytest.approx(share, rel=1e-7))
    assert run.tokens_per_step_basis == "chunks"
    # The details agree with what the tool reported, so it must not be called into question.
    assert not any("differ" in text for text in run.warnings)


def test_vllm_summary_without_details_agrees_with_the_details(tmp_path: Path) -> None:
    """Percent becomes a fraction, the peak that counts chunks is refused, load and k are there."""
    full = one("vllm_ngram3_codeedit_c4.json")
    raw = json.loads((DATA / "vllm_ngram3_codeedit_c4.json").read_text())
    for key in (
        "input_lens",
        "output_lens",
        "ttfts",
        "itls",
        "start_times",
        "errors",
        "generated_texts",
    ):
        del raw[key]
    path = tmp_path / "plain.json"
    path.write_text(json.dumps(raw))
    run = read_bench(path)[0]
    assert run.acceptance == full.acceptance
    assert run.acceptance is not None
    assert run.acceptance.acceptance_length == pytest.approx(1 + 951 / 443, rel=1e-12)
    assert run.acceptance.acceptance_rate == pytest.approx(951 / 1329, rel=1e-9)
    assert sum(run.acceptance.per_position) == pytest.approx(951 / 443, rel=1e-9)
    assert run.acceptance.per_position == pytest.approx(
        (0.819413093, 0.720090293, 0.607223476), rel=1e-6
    )
    assert run.load.kind == "closed" and run.load.max_concurrency == 4
    assert run.load.request_rate == math.inf
    assert run.server_args.num_speculative_tokens == 3
    assert run.tpot_s and full.tpot_s and run.tpot_s.basis == "reported"
    assert run.tpot_s.mean == pytest.approx(full.tpot_s.mean, rel=1e-9)
    assert run.requests == ()
    # 1760 tokens of 16 requests, 951 of them accepted drafts: 1744 / 793 steps
    assert run.tokens_per_step == pytest.approx(1744 / 793, rel=1e-12)
    assert run.tokens_per_step_basis == "counters"
    assert any("counts chunks" in text for text in run.warnings)


def test_vllm_rows_hold_arrivals_and_gaps() -> None:
    run = one("vllm_ngram3_openloop_crate.json")
    assert run.load.kind == "open" and run.load.request_rate == 0.5 and run.load.burstiness == 1.0
    assert len(run.requests) == 12
    assert run.requests[0].arrival_s == 0.0
    assert run.requests[1].arrival_s == pytest.approx(2.110035049, rel=1e-9)
    row = run.requests[0]
    assert row.output_tokens == 48 and row.e2el_s is not None and row.ttft_s is not None
    assert row.tpot_s == pytest.approx((row.e2el_s - row.ttft_s) / 47)
    assert sum(row.itls_s) == pytest.approx(row.e2el_s - row.ttft_s)


def test_steps_without_a_draft_are_pointed_out() -> None:
    """n-gram: acceptance length 3.19, but 2.26 tokens per step, as 42 % of steps had no draft."""
    run = one("vllm_ngram3_codeedit_c1.json")
    assert run.acceptance is not None
    assert run.acceptance.acceptance_length == pytest.approx(3.187022901)
    assert any("58% of the decode steps" in text for text in run.warnings)
    always = one("vllm_draftself_k2_c1.json")
    assert not any("carried a draft" in text for text in always.warnings)


def test_vllm_append_result_gives_one_run_per_line(tmp_path: Path) -> None:
    lines = [
        json.loads((DATA / f"vllm_{n}.json").read_text())
        for n in ("base_codeedit_c1", "ngram3_codeedit_c1")
    ]
    path = tmp_path / "appended.json"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    runs = read_bench(path)
    assert [run.label for run in runs] == ["cpu_base_codeedit", "cpu_ngram3_codeedit"]
    assert runs[0].acceptance is None and runs[1].acceptance is not None


def test_vllm_failed_requests_do_not_enter_the_times(tmp_path: Path) -> None:
    raw = json.loads((DATA / "vllm_draftself_k2_c1.json").read_text())
    raw["errors"][0], raw["output_lens"][0] = "connection reset", 0
    raw["ttfts"][0], raw["itls"][0], raw["latencies"][0] = 0.0, [], 0.0
    raw["completed"], raw["failed"] = raw["completed"] - 1, 1
    raw["mean_ttft_ms"] = sum(raw["ttfts"][1:]) / len(raw["ttfts"][1:]) * 1e3
    path = tmp_path / "failed.json"
    path.write_text(json.dumps(raw))
    run = read_bench(path)[0]
    assert run.failed == 1 and run.ttft_s and run.ttft_s.count == len(raw["ttfts"]) - 1
    assert run.ttft_s.mean == pytest.approx(raw["mean_ttft_ms"] / 1e3)
    assert run.requests[0].success is False and run.requests[0].ttft_s is None


def test_vllm_metadata_and_sweep_keys_tell_the_server() -> None:
    run = read_bench(DATA / "vllm_sweep/SERVE--ngram3-BENCH--c4/run=0.json")[0]
    assert run.format == "vllm bench sweep"
    args = run.server_args
    assert (args.num_speculative_tokens, args.method, args.max_num_seqs) == (3, "ngram", 32)
    assert run.metadata["run_number"] == "0"


def test_vllm_disagreeing_details_are_reported(tmp_path: Path) -> None:
    raw = json.loads((DATA / "vllm_base_codeedit_c1.json").read_text())
    raw["mean_tpot_ms"] *= 2
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(raw))
    run = read_bench(path)[0]
    assert run.tpot_s and run.tpot_s.mean == pytest.approx(0.050024281)
    assert any(text.startswith("TPOT: the reported mean") for text in run.warnings)


def test_vllm_run_without_a_completed_request_has_no_times(tmp_path: Path) -> None:
    raw = json.loads((DATA / "vllm_sweep/SERVE--ngram3-BENCH--c1/run=0.json").read_text())
    raw = {k: 0.0 if k.endswith("_ms") else v for k, v in raw.items()}
    raw |= {"completed": 0, "failed": 8, "total_output_tokens": 0, "mean_tpot_ms": math.nan}
    path = tmp_path / "dead.json"
    path.write_text(json.dumps(raw))
    run = read_bench(path)[0]
    assert run.ttft_s is run.tpot_s is run.itl_s is None
    assert any("no request completed" in text for text in run.warnings)


def test_guidellm_tpot_is_its_inter_token_latency() -> None:
    run = one("guidellm_ngram3_conc2.json")
    assert (run.format, run.format_version, run.engine) == ("guidellm", "0.8.1", "vllm")
    assert run.load.kind == "closed" and run.load.max_concurrency == 2
    assert run.tpot_s and run.ttft_s and run.itl_s
    assert run.tpot_s.mean == pytest.approx(0.069097836, rel=1e-8)
    assert run.tpot_s.percentiles["p90"] == pytest.approx(0.077544465, rel=1e-8)
    # its own "time per output token" is 77.6 ms because the TTFT of 342 ms is in it
    assert run.ttft_s.mean == pytest.approx(0.342424870, rel=1e-8)
    assert run.tokens_per_step == pytest.approx(248 / 238, rel=1e-12)
    assert run.itl_s.mean == pytest.approx(0.072001107, rel=1e-8)
    assert run.output_tok_s == pytest.approx(256 / 10.201687813, rel=1e-9)
    assert run.acceptance is not None
    assert (run.acceptance.num_drafts, run.acceptance.accepted_tokens) == (32, 6)
    assert run.acceptance.per_position == pytest.approx((6 / 32, 0.0, 0.0))
    assert run.server_args.num_speculative_tokens == 3


def test_guidellm_without_details_keeps_the_weighted_mean(tmp_path: Path) -> None:
    raw = json.loads((DATA / "guidellm_ngram3_conc2.json").read_text())
    raw["benchmarks"][0]["requests"] = None
    path = tmp_path / "g.json"
    path.write_text(json.dumps(raw))
    run = read_bench(path)[0]
    assert run.completed == 8 and run.tpot_s and run.tpot_s.basis == "reported"
    # all requests have 32 tokens, so both means are the same here
    assert run.tpot_s.mean == pytest.approx(0.069097836, rel=1e-8)
    assert run.tokens_per_step == pytest.approx(248 / 238, rel=1e-9)
    assert any("weighs requests" in text for text in run.warnings)


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("aiperf/profile_export_aiperf.json", 1e-7),
        ("aiperf/profile_export.jsonl", 1e-7),
        ("aiperf/profile_export_aiperf.csv", 1e-4),
    ],
)
def test_aiperf_in_its_three_files(name: str, tolerance: float) -> None:
    """Self-drafting at k 2: 31 decode tokens in 11 steps, every draft accepted."""
    run = one(name)
    assert run.tpot_s and run.itl_s and run.ttft_s and run.e2el_s and run.acceptance
    assert run.tpot_s.mean == pytest.approx(0.224028040, rel=tolerance)
    assert run.itl_s.mean == pytest.approx(0.631351750, rel=tolerance)
    assert run.ttft_s.mean == pytest.approx(2.595729901, rel=tolerance)
    assert run.e2el_s.mean == pytest.approx(9.540599146, rel=tolerance)
    assert run.tokens_per_step == pytest.approx(248 / 88, rel=1e-12)
    assert run.acceptance.acceptance_length == 3.0 and run.acceptance.acceptance_rate == 1.0
    assert run.acceptance.num_drafts == 88 and run.server_args.num_speculative_tokens == 2
    assert (run.completed, run.output_tokens, run.input_tokens) == (8, 256, 1024)
    if not name.endswith("csv"):
        assert run.acceptance.per_position == (1.0, 1.0)


def test_aiperf_server_metrics_are_the_run_and_gauges_its_mean() -> None:
    run = one("aiperf/server_metrics_export.json")
    assert run.engine == "vllm" and run.server is not None and run.itl_s and run.tpot_s
    assert run.itl_s.mean == pytest.approx(55.59394178899902 / 88)
    assert run.tpot_s.mean == pytest.approx(1.7933529609354526 / 8)
    assert run.server.gauges == "mean" and run.server.running == pytest.approx(1.347457627)
    assert run.tokens_per_step == pytest.approx(248 / 88)
    assert run.acceptance is not None and run.acceptance.scope == "run"
    assert run.output_tok_s == pytest.approx(256 / 38.923122732, rel=1e-9)


def test_sglang_native_itl_is_per_token_and_chunks_are_recovered() -> None:
    """23 entries per request for 8 to 12 chunks: equal neighbours belong to one chunk."""
    runs = read_bench(DATA / "sglang_native.jsonl")
    assert [run.load.kind for run in runs] == ["closed", "open"]
    run = runs[0]
    assert run.itl_s and run.itl_per_token_s and run.tpot_s
    assert run.itl_s.mean == pytest.approx(0.021395900, rel=1e-7) and run.itl_s.count == 57
    assert [len(row.itls_s) for row in run.requests] == [8, 9, 11, 8, 9, 12]
    assert run.itl_per_token_s.mean == pytest.approx(0.008837437, rel=1e-7)
    assert run.tpot_s.mean == pytest.approx(0.008837437, rel=1e-6)
    assert run.tokens_per_step == pytest.approx(138 / 57)
    assert run.acceptance is not None and run.acceptance.scope == "since server start"
    args = run.server_args
    assert (args.method, args.num_speculative_tokens, args.tp, args.max_num_seqs) == (
        "EAGLE",
        3,
        1,
        48,
    )
    # the second run has no details: nothing can be said about chunks
    assert runs[1].itl_s is None and runs[1].itl_per_token_s is not None
    assert runs[1].load.request_rate == 20.0 and runs[1].load.burstiness == 1.0


def test_sglang_openai_backend_retokenizes_only_the_summary() -> None:
    run = one("sglang_oai.jsonl")
    assert run.itl_s and run.itl_per_token_s
    assert run.itl_s.mean == pytest.approx(0.021620523, rel=1e-7) and run.itl_s.count == 62
    assert run.itl_per_token_s.mean == pytest.approx(0.009713568, rel=1e-7)
    assert run.tokens_per_step == pytest.approx(138 / 62)


def test_sglang_client_on_another_backend_keeps_chunk_gaps() -> None:
    run = one("sglang_client_vllm.jsonl")
    assert run.itl_s and run.itl_per_token_s is None and run.acceptance is None
    assert run.itl_s.mean == pytest.approx(0.022207071, rel=1e-7)
    assert run.tokens_per_step == pytest.approx(138 / 61)
    assert run.engine == "vllm"


def test_inference_perf_keeps_only_the_mean_of_its_per_token_gaps() -> None:
    run = one("inference_perf/stage_0_lifecycle_metrics.json")
    assert run.tpot_s and run.itl_per_token_s and run.itl_s is None
    assert run.tpot_s.mean == pytest.approx(0.008993302, rel=1e-7)
    assert run.tpot_s.median == pytest.approx(0.008568236, rel=1e-7)
    assert run.itl_per_token_s.percentiles == {}
    assert run.load.kind == "open" and run.load.request_rate == 5.0
    assert (run.input_tokens, run.output_tokens, run.completed) == (122, 240, 10)


def test_inference_perf_requests_give_the_chunks() -> None:
    run = one("inference_perf/per_request_lifecycle_metrics.json")
    assert run.tpot_s and run.itl_s
    assert run.tpot_s.mean == pytest.approx(0.008993302, rel=1e-7)
    assert run.itl_s.mean == pytest.approx(0.021546453, rel=1e-7) and run.itl_s.count == 96
    assert run.tokens_per_step == pytest.approx(230 / 96)


def test_inference_perf_double_count_is_found_and_mended(tmp_path: Path) -> None:
    """Tokens counted twice per chunk: TPOT and ITL halve while latency and TTFT stay."""
    raw = json.loads((DATA / "inference_perf/stage_0_lifecycle_metrics.json").read_text())
    latency = raw["successes"]["latency"]
    for name in ("time_per_output_token", "inter_token_latency"):
        latency[name] = {key: value / 2 for key, value in latency[name].items()}
    path = tmp_path / "old.json"
    path.write_text(json.dumps(raw))
    run = read_bench(path)[0]
    # (0.262827110 - 0.054967406) / 23
    assert run.tpot_s and run.tpot_s.mean == pytest.approx(0.009037378, rel=1e-6)
    assert run.tpot_s.basis == "derived" and run.itl_per_token_s is None
    assert any("issue 564" in text for text in run.warnings)


def test_inference_perf_doubled_token_times_do_not_reach_the_result(tmp_path: Path) -> None:
    raw = json.loads((DATA / "inference_perf/per_request_lifecycle_metrics.json").read_text())
    for item in raw:
        response = item["info"]["response_metrics"]
        times = response["output_token_times"]
        response["output_token_times"] = sorted(times * 2)
    path = tmp_path / "doubled.json"
    path.write_text(json.dumps(raw))
    run = read_bench(path)[0]
    assert run.tpot_s and run.tpot_s.mean == pytest.approx(0.008993302, rel=1e-7)
    assert run.tokens_per_step == pytest.approx(230 / 96)
    assert any("10 of 10 requests" in text for text in run.warnings)


def test_genai_perf_itl_is_tpot_and_the_raw_file_has_the_chunks() -> None:
    run = one("genai_perf/profile_export_genai_perf.json")
    assert run.tpot_s and run.itl_s is None and run.load.max_concurrency == 2
    assert run.tpot_s.mean == pytest.approx(0.009045123, rel=1e-7)
    assert run.output_tokens == 144 and run.duration_s == pytest.approx(0.843136812)
    raw = one("genai_perf/profile_export.json")
    assert raw.itl_s and raw.ttft_s and raw.e2el_s and raw.tpot_s is None
    assert raw.itl_s.mean == pytest.approx(0.021521155, rel=1e-7) and raw.itl_s.count == 58
    assert raw.ttft_s.mean == pytest.approx(0.054983826, rel=1e-7)
    assert raw.e2el_s.mean == pytest.approx(0.263021656, rel=1e-7)


def test_llmperf_itl_is_never_taken_for_tpot() -> None:
    """E2EL 1.21, 1.1, 1.44 s; TTFT 0.25, 0.15, 0.5 s; 20, 20, 21 tokens; one 429."""
    exact = (0.96 / 19 + 0.95 / 19 + 0.94 / 20) / 3
    rows = one("llmperf/model_100_20_individual_responses.json")
    assert rows.tpot_s and rows.tpot_s.mean == pytest.approx(exact, rel=1e-12)
    assert (rows.completed, rows.failed, rows.output_tokens) == (3, 1, 61)
    summary = one("llmperf/model_100_20_summary.json")
    assert summary.tpot_s and summary.tpot_s.basis == "derived"
    assert summary.tpot_s.mean == pytest.approx(0.95 / (61 / 3 - 1), rel=1e-12)
    assert summary.request_rate_achieved == pytest.approx(1.2)
    assert summary.itl_s is None and summary.itl_per_token_s is None


def test_one_response_gives_the_acceptance_of_its_request() -> None:
    """Histogram 4, 0, 1, 4 over 9 drafts; 48 tokens: 47 decode tokens in 33 steps."""
    run = one("vllm_completion_spec.json")
    assert run.acceptance is not None and run.engine_version == "0.32.0"
    assert run.acceptance.acceptance_length == pytest.approx(1 + 14 / 9)
    assert run.acceptance.per_position == pytest.approx((5 / 9, 5 / 9, 4 / 9))
    assert run.tokens_per_step == pytest.approx(47 / 33)
    assert run.draft_share == pytest.approx(9 / 33)


def test_normal_form_is_plain_json_everywhere() -> None:
    for path in sorted(DATA.rglob("*")):
        if path.suffix in (".json", ".jsonl", ".csv", ".prom", ".txt") and path.name not in (
            "validation.json",
            "run=1.failure.json",
        ):
            for run in read_bench(path):
                text = json.dumps(run.to_dict(), allow_nan=False)
                back = json.loads(text)
                assert back["format"] == run.format and "requests" in back
                assert "requests" not in run.to_dict(requests=False)
