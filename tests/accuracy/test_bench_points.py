"""Which runs of benchmark tools can be simulated, and what the others lack."""

from pathlib import Path

import pytest

from specsim.accuracy.bench import points_of
from specsim.accuracy.live_replay import load_of, requests_of
from specsim.errors import FormatError
from specsim.formats.bench import read_bench

DATA = Path(__file__).resolve().parents[1] / "formats" / "data"


@pytest.mark.parametrize("file, name", [
    ("vllm_ngram3_codeedit_c4.json", "c=4"),
    ("vllm_base_codeedit_c1.json", "c=1"),
    ("vllm_ngram3_openloop_crate.json", "rate="),
    ("guidellm_ngram3_conc2.json", "c=2"),
    ("sglang_oai.jsonl", ""),
    ("aiperf/profile_export_aiperf.json", ""),
    ("genai_perf/profile_export_genai_perf.json", ""),
    ("inference_perf/stage_0_lifecycle_metrics.json", ""),
    ("llmperf/model_100_20_summary.json", ""),
])
def test_every_tools_results_become_points(file, name):
    points = points_of(read_bench(DATA / file))
    assert points and points[0].name.startswith(name)
    for point in points:
        requests = requests_of(point)
        assert requests and load_of(point, requests) is not None


@pytest.mark.parametrize("file", ["vllm_metrics_ngram3.prom", "spec_log.txt",
                                  "vllm_completion_spec.json"])
def test_what_holds_no_load_is_refused_with_what_it_lacks(file):
    with pytest.raises(FormatError, match="cannot be simulated: it lacks a load"):
        points_of(read_bench(DATA / file))


def test_plain_and_drafting_runs_of_one_load_have_names_of_their_own():
    runs = [*read_bench(DATA / "vllm_base_codeedit_c1.json"),
            *read_bench(DATA / "vllm_ngram3_codeedit_c1.json")]
    names = [point.name for point in points_of(runs)]
    assert len(set(names)) == 2
