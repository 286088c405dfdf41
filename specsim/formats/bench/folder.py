"""From a path to runs: a file, or a folder with its rules of what to read and to put together.

Tools write one run into several files, and a sweep repeats each run in a summary. Within one
directory:
  * vllm bench sweep: run=N.json and summary.json hold the same runs, and so does the summary.csv
    above them; each counts once, warm-up runs not at all;
  * aiperf: records and server metrics complete the JSON; the CSV is dropped beside it;
  * genai-perf and llmperf: the raw or individual responses complete the summary;
  * inference-perf: stages are the load points, the summary over all stages is dropped beside
    them; per-request records complete a single stage.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specsim.errors import FormatError
from specsim.formats.bench import server_metrics
from specsim.formats.bench.document import read_document
from specsim.formats.bench.load import Scan, read_one
from specsim.formats.bench.record import BenchRun
from specsim.formats.bench.stats import with_derived
from specsim.formats.bench.unread import unread_notes
from specsim.formats.bench.vllm_serve import SWEEP

MAX_FILES = 2000
_SUFFIXES = {".json", ".jsonl", ".csv", ".prom", ".txt", ".log", ".metrics", ".out",
             ".yaml", ".yml"}
_DETAILS = {
    "aiperf records": "aiperf",
    "genai-perf raw": "genai-perf",
    "llmperf responses": "llmperf",
    "inference-perf requests": "inference-perf",
}


def read_bench(path: str | Path, before: str | Path | None = None) -> list[BenchRun]:
    """All runs of a result file or folder in the normal form.

    before: an earlier /metrics dump of the same server; `path` is then the later one and the
    result is what happened between them. Raises FormatError, and nothing else, for whatever is
    wrong with a file.
    """
    return list(scan(path, before).runs)


def scan(path: str | Path, before: str | Path | None = None) -> Scan:
    """Like `read_bench`, and says which files of a folder were not read and why."""
    if isinstance(path, str) and not path.strip():
        raise FormatError(f"{path!r} names no file; give a result, or . for this folder")
    place = Path(path)
    if before is not None:
        return Scan((server_metrics.read_pair(Path(before), place),))
    try:
        folder = place.is_dir()
    except (OSError, ValueError) as error:
        raise FormatError(f"{place!r}: not a path that can be read ({error})") from None
    if folder:
        return scan_folder(place)
    return Scan(tuple(read_one(read_document(place))))


def scan_folder(folder: Path) -> Scan:
    """All runs below a folder; FormatError when there is none or there are too many files."""
    files = _files(folder)
    if len(files) > MAX_FILES:
        raise FormatError(
            f"{folder}: more than {MAX_FILES} result files below it; give a folder further down"
        )
    groups: dict[Path, list[BenchRun]] = {}
    skipped: list[tuple[str, str]] = []
    for path in files:
        if path.name.endswith(".failure.json"):
            skipped.append((str(path), "a failed run of a sweep"))
            continue
        if path.name.startswith("adapter_"):
            skipped.append((str(path), "a part of a run, by adapter"))
            continue
        try:
            groups.setdefault(path.parent, []).extend(read_one(read_document(path)))
        except FormatError as error:
            reason = str(error).removeprefix(f"{path}: ").split("; expected one of: ")[0]
            skipped.append((str(path), reason))
    runs: list[BenchRun] = []
    for group in groups.values():
        kept, dropped = _combine(group)
        runs += kept
        skipped += dropped
    swept = any(run.format == SWEEP and not _is_csv(run) for run in runs)
    if swept:
        tables = {run.source: None for run in runs if run.format == SWEEP and _is_csv(run)}
        skipped += [(source, "the runs of the sweep's JSON files") for source in tables]
        runs = [run for run in runs if run.source not in tables]
    if not runs:
        detail = f"; {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
        raise FormatError(
            f"{folder}: no benchmark result among its {len(files)} files ending in "
            f"{', '.join(sorted(_SUFFIXES))}{detail}; give the result file itself, or the folder "
            "that `vllm bench serve --save-result --result-dir` writes to"
        )
    return Scan(tuple(runs), tuple(skipped))


def _is_csv(run: BenchRun) -> bool:
    return run.source.lower().endswith(".csv")


def _files(folder: Path) -> list[Path]:
    found: list[Path] = []
    for root, directories, names in os.walk(folder):
        directories.sort()
        found += [Path(root, n) for n in sorted(names) if Path(n).suffix.lower() in _SUFFIXES]
        if len(found) > MAX_FILES:
            break
    return found


def _combine(runs: Sequence[BenchRun]) -> tuple[list[BenchRun], list[tuple[str, str]]]:
    """Put together what one directory holds."""
    dropped: list[tuple[str, str]] = []
    kept = _each_once(runs, dropped)
    kept = _stages_only(kept, dropped)
    for detail_format, base_format in _DETAILS.items():
        details = [run for run in kept if run.format == detail_format]
        bases = [run for run in kept if run.format == base_format]
        if len(details) == 1 and len(bases) == 1 and _same_run(bases[0], details[0]):
            merged = with_details(bases[0], details[0])
            kept = [merged if run is bases[0] else run for run in kept if run is not details[0]]
    bases = [run for run in kept if run.format == "aiperf"]
    servers = [run for run in kept if run.format == "aiperf server metrics"]
    if len(bases) == 1 and len(servers) == 1:
        merged = _with_server(bases[0], servers[0])
        kept = [merged if run is bases[0] else run for run in kept if run is not servers[0]]
    return kept, dropped


def _each_once(runs: Sequence[BenchRun], dropped: list[tuple[str, str]]) -> list[BenchRun]:
    """Drop repeated runs of sweeps, their warm-ups, and an aiperf CSV beside its JSON."""
    kept: list[BenchRun] = []
    seen: dict[tuple[object, ...], str] = {}
    sources = {run.source for run in runs if run.format == "aiperf"}
    has_json = any(not source.lower().endswith(".csv") for source in sources)
    for run in runs:
        if run.format == "aiperf" and has_json and _is_csv(run):
            dropped.append((run.source, "the JSON beside it holds the same run, unrounded"))
            continue
        if run.format == SWEEP:
            number = run.metadata.get("run_number")
            if number == "-1":
                dropped.append((run.source, "the warm-up run of a sweep"))
                continue
            key = (number, run.date, run.duration_s, run.output_tokens)
            if key in seen and seen[key] != run.source:
                dropped.append((run.source, f"the same run as in {Path(seen[key]).name}"))
                continue
            seen[key] = run.source
        kept.append(run)
    return kept


def _stages_only(runs: list[BenchRun], dropped: list[tuple[str, str]]) -> list[BenchRun]:
    """Drop inference-perf's summary over all stages where the stages themselves are there."""
    reports = [run for run in runs if run.format == "inference-perf"]
    stages = [run for run in reports if run.load.request_rate is not None]
    if not stages or len(stages) == len(reports):
        return runs
    for run in reports:
        if run not in stages:
            dropped.append((run.source, "the sum over the stages, which were read"))
    return [run for run in runs if run not in reports or run in stages]


