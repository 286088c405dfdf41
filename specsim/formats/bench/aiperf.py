"""NVIDIA AIPerf 0.2 to 0.13 (schema 1.4): profile_export_aiperf.json, profile_export.jsonl (one
record per request) and profile_export_aiperf.csv. Names as in `metric_table`.

inter_token_latency is (latency - ttft) / (output tokens - tokens of the first chunk), which is
TPOT when the first chunk holds one token (as it does unless --per-chunk-usage says otherwise).
The first versions (0.2 and 0.7 among them) write no aiperf_version: they are told from genai-perf,
whose names they took over, by the models' names under input_config.endpoint.

spec_decode_acceptance_length is a mean over requests; the acceptance here is pooled over steps
(1 + accepted / steps), which is what costs time. The CSV rounds to two decimals, so milliseconds
keep 0.01 ms and rates are recomputed from counts.
"""

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from specsim.errors import FormatError
from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.fields import (
    MAX_TEXT,
    Count,
    Flag,
    Foreign,
    Millis,
    Number,
    Numbers,
    Stamp,
    Text,
    as_mapping,
    describe,
    key,
    part,
    parts,
    read_as,
    stated,
)
from specsim.formats.bench.metric_table import MetricTable, looks_like, run_of
from specsim.formats.bench.record import (
    BenchAcceptance,
    BenchLoad,
    BenchRun,
    RequestRow,
    ServerArgs,
)
from specsim.formats.bench.shapes import (
    OTHER_FIGURES,
    DraftCounts,
    Histogram,
    pooled,
)
from specsim.formats.bench.stats import of_rows, rounded, with_derived
from specsim.formats.bench.unread import taken_by, unread, with_note

NAME = "aiperf"


class AiperfPhase(Foreign):
    name: object = None
    type: Text = None
    concurrency: Count = None
    requests: Count = None
    rate: Number = None
    smoothness: Number = None

    def load(self) -> BenchLoad:
        if self.type == "concurrency":
            return BenchLoad(float("inf"), self.concurrency, None, self.requests, self.type)
        burstiness = _burstiness(self.type, self.smoothness)
        return BenchLoad(self.rate, self.concurrency, burstiness, self.requests, self.type)


def _burstiness(pattern: str | None, smoothness: float | None) -> float | None:
    shape = {"poisson": 1.0, "constant": float("inf"), "gamma": smoothness}
    return shape.get(pattern or "")


class LoadGenerator(Foreign):
    request_rate: Number = None
    concurrency: Count = None
    request_count: Count = None
    pattern: Text = key("arrival_pattern", "request_rate_mode")
    smoothness: Number = key("arrival_smoothness")

    def load(self) -> BenchLoad:
        if self.request_rate is None or self.pattern == "concurrency_burst":
            return BenchLoad(float("inf"), self.concurrency, None, self.request_count)
        return BenchLoad(
            self.request_rate, self.concurrency, _burstiness(self.pattern, self.smoothness),
            self.request_count, self.pattern,
        )


class AiperfConfig(Foreign):
    """The tool's own settings. Versions before 0.13 kept the load under `loadgen`."""

    phases: list[AiperfPhase] = parts()
    loadgen: LoadGenerator | None = None
    models: list[object] = parts("models.items")
    model_names: list[object] = parts("endpoint.model_names")

    def model(self) -> str | None:
        name = as_mapping(self.models[0]).get("name") if self.models else None
        name = self.model_names[0] if name is None and self.model_names else name
        return name[:MAX_TEXT] if isinstance(name, str) and name else None

    def load(self) -> BenchLoad:
        """Load of the profiling phase."""
        chosen = [phase for phase in self.phases if phase.name == "profiling"] or self.phases
        if chosen:
            return chosen[-1].load()
        return BenchLoad() if self.loadgen is None else self.loadgen.load()


class AiperfResult(MetricTable):
    aiperf_version: Text = None
    start_time: Text = None
    was_cancelled: Flag = None
    input_config: AiperfConfig = part(AiperfConfig)
    completed_request_count: Number = key("completed_request_count.avg")
    total_spec_decode_steps: Number = key("total_spec_decode_steps.avg")
    total_draft_tokens: Number = key("total_draft_tokens.avg")
    total_accepted_draft_tokens: Number = key("total_accepted_draft_tokens.avg")
    pooled_spec_decode_acceptance_histogram: Histogram = ()


def matches(document: ResultFile) -> bool:
    first = document.first
    endpoint = as_mapping(as_mapping(first.get("input_config")).get("endpoint"))
    return looks_like(first) and ("aiperf_version" in first or "model_names" in endpoint)


def read(document: ResultFile) -> list[BenchRun]:
    return [_run(item, document.origin) for _, item in document.read(AiperfResult)]


def _run(item: AiperfResult, origin: str) -> BenchRun:
    run = run_of(item, origin, NAME, item.input_config.load())
    finished = rounded(item.completed_request_count)
    failed = None
    if finished is not None and run.completed is not None:
        failed = max(0, finished - run.completed)
    counts = DraftCounts(
        num_spec_steps=rounded(item.total_spec_decode_steps),
        num_draft_tokens=rounded(item.total_draft_tokens),
        num_accepted_draft_tokens=rounded(item.total_accepted_draft_tokens),
        acceptance_histogram=item.pooled_spec_decode_acceptance_histogram,
    )
    acceptance, k = _with_chain(counts, origin)
    warnings = run.warnings
    if item.was_cancelled:
        warnings = (*warnings, "the benchmark was cancelled before its end")
    return with_derived(
        replace(
            run, format_version=item.aiperf_version, model=item.input_config.model(),
            date=item.start_time, failed=failed, acceptance=acceptance,
            server_args=ServerArgs(num_speculative_tokens=k), warnings=warnings,
        )
    )


