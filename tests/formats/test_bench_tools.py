"""Results as tools print and tabulate them: terminal tables, a sweep's CSV, InferenceMAX cells."""

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from bench_made import CELL, SGLANG, VLLM, llm_d_new, llm_d_old
from specsim.errors import FormatError
from specsim.formats.bench import read_bench, scan
from specsim.formats.bench.load import read_text_as_bench
from specsim.formats.bench.unread import UNREAD

DATA = Path(__file__).parent / "data"

def test_a_cell_of_the_sglang_cookbook() -> None:
    [run] = read_text_as_bench(f"### Latency\n```\n{SGLANG}```\n")
    assert (run.format, run.engine) == ("sglang bench_serving", "sglang")
    assert run.load.request_rate == math.inf and run.load.max_concurrency == 16
    assert run.ttft_s and run.tpot_s and run.e2el_s and run.itl_per_token_s
    assert (run.ttft_s.mean, run.ttft_s.percentiles) == (0.4, {"p99": 0.9})
    assert run.tpot_s.mean == pytest.approx(0.03878) and run.e2el_s.median == 19.8
    assert run.itl_per_token_s.percentiles == pytest.approx({"p95": 0.09, "p99": 0.12})
    assert run.acceptance and run.acceptance.acceptance_length == 2.9
    assert (run.output_tokens, run.concurrency_mean) == (40000, 15.8)
    assert not any(text.startswith(UNREAD) for text in run.warnings)


def test_what_vllm_prints_with_speculation() -> None:
    [run] = read_text_as_bench(VLLM)
    assert (run.format, run.failed, run.load.kind) == ("vllm bench serve", 1, "closed")
    assert run.acceptance and run.acceptance.per_position == pytest.approx((0.8194, 0.7201, 0.6072))
    assert run.acceptance.acceptance_rate == pytest.approx(0.7156)
    assert run.itl_s and run.itl_s.mean == pytest.approx(0.11574)
    assert run.server_args.num_speculative_tokens == 3
    assert not any(text.startswith(UNREAD) for text in run.warnings)


def test_several_tables_are_several_runs_and_new_lines_are_named() -> None:
    text = f"first\n{SGLANG}\nsecond, with a new line\n" + VLLM.replace(
        "Drafts: ", "Draft steps skipped:   12\nDrafts: ")
    first, second = read_text_as_bench(text)
    assert (first.output_tokens, second.output_tokens) == (40000, 1760)
    assert f"{UNREAD}draft_steps_skipped" in second.warnings


def test_a_printed_table_with_a_broken_figure_names_its_line() -> None:
    with pytest.raises(FormatError, match=r"line 2: .*acceptance_length is 0\.3"):
        read_text_as_bench("\n" + VLLM.replace("3.15", "0.30"))


def test_the_csv_of_a_sweep_holds_the_runs_of_its_json(tmp_path: Path) -> None:
    raw = json.loads((DATA / "vllm_sweep/SERVE--ngram3-BENCH--c4/run=0.json").read_text())
    columns = list(raw)
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["", *columns])
    writer.writerow([0, *(raw[name] for name in columns)])
    path = tmp_path / "summary.csv"
    path.write_text(table.getvalue())
    [from_csv] = read_bench(path)
    [from_json] = read_bench(DATA / "vllm_sweep/SERVE--ngram3-BENCH--c4/run=0.json")
    for name in ("format", "load", "ttft_s", "tpot_s", "acceptance", "output_tokens", "server_args",
                 "metadata", "date"):
        assert getattr(from_csv, name) == getattr(from_json, name), name
    inner = tmp_path / "SERVE--a-BENCH--b"
    inner.mkdir()
    (inner / "run=0.json").write_text(json.dumps(raw))
    found = scan(tmp_path)
    assert [Path(run.source).name for run in found.runs] == ["run=0.json"]
    assert [reason for _, reason in found.skipped] == ["the runs of the sweep's JSON files"]


def test_a_cell_of_inference_max_is_in_seconds_and_per_gpu() -> None:
    """1200 tok/s a GPU of 8; TTFT 0.4 s, TPOT 20 ms, so 50 tok/s a user."""
    [run] = read_text_as_bench(json.dumps({**CELL, "new_figure": 3.0}))
    assert (run.engine, run.load.max_concurrency, run.server_args.tp) == ("sglang", 64, 8)
    assert run.output_tok_s == 9600.0 and run.server_args.method == "mtp"
    assert run.tpot_s and run.tpot_s.mean == 0.02 and run.tokens_per_step == pytest.approx(2.5)
    assert [text for text in run.warnings if text.startswith(UNREAD)] == [f"{UNREAD}new_figure"]


@pytest.mark.parametrize("made", [llm_d_old, llm_d_new])
def test_an_llm_d_report_means_what_its_tool_means(made: Callable[[str], object]) -> None:
    """TTFT 400 ms, "time per output token" 20 ms, "inter-token latency" 50 ms."""
    meaning = {}
    for tool in ("guidellm", "inference-perf", "vllm-benchmark", "other"):
        for text in (json.dumps(made(tool)), yaml.safe_dump(made(tool))):
            [run] = read_text_as_bench(text)
            assert (run.format, run.model, run.completed, run.failed) == ("llm-d report", "org/m",
                                                                          40, 1)
            assert run.duration_s == 50.0 and run.output_tok_s == 160.8
            assert run.ttft_s and run.e2el_s and run.ttft_s.percentiles["p99"] == 0.4
            assert run.e2el_s.mean == pytest.approx(4.4)
            assert run.concurrency_mean == pytest.approx(40 * 4.4 / 50)
            assert not any(text.startswith(UNREAD) for text in run.warnings), run.warnings
            meaning[tool] = [stat and stat.mean for stat in (
                run.tpot_s, run.itl_s, run.itl_per_token_s)]
    assert meaning == {
        "guidellm": [0.05, None, None],
        "inference-perf": [0.02, None, 0.05],
        "vllm-benchmark": [0.02, 0.05, None],
        "other": [0.02, None, None],
    }


def test_llm_d_reports_are_found_in_a_folder_and_name_what_is_new(tmp_path: Path) -> None:
    report = llm_d_new("vllm-benchmark")
    report["results"]["request_performance"]["aggregate"]["verify_s"] = {"mean": 1.0}
    (tmp_path / "benchmark_report,_stage_0.yaml").write_text(yaml.safe_dump(report))
    [run] = read_bench(tmp_path)
    assert f"{UNREAD}results.request_performance.aggregate.verify_s" in run.warnings
    assert run.load.kind == "closed" and run.server_args.tp == 2


def test_broken_llm_d_reports_are_refused() -> None:
    report = llm_d_old("guidellm")
    report["metrics"]["latency"]["request_latency"]["units"] = "furlongs"
    with pytest.raises(FormatError, match=r"request_latency\.units is 'furlongs'"):
        read_text_as_bench(yaml.safe_dump(report))
    text = yaml.safe_dump(llm_d_old("guidellm"))
    [run] = read_text_as_bench(text.replace("metrics:\n", "metrics:\n  7: 5\n"))
    assert f"{UNREAD}metrics.7" in run.warnings
    with pytest.raises(FormatError, match="it holds itself"):
        read_text_as_bench(text + "a: &a\n- *a\n" + "scenario: &b {stack: [*b]}\n")
    with pytest.raises(FormatError, match="is not YAML"):
        read_text_as_bench("scenario: {a: [\nmetrics:\n  x: ]")
