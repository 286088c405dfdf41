"""`specsim.diagnose`: what a benchmark, a pair of /metrics dumps or a live server says about its
speculation, with the evidence and what to do next. Read-only."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specsim.analytic.intervals import interval_of
from specsim.api.functions import named_function
from specsim.api.results import Documented, flat
from specsim.api.served import check_described, predictor_for
from specsim.diagnose.evidence import Evidence, evidence_of
from specsim.diagnose.expected import Predictor
from specsim.diagnose.finding import MEASURED, Case
from specsim.diagnose.judge import diagnose as judge
from specsim.diagnose.rules_speculation import GAIN
from specsim.diagnose.scrape import metrics_url, scrape
from specsim.diagnose.watching import Watcher
from specsim.errors import FormatError, UsageError
from specsim.formats.bench import read_bench, scan
from specsim.jsonable import Key
from specsim.options.declare import repeat
from specsim.options.measured import DiagnoseOptions
from specsim.options.values import FilePath
from specsim.planning.verdict import LoadVerdict, Verdict, judged
from specsim.report.progress import live_bar
from specsim.rows import rows_at


@dataclass(frozen=True, repr=False)
class Diagnoses(Documented):
    """Findings per run as `diagnoses`, as `specsim diagnose --json` prints them."""

    BLOCKS = "diagnosis.diagnosis_section"
    verdict = Key[dict[str, Any] | None]()
    diagnoses = Key[list[dict[str, Any]]]()
    skipped = Key[list[dict[str, str]]]()

    command: str = ""

    def to_rows(self) -> list[dict[str, object]]:
        """One row per run."""
        return [flat(item) for item in rows_at(self.document, "diagnoses")]


def run(options: DiagnoseOptions) -> Diagnoses:
    """Name what speculation does in a run (`words=[FILE]` or `[FILE, MODEL]`, or `before` and
    `after`) or at a live server (`url`), with evidence and next steps."""
    file, model = _arguments(options)
    check_described(model, options)
    if "interval" in options.typed and options.url is None:
        raise UsageError("--interval goes with --url; leave it out")
    skipped: tuple[tuple[str, str], ...] = ()
    if options.url is not None:
        evidence = [live_evidence(options.url, options.interval)]
    elif file is None:
        assert options.after is not None
        evidence = [evidence_of(scan(options.after, options.before).runs[0])]
    else:
        found = scan(file)
        evidence, skipped = [evidence_of(item) for item in found.runs], found.skipped
    plain = _plain(options.plain, evidence)
    warnings: list[str] = []
    diagnoses = []
    for item in evidence:
        notes: list[str] = []
        predictor = predictor_for(model, options, item, notes)
        warnings += [text for text in notes if text not in warnings]
        told = judge(item, predictor, plain)
        verdict = of_diagnosis(told.case, predictor).to_dict()
        diagnoses.append({"verdict": verdict, **told.to_dict()})
    document: dict[str, object] = {
        "kind": "diagnosis",
        "verdict": diagnoses[0]["verdict"] if diagnoses else None,
        "diagnoses": diagnoses,
        "skipped": [{"file": path, "reason": reason} for path, reason in skipped],
        "warnings": warnings,
    }
    return Diagnoses(document, repeat(options))


diagnose = named_function(DiagnoseOptions, run)


def of_diagnosis(case: Case, predictor: Predictor | None) -> Verdict:
    """Of one run that was diagnosed: what speculation gains there, or would."""
    here, expected = case.evidence, case.expected
    about, gain, source, pair = expected, None, "", None
    if case.speedup is not None:
        gain, source = case.speedup
    elif here.speculates is False and case.would is not None:
        about, gain, source = case.would, case.would.speedup, "predicted"
    if gain is not None and source.startswith(MEASURED):
        pair = (gain / (1 + GAIN), gain * (1 + GAIN))
    elif gain is not None and predictor is not None:
        pair = interval_of(predictor.system, "speedup", gain)
    decision, certainty, share = judged(gain, pair)
    method = here.method or (about.method if about else None)
    k = here.drafted_k or (about.k if about else 0)
    rests = "no prediction and no run without speculation to compare with"
    if gain is None:
        method, k = None, 0  # a choice is only named with what it does
        if case.asked_plain:
            rests = "--method none names nothing to compare with; leave it out"
    else:
        rests = "as measured in this run" if here.speculates else about.acceptance_source if about \
            else ""
    load, unit = here.running or 0.0, "running requests"
    if about is not None and about.load > about.batch:
        load, unit = float(about.load), "running and waiting requests"
    return Verdict(
        decision, certainty, share, method, None, k, load, unit, gain, pair,
        pays_below=about.break_even if about else None,
        tokens_per_step=here.yield_per_step if here.speculates else (
            about.tokens_per_step if about else None),
        rests_on=rests, loads=(LoadVerdict(load, decision, method, k, gain, pair),),
    )


def _arguments(options: DiagnoseOptions) -> tuple[str | None, str | None]:
    """(file, model); exactly one source of evidence."""
    words = list(options.words or ())
    pair = options.before is not None or options.after is not None
    if pair and (options.before is None or options.after is None):
        raise UsageError("--before and --after belong together; give both /metrics dumps")
    if pair and options.url is not None:
        raise UsageError("--url and --before/--after are both given; choose one source")
    named = pair or options.url is not None
    if not named and not words:
        raise UsageError(
            "nothing to diagnose; give a result FILE, --before A --after B, or --url http://..."
        )
    if len(words) > (1 if named else 2):
        rule = "only MODEL goes with --url or --before/--after" if named else "FILE and MODEL"
        raise UsageError(
            f"{len(words)} arguments given; {rule}, e.g. specsim diagnose result.json llama-3.1-8b"
        )
    file = None if named else words.pop(0)
    model = words[0] if words else None
    if file is not None and model is not None and Path(model).is_file() and _is_result(model):
        raise UsageError(
            f"{model} is a second result, not a model; give the run without speculation with "
            f"--plain, e.g. specsim diagnose {model} --plain {file}"
        )
    return file, model


def _is_result(path: str) -> bool:
    try:
        return bool(scan(path).runs)
    except FormatError:
        return False


def live_evidence(url: str, interval: float) -> Evidence:
    """Two scrapes of a live server; while it is idle or restarts, what one scrape holds."""
    address = metrics_url(url)
    watcher = Watcher(address)
    watcher.take(scrape(address))
    wait = min(interval, 2.0)
    end = time.monotonic() + interval
    window = None
    words = f"reading {address} for {interval:g} s"
    with live_bar(sys.stderr.isatty(), "spinner", "{task.description}", "time", begin=words):
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(wait, left))  # further scrapes in between average the gauges
            window = watcher.take(scrape(address))
    assert window is not None
    return window.evidence


def _plain(given: FilePath | None, evidence: list[Evidence]) -> Evidence | None:
    """The run without speculation that --plain names."""
    if given is None:
        return None
    path = Path(given)
    runs = read_bench(path)
    if len(runs) != 1 or len(evidence) != 1:
        raise UsageError(
            f"--plain compares one run with one run; {len(evidence)} and {len(runs)} were found; "
            "give single result files of the same load"
        )
    found = evidence_of(runs[0])
    if found.speculates:
        raise UsageError(f"--plain {path} was measured with speculation; give a run without it")
    return found
