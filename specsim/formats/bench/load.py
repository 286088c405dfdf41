"""One file: recognise the format by content, read it. Folders: `folder`."""

from collections.abc import Callable
from dataclasses import dataclass

from specsim.errors import FormatError
from specsim.formats.bench import (
    aiperf,
    aiperf_server,
    genai_perf,
    guidellm,
    inference_max,
    inference_perf,
    llama_cpp,
    llm_d,
    llmperf,
    log_lines,
    openai_response,
    printed,
    server_metrics,
    sglang,
    vllm_serve,
)
from specsim.formats.bench.document import ResultFile, parse_document
from specsim.formats.bench.fields import Foreign, describe
from specsim.formats.bench.record import BenchRun
from specsim.formats.bench.unread import unread, with_note


@dataclass(frozen=True)
class Format:
    """One foreign format: `matches` looks at the shape only, `read` checks everything. shape: of
    its records, where they are JSON; a figure outside it is named in a note."""

    name: str
    matches: Callable[[ResultFile], bool]
    read: Callable[[ResultFile], list[BenchRun]]
    shape: type[Foreign] | None = None


# The first that matches reads the file; none of these shapes contains another one's keys.
FORMATS = (
    Format(
        "/metrics text of vLLM, SGLang, TensorRT-LLM or llama.cpp",
        server_metrics.matches, server_metrics.read,
    ),
    Format(printed.NAME, printed.matches, printed.read),
    Format(printed.SWEEP_NAME, printed.matches_sweep, printed.read_sweep),
    Format("server log lines", log_lines.matches, log_lines.read),
    Format("llama.cpp server log", llama_cpp.matches, llama_cpp.read),
    Format("aiperf CSV", aiperf.matches_csv, aiperf.read_csv),
    Format("guidellm JSON", guidellm.matches, guidellm.read, guidellm.GuidellmReport),
    Format(
        "guidellm 0.1 JSON", guidellm.matches_first, guidellm.read_first, guidellm.FirstReport
    ),
    Format("aiperf JSON", aiperf.matches, aiperf.read, aiperf.AiperfResult),
    Format(
        "aiperf records JSONL", aiperf.matches_records, aiperf.read_records, aiperf.AiperfRecord
    ),
    Format(
        "aiperf server metrics JSON", aiperf_server.matches, aiperf_server.read,
        aiperf_server.ServerExport,
    ),
    Format("genai-perf JSON", genai_perf.matches, genai_perf.read, genai_perf.GenaiResult),
    Format(
        "genai-perf raw JSON", genai_perf.matches_raw, genai_perf.read_raw, genai_perf.RawExport
    ),
    Format(
        "inference-perf JSON", inference_perf.matches, inference_perf.read,
        inference_perf.LifecycleReport,
    ),
    Format(
        "inference-perf requests JSON",
        inference_perf.matches_requests,
        inference_perf.read_requests,
        inference_perf.LifecycleRequest,
    ),
    Format("llm-d report, YAML or JSON", llm_d.matches, llm_d.read, llm_d.LlmdReport),
    Format("llmperf summary JSON", llmperf.matches, llmperf.read, llmperf.LlmperfSummary),
    Format(
        "llmperf responses JSON", llmperf.matches_responses, llmperf.read_responses,
        llmperf.LlmperfResponse,
    ),
    Format(
        "InferenceMAX JSON", inference_max.matches, inference_max.read,
        inference_max.InferenceMaxCell,
    ),
    Format("sglang bench_serving JSONL", sglang.matches, sglang.read, sglang.SglangResult),
    Format(
        "vllm bench serve and sweep JSON", vllm_serve.matches, vllm_serve.read,
        vllm_serve.VllmResult,
    ),
    Format(
        "vLLM response with speculative metrics", openai_response.matches, openai_response.read,
        openai_response.VllmResponse,
    ),
)


@dataclass(frozen=True)
class Scan:
    """Runs of a file or folder, and the files of a folder that were left out with the reason."""

    runs: tuple[BenchRun, ...]
    skipped: tuple[tuple[str, str], ...] = ()


def read_text_as_bench(text: str, origin: str = "pasted text") -> list[BenchRun]:
    """The same for text that is not in a file, e.g. pasted log lines."""
    return read_one(parse_document(text, origin))


def _with_unread(form: Format, document: ResultFile, runs: list[BenchRun]) -> list[BenchRun]:
    """The runs with a note of the figures that nothing reads: their own where each record is a
    run, else those of the file."""
    if form.shape is None or not document.is_json:
        return runs
    if len(runs) == len(document.records):
        names = [unread(form.shape, [record]) for record in document.records]
    else:
        names = [unread(form.shape, document.records)] * len(runs)
    return [with_note(run, its) for run, its in zip(runs, names, strict=True)]


def read_one(document: ResultFile) -> list[BenchRun]:
    """Recognise and read one document; FormatError saying what was found when it is unknown."""
    for form in FORMATS:
        if form.matches(document):
            runs = form.read(document)
            if not runs:
                raise FormatError(f"{document.origin}: {form.name} without any run in it")
            return _with_unread(form, document, runs)
    if document.is_json:
        found = describe(document.records[0])
        found = f"a list whose first element is {found}" if document.array else found
    else:
        found = f"text that begins with {describe(document.text.strip()[:50])}"
    raise FormatError(
        f"{document.origin}: {found} is no result that specsim reads; expected one of: "
        + ", ".join(form.name for form in FORMATS)
    )
