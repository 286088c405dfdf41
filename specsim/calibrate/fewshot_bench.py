"""From benchmark results of one server to the points of a few-shot calibration.

Any format of `specsim.formats.bench`; docs/fewshot.md says what is looked for in a file (side,
acceptance, cached prompts) and how FILE@NAME=VALUE states what it leaves out. The load is the
closed loop's clients; in an open loop, or where a run was too short to keep them busy, the measured
mean of requests in flight, else tokens/s x TPOT. Files that hold an acceptance and no times (logs,
/metrics) serve the speculative points that lack one. Seconds. FormatError and CalibrationError name
the file.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.calibrate.fewshot import FewShotPoint
from specsim.errors import CalibrationError, UsageError
from specsim.formats.bench import BenchAcceptance, BenchRun, ServerSide
from specsim.methods.base import find_method
from specsim.methods.registry import is_plain
from specsim.speculation.acceptance import Acceptance

PLAIN, SPEC = "plain", "speculative"
ONE_TOKEN = 1.03  # tokens per chunk up to which a stream is plain: clients merge a few chunks
UNDRAFTED = 0.995  # share of steps with a draft above which all are taken to have one
BUSY = 0.9  # share of the clients that must be in flight for their number to be the load


STATEMENTS = {"acceptance_length": 1.0, "draft_share": 0.0, "cached_share": 0.0}  # each above, ...
MOST = {"acceptance_length": 1000.0, "draft_share": 1.0, "cached_share": 0.999}  # ... and up to


def said_of(path: Path) -> tuple[Path, dict[str, float]]:
    """FILE and what is stated behind an @. UsageError for what is no statement."""
    text, mark, words = str(path).rpartition("@")
    if not mark or "=" not in words or path.exists():
        return path, {}
    found = {}
    for word in words.split(","):
        name, _, value = (part.strip() for part in word.partition("="))
        key = name.replace("-", "_")
        if key not in STATEMENTS:
            raise UsageError(
                f"{name!r} cannot be stated of {text}; write FILE@NAME=VALUE with "
                f"{', '.join(STATEMENTS)}"
            )
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not STATEMENTS[key] <= number <= MOST[key]:
            raise UsageError(
                f"{key} of {text} is {value!r}; it must be a number from {STATEMENTS[key]:g} to "
                f"{MOST[key]:g}"
            )
        found[key] = number
    return Path(text), found


def with_statements(run: BenchRun, said: Mapping[str, float]) -> BenchRun:
    """The run with what was stated of it, which stands above what its file holds."""
    if "acceptance_length" in said:
        run = replace(run, acceptance=BenchAcceptance(acceptance_length=said["acceptance_length"]))
    if "draft_share" in said:
        run = replace(run, draft_share=said["draft_share"])
    if "cached_share" in said:
        server = run.server or ServerSide()
        run = replace(run, server=replace(server, prefix_cache_hit_rate=said["cached_share"]))
    return run


def side_of(run: BenchRun, said: str = "") -> str:
    """'plain' or 'speculative'; CalibrationError when neither the file nor the user tells."""
    evidence = _evidence(run)
    if said:
        if evidence and evidence[0] != said:
            raise CalibrationError(
                f"{run.source} was given as {said}, but {evidence[1]}; give it as the other side"
            )
        return said
    if evidence:
        return evidence[0]
    raise CalibrationError(
        f"{run.source} does not tell whether speculation was on (no acceptance, no server "
        "arguments, no chunks); give it with --plain or --spec instead of --from (with "
        "--from-measured: --method none, or FILE@acceptance_length=2.4)"
    )


def _evidence(run: BenchRun) -> tuple[str, str] | None:
    seen, args = run.acceptance, run.server_args
    if seen is not None and (seen.num_drafts or (seen.acceptance_length or 1.0) > 1.0):
        return SPEC, "it holds an acceptance of drafts"
    if args.num_speculative_tokens or args.draft_model:
        return SPEC, f"its server drafted {args.num_speculative_tokens or 'some'} tokens"
    method = (args.method or "").lower()
    if method:
        if is_plain(method):
            return PLAIN, "its server had no speculative method"
        return SPEC, f"its server drafted with {args.method}"
    if run.tokens_per_step is not None:
        one = run.tokens_per_step <= ONE_TOKEN
        return (PLAIN if one else SPEC), f"its steps gave {run.tokens_per_step:.3g} tokens each"
    if run.format.startswith("sglang") and run.server_args.other:
        return PLAIN, "its server arguments name no speculative algorithm"
    return None


def timed(run: BenchRun) -> bool:
    """Whether a run has a time or a throughput to fit, and a load."""
    has_time = any((run.tpot_s, run.output_tok_s))
    return has_time and _in_flight(run) is not None


def point_of(run: BenchRun, system: System) -> FewShotPoint:
    """The run as a point of `system` (already with its acceptance, or plain)."""
    load = _in_flight(run)
    if load is None:
        raise CalibrationError(
            f"{run.source} does not tell how many requests were in flight (no max_concurrency, and "
            "no throughput beside the time per token)"
        )
    concurrency, note = load
    measured: dict[str, float] = {}
    tpot = run.tpot_s.typical if run.tpot_s else None
    if tpot:
        measured["tpot_s"] = tpot
    elif run.output_tok_s:
        measured["output_tok_s"] = run.output_tok_s
    ttft = run.ttft_s.median if run.ttft_s is not None else None
    ttft = ttft or (run.ttft_s.mean if run.ttft_s else None)
    if ttft and concurrency >= 1:
        measured["ttft_s"] = ttft
    if not measured:
        raise CalibrationError(f"{run.source} holds no time per token and no throughput")
    return FewShotPoint(
        _label(run, concurrency), system, workload_of(run), max(1.0, concurrency), measured,
        note=note,
    )


def workload_of(run: BenchRun) -> Workload:
    """Mean lengths of the run's requests; CalibrationError where the file does not have them."""
    prompt, output = run.input_tokens_mean, run.output_tokens_mean
    if prompt is None and run.input_tokens and run.completed:
        prompt = run.input_tokens / run.completed
    if output is None and run.output_tokens and run.completed:
        output = run.output_tokens / run.completed
    if not prompt or not output:
        raise CalibrationError(
            f"{run.source} does not hold the mean prompt and output length of its requests; use a "
            "result that counts tokens"
        )
    cached = run.server.prefix_cache_hit_rate if run.server is not None else None
    return Workload(
        max(1, round(prompt)), max(2, round(output)), min(cached or 0.0, MOST["cached_share"]),
        name="bench",
    )


