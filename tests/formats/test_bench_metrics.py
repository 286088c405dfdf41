"""/metrics text: what it means per engine, and differences of two dumps."""

from pathlib import Path

import pytest

from specsim.errors import FormatError
from specsim.formats.bench import read_bench
from specsim.formats.bench.load import read_text_as_bench
from specsim.formats.metrics_text import Histogram, difference, parse_metrics

DATA = Path(__file__).parent / "data"
NGRAM = DATA / "vllm_metrics_ngram3.prom"


def test_vllm_counters_give_acceptance_and_steps() -> None:
    """584 + 517 + 437 of 714 drafts; 2832 tokens of 25 requests in 1285 steps."""
    run = read_bench(NGRAM)[0]
    assert run.format == "metrics (vllm)" and run.model == "smollm2-135m"
    found = run.acceptance
    assert found is not None and found.scope == "since server start"
    assert found.acceptance_length == pytest.approx(1 + 1538 / 714)
    assert found.acceptance_rate == pytest.approx(1538 / 2142)
    assert found.per_position == pytest.approx((584 / 714, 517 / 714, 437 / 714))
    assert run.itl_s and run.tpot_s and run.ttft_s
    assert run.itl_s.mean == pytest.approx(135.52715944500164 / 1285)
    assert run.tpot_s.mean == pytest.approx(1.2066882320160814 / 25)
    assert run.ttft_s.mean == pytest.approx(12.674200534820557 / 25)
    assert run.tokens_per_step == pytest.approx((2832 - 25) / 1285)
    assert run.draft_share == pytest.approx(714 / 1285)
    assert run.server is not None
    assert run.server.prefix_cache_hit_rate == pytest.approx(1024 / 5033)
    assert run.server_args.num_speculative_tokens == 3
    assert any("since the server started" in text for text in run.warnings)


def test_vllm_without_speculation_has_no_acceptance() -> None:
    run = read_bench(DATA / "vllm_metrics_base.prom")[0]
    assert run.acceptance is None and run.draft_share is None
    assert run.tokens_per_step == pytest.approx(1.0, abs=2e-3)


def test_a_pair_counts_only_what_lies_between(tmp_path: Path) -> None:
    """The later dump has 100 drafts, 150 accepted tokens and 3 requests more than the earlier."""
    text = NGRAM.read_text()
    later = text
    for old, new in (
        ('num_drafts_total{engine="0",model_name="smollm2-135m"} 714.0', "814.0"),
        ('num_draft_tokens_total{engine="0",model_name="smollm2-135m"} 2142.0', "2442.0"),
        ('num_accepted_tokens_total{engine="0",model_name="smollm2-135m"} 1538.0', "1688.0"),
        ('per_pos_total{engine="0",model_name="smollm2-135m",position="0"} 584.0', "664.0"),
        ('per_pos_total{engine="0",model_name="smollm2-135m",position="1"} 517.0', "567.0"),
        ('per_pos_total{engine="0",model_name="smollm2-135m",position="2"} 437.0', "457.0"),
        ('finished_reason="length",model_name="smollm2-135m"} 25.0', "28.0"),
        ('generation_tokens_total{engine="0",model_name="smollm2-135m"} 2832.0', "3132.0"),
    ):
        assert later.count(old) == 1
        later = later.replace(old, f"{old.rsplit(' ', 1)[0]} {new}")
    path = tmp_path / "after"
    path.write_text(later)
    run = read_bench(path, before=NGRAM)[0]
    assert run.acceptance is not None and run.acceptance.scope == "run"
    assert (run.acceptance.num_drafts, run.acceptance.accepted_tokens) == (100, 150)
    assert run.acceptance.per_position == pytest.approx((0.8, 0.5, 0.2))
    assert run.completed == 3 and run.output_tokens == 300
    assert run.itl_s is None  # no step was observed between the two
    with pytest.raises(FormatError, match=r"swapped, from different servers, or .* restarted"):
        read_bench(NGRAM, before=path)


def test_engines_of_one_server_are_added_up() -> None:
    text = "".join(
        f'vllm:spec_decode_num_drafts_total{{engine="{i}",model_name="m"}} {drafts}\n'
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="{i}",model_name="m"}} {accepted}\n'
        f'vllm:num_requests_running{{engine="{i}",model_name="m"}} {i + 1}\n'
        f'vllm:kv_cache_usage_perc{{engine="{i}",model_name="m"}} 0.{i + 1}\n'
        for i, (drafts, accepted) in enumerate(((100, 150), (300, 450)))
    )
    run = read_text_as_bench(text)[0]  # pasted without TYPE lines
    assert run.acceptance is not None and run.server is not None
    assert run.acceptance.acceptance_length == pytest.approx(2.5)
    assert run.server.running == 3 and run.server.kv_cache_usage == pytest.approx(0.15)