def _with_chain(counts: DraftCounts, origin: str) -> tuple[BenchAcceptance | None, int | None]:
    """k, when every step drafted the same number of tokens; rates that reach up to it."""
    acceptance = counts.acceptance(origin)
    if acceptance is None or not acceptance.num_drafts or not acceptance.draft_tokens:
        return acceptance, None
    k, rest = divmod(acceptance.draft_tokens, acceptance.num_drafts)
    if rest or not 0 < k < 100:
        return acceptance, None
    rates = acceptance.per_position
    if counts.acceptance_histogram and len(rates) < k:
        rates = (*rates, *(0.0,) * (k - len(rates)))
    return replace(acceptance, per_position=rates), k


class AiperfRecord(Foreign):
    """One line of profile_export.jsonl."""

    passed_over: ClassVar = {
        rf"metrics\.(?:{names})(?:\..*)?": why for names, why in MetricTable.passed_over.items()
        if names != OTHER_FIGURES
    }

    phase: Text = key("metadata.benchmark_phase")
    was_cancelled: Flag = key("metadata.was_cancelled")
    request_start_ns: Stamp = key("metadata.request_start_ns")
    input_tokens: Count = key("metrics.input_sequence_length.value")
    output_tokens: Count = key("metrics.output_sequence_length.value")
    ttft_s: Millis = key("metrics.time_to_first_token.value")
    e2el_s: Millis = key("metrics.request_latency.value")
    gaps_ms: Numbers = key("metrics.inter_chunk_latency.value")
    drafts: DraftCounts = part(DraftCounts, "spec_decode_acceptance")

    def row(self, first: int) -> RequestRow:
        """`first`: when the first request of the run was sent, on the same clock."""
        sent = self.request_start_ns
        return RequestRow(
            (sent - first) * 1e-9 if sent is not None else None, **stated(self, RequestRow),
            itls_s=tuple(gap * 1e-3 for gap in self.gaps_ms or ()),
            success=self.was_cancelled is not True and self.e2el_s is not None,
        )


def matches_records(document: ResultFile) -> bool:
    metrics, meta = document.first.get("metrics"), as_mapping(document.first.get("metadata"))
    latency = as_mapping(metrics).get("request_latency")
    stated = latency is None or "value" in as_mapping(latency)
    return isinstance(metrics, dict) and "request_start_ns" in meta and stated


def read_records(document: ResultFile) -> list[BenchRun]:
    """profile_export.jsonl: the run rebuilt from the requests of its measured phase."""
    items = [
        item for _, item in document.read(AiperfRecord) if item.phase in (None, "profiling")
    ]
    first = min((i.request_start_ns for i in items if i.request_start_ns is not None), default=0)
    counts = pooled(item.drafts for item in items)
    acceptance, chain = _with_chain(counts, document.origin)
    run = BenchRun(
        source=document.origin, format="aiperf records", acceptance=acceptance,
        server_args=ServerArgs(num_speculative_tokens=counts.num_spec_tokens or chain),
        warnings=(
            "per-request records say neither the load nor the run's length; the length is "
            "first request to last token",
        ),
    )
    return [of_rows(run, [item.row(first) for item in items], f"{document.origin}: ")]


def matches_csv(document: ResultFile) -> bool:
    return document.text.lstrip("\ufeff \r\n").startswith("Metric,avg,min,max")


def read_csv(document: ResultFile) -> list[BenchRun]:
    """profile_export_aiperf.csv: a table of statistics, then one of single values."""
    found: dict[str, dict[str, object]] = {}
    header: list[str] = []
    try:
        lines = list(csv.reader(io.StringIO(document.text)))
    except csv.Error as error:
        raise FormatError(f"{document.origin}: not a CSV: {error}") from None
    for number, cells in enumerate(lines, 1):
        if not cells or not any(cells):
            header = []
        elif cells[0] == "Metric":
            header = cells
        elif header:
            title, _, unit = cells[0].partition(" (")
            name = re.sub("[ -]", "_", title.lower())  # "Request Latency"
            name = {"completed_requests": "completed_request_count"}.get(name, name)
            where = f"{document.origin}: line {number}: "
            known = name in taken_by(AiperfResult).children
            row = _csv_row(zip(header[1:], cells[1:], strict=False), where, known)
            found[name] = {**row, "unit": unit.rstrip(")") or None}
    if not looks_like(found):
        raise FormatError(
            f"{document.origin}: no row 'Request Latency' with an average; the CSV of a finished "
            "aiperf run is expected"
        )
    run = _run(read_as(AiperfResult, found, f"{document.origin}: "), document.origin)
    noted = (
        "the CSV is rounded to two decimals and does not state the load; the JSON beside it does"
    )
    run = replace(run, warnings=(*run.warnings, noted))
    return [with_note(run, unread(AiperfResult, [found]))]


def _csv_row(cells: Iterable[tuple[str, str]], where: str, known: bool) -> dict[str, object]:
    """The figures of a row; FormatError for what is none, in a row that is read."""
    out: dict[str, object] = {}
    for name, text in cells:
        if not text:
            continue
        try:
            out["avg" if name == "Value" else name] = float(text)
        except ValueError:
            if not known:
                continue
            raise FormatError(
                f"{where}{name[:40]} is {describe(text)}; a number is expected there"
            ) from None
    return out
