"""NVIDIA AIPerf 0.13 (schema 1.4): profile_export_aiperf.json, profile_export.jsonl (one record
per request) and profile_export_aiperf.csv. Names as in `metric_table`.

inter_token_latency is (latency - ttft) / (output tokens - tokens of the first chunk), which is
TPOT when the first chunk holds one token (as it does unless --per-chunk-usage says otherwise).
spec_decode_acceptance_length is a mean over requests; the acceptance here is pooled over steps
(1 + accepted / steps), which is what costs time. The CSV rounds to two decimals, so milliseconds
keep 0.01 ms and rates are recomputed from counts.
"""

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specsim.errors import FormatError
from specsim.formats.bench.document import Document
from specsim.formats.bench.fields import Fields
from specsim.formats.bench.metric_table import MetricTable, looks_like, run_of, streamed
from specsim.formats.bench.record import Acceptance, BenchRun, Load, RequestRow, ServerArgs
from specsim.formats.bench.stats import (
    acceptance_from_counts,
    per_request,
    survival,
    total,
    with_step_yield,
)

NAME = "aiperf"
_CSV_NAMES = {
    "Time to First Token": "time_to_first_token",
    "Inter Token Latency": "inter_token_latency",
    "Inter Chunk Latency": "inter_chunk_latency",
    "Request Latency": "request_latency",
    "Input Sequence Length": "input_sequence_length",
    "Output Sequence Length": "output_sequence_length",
    "Request Count": "request_count",
    "Request Throughput": "request_throughput",
    "Output Token Throughput": "output_token_throughput",
    "Benchmark Duration": "benchmark_duration",
    "Effective Concurrency": "effective_concurrency",
    "Total Draft Tokens": "total_draft_tokens",
    "Total Accepted Draft Tokens": "total_accepted_draft_tokens",
    "Total Spec Decode Steps": "total_spec_decode_steps",
}


def matches(document: Document) -> bool:
    first = document.records[0] if document.records else None
    return isinstance(first, dict) and "aiperf_version" in first and looks_like(first)


def read(document: Document) -> list[BenchRun]:
    return [_run(item, document.origin) for item in document.objects()]


def _run(item: Fields, origin: str) -> BenchRun:
    config = item.child("input_config")
    histogram = _histogram(item.child("pooled_spec_decode_acceptance_histogram"))
    run = replace(
        _common(MetricTable(item), origin, _load(config), histogram),
        format_version=item.text("aiperf_version"),
        model=_model(config),
        date=item.text("start_time"),
    )
    if item.flag("was_cancelled"):
        run = replace(run, warnings=(*run.warnings, "the benchmark was cancelled before its end"))
    return run


def _common(
    table: MetricTable, origin: str, load: Load, histogram: tuple[int, ...] = ()
) -> BenchRun:
    run = streamed(run_of(table, origin, NAME, load), origin)
    finished = table.whole("completed_request_count")
    failed = None
    if finished is not None and run.completed is not None:
        failed = max(0, finished - run.completed)
    acceptance = acceptance_from_counts(
        table.whole("total_spec_decode_steps"),
        table.whole("total_draft_tokens"),
        table.whole("total_accepted_draft_tokens"),
        survival(histogram),
        where=origin,
    )
    acceptance, k = _with_chain(acceptance, histogram)
    return with_step_yield(
        replace(
            run,
            failed=failed,
            acceptance=acceptance,
            server_args=ServerArgs(num_speculative_tokens=k),
        )
    )


def _with_chain(
    acceptance: Acceptance | None, histogram: tuple[int, ...]
) -> tuple[Acceptance | None, int | None]:
    """k, when every step drafted the same number of tokens; rates that reach up to it."""
    if acceptance is None or not acceptance.num_drafts or not acceptance.draft_tokens:
        return acceptance, None
    k, rest = divmod(acceptance.draft_tokens, acceptance.num_drafts)
    if rest or not 0 < k < 100:
        return acceptance, None
    rates = acceptance.per_position
    if histogram and len(rates) < k:
        rates = (*rates, *(0.0,) * (k - len(rates)))
    return replace(acceptance, per_position=rates), k


def _histogram(item: Fields) -> tuple[int, ...]:
    """{"j": steps with j accepted tokens} as a list; absent counts are zero."""
    counts: dict[int, int] = {}
    for key in item.data:
        if not (key.isascii() and key.isdigit() and len(key) <= 3):
            raise FormatError(
                f"{item.where}{ascii(key)[:40]} is no number of accepted tokens; whole numbers "
                "are expected as keys there"
            )
        counts[int(key)] = item.count(key) or 0
    return tuple(counts.get(j, 0) for j in range(max(counts, default=-1) + 1))


def _model(config: Fields) -> str | None:
    items = config.child("models").children("items")
    if items:
        return items[0].text("name")
    names = config.child("endpoint").items("model_names") or []
    return names[0][:500] if names and isinstance(names[0], str) else None


def _load(config: Fields) -> Load:
    """Load of the profiling phase; versions before 0.13 kept it under `loadgen`."""
    phases = config.children("phases")
    chosen = [p for p in phases if p.data.get("name") == "profiling"] or phases
    if not chosen:
        old = config.child("loadgen")
        rate = old.number("request_rate")
        return Load(
            request_rate=rate if rate is not None else (float("inf") if old.data else None),
            max_concurrency=old.count("concurrency"),
            num_prompts=old.count("request_count"),
        )
    phase = chosen[-1]
    kind = phase.text("type")
    concurrency, number = phase.count("concurrency"), phase.count("requests")
    if kind == "concurrency":
        return Load(float("inf"), concurrency, None, number, kind)
    shape = {"poisson": 1.0, "constant": float("inf")}.get(kind or "")
    if kind == "gamma":
        shape = phase.number("smoothness")
    return Load(phase.number("rate"), concurrency, shape, number, kind)


