"""/metrics of vLLM, SGLang, TensorRT-LLM and llama.cpp as a run in the normal form.

A single dump covers everything since the server started, warm-up included; two dumps give what
happened between them. The same words hide different things:
  * vLLM's inter_token_latency_seconds is one observation per step of a request (a chunk gap),
    request_time_per_output_token_seconds is TPOT;
  * SGLang's inter_token_latency_seconds divides each gap by its tokens and counts every token;
  * vLLM counts a draft only where there was one, so AL = 1 + accepted / drafts is not what an
    average step yields; SGLang verifies in every step and counts the calls of finished requests.
Gauges of acceptance (SGLang, TensorRT-LLM) are of the last logging interval only; percentiles are
estimates from buckets. What else is called how stands in `catalog/metrics.toml`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from specsim.data import data_table
from specsim.errors import FormatError
from specsim.formats.bench.document import ResultFile, read_text
from specsim.formats.bench.record import BenchAcceptance, BenchRun, ServerArgs, ServerSide, Stat
from specsim.formats.bench.stats import acceptance_from_counts, per_request
from specsim.formats.drafted import undrafted_note
from specsim.formats.metrics_text import Histogram, Snapshot, difference, parse_metrics

NAME = "metrics"
_PREFIXES = {
    "vllm": "vllm:", "sglang": "sglang:", "trtllm": "trtllm_", "llama.cpp": "llamacpp:",
}
_START = re.compile(
    rf"^\s*(?:# (?:HELP|TYPE) \S|(?:{'|'.join(_PREFIXES.values())})\w+(?:\{{| ))", re.M
)
_SHOWN = (50, 90, 95, 99)


def matches(document: ResultFile) -> bool:
    return not document.is_json and _START.search(document.text[:20000]) is not None


def read(document: ResultFile) -> list[BenchRun]:
    return [run_of(parse_metrics(document.text, document.origin))]


def read_pair(before: Path, after: Path) -> BenchRun:
    """The run between two dumps of one server's /metrics."""
    snapshots = [parse_metrics(read_text(path), str(path)) for path in (before, after)]
    return run_of(difference(*snapshots))