def _same_run(base: BenchRun, detail: BenchRun) -> bool:
    return base.completed is None or base.completed == detail.completed


def with_details(base: BenchRun, detail: BenchRun) -> BenchRun:
    """A run completed by its per-request records, which also replace ratios of means."""
    kept = [text for text in base.warnings if "ratio of" not in text] + unread_notes(detail)
    acceptance = base.acceptance or detail.acceptance
    if acceptance is not None and not acceptance.per_position and detail.acceptance is not None:
        acceptance = detail.acceptance
    args = base.server_args
    if args.num_speculative_tokens is None:
        args = replace(args, num_speculative_tokens=detail.server_args.num_speculative_tokens)
    merged = replace(
        base, ttft_s=detail.ttft_s or base.ttft_s, tpot_s=detail.tpot_s or base.tpot_s,
        itl_s=detail.itl_s or base.itl_s, e2el_s=detail.e2el_s or base.e2el_s,
        acceptance=acceptance, server_args=args,
        tokens_per_step=detail.tokens_per_step or base.tokens_per_step,
        tokens_per_step_basis=detail.tokens_per_step_basis or base.tokens_per_step_basis,
        draft_share=None, requests=detail.requests,
        warnings=(*kept, f"per-request data from {Path(detail.source).name}"),
    )
    complete = with_derived(merged)
    return replace(complete, warnings=tuple(dict.fromkeys(complete.warnings)))


def _with_server(base: BenchRun, server: BenchRun) -> BenchRun:
    """A client's run with what the server's metrics add: queue, batch, per-position rates."""
    acceptance, args = base.acceptance, base.server_args
    if server.acceptance is not None and (acceptance is None or not acceptance.per_position):
        acceptance = server.acceptance
    if args.num_speculative_tokens is None:
        args = server.server_args
    return replace(
        base, engine=server.engine, acceptance=acceptance, server_args=args, server=server.server,
        draft_share=server.draft_share if base.draft_share is None else base.draft_share,
        warnings=(*base.warnings, *unread_notes(server),
                  f"server side from {Path(server.source).name}"),
    )
