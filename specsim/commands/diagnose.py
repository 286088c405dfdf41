"""`specsim diagnose`: what a benchmark, a pair of /metrics dumps or a live server says about its
speculation, with the evidence and what to do next. Read-only."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specsim.commands import options as o

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from specsim.diagnose.evidence import Evidence

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE] [MODEL]",
        help="A benchmark result, /metrics dump, log or folder (as `specsim import` reads); then, "
        "to compare with predictions, the model that was served.",
    ),
]
Before = Annotated[Path | None, typer.Option("--before", help="A /metrics dump from before a run.")]
After = Annotated[Path | None, typer.Option("--after", help="One from after it.")]
Plain = Annotated[
    Path | None,
    typer.Option("--plain", help="Result of the same load without speculation: measures the gain."),
]
Url = Annotated[
    str | None, typer.Option("--url", help="A live server: http://HOST:PORT; its /metrics is read.")
]
Interval = Annotated[
    float, typer.Option("--interval", help="Seconds between the two scrapes of --url.")
]
EngineOpt = Annotated[
    str | None, typer.Option("--engine", help="Engine, with version: vllm==0.25. Default: as seen.")
]


def register(app: typer.Typer) -> None:
    app.command(name="diagnose")(diagnose)


def diagnose(
    context: typer.Context,
    words: Words = None,
    before: Before = None,
    after: After = None,
    plain: Plain = None,
    url: Url = None,
    interval: Interval = 10.0,
    gpu: o.Gpu = "h200-sxm",
    tp: o.Tp = 1,
    ep: o.Ep = 1,
    attention_dp: o.Dp = 1,
    weights: o.Weights = None,
    kv: o.Kv = None,
    engine: EngineOpt = None,
    method: o.Method = None,
    draft: o.Draft = None,
    k: o.K = None,
    speculative_config: o.SpecConfig = None,
    tree: o.Tree = None,
    workload: o.WorkloadOpt = None,
    input_len: o.InputLen = None,
    output_len: o.OutputLen = None,
    max_num_seqs: o.MaxSeqs = None,
    max_num_batched_tokens: o.MaxTokens = None,
    gpu_memory_utilization: o.MemShare = None,
    fidelity: o.Fidelity = "calibrated",
    profiles: o.Profiles = None,
    json_out: o.JsonOut = False,
) -> None:
    """Name what speculation is doing in a run or a live server, with evidence and next steps."""
    values = dict(locals())
    given = frozenset(
        name for name in values
        if name != "context" and (source := context.get_parameter_source(name)) is not None
        and source.name in ("COMMANDLINE", "ENVIRONMENT")
    )
    from specsim.report.diagnosis import diagnosis_text
    from specsim.report.tables import printable, to_json

    document = run(values, given)
    text = to_json(document) if json_out else printable(diagnosis_text(document))
    sys.stdout.write(text + "\n")


def run(values: dict[str, Any], given: frozenset[str]) -> dict[str, Any]:
    """The JSON document of the command. SpecSimError for any misuse."""
    from specsim.commands.diagnose_setup import check_options, predictor_for
    from specsim.diagnose.evidence import evidence_of
    from specsim.diagnose.judge import diagnose as judge
    from specsim.errors import UsageError
    from specsim.formats.bench import scan

    file, model = _arguments(values)
    check_options(model, values, given)
    if "interval" in given and values["url"] is None:
        raise UsageError("--interval goes with --url; leave it out")
    interval = values["interval"]
    if not 0.5 <= interval <= 3600:
        raise UsageError(f"--interval is {interval:g}; it must be from 0.5 to 3600 seconds")
    skipped: tuple[tuple[str, str], ...] = ()
    if values["url"] is not None:
        evidence = [_live(values["url"], interval)]
    elif file is None:
        evidence = [evidence_of(scan(values["after"], values["before"]).runs[0])]
    else:
        found = scan(file)
        evidence, skipped = [evidence_of(item) for item in found.runs], found.skipped
    plain = _plain(values["plain"], evidence)
    warnings: list[str] = []
    diagnoses = []
    for item in evidence:
        notes: list[str] = []
        predictor = predictor_for(model, values, item, notes)
        warnings += [text for text in notes if text not in warnings]
        diagnoses.append(judge(item, predictor, plain).to_dict())
    return {
        "kind": "diagnosis",
        "diagnoses": diagnoses,
        "skipped": [{"file": path, "reason": reason} for path, reason in skipped],
        "warnings": warnings,
    }


def _arguments(values: dict[str, Any]) -> tuple[str | None, str | None]:
    """(file, model); exactly one source of evidence."""
    from specsim.errors import UsageError

    words = list(values["words"] or ())
    pair = values["before"] is not None or values["after"] is not None
    if pair and (values["before"] is None or values["after"] is None):
        raise UsageError("--before and --after belong together; give both /metrics dumps")
    if pair and values["url"] is not None:
        raise UsageError("--url and --before/--after are both given; choose one source")
    named = pair or values["url"] is not None
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
    return file, words[0] if words else None


def _live(url: str, interval: float) -> "Evidence":
    """Two scrapes of a live server; while it is idle or restarts, what one scrape holds."""
    import time

    from specsim.diagnose.scrape import metrics_url, scrape
    from specsim.diagnose.watching import Watcher

    address = metrics_url(url)
    watcher = Watcher(address)
    watcher.take(scrape(address))
    wait = min(interval, 2.0)
    end = time.monotonic() + interval
    window = None
    with _waiting(f"reading {address} for {interval:g} s"):
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(wait, left))  # further scrapes in between average the gauges
            window = watcher.take(scrape(address))
    assert window is not None
    return window.evidence


def _waiting(words: str) -> "AbstractContextManager[object]":
    """A sign of life on a terminal; nothing elsewhere."""
    from contextlib import nullcontext

    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(words)


def _plain(path: Path | None, evidence: "list[Evidence]") -> "Evidence | None":
    from specsim.diagnose.evidence import evidence_of
    from specsim.errors import UsageError
    from specsim.formats.bench import read_bench

    if path is None:
        return None
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