def run_of(snapshot: Snapshot) -> BenchRun:
    """A snapshot in the normal form; FormatError when it is of no engine known here."""
    names = snapshot.names()
    engine = next(
        (e for e, prefix in _PREFIXES.items() if any(n.startswith(prefix) for n in names)), None
    )
    if engine is None:
        shown = ", ".join(names[:4]) or "nothing"
        raise FormatError(
            f"{snapshot.origin}: metrics of none of vLLM, SGLang and TensorRT-LLM, nor of "
            f"llama.cpp (found {shown}); SGLang needs --enable-metrics, llama.cpp --metrics"
        )
    run = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm,
           "llama.cpp": _llama_cpp}[engine](snapshot)
    models = snapshot.label("model_name")
    warnings = list(run.warnings)
    if not snapshot.delta:
        warnings.insert(
            0,
            "a single dump: everything since the server started, warm-up included; "
            "give --before for one run",
        )
    if len(models) > 1:
        shown = ", ".join(models)[:200]
        warnings.append(f"{len(models)} models in one dump were added up: {shown}")
    output, length = run.output_tokens, snapshot.duration_s
    return replace(
        run, source=snapshot.origin, format=f"{NAME} ({engine})", engine=engine,
        model=models[0] if models else None, duration_s=length,
        output_tok_s=output / length if output is not None and length else None,
        request_rate_achieved=run.completed / length if run.completed and length else None,
        input_tokens_mean=per_request(run.input_tokens, run.completed),
        output_tokens_mean=per_request(run.output_tokens, run.completed), warnings=tuple(warnings),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None or not 0 <= value < 1e15 else round(value)


def _stat(histogram: Histogram | None) -> Stat | None:
    if histogram is None or histogram.mean is None:
        return None
    found = {
        f"p{percent}": value
        for percent in _SHOWN
        if (value := histogram.quantile(percent)) is not None
    }
    return Stat(histogram.mean, found.get("p50"), None, found, _whole(histogram.count), "buckets")


def _figures(s: Snapshot, kinds: Mapping[str, Mapping[str, list[str]]]) -> dict[str, Any]:
    """The figures of a run, or of its server's side, by the names of the engine's metrics."""
    read: dict[str, Callable[[list[str]], object]] = {
        "counters": lambda names: _whole(s.counter(*names)),
        "histograms": lambda names: _stat(s.histogram(*names)),
        "sums": lambda names: s.gauge(*names),
        "means": lambda names: s.gauge(*names, mean=True),
    }
    return {
        figure: read[kind](names)
        for kind in read for figure, names in kinds.get(kind, {}).items()
    }


def _engine_run(s: Snapshot, engine: str, side: Mapping[str, object], **more: Any) -> BenchRun:
    """The run with all that has a name in the table. side: what else the server's side has."""
    table = data_table("catalog", "metrics.toml")[engine]
    server = ServerSide(gauges=s.gauges, **{**_figures(s, table["server"]), **side})
    stated = more.pop("basis", "counters")
    basis = stated if more["tokens_per_step"] is not None else None
    return BenchRun(
        source=s.origin, format=NAME, server=server, tokens_per_step_basis=basis,
        **{**_figures(s, table), **more},
    )


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _scope(snapshot: Snapshot) -> str:
    return "run" if snapshot.delta else "since server start"


def _drafted(s: Snapshot, prefix: str) -> tuple[int | None, BenchAcceptance | None, int]:
    """(drafts, acceptance, configured positions) of the counters that vLLM and llama.cpp share."""
    drafts, drafted, accepted = (
        _whole(s.counter(f"{prefix}spec_decode_num_{what}"))
        for what in ("drafts", "draft_tokens", "accepted_tokens")
    )
    positions = s.counter_by(f"{prefix}spec_decode_num_accepted_tokens_per_pos", "position")
    counts = [positions[key] for key in sorted(positions, key=_position) if _position(key) >= 0]
    rates = tuple(min(1.0, count / drafts) for count in counts) if drafts else ()
    found = acceptance_from_counts(drafts, drafted, accepted, rates, _scope(s), s.origin)
    return drafts, found, len(counts)


def _drafted_k(acceptance: BenchAcceptance | None, configured: int) -> int | None:
    return (len(acceptance.per_position) if acceptance is not None else configured) or None


def _notes(acceptance: BenchAcceptance | None, configured: int) -> list[str]:
    if acceptance is None:
        return []
    mean = _ratio(acceptance.draft_tokens, acceptance.num_drafts)
    return undrafted_note(configured, len(acceptance.per_position), mean)


def _llama_cpp(s: Snapshot) -> BenchRun:
    """tools/server/server-task.cpp. Requests are not counted, so first tokens count as rounds.
    Older versions draft without counting it: then nothing is known of rounds."""
    drafts, acceptance, configured = _drafted(s, "llamacpp:")
    output = _whole(s.counter("llamacpp:tokens_predicted"))
    seconds = s.counter("llamacpp:tokens_predicted_seconds")
    accepted = acceptance.accepted_tokens if acceptance is not None else 0
    rounds = max(output - (accepted or 0), drafts) if output and drafts is not None else 0
    value = max(1.0, output / rounds) if output and rounds else None
    return _engine_run(
        s, "llama.cpp", {},
        itl_s=Stat(seconds / rounds, basis="derived") if seconds and rounds else None,
        acceptance=acceptance,
        tokens_per_step=value,
        draft_share=min(1.0, drafts / rounds) if drafts and rounds else None,
        server_args=ServerArgs(num_speculative_tokens=_drafted_k(acceptance, configured)),
        warnings=(
            *_notes(acceptance, configured),
            "llama.cpp counts a request when it ends, and no requests: first tokens count as "
            "rounds",
        ),
    )


def _vllm(s: Snapshot) -> BenchRun:
    drafts, acceptance, configured = _drafted(s, "vllm:")
    finished = s.counter_by("vllm:request_success", "finished_reason")
    lost = sum(finished.pop(reason, 0.0) for reason in ("abort", "error"))
    output = _whole(s.counter("vllm:generation_tokens"))
    gaps = s.histogram("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
    firsts = s.histogram("vllm:time_to_first_token_seconds")
    value = share = None
    if gaps is not None and gaps.count and output is not None and firsts is not None:
        value = (output - firsts.count) / gaps.count
        share = min(1.0, drafts / gaps.count) if drafts else None
    warnings = _notes(acceptance, configured)
    if drafts is None:
        acceptance, configured, warnings = _first_engine(s)
    if share is not None and share < 0.95 and acceptance is not None and value is not None:
        warnings.append(
            f"only {share:.0%} of the decode steps carried a draft: {value:.3g} tokens per step, "
            f"although the acceptance length is {acceptance.acceptance_length:.3g}"
        )
    hits = _ratio(
        s.counter("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
        s.counter("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
    )
    return _engine_run(
        s, "vllm", {"prefix_cache_hit_rate": hits},
        completed=_whole(sum(finished.values())) if finished else None,
        failed=_whole(lost) if finished else None,
        acceptance=acceptance,
        tokens_per_step=value,
        draft_share=share,
        server_args=ServerArgs(
            num_speculative_tokens=_drafted_k(acceptance, configured) or configured or None
        ),
        warnings=tuple(warnings),
    )


def _first_engine(s: Snapshot) -> tuple[BenchAcceptance | None, int, list[str]]:
    """Acceptance, k and notes of vLLM up to 0.7, which does not count drafts. Its efficiency is
    emitted / (drafts (k + 1)), and drafts are drafted / k, so emitted / (efficiency drafted) is
    (k + 1) / k. Its accepted tokens count those behind a rejection too and are not used."""
    emitted, drafted = (
        _whole(s.counter(f"vllm:spec_decode_num_{what}_tokens")) for what in ("emitted", "draft")
    )
    if not emitted or not drafted:
        return None, 0, []
    efficiency = s.gauge("vllm:spec_decode_efficiency", mean=True)
    ratio = emitted / (efficiency * drafted) if efficiency else 0.0
    k = round(1 / (ratio - 1)) if 1 < ratio <= 2.5 else 0
    # A gauge of all time fits counters of all time only; a k that is not whole fits neither.
    if s.delta or not k or abs(1 / (ratio - 1) - k) > 0.1 or drafted % k:
        return None, 0, [
            "speculation of vLLM up to 0.7 is left out: these counters do not tell the number of "
            "drafts; one dump with vllm:spec_decode_efficiency, or the log, does"
        ]
    drafts = drafted // k
    found = acceptance_from_counts(drafts, drafted, emitted - drafts, (), _scope(s), s.origin)
    return found, k, []


def _position(key: str) -> int:
    return int(key) if key.isascii() and key.isdigit() and len(key) < 4 else -1


def _sglang(s: Snapshot) -> BenchRun:
    output, done = s.counter("sglang:generation_tokens"), s.counter("sglang:num_requests")
    calls = s.counter("sglang:spec_verify_calls")
    steps = _whole(s.gauge("sglang:spec_num_steps", mean=True)) or None
    drafts = _whole(s.gauge("sglang:spec_num_draft_tokens", mean=True)) or None
    value = acceptance = None
    if calls and output is not None and done is not None and output > done:
        value = (output - done) / calls
        chain = steps is not None and drafts == steps + 1
        acceptance = BenchAcceptance(
            acceptance_length=max(1.0, value),
            acceptance_rate=min(1.0, max(0.0, value - 1) / steps) if chain and steps else None,
            num_drafts=_whole(calls), scope=_scope(s),
        )
    elif (length := s.gauge("sglang:spec_accept_length", mean=True)) and length >= 1:
        acceptance = BenchAcceptance(
            length, s.gauge("sglang:spec_accept_rate", mean=True), scope="gauge"
        )
    per_token = s.histogram("sglang:inter_token_latency_seconds")
    itl = None
    if value and per_token is not None and per_token.mean:
        itl = Stat(per_token.mean * value, basis="derived")
    return _engine_run(
        s, "sglang", {},
        itl_s=itl,
        acceptance=acceptance,
        tokens_per_step=value,
        server_args=ServerArgs(num_speculative_tokens=steps),
        warnings=(
            "SGLang's inter-token latency is per token; it counts requests and verify calls "
            "when a request finishes",
        ),
    )


def _trtllm(s: Snapshot) -> BenchRun:
    drafted = _whole(s.counter("trtllm_spec_decode_num_draft_tokens"))
    accepted = _whole(s.counter("trtllm_spec_decode_num_accepted_tokens"))
    length = s.gauge("trtllm_spec_decode_acceptance_length", mean=True)
    acceptance = None
    if drafted or length:
        rate = accepted / drafted if drafted and accepted is not None else None
        acceptance = BenchAcceptance(
            acceptance_length=length if length and length >= 1 else None,
            acceptance_rate=min(1.0, rate) if rate is not None else None, draft_tokens=drafted,
            accepted_tokens=accepted, scope="gauge" if length else _scope(s),
        )
    value = s.gauge("trtllm_avg_decoded_tokens_per_iter", mean=True)
    return _engine_run(
        s, "trtllm", {},
        acceptance=acceptance,
        tokens_per_step=value if value and value >= 1 else None,
        basis="gauge",
        warnings=(
            "TensorRT-LLM's acceptance length and tokens per step are gauges of its last "
            "iterations",
        )
        if acceptance is not None
        else (),
    )
