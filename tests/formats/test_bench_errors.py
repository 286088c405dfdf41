"""Broken, foreign and oversized files: one clear FormatError each."""

import json
from pathlib import Path
from typing import Any

import pytest

from specsim.errors import FormatError
from specsim.formats.bench import document, read_bench
from specsim.formats.bench.load import FORMATS, read_text_as_bench

DATA = Path(__file__).parent / "data"
SERVE = json.loads((DATA / "vllm_draftself_k2_c1.json").read_text())


def fails(value: Any, *words: str) -> None:
    with pytest.raises(FormatError) as caught:
        read_text_as_bench(value if isinstance(value, str) else json.dumps(value), "file.json")
    message = str(caught.value)
    assert message.startswith("file.json: ") and "\n" not in message
    for word in words:
        assert word in message, message


def test_truncated_json_says_where_and_that_it_is_cut() -> None:
    text = json.dumps(SERVE, indent=1)
    fails(text[: len(text) // 2], "not valid JSON at line", "cut off")
    fails('{"completed": 8', "cut off")


@pytest.mark.parametrize(
    "path",
    sorted(p for p in DATA.rglob("*") if p.suffix in (".json", ".jsonl")),
    ids=lambda p: str(p.relative_to(DATA)),
)
def test_a_cut_copy_of_every_sample_says_where_it_breaks(path: Path) -> None:
    text = path.read_text().rstrip()
    fails(text[: len(text) * 2 // 3], "not valid JSON at line")
    fails(text[:-1], "not valid JSON at line", "cut off")


def test_truncated_json_lines_name_the_line() -> None:
    text = json.dumps(SERVE)
    fails(f"{text}\n{text[:300]}", "line 2: not valid JSON")


def test_foreign_json_says_what_was_found_and_expected() -> None:
    fails({"hello": 1, "world": 2}, "an object with the keys hello, world", "vllm bench serve")
    fails([1, 2], "a list whose first element is 1")
    fails("[]", "empty JSON list")
    fails("just words", "text that begins with 'just words'", "guidellm JSON")
    fails("", "the file is empty")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mean_tpot_ms": "fast"}, "mean_tpot_ms is 'fast'; a number of at least 0"),
        ({"mean_tpot_ms": -1.0}, "mean_tpot_ms is -1.0; a number of at least 0"),
        ({"mean_tpot_ms": True}, "mean_tpot_ms is True"),
        ({"duration": 10**400}, "duration is a number with too many digits"),
        ({"completed": 7.5}, "completed is 7.5; a whole number"),
        ({"itls": 3}, "itls is 3; a list"),
        ({"itls": [[0.1]]}, "itls has 1 entries and output_lens 6"),
        ({"ttfts": [0.1, None, 0.1, 0.1, 0.1, 0.1]}, "ttfts[1] is None"),
        ({"model_id": ["a"]}, "model_id is a list of 1; text"),
        ({"spec_decode_acceptance_rate": 130.0}, "spec_decode_acceptance_rate is 130.0; at most"),
        ({"spec_decode_acceptance_length": 0.4}, "a length of at least 1"),
        ({"spec_decode_per_position_acceptance_rates": [81.9]}, "[0] is 81.9; a fraction"),
        ({"latencies": [0.0] * 6}, "request 0 took 0 s in all but"),
    ],
)
def test_wrong_values_name_the_field(changes: dict[str, Any], words: str) -> None:
    assert len(SERVE["output_lens"]) == 6
    fails({**SERVE, **changes}, words)


def test_nested_places_are_named() -> None:
    guide = json.loads((DATA / "guidellm_ngram3_conc2.json").read_text())
    guide["benchmarks"][0]["requests"]["successful"][2]["prompt_tokens"] = "many"
    fails(guide, "benchmarks[0].requests.successful[2].prompt_tokens is 'many'")
    line = (DATA / "aiperf/profile_export.jsonl").read_text().splitlines()
    record = json.loads(line[1])
    record["metrics"]["inter_chunk_latency"]["value"][3] = "x"
    fails("\n".join([line[0], json.dumps(record)]), "line 2: metrics.inter_chunk_latency.value[3]")
    table = json.loads((DATA / "aiperf/profile_export_aiperf.json").read_text())
    table["time_to_first_token"]["unit"] = "fortnights"
    fails(table, "time_to_first_token.unit is 'fortnights'; a unit of time")
    stage = json.loads((DATA / "inference_perf/per_request_lifecycle_metrics.json").read_text())
    stage[0]["end_time"] = stage[0]["start_time"] - 1
    fails(stage, "[0].end_time", "the end not before the start")
    raw = json.loads((DATA / "genai_perf/profile_export.json").read_text())
    raw["experiments"][0]["requests"][0]["response_timestamps"][1] = 5
    fails(raw, "experiments[0].requests[0].response_timestamps", "not before the one preceding")
    csv = (DATA / "aiperf/profile_export_aiperf.csv").read_text()
    spoiled = csv.replace("First Token (ms),2595.73", "First Token (ms),soon")
    fails(spoiled, "avg is 'soon'; a number")
    fails("\n".join(csv.splitlines()[:3]), "no row 'Request Latency'")


def test_hostile_json_is_refused() -> None:
    fails("[" * 100_000, "not JSON of a benchmark")
    fails('{"completed": ' + "9" * 5000 + "}", "not JSON of a benchmark")
    deep = '{"metrics": ' * 50_000 + "1" + "}" * 50_000
    fails(deep, "not JSON of a benchmark")


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FormatError, match="not a file"):
        read_bench(tmp_path / "none.json")
    with pytest.raises(FormatError, match="not a file"):
        read_bench("a\0b")
    latin = tmp_path / "latin.json"
    latin.write_bytes(b'{"a": 1,\n"b": "\xe9"}')
    with pytest.raises(FormatError, match="line 2 is not UTF-8"):
        read_bench(latin)
    monkeypatch.setattr(document, "MAX_FILE_BYTES", 1_000_000)
    big = tmp_path / "big.json"
    big.write_text(json.dumps({"a": "x" * 1_000_001}))
    with pytest.raises(FormatError, match="larger than 1 MB"):
        read_bench(big)


def test_a_byte_order_mark_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "bom.json"
    path.write_text(json.dumps(SERVE), encoding="utf-8-sig")
    assert read_bench(path)[0].completed == 6


def test_line_separators_inside_texts_do_not_split_json_lines() -> None:
    line = json.dumps({**SERVE, "label": "a\u2028b\x85c"}, ensure_ascii=False)
    runs = read_text_as_bench(f"{line}\r\n{line}\r\n")
    assert [run.label for run in runs] == ["a\u2028b\x85c"] * 2


def test_every_sample_matches_exactly_one_format() -> None:
    for path in sorted(DATA.rglob("*")):
        if path.suffix in (".json", ".jsonl", ".csv", ".prom", ".txt"):
            parsed = document.read_document(path)
            names = [form.name for form in FORMATS if form.matches(parsed)]
            expected = 0 if path.name in ("validation.json", "run=1.failure.json") else 1
            assert len(names) == expected, (path.name, names)


def test_something_else_where_an_object_belongs_is_no_missing_figure() -> None:
    entries = json.loads(
        (DATA / "inference_perf" / "per_request_lifecycle_metrics.json").read_text()
    )
    entries[0]["info"]["response_metrics"]["server_usage"] = 3
    fails(entries, "[0].info.response_metrics.server_usage is 3; an object is expected")
    entries[0]["info"] = []
    fails(entries, "[0].info is a list of 0; an object is expected")
    summary = json.loads((DATA / "inference_perf" / "summary_lifecycle_metrics.json").read_text())
    summary["successes"]["latency"]["request_latency"] = ""
    fails(summary, "successes.latency.request_latency is ''; an object is expected")
