"""The matrix of benchmark tools, their versions and what is read, made by reading their results.

Every row is a result that the tests read as well: a sample of tests/formats/data, or one made in
the key set of a version that could not be run (tests/formats/bench_made.py). A mark is a figure
that came out of it; what is passed over is declared with the shapes of `specsim.formats.bench`.
"""

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "formats" / "data"
MADE = ROOT / "tests" / "formats" / "bench_made.py"
RUN, CODE, KNOWN = "run", "its code", "its published form"

# format of `load.FORMATS`, version, what the row rests on, the sample or the name of a made result
ROWS = (
    ("vllm bench serve and sweep JSON", "vLLM 0.32", RUN, "vllm_ngram3_codeedit_c4.json"),
    ("vllm bench serve and sweep JSON", "sweep, 0.32", CODE,
     "vllm_sweep/SERVE--ngram3-BENCH--c4/run=0.json"),
    ("vllm bench serve and sweep JSON", "in seconds", KNOWN, "SECONDS"),
    ("vllm bench sweep CSV", "vLLM", KNOWN, "SWEEP_CSV"),
    ("printed table of vllm bench serve or sglang bench_serving", "vLLM", KNOWN, "VLLM"),
    ("printed table of vllm bench serve or sglang bench_serving", "SGLang 0.5.6 (cookbook)", CODE,
     "SGLANG"),
    ("vLLM response with speculative metrics", "0.32, detailed", RUN, "vllm_completion_spec.json"),
    ("InferenceMAX JSON", "a cell", KNOWN, "CELL"),
    ("sglang bench_serving JSONL", "0.5.23, native", RUN, "sglang_native.jsonl"),
    ("sglang bench_serving JSONL", "0.5.23, OpenAI", RUN, "sglang_oai.jsonl"),
    ("aiperf JSON", "0.13", RUN, "aiperf/profile_export_aiperf.json"),
    ("aiperf JSON", "0.2", CODE, "aiperf_old"),
    ("aiperf CSV", "0.13", RUN, "aiperf/profile_export_aiperf.csv"),
    ("aiperf records JSONL", "0.13", RUN, "aiperf/profile_export.jsonl"),
    ("aiperf server metrics JSON", "0.13", RUN, "aiperf/server_metrics_export.json"),
    ("genai-perf JSON", "0.0.16", CODE, "genai_perf/profile_export_genai_perf.json"),
    ("genai-perf raw JSON", "0.0.16", CODE, "genai_perf/profile_export.json"),
    ("guidellm JSON", "0.8.1", RUN, "guidellm_ngram3_conc2.json"),
    ("guidellm JSON", "0.2, 0.3", CODE, "guidellm_old"),
    ("guidellm 0.1 JSON", "0.1", CODE, "FIRST"),
    ("inference-perf JSON", "0.7", RUN, "inference_perf/stage_0_lifecycle_metrics.json"),
    ("inference-perf requests JSON", "0.7", RUN,
     "inference_perf/per_request_lifecycle_metrics.json"),
    ("llm-d report, YAML or JSON", "0.1", KNOWN, "llm_d_old"),
    ("llm-d report, YAML or JSON", "0.2", KNOWN, "llm_d_new"),
    ("llmperf summary JSON", "ray-project", CODE, "llmperf/model_100_20_summary.json"),
    ("llmperf responses JSON", "ray-project", CODE,
     "llmperf/model_100_20_individual_responses.json"),
)
_ARGUMENTS: dict[str, Any] = {
    "aiperf_old": {"concurrency": 4}, "guidellm_old": {"strategy": {"type_": "synchronous"}},
    "llm_d_old": {"tool": "vllm-benchmark"}, "llm_d_new": {"tool": "vllm-benchmark"},
}
FIELDS = {
    "load": lambda run: run.load.kind != "unknown",
    "lengths": lambda run: run.input_tokens_mean is not None and run.output_tokens_mean is not None,
    "tok/s": lambda run: run.output_tok_s is not None,
    "TTFT": lambda run: run.ttft_s is not None,
    "TPOT": lambda run: run.tpot_s is not None,
    "ITL": lambda run: run.itl_s is not None or run.itl_per_token_s is not None,
    "E2EL": lambda run: run.e2el_s is not None,
    "acceptance": lambda run: run.acceptance is not None,
    "by position": lambda run: run.acceptance is not None and bool(run.acceptance.per_position),
    "requests": lambda run: bool(run.requests),
}


def text_of(sample: str) -> str:
    """The text of a row's result."""
    if (DATA / sample).is_file():
        return (DATA / sample).read_text(encoding="utf-8")
    made = runpy.run_path(str(MADE))[sample]
    value = made(**_ARGUMENTS[sample]) if callable(made) else made
    return value if isinstance(value, str) else json.dumps(value)


def read_rows() -> Iterator[tuple[str, str, str, list[bool]]]:
    """Format, version, what it rests on, and which of FIELDS came out of its result."""
    from specsim.formats.bench.load import read_text_as_bench

    for form, version, basis, sample in ROWS:
        run = read_text_as_bench(text_of(sample), sample)[0]
        yield form, version, basis, [bool(has(run)) for has in FIELDS.values()]


def matrix() -> str:
    head = ["result", "version", "read from", *FIELDS]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for form, version, basis, marks in read_rows():
        cells = [form, version, basis, *("yes" if mark else "-" for mark in marks)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def passed_over() -> str:
    """Per format what is left out, by the reasons why it is."""
    from specsim.formats.bench.load import FORMATS

    lines = ["| result | left out |", "|---|---|"]
    for form in FORMATS:
        reasons = dict.fromkeys(why for _, why in _left_out(form.shape))
        if reasons:
            lines.append(f"| {form.name} | {'; '.join(reasons)} |")
    return "\n".join(lines)


def _left_out(shape: Any) -> dict[tuple[str, str], None]:
    """What a shape and those inside it pass over."""
    from specsim.formats.bench.fields import Foreign

    found: dict[tuple[str, str], None] = {}
    if isinstance(shape, type) and issubclass(shape, Foreign):
        found.update(dict.fromkeys(shape.passed_over.items()))
        for item in shape.model_fields.values():
            found.update(_left_out(item.annotation))
    for inner in get_args(shape):
        found.update(_left_out(inner))
    return found