def measured_acceptance(run: BenchRun, k: int, method: str) -> Acceptance | None:
    """What a run says of its speculation with k drafts a step, None where it says nothing. Lookups
    (n-gram, suffix) find nothing in some steps: theirs is that of the steps with a draft, with the
    share of those."""
    seen, tokens, source = run.acceptance, run.tokens_per_step, f"measured: {run.source}"[:200]
    length = seen.acceptance_length if seen is not None else None
    found = Acceptance.counted(seen.per_position[:k] if seen is not None else (), length, k, source)
    if found is None:  # chunks per token: what a step yields, all steps counted
        return Acceptance.counted((), tokens, k, source) if tokens and tokens > 1 else None
    share = run.draft_share if find_method(method).lookup else None
    if share is None and find_method(method).lookup and tokens and length and length > 1:
        share = min(1.0, max(0.01, (tokens - 1) / (length - 1)))
    if share is not None and share < UNDRAFTED:
        found = replace(found, draft_probability=share)
    return found.at(k)


def with_acceptance(system: System, found: Acceptance) -> System:
    """The speculative system with the acceptance that was seen."""
    setup = system.setup
    if setup.drafting.lookup:
        setup = replace(setup, draft_share=found.draft_probability)
    return system.with_(setup=setup, acceptance=found)


def drafts_of(runs: Sequence[BenchRun]) -> int | None:
    """num_speculative_tokens as the files state or show it; None where they do not.

    CalibrationError where they contradict each other."""
    found: dict[int, str] = {}
    for run in runs:
        seen = run.acceptance
        k = run.server_args.num_speculative_tokens
        if k is None and seen is not None and seen.per_position:
            k = len(seen.per_position)
        if k is None and seen is not None and seen.num_drafts and seen.draft_tokens:
            ratio = seen.draft_tokens / seen.num_drafts
            k = round(ratio) if abs(ratio - round(ratio)) < 1e-6 else None
        if k:
            found.setdefault(k, run.source)
    if len(found) > 1:
        shown = ", ".join(f"{k} in {source}" for k, source in sorted(found.items()))
        raise CalibrationError(
            f"the files were measured with several draft lengths ({shown}); calibrate each on its "
            "own, or leave one out"
        )
    return next(iter(found), None)


def _in_flight(run: BenchRun) -> tuple[float, str] | None:
    """(requests in flight, how it is known)."""
    clients, mean = run.load.max_concurrency, run.concurrency_mean
    if run.load.kind == "closed" and clients:
        if mean is None or mean >= BUSY * clients:
            return float(clients), ""
        return mean, f"{mean:.3g} of {clients} clients in flight on average"
    if mean:
        return mean, "mean requests in flight"
    tpot = run.tpot_s.typical if run.tpot_s else None
    if tpot and run.output_tok_s:
        return run.output_tok_s * tpot, "tokens/s x time per token"
    return None


def _label(run: BenchRun, concurrency: float) -> str:
    return f"{run.label or run.source.rsplit('/', 1)[-1]} c={concurrency:.3g}"


def sides(
    given: Mapping[str, Sequence[BenchRun]],
) -> tuple[list[BenchRun], list[BenchRun], list[BenchRun]]:
    """(plain, speculative, acceptance only) of runs given under '', 'plain', 'speculative'."""
    plain, spec, only = [], [], []
    for said, runs in given.items():
        for run in runs:
            if not timed(run) and run.acceptance is not None and said != PLAIN:
                only.append(run)
            elif side_of(run, said) == PLAIN:
                plain.append(run)
            else:
                spec.append(run)
    return plain, spec, only
