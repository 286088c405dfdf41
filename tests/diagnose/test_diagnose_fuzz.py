"""Whatever an importer lets through is judged without a traceback, with and without a model."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thinned import examples, some

from diagnose_helpers import predictor
from specsim.diagnose.evidence import evidence_of
from specsim.diagnose.judge import diagnose
from specsim.errors import FormatError
from specsim.formats.bench.load import read_text_as_bench

DATA = Path(__file__).parents[1] / "formats" / "data"
SAMPLES = ["vllm_draftself_k2_c1.json", "sglang_oai.jsonl", "vllm_metrics_ngram3.prom",
           "sglang_metrics.prom", "spec_log.txt", "vllm_completion_spec.json",
           "aiperf/profile_export_aiperf.json"]
ODD = ["0", "1", "-1", "1e-9", "0.0", "1e9", "3", "100000", "0.5", "1e15", "7"]


@pytest.mark.parametrize("name", some(SAMPLES, 4))
@settings(max_examples=examples(40), deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_changed_numbers(name, data):
    import re

    text = (DATA / name).read_text()
    spots = list(re.finditer(r"(?<![\w.\"-])\d+(?:\.\d+)?(?:e[-+]\d+)?(?![\w.\"])", text))
    for _ in range(data.draw(st.integers(1, 6))):
        spot = data.draw(st.sampled_from(spots))
        text = text[: spot.start()] + data.draw(st.sampled_from(ODD)) + text[spot.end():]
        spots = list(re.finditer(r"(?<![\w.\"-])\d+(?:\.\d+)?(?:e[-+]\d+)?(?![\w.\"])", text))
    try:
        runs = read_text_as_bench(text, "fuzz")
    except FormatError:
        return
    for run in runs:
        here = evidence_of(run)
        for predict in (None, predictor("llama-3.1-8b", "h100", "eagle3", 3)):
            json.dumps(diagnose(here, predict).to_dict(), allow_nan=False)
            json.dumps(diagnose(here, predict, plain=here).to_dict(), allow_nan=False)
