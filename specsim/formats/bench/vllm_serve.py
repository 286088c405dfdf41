"""`vllm bench serve` (and its ancestor benchmark_serving.py): JSON, or JSON Lines with
--append-result; per-request lists with --save-detailed. Schema of vllm 0.33.0.

Its definitions are those of `record`: TPOT = (latency - ttft) / (output tokens - 1) with the
server's token count; ITL = gap between chunks, so under speculation one entry per verify step.
`chunk_tokens` (tokens of every chunk, request by request) is written by specsim only.
Traps: spec_decode_acceptance_rate is a percentage; max_output_tokens_per_s counts chunks, not
tokens, and is not read; a failed request keeps its place in every list, with zeros; the file
says nothing about k or the parallelism unless the user added --metadata.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from specsim.checked import Rule
from specsim.errors import FormatError
from specsim.formats.bench.details import Details
from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.fields import (
    Count,
    Number,
    Percent,
    Rate,
    Signed,
    Text,
    key,
    named_stat,
    read_as,
    stat_names,
    stated,
)
from specsim.formats.bench.record import BenchAcceptance, BenchLoad, BenchRun, Stat
from specsim.formats.bench.server_args import ARGUMENT, args_from_metadata, metadata_of
from specsim.formats.bench.stats import disagreement, in_flight, stat_of, total, with_derived
from specsim.formats.bench.unread import knows
from specsim.formats.drafted import drafted_positions, undrafted_note

NAME, SWEEP = "vllm bench serve", "vllm bench sweep"
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}
_TIMES = ("ttft", "tpot", "itl", "e2el")
_Fraction = Annotated[float, Field(ge=0, le=1 + 1e-9), Rule("a fraction")]


class VllmResult(Details):
    """One result."""

    by_name: ClassVar = (stat_names(*_TIMES), ARGUMENT.pattern)

    model: Text = key("model_id")
    label: Text = None
    date: Text = None
    failed_requests: Count = key("failed")
    max_output_tokens_per_s: Number = None
    request_rate: Rate = None
    burstiness: Rate = None
    num_prompts: Count = None
    ramp_up_strategy: Text = None
    run_number: Signed = None
    acceptance_length: Annotated[
        float | None, Field(ge=1, le=1e15), Rule("a length of at least 1")
    ] = key("spec_decode_acceptance_length")
    acceptance_rate: Percent = key("spec_decode_acceptance_rate")
    per_position: Annotated[tuple[_Fraction, ...], Field(strict=False), Rule("a list")] = Field(
        (), validation_alias="spec_decode_per_position_acceptance_rates"
    )
    num_drafts: Count = key("spec_decode_num_drafts")
    draft_tokens: Count = key("spec_decode_draft_tokens")
    accepted_tokens: Count = key("spec_decode_accepted_tokens")

    def acceptance(self) -> BenchAcceptance | None:
        if self.acceptance_length is None and not self.num_drafts:
            return None
        drafted = drafted_positions(self.per_position, self.num_drafts, self.draft_tokens)
        return BenchAcceptance(
            self.acceptance_length, self.acceptance_rate, drafted, self.num_drafts,
            self.draft_tokens, self.accepted_tokens,
            undrafted_positions=len(self.per_position) - len(drafted),
        )


def matches(document: ResultFile) -> bool:
    first = document.first
    return (
        "completed" in first
        and "mean_e2e_latency_ms" not in first
        and "server_info" not in first
        and ("total_output_tokens" in first or "total_output" in first)
        and any(name in first for name in ("mean_tpot_ms", "mean_ttft_ms", "output_throughput"))
    )


def read(document: ResultFile) -> list[BenchRun]:
    return [_run(raw, where, document.origin) for where, raw in document.objects()]


def _run(raw: Mapping[str, object], where: str, origin: str) -> BenchRun:
    item = read_as(VllmResult, raw, where)
    rows = item.rows()
    sums = total(rows, where, item.duration_s) if rows else None
    warnings: list[str] = []
    stats = {name: named_stat(raw, name, where) for name in _TIMES}
    known = [stat.typical for stat in stats.values() if stat is not None and stat.typical]
    if item.duration_s and any(value > item.duration_s * 1.5 for value in known):
        raise FormatError(
            f"{where}its times are longer than the run of {item.duration_s:.4g} s; names without a "
            "unit are read as seconds, those that end in _ms as milliseconds"
        )
    if item.completed == 0:
        warnings.append("no request completed: the file's times are zeros and were left out")
        stats = dict.fromkeys(stats)
    elif stats["itl"] is not None and not stats["itl"].typical:
        # one chunk per answer, as without streaming: there are no gaps to speak of
        stats["itl"] = None
        if stats["ttft"] is not None and not stats["ttft"].typical:
            stats["ttft"] = stats["tpot"] = None
            warnings.append("the answers were not streamed: no TTFT, TPOT or ITL")
    if sums is not None:
        for name in _TIMES:
            stat: Stat | None = getattr(sums, f"{name}_s")
            warnings += disagreement(name.upper(), stats[name], stat)
            if stat is not None and (stats[name] is not None or name == "e2el"):
                stats[name] = stat
    elif stats["e2el"] is None and item.completed:
        stats["e2el"] = _latencies(item)
    acceptance = item.acceptance()
    args = args_from_metadata(raw)
    if acceptance is not None and acceptance.per_position:
        drafted = len(acceptance.per_position)
        if args.num_speculative_tokens is None or acceptance.undrafted_positions:
            args = replace(args, num_speculative_tokens=drafted)
        warnings += undrafted_note(drafted + acceptance.undrafted_positions, drafted)
    throughput, peak = item.output_tok_s, item.max_output_tokens_per_s
    if throughput and peak and peak < throughput:
        warnings.append(
            f"max_output_tokens_per_s ({peak:.4g}) is below the mean of {throughput:.4g} because "
            "it counts chunks, not tokens; it was not used"
        )
    busy = sums.concurrency_mean if sums is not None else None
    if busy is None:
        busy = in_flight(stats["e2el"], item.completed, item.duration_s)
    extra, sweep = metadata_of(raw, _is_own), item.run_number
    failed = item.failed_requests
    if item.ramp_up_strategy is not None:
        warnings.append("the request rate ramps up during the run: it has no single load level")
    times: dict[str, Any] = {f"{name}_s": stat for name, stat in stats.items()}
    run = BenchRun(
        source=origin, format=NAME if sweep is None else SWEEP, **stated(item),
        engine="vllm" if acceptance is not None else _ENGINES.get(item.backend or ""),
        load=BenchLoad(
            item.request_rate, item.max_concurrency, item.burstiness, item.num_prompts,
            item.ramp_up_strategy,
        ),
        failed=sums.failed if failed is None and sums is not None else failed,
        concurrency_mean=busy, **times, acceptance=acceptance,
        **(sums.per_step() if sums is not None else {}), server_args=args, requests=rows,
        metadata=extra if sweep is None else {**extra, "run_number": f"{sweep:g}"},
        warnings=tuple(warnings),
    )
    return with_derived(run)


def _is_own(name: str) -> bool:
    """Whether the tool itself writes it; the rest is --metadata or a sweep's parameter."""
    return knows(VllmResult, name) and not ARGUMENT.fullmatch(name)


def _latencies(item: VllmResult) -> Stat | None:
    """E2EL from `latencies`, which newer versions keep without details; failures are zeros."""
    return stat_of(value for value in item.latencies or () if value > 0)