def matches_records(document: Document) -> bool:
    first = document.records[0] if document.records else None
    if not isinstance(first, dict) or not isinstance(first.get("metrics"), dict):
        return False
    meta, latency = first.get("metadata"), first["metrics"].get("request_latency")
    return (
        isinstance(meta, dict)
        and "request_start_ns" in meta
        and (latency is None or (isinstance(latency, dict) and "value" in latency))
    )


def read_records(document: Document) -> list[BenchRun]:
    """profile_export.jsonl: the run rebuilt from the requests of its measured phase."""
    rows, starts = [], []
    histogram: dict[int, int] = {}
    drafts = proposed = accepted = 0
    k = None
    for item in document.objects():
        meta = item.child("metadata")
        if meta.text("benchmark_phase") not in (None, "profiling"):
            continue
        row, start = _row(item.child("metrics"), meta)
        rows.append(row)
        starts.append(start)
        spec = item.child("spec_decode_acceptance")
        drafts += spec.count("num_spec_steps") or 0
        proposed += spec.count("num_draft_tokens") or 0
        accepted += spec.count("num_accepted_draft_tokens") or 0
        k = spec.count("num_spec_tokens") or k
        for j, count in enumerate(_histogram(spec.child("acceptance_histogram"))):
            histogram[j] = histogram.get(j, 0) + count
    first = min((start for start in starts if start is not None), default=0)
    rows = [
        replace(row, arrival_s=(start - first) * 1e-9 if start is not None else None)
        for row, start in zip(rows, starts, strict=True)
    ]
    sums = total(rows, f"{document.origin}: ")
    counts = tuple(histogram.get(j, 0) for j in range(max(histogram, default=-1) + 1))
    acceptance = acceptance_from_counts(
        drafts, proposed, accepted, survival(counts), where=document.origin
    )
    acceptance, chain = _with_chain(acceptance, counts)
    length, tokens = sums.span_s, sums.output_tokens
    run = BenchRun(
        source=document.origin,
        format="aiperf records",
        load=Load(num_prompts=len(rows)),
        completed=sums.completed,
        failed=sums.failed,
        duration_s=length,
        input_tokens=sums.input_tokens,
        output_tokens=tokens,
        input_tokens_mean=per_request(sums.input_tokens, sums.completed),
        output_tokens_mean=per_request(tokens, sums.completed),
        output_tok_s=tokens / length if tokens and length else None,
        request_rate_achieved=sums.completed / length if length else None,
        concurrency_mean=sums.concurrency_mean,
        ttft_s=sums.ttft_s,
        tpot_s=sums.tpot_s,
        itl_s=sums.itl_s,
        e2el_s=sums.e2el_s,
        acceptance=acceptance,
        tokens_per_step=sums.tokens_per_step,
        tokens_per_step_basis="chunks" if sums.tokens_per_step is not None else None,
        server_args=ServerArgs(num_speculative_tokens=k or chain),
        requests=tuple(rows),
        warnings=(
            "per-request records say neither the load nor the run's length; the length is "
            "first request to last token",
        ),
    )
    return [with_step_yield(run)]


def _row(metrics: Fields, meta: Fields) -> tuple[RequestRow, int | None]:
    def value(name: str, scale: float = 1.0) -> float | None:
        return metrics.child(name).number("value", scale)

    def whole(name: str) -> int | None:
        return metrics.child(name).count("value")

    good = meta.flag("was_cancelled") is not True and metrics.has("request_latency")
    gaps = metrics.child("inter_chunk_latency").numbers("value", 1e-3) or ()
    row = RequestRow(
        arrival_s=None,
        input_tokens=whole("input_sequence_length"),
        output_tokens=whole("output_sequence_length"),
        ttft_s=value("time_to_first_token", 1e-3),
        e2el_s=value("request_latency", 1e-3),
        itls_s=gaps,
        success=good,
    )
    return row, meta.stamp("request_start_ns")


def matches_csv(document: Document) -> bool:
    return document.text.lstrip("\ufeff \r\n").startswith("Metric,avg,min,max")


def read_csv(document: Document) -> list[BenchRun]:
    """profile_export_aiperf.csv: a table of statistics, then one of single values."""
    found: dict[str, dict[str, Any]] = {}
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
            name = _CSV_NAMES.get(title)
            if name is not None:
                where = f"{document.origin}: line {number}: "
                found[name] = _csv_row(header[1:], cells[1:], where)
                found[name]["unit"] = unit.rstrip(")") or None
    if not looks_like(found):
        raise FormatError(
            f"{document.origin}: no row 'Request Latency' with an average; the CSV of a finished "
            "aiperf run is expected"
        )
    where = f"{document.origin}: "
    run = _common(MetricTable(Fields(found, where)), document.origin, Load())
    return [
        replace(
            run,
            warnings=(
                *run.warnings,
                "the CSV is rounded to two decimals and does "
                "not state the load; the JSON beside it does",
            ),
        )
    ]


def _csv_row(names: list[str], cells: list[str], where: str) -> dict[str, Any]:
    row: Mapping[str, str] = dict(zip(names, cells, strict=False))
    out: dict[str, Any] = {}
    for name, text in row.items():
        if not text:
            continue
        key = "avg" if name == "Value" else name
        try:
            out[key] = float(text)
        except ValueError:
            raise FormatError(
                f"{where}{name[:40]} is {ascii(text)[:60]}; a number is expected there"
            ) from None
    return out