def test_sglang_latency_is_per_token_and_ranks_count_once() -> None:
    """1010 tokens of 10 requests in 400 verify calls: 2.5 tokens per step; 9.9 s / 990 tokens."""
    run = read_bench(DATA / "sglang_metrics.prom")[0]
    assert run.engine == "sglang" and run.server is not None and run.acceptance is not None
    assert run.server.running == 4 and run.server.waiting == 1
    assert run.itl_per_token_s and run.itl_per_token_s.mean == pytest.approx(0.01)
    assert run.itl_s and run.itl_s.mean == pytest.approx(0.025) and run.itl_s.basis == "derived"
    assert run.tokens_per_step == pytest.approx(2.5)
    assert run.acceptance.acceptance_length == pytest.approx(2.5)
    assert run.acceptance.acceptance_rate == pytest.approx(0.5)
    assert run.server_args.num_speculative_tokens == 3
    # 9 of 10 first tokens within 0.4 s, 4 within 0.2 s: the median lies a fifth into the bucket
    assert run.ttft_s and run.ttft_s.median == pytest.approx(0.24)


def test_sglang_gauge_serves_where_calls_are_not_counted() -> None:
    lines = [
        line
        for line in (DATA / "sglang_metrics.prom").read_text().splitlines()
        if "verify_calls" not in line
    ]
    run = read_text_as_bench("\n".join(lines) + "\n")[0]
    assert run.acceptance is not None and run.acceptance.scope == "gauge"
    assert run.acceptance.acceptance_length == pytest.approx(2.6)
    assert run.tokens_per_step is None


def test_trtllm_names() -> None:
    run = read_text_as_bench(
        "# TYPE trtllm_spec_decode_num_draft_tokens counter\n"
        'trtllm_spec_decode_num_draft_tokens_total{model_name="m"} 300\n'
        "# TYPE trtllm_spec_decode_num_accepted_tokens counter\n"
        'trtllm_spec_decode_num_accepted_tokens_total{model_name="m"} 180\n'
        "# TYPE trtllm_spec_decode_acceptance_length gauge\n"
        'trtllm_spec_decode_acceptance_length{model_name="m"} 2.8\n'
        "# TYPE trtllm_avg_decoded_tokens_per_iter gauge\n"
        'trtllm_avg_decoded_tokens_per_iter{model_name="m"} 2.7\n'
        "# TYPE trtllm_num_requests_running gauge\n"
        'trtllm_num_requests_running{model_name="m"} 6\n'
    )[0]
    assert run.engine == "trtllm" and run.acceptance is not None and run.server is not None
    assert run.acceptance.acceptance_rate == pytest.approx(0.6)
    assert run.acceptance.acceptance_length == 2.8 and run.tokens_per_step == 2.7
    assert run.server.running == 6


def test_other_metrics_and_other_text_are_refused() -> None:
    with pytest.raises(FormatError, match=r"none of vLLM, SGLang and TensorRT-LLM.*node_load1"):
        read_text_as_bench("# TYPE node_load1 gauge\nnode_load1 0.5\n")
    with pytest.raises(FormatError, match="not Prometheus text"):
        read_text_as_bench("# TYPE vllm:a counter\nvllm:a{b= 1\n")


def test_histogram_quantiles_interpolate_and_stop_at_the_last_bound() -> None:
    item = Histogram(10, 3.0, ((0.1, 4.0), (0.2, 8.0), (float("inf"), 10.0)))
    assert item.mean == pytest.approx(0.3)
    assert item.quantile(20) == pytest.approx(0.05)
    assert item.quantile(60) == pytest.approx(0.15)
    assert item.quantile(99) == pytest.approx(0.2)
    assert Histogram(0, 0.0).quantile(50) is None and Histogram(0, 0.0).mean is None
    assert item.plus(item).quantile(60) == pytest.approx(0.15)
    assert item.minus(item).mean is None
    assert item.plus(Histogram(1, 1.0, ((0.5, 1.0),))).buckets == ()


def test_difference_takes_new_label_sets_from_zero() -> None:
    before = parse_metrics('vllm:request_success_total{finished_reason="stop"} 2\n', "a")
    after = parse_metrics(
        'vllm:request_success_total{finished_reason="stop"} 5\n'
        'vllm:request_success_total{finished_reason="length"} 4\n',
        "b",
    )
    assert difference(before, after).counter_by("vllm:request_success", "finished_reason") == {
        "stop": 3.0,
        "length": 4.0,
    }


def test_the_first_engine_of_vllm_counts_no_drafts() -> None:
    """2500 drafted and 1427 emitted at an efficiency of 1427 / (625 x 5): k is 4."""
    text = "".join(
        f"# TYPE vllm:spec_decode_{name} {kind}\n"
        f'vllm:spec_decode_{name}{{model_name="q"}} {value}\n'
        for name, kind, value in (
            ("efficiency", "gauge", 0.4566), ("num_accepted_tokens_total", "counter", 1530),
            ("num_draft_tokens_total", "counter", 2500),
            ("num_emitted_tokens_total", "counter", 1427),
        )
    )
    run = read_text_as_bench(text)[0]
    assert run.acceptance is not None and run.acceptance.num_drafts == 625
    assert run.acceptance.acceptance_length == pytest.approx(1427 / 625)
    assert run.server_args.num_speculative_tokens == 4
    unknown = read_text_as_bench(text.replace("0.4566", "0.43"))[0]
    assert unknown.acceptance is None
    assert any("vLLM up to 0.7 is left out" in note for note in unknown.warnings)


def test_a_trtllm_server_without_its_gauge_of_tokens_per_step(tmp_path: Path) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text("# TYPE trtllm_avg_decoded gauge\ntrtllm_avg_decoded 1\n", encoding="utf-8")
    (found,) = read_bench(path)
    assert (found.tokens_per_step, found.tokens_per_step_basis) == (None, None)
