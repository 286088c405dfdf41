"""/metrics of vLLM, SGLang, TensorRT-LLM and llama.cpp as a run in the normal form.

A single dump covers everything since the server started, warm-up included; two dumps give what
happened between them. The same words hide different things:
  * vLLM's inter_token_latency_seconds is one observation per step of a request (a chunk gap),
    request_time_per_output_token_seconds is TPOT;
  * SGLang's inter_token_latency_seconds divides each gap by its tokens and counts every token;
  * vLLM counts a draft only where there was one, so AL = 1 + accepted / drafts is not what an
    average step yields; SGLang verifies in every step and counts the calls of finished requests.
Gauges of acceptance (SGLang, TensorRT-LLM) are of the last logging interval only. Names of
TensorRT-LLM are those of its main branch; percentiles are estimates from buckets.
"""

import re
from dataclasses import replace
from pathlib import Path

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
        run,
        source=snapshot.origin,
        format=f"{NAME} ({engine})",
        engine=engine,
        model=models[0] if models else None,
        duration_s=length,
        output_tok_s=output / length if output is not None and length else None,
        request_rate_achieved=run.completed / length if run.completed and length else None,
        input_tokens_mean=per_request(run.input_tokens, run.completed),
        output_tokens_mean=per_request(run.output_tokens, run.completed),
        warnings=tuple(warnings),
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


def _llama_cpp(snapshot: Snapshot) -> BenchRun:
    """tools/server/server-task.cpp. Requests are not counted, so first tokens count as rounds.
    Older versions draft without counting it: then nothing is known of rounds."""
    s = snapshot
    drafts, acceptance, configured = _drafted(s, "llamacpp:")
    output = _whole(s.counter("llamacpp:tokens_predicted"))
    seconds = s.counter("llamacpp:tokens_predicted_seconds")
    accepted = acceptance.accepted_tokens if acceptance is not None else 0
    rounds = max(output - (accepted or 0), drafts) if output and drafts is not None else 0
    value = max(1.0, output / rounds) if output and rounds else None
    return BenchRun(
        source=s.origin,
        format=NAME,
        input_tokens=_whole(s.counter("llamacpp:prompt_tokens")),
        output_tokens=output,
        itl_s=Stat(seconds / rounds, basis="derived") if seconds and rounds else None,
        acceptance=acceptance,
        tokens_per_step=value,
        tokens_per_step_basis="counters" if value is not None else None,
        draft_share=min(1.0, drafts / rounds) if drafts and rounds else None,
        server_args=ServerArgs(num_speculative_tokens=_drafted_k(acceptance, configured)),
        server=ServerSide(
            running=s.gauge("llamacpp:requests_processing"),
            waiting=s.gauge("llamacpp:requests_deferred"),
            gauges=s.gauges,
        ),
        warnings=(
            *_notes(acceptance, configured),
            "llama.cpp counts a request when it ends, and no requests: first tokens count as "
            "rounds",
        ),
    )


