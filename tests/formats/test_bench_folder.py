"""Folders: files of one run are put together, repeated runs count once."""

import json
import shutil
from pathlib import Path

import pytest

from specsim.errors import FormatError
from specsim.formats.bench import folder as folder_module
from specsim.formats.bench import read_bench, scan

DATA = Path(__file__).parent / "data"


def test_sweep_runs_count_once_and_warm_ups_not_at_all() -> None:
    found = scan(DATA / "vllm_sweep")
    assert sorted(run.load.max_concurrency or 0 for run in found.runs) == [1, 4]
    reasons = " ".join(reason for _, reason in found.skipped)
    assert "warm-up" in reasons and "same run" in reasons and "failed run" in reasons


def test_sweep_summary_alone_is_enough() -> None:
    runs = read_bench(DATA / "vllm_sweep/SERVE--ngram3-BENCH--c1/summary.json")
    assert len(runs) == 1 and runs[0].format == "vllm bench sweep"


def test_aiperf_files_become_one_run() -> None:
    found = scan(DATA / "aiperf")
    assert len(found.runs) == 1
    run = found.runs[0]
    assert run.format == "aiperf" and len(run.requests) == 8 and run.server is not None
    assert run.load.max_concurrency == 2 and run.engine == "vllm"
    assert run.tokens_per_step == pytest.approx(248 / 88)
    assert run.requests[0].arrival_s == 0.0
    assert [Path(name).suffix for name, _ in found.skipped] == [".csv"]


def test_new_figures_of_a_detail_file_are_named_in_the_run(tmp_path: Path) -> None:
    shutil.copytree(DATA / "aiperf", tmp_path / "aiperf")
    for name in ("profile_export.jsonl", "server_metrics_export.json"):
        path = tmp_path / "aiperf" / name
        path.write_text(path.read_text().replace("{", f'{{"new in {name[0]}": 1, ', 1))
    [run] = read_bench(tmp_path)
    for name in ("p", "s"):
        assert f"figures that were not read: new in {name}" in run.warnings


def test_inference_perf_stage_gets_its_requests() -> None:
    found = scan(DATA / "inference_perf")
    assert len(found.runs) == 1
    run = found.runs[0]
    assert run.load.request_rate == 5.0 and len(run.requests) == 10
    assert run.itl_s and run.itl_s.mean == pytest.approx(0.021546453, rel=1e-7)
    assert run.tokens_per_step == pytest.approx(230 / 96)


def test_raw_and_individual_files_complete_their_summary() -> None:
    genai = read_bench(DATA / "genai_perf")
    assert len(genai) == 1 and genai[0].itl_s and genai[0].tpot_s
    assert genai[0].itl_s.mean == pytest.approx(0.021521155, rel=1e-7)
    assert genai[0].tokens_per_step == pytest.approx(0.021521155 / 0.009045123, rel=1e-6)
    ray = read_bench(DATA / "llmperf")
    assert len(ray) == 1 and ray[0].tpot_s and ray[0].tpot_s.basis == "requests"
    assert ray[0].load.max_concurrency == 2 and ray[0].output_tok_s == 24.4
    assert not any("ratio of means" in text for text in ray[0].warnings)


def test_foreign_files_are_named_and_nothing_readable_is_an_error(tmp_path: Path) -> None:
    shutil.copy(DATA / "vllm_draftself_k2_c1.json", tmp_path / "good.json")
    (tmp_path / "other.json").write_text('{"hello": 1}')
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    found = scan(tmp_path)
    assert len(found.runs) == 1 and len(found.skipped) == 1
    assert found.skipped[0][0].endswith("other.json") and "hello" in found.skipped[0][1]
    (tmp_path / "good.json").unlink()
    with pytest.raises(FormatError, match="no benchmark result among its 1 files"):
        scan(tmp_path)


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "MAX_FILES", 2)
    for number in range(4):
        (tmp_path / f"{number}.json").write_text(json.dumps({"n": number}))
    with pytest.raises(FormatError, match="more than 2 result files"):
        scan(tmp_path)
