"""The matrix of benchmark tools on the page of formats is what the importer does."""

import runpy
from pathlib import Path
from typing import Any

from specsim.formats.bench.document import parse_document
from specsim.formats.bench.load import FORMATS

ROOT = Path(__file__).resolve().parents[2]
MATRIX: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "_ext" / "bench_matrix.py"))
NO_TOOL = {"server log lines", "llama.cpp server log"}


def test_every_format_of_a_benchmark_tool_has_a_row_that_it_reads() -> None:
    for form, _, _, sample in MATRIX["ROWS"]:
        document = parse_document(MATRIX["text_of"](sample), sample)
        assert [item.name for item in FORMATS if item.matches(document)] == [form]
    names = {form.name for form in FORMATS if not form.name.startswith("/metrics")}
    assert names - NO_TOOL == {row[0] for row in MATRIX["ROWS"]}


def test_marks_are_what_came_out_of_the_results() -> None:
    fields = list(MATRIX["FIELDS"])
    marks = {row[:2]: dict(zip(fields, row[3], strict=True)) for row in MATRIX["read_rows"]()}
    assert not marks["genai-perf JSON", "0.0.16"]["ITL"]
    assert not marks["genai-perf raw JSON", "0.0.16"]["TPOT"]
    assert marks["vllm bench serve and sweep JSON", "in seconds"]["TTFT"]
    assert all(marks["vllm bench serve and sweep JSON", "vLLM 0.32"].values())
    assert all(any(row.values()) for row in marks.values())


def test_what_is_left_out_has_a_reason() -> None:
    lines = MATRIX["passed_over"]().splitlines()
    assert len(lines) > 10 and all(line.count("|") == 3 for line in lines)
    assert any("guidellm JSON" in line and "contains the TTFT" in line for line in lines)
    assert "catalog/foreign.toml" in (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
