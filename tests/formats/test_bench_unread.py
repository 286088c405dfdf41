"""Every figure of a file is read, passed over by name for a stated reason, or named in a note."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from bench_made import SECONDS
from specsim.errors import FormatError
from specsim.formats.bench import BenchRun, read_bench
from specsim.formats.bench.load import FORMATS, read_text_as_bench
from specsim.formats.bench.unread import UNREAD

DATA = Path(__file__).parent / "data"
NO_RESULT = ("validation.json", "run=1.failure.json")
SAMPLES = sorted(path for path in DATA.rglob("*")
                 if path.suffix in (".json", ".jsonl") and path.name not in NO_RESULT)


def read(value: dict[str, Any]) -> BenchRun:
    return read_text_as_bench(json.dumps(value))[0]


def named(run: BenchRun) -> list[str]:
    return [text.removeprefix(UNREAD) for text in run.warnings if text.startswith(UNREAD)]


def test_latencies_in_seconds_without_a_unit_in_the_name() -> None:
    """The shape of InferenceMAX-type scripts, which divide by 1000 and drop the _ms."""
    run = read(SECONDS)
    assert run.ttft_s and run.tpot_s and run.e2el_s
    assert (run.ttft_s.median, run.tpot_s.median, run.e2el_s.median) == (0.4, 0.02, 4.4)
    assert run.tpot_s.percentiles == {"p99": 0.03} and run.tpot_s.mean is None
    assert run.tpot_s.typical == 0.02 and named(run) == []
    assert run.metadata == {}


def test_seconds_by_suffix_and_milliseconds_win() -> None:
    run = read({**SECONDS, "mean_itl_s": 0.05, "median_tpot_ms": 21.0})
    assert run.itl_s and run.itl_s.mean == 0.05
    assert run.tpot_s and run.tpot_s.median == pytest.approx(0.021)


def test_milliseconds_without_a_unit_are_refused_by_the_length_of_the_run() -> None:
    with pytest.raises(FormatError, match="longer than the run of 50 s"):
        read({**SECONDS, "median_ttft": 400.0})


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: str(p.relative_to(DATA)))
def test_nothing_of_a_real_file_goes_unmentioned(path: Path) -> None:
    assert [names for run in read_bench(path) for names in named(run)] == []


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: str(p.relative_to(DATA)))
def test_a_new_figure_is_named(path: Path) -> None:
    """On top, and where the records hold objects with declared fields, below them too."""
    text = path.read_text()
    lines = [text] if path.suffix == ".json" else text.splitlines()
    values = [json.loads(line) for line in lines]
    for record in values[0] if isinstance(values[0], list) else values:
        record["brand_new_ms"] = 12.5
        record["new_object"] = {"a": {"b": [1.0]}}
        record["new_word"], record["new_flag"], record["new_nan"] = "x", True, math.nan
    for run in read_text_as_bench("\n".join(map(json.dumps, values))):
        assert named(run) == ["brand_new_ms, new_object"]


def test_a_figure_below_an_object_is_named_with_its_place() -> None:
    raw = json.loads((DATA / "guidellm_ngram3_conc2.json").read_text())
    raw["benchmarks"][0]["metrics"]["draft_latency_ms"] = {"successful": {"mean": 1.0}}
    raw["benchmarks"][0]["requests"]["successful"][3]["verify_ms"] = 3
    assert sorted(named(read(raw))[0].split(", ")) == [
        "benchmarks.metrics.draft_latency_ms", "benchmarks.requests.successful.verify_ms"
    ]


def test_a_new_row_of_the_aiperf_csv_is_named() -> None:
    text = (DATA / "aiperf" / "profile_export_aiperf.csv").read_text()
    [run] = read_text_as_bench(text)
    assert named(run) == [] and run.failed == 0
    new = "Verify Time (ms),5.0,1.0,9.0\nVerify Word,often\nRequest Latency"
    [run] = read_text_as_bench(text.replace("Request Latency", new, 1))
    assert named(run) == ["verify_time"]


def test_a_figure_beyond_all_floats_is_named() -> None:
    assert named(read({**SECONDS, "vast_count": 10**400})) == ["vast_count"]


def test_many_new_figures_are_counted_and_odd_names_kept_on_one_line() -> None:
    extra = {f"new\n{i}": i for i in range(20)}
    [names] = named(read({**SECONDS, **extra}))
    assert names.endswith("and 8 more") and "\n" not in names


def test_every_format_of_json_records_declares_its_shape() -> None:
    assert [form.name for form in FORMATS if "JSON" in form.name and form.shape is None] == []
