"""One file: recognise the format by content, read it. Folders: `folder`."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

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


def _format(name: str, module: ModuleType, shape: type[Foreign] | None = None,
            kind: str = "") -> Format:
    """A format of a module that has several of them: `matches_KIND`, `read_KIND`."""
    return Format(name, getattr(module, f"matches{kind}"), getattr(module, f"read{kind}"), shape)


# The first that matches reads the file; none of these shapes contains another one's keys.
FORMATS = (
    _format("/metrics text of vLLM, SGLang, TensorRT-LLM or llama.cpp", server_metrics),
    _format(printed.NAME, printed),
    _format(printed.SWEEP_NAME, printed, kind="_sweep"),
    _format("server log lines", log_lines),
    _format("llama.cpp server log", llama_cpp),
    _format("aiperf CSV", aiperf, kind="_csv"),
    _format("guidellm JSON", guidellm, guidellm.GuidellmReport),
    _format("guidellm 0.1 JSON", guidellm, guidellm.FirstReport, "_first"),
    _format("aiperf JSON", aiperf, aiperf.AiperfResult),
    _format("aiperf records JSONL", aiperf, aiperf.AiperfRecord, "_records"),
    _format("aiperf server metrics JSON", aiperf_server, aiperf_server.ServerExport),
    _format("genai-perf JSON", genai_perf, genai_perf.GenaiResult),
    _format("genai-perf raw JSON", genai_perf, genai_perf.RawExport, "_raw"),
    _format("inference-perf JSON", inference_perf, inference_perf.LifecycleReport),
    _format("inference-perf requests JSON", inference_perf, inference_perf.LifecycleRequest,
            "_requests"),
    _format("llm-d report, YAML or JSON", llm_d, llm_d.LlmdReport),
    _format("llmperf summary JSON", llmperf, llmperf.LlmperfSummary),
    _format("llmperf responses JSON", llmperf, llmperf.LlmperfResponse, "_responses"),
    _format("InferenceMAX JSON", inference_max, inference_max.InferenceMaxCell),
    _format("sglang bench_serving JSONL", sglang, sglang.SglangResult),
    _format("vllm bench serve and sweep JSON", vllm_serve, vllm_serve.VllmResult),
    _format("vLLM response with speculative metrics", openai_response,
            openai_response.VllmResponse),
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