def _vllm(snapshot: Snapshot) -> BenchRun:
    s = snapshot
    drafts, acceptance, configured = _drafted(s, "vllm:")
    finished = s.counter_by("vllm:request_success", "finished_reason")
    lost = sum(finished.pop(reason, 0.0) for reason in ("abort", "error"))
    output = _whole(s.counter("vllm:generation_tokens"))
    # older versions called the per-step gap time_per_output_token_seconds
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
    return BenchRun(
        source=s.origin,
        format=NAME,
        completed=_whole(sum(finished.values())) if finished else None,
        failed=_whole(lost) if finished else None,
        input_tokens=_whole(s.counter("vllm:prompt_tokens")),
        output_tokens=output,
        ttft_s=_stat(firsts),
        tpot_s=_stat(s.histogram("vllm:request_time_per_output_token_seconds")),
        itl_s=_stat(gaps),
        e2el_s=_stat(s.histogram("vllm:e2e_request_latency_seconds")),
        acceptance=acceptance,
        tokens_per_step=value,
        tokens_per_step_basis="counters" if value is not None else None,
        draft_share=share,
        server_args=ServerArgs(
            num_speculative_tokens=_drafted_k(acceptance, configured) or configured or None
        ),
        server=ServerSide(
            running=s.gauge("vllm:num_requests_running"),
            waiting=s.gauge("vllm:num_requests_waiting"),
            kv_cache_usage=s.gauge(
                "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", mean=True
            ),
            gauges=s.gauges,
            preemptions=_whole(s.counter("vllm:num_preemptions")),
            prefix_cache_hit_rate=_ratio(
                s.counter("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
                s.counter("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
            ),
            queue_s=_stat(s.histogram("vllm:request_queue_time_seconds")),
            prefill_s=_stat(s.histogram("vllm:request_prefill_time_seconds")),
            decode_s=_stat(s.histogram("vllm:request_decode_time_seconds")),
            iteration_tokens=_stat(s.histogram("vllm:iteration_tokens_total")),
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


def _sglang(snapshot: Snapshot) -> BenchRun:
    s = snapshot
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
            num_drafts=_whole(calls),
            scope=_scope(s),
        )
    elif (length := s.gauge("sglang:spec_accept_length", mean=True)) and length >= 1:
        acceptance = BenchAcceptance(
            length, s.gauge("sglang:spec_accept_rate", mean=True), scope="gauge"
        )
    per_token = s.histogram("sglang:inter_token_latency_seconds")
    itl = None
    if value and per_token is not None and per_token.mean:
        itl = Stat(per_token.mean * value, basis="derived")
    return BenchRun(
        source=s.origin,
        format=NAME,
        completed=_whole(done),
        failed=_whole(s.counter("sglang:num_aborted_requests")),
        input_tokens=_whole(s.counter("sglang:prompt_tokens")),
        output_tokens=_whole(output),
        ttft_s=_stat(s.histogram("sglang:time_to_first_token_seconds")),
        tpot_s=_stat(s.histogram("sglang:request_time_per_output_token_seconds")),
        itl_s=itl,
        itl_per_token_s=_stat(per_token),
        e2el_s=_stat(s.histogram("sglang:e2e_request_latency_seconds")),
        acceptance=acceptance,
        tokens_per_step=value,
        tokens_per_step_basis="counters" if value is not None else None,
        server_args=ServerArgs(num_speculative_tokens=steps),
        server=ServerSide(
            running=s.gauge("sglang:num_running_reqs"),
            waiting=s.gauge("sglang:num_queue_reqs"),
            kv_cache_usage=s.gauge("sglang:token_usage", mean=True),
            gauges=s.gauges,
            preemptions=_whole(s.counter("sglang:num_retracted_requests")),
            prefix_cache_hit_rate=s.gauge("sglang:cache_hit_rate", mean=True),
            queue_s=_stat(s.histogram("sglang:queue_time_seconds")),
            generation_tok_s=s.gauge("sglang:gen_throughput"),
        ),
        warnings=(
            "SGLang's inter-token latency is per token; it counts requests and verify calls "
            "when a request finishes",
        ),
    )


def _trtllm(snapshot: Snapshot) -> BenchRun:
    s = snapshot
    drafted = _whole(s.counter("trtllm_spec_decode_num_draft_tokens"))
    accepted = _whole(s.counter("trtllm_spec_decode_num_accepted_tokens"))
    length = s.gauge("trtllm_spec_decode_acceptance_length", mean=True)
    acceptance = None
    if drafted or length:
        rate = accepted / drafted if drafted and accepted is not None else None
        acceptance = BenchAcceptance(
            acceptance_length=length if length and length >= 1 else None,
            acceptance_rate=min(1.0, rate) if rate is not None else None,
            draft_tokens=drafted,
            accepted_tokens=accepted,
            scope="gauge" if length else _scope(s),
        )
    value = s.gauge("trtllm_avg_decoded_tokens_per_iter", mean=True)
    return BenchRun(
        source=s.origin,
        format=NAME,
        completed=_whole(s.counter("trtllm_request_success")),
        ttft_s=_stat(s.histogram("trtllm_time_to_first_token_seconds")),
        tpot_s=_stat(s.histogram("trtllm_time_per_output_token_seconds")),
        e2el_s=_stat(s.histogram("trtllm_e2e_request_latency_seconds")),
        acceptance=acceptance,
        tokens_per_step=value if value and value >= 1 else None,
        tokens_per_step_basis="gauge" if value and value >= 1 else None,
        server=ServerSide(
            running=s.gauge("trtllm_num_requests_running"),
            waiting=s.gauge("trtllm_num_requests_waiting"),
            kv_cache_usage=s.gauge("trtllm_kv_cache_utilization", mean=True),
            gauges=s.gauges,
            prefix_cache_hit_rate=s.gauge("trtllm_kv_cache_hit_rate", mean=True),
            queue_s=_stat(s.histogram("trtllm_request_queue_time_seconds")),
        ),
        warnings=(
            "TensorRT-LLM's acceptance length and tokens per step are gauges of its last "
            "iterations",
        )
        if acceptance is not None
        else (),
    )
