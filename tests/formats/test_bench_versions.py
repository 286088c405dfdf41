"""Files of other versions of a tool, in the key sets that their own code declares."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from bench_made import (
    CELL,
    FIRST,
    SECONDS,
    SGLANG,
    SWEEP_CSV,
    VLLM,
    aiperf_old,
    guidellm_old,
)
from specsim.formats.bench import BenchRun
from specsim.formats.bench.document import parse_document
from specsim.formats.bench.load import FORMATS, read_text_as_bench
from specsim.formats.bench.unread import UNREAD


def read(value: object) -> list[BenchRun]:
    runs = read_text_as_bench(json.dumps(value))
    assert not [text for run in runs for text in run.warnings if text.startswith(UNREAD)]
    return runs


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
    [run] = read(FIRST)
    assert (run.format, run.format_version, run.model) == ("guidellm", "0.1", "org/m")
    assert (run.completed, run.failed, run.load.request_rate) == (2, 1, 1.5)
    assert run.load.num_prompts == 3 and run.duration_s == pytest.approx(2.0)
    assert run.ttft_s and run.itl_s and run.tpot_s
    assert (run.ttft_s.mean, run.tokens_per_step) == (0.5, 1.0)
    assert run.itl_s.mean == pytest.approx(0.1) and run.tpot_s.mean == pytest.approx(0.1)


def test_each_made_result_matches_exactly_one_format() -> None:
    texts = [SGLANG, VLLM, SWEEP_CSV, *map(json.dumps, (
        CELL, FIRST, SECONDS, aiperf_old(), guidellm_old({"type_": "synchronous"})))]
    for text in texts:
        document = parse_document(text, "made")
        assert len([form.name for form in FORMATS if form.matches(document)]) == 1, text[:60]


def test_guidellm_0_5_moves_the_model_and_the_state() -> None:
    """Its report has args of the command and a scheduler_state where 0.8 has config."""
    sample = Path(__file__).parent / "data" / "guidellm_ngram3_conc2.json"
    raw = json.loads(sample.read_text())
    [newer] = read_text_as_bench(json.dumps(raw))
    raw["args"] = {"model": raw.pop("config")["spec"]["backend"]["model"], "max_requests": 8}
    raw["metadata"] = {"version": 1, "guidellm_version": "0.5.0"}
    [point] = raw["benchmarks"]
    point["scheduler_state"] = {"node_id": 0, "created_requests": 8, "start_time": 1.0}
    point["metrics"]["text"] = {"tokens": {"input": {"value": 3.0}}}
    point["metrics"]["request_streaming_iterations_count"] = {"successful": {"mean": 30.0}}
    [run] = read(raw)
    assert run == replace(newer, format_version="0.5.0", source=run.source)
