"""`vllm bench serve` (and its ancestor benchmark_serving.py): JSON, or JSON Lines with
--append-result; per-request lists with --save-detailed. Schema of vllm 0.33.0.

Its definitions are those of `record`: TPOT = (latency - ttft) / (output tokens - 1) with the
server's token count; ITL = gap between chunks, so under speculation one entry per verify step.
`chunk_tokens` (tokens of every chunk, request by request) is written by specsim only.
Traps: spec_decode_acceptance_rate is a percentage; max_output_tokens_per_s counts chunks, not
tokens, and is not read; a failed request keeps its place in every list, with zeros; the file
says nothing about k or the parallelism unless the user added --metadata.
"""

import re
from dataclasses import replace

from specsim.errors import FormatError
from specsim.formats.bench.document import Document
from specsim.formats.bench.fields import Fields
from specsim.formats.bench.record import Acceptance, BenchRun, Load, RequestRow, Stat
from specsim.formats.bench.server_args import args_from_metadata, metadata_of
from specsim.formats.bench.stats import (
    disagreement,
    per_request,
    stat_of,
    total,
    with_step_yield,
)

NAME = "vllm bench serve"
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d{1,4})?|100)_([a-z0-9_]+)_ms")
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}
# Everything the tool itself writes; the rest came from --metadata or from a sweep's parameters.
_OWN = re.compile(
    r"date|endpoint_type|backend|label|model_id|tokenizer_id|num_prompts|request_rate|burstiness"
    r"|max_concurrency|ramp_up_\w+|rps_change_events|duration|completed|failed|total_\w+"
    r"|request_\w+|output_throughput|max_output_tokens_per_s|max_concurrent_requests|rtfx"
    r"|spec_decode_\w+|(?:mean|median|std|p[\d.]+)_\w+_ms|input_lens|output_lens|ttfts|itls"
    r"|latencies|start_times|queue_times|generated_texts|errors|server_\w+|best_of|use_beam_search"
    r"|input_throughput|run_number|steady_state\w*"
)


def matches(document: Document) -> bool:
    first = document.records[0] if document.records else None
    return (
        isinstance(first, dict)
        and "completed" in first
        and "mean_e2e_latency_ms" not in first
        and "server_info" not in first
        and ("total_output_tokens" in first or "total_output" in first)
        and any(name in first for name in ("mean_tpot_ms", "mean_ttft_ms", "output_throughput"))
    )


def read(document: Document) -> list[BenchRun]:
    return [_run(item, document.origin) for item in document.objects()]


def _run(item: Fields, origin: str) -> BenchRun:
    duration = item.number("duration")
    rows = _rows(item)
    sums = total(rows, item.where, duration) if rows else None
    completed = item.count("completed")
    warnings: list[str] = []
    stats = {name: _stat(item, name) for name in ("ttft", "tpot", "itl", "e2el")}
    if completed == 0:
        warnings.append("no request completed: the file's times are zeros and were left out")
        stats = dict.fromkeys(stats)
    elif stats["itl"] is not None and not stats["itl"].mean:
        # one chunk per answer, as without streaming: there are no gaps to speak of
        stats["itl"] = None
        if stats["ttft"] is not None and not stats["ttft"].mean:
            stats["ttft"] = stats["tpot"] = None
            warnings.append("the answers were not streamed: no TTFT, TPOT or ITL")
    if sums is not None:
        for name, stat in (
            ("ttft", sums.ttft_s),
            ("tpot", sums.tpot_s),
            ("itl", sums.itl_s),
            ("e2el", sums.e2el_s),
        ):
            warnings += disagreement(name.upper(), stats[name], stat)
            if stat is not None and (stats[name] is not None or name == "e2el"):
                stats[name] = stat
    elif stats["e2el"] is None and completed:
        stats["e2el"] = _latencies(item)
    output_tokens = item.count("total_output_tokens")
    acceptance = _acceptance(item)
    extra = metadata_of(item.data, _OWN)
    args = args_from_metadata(item.data)
    if acceptance is not None and args.num_speculative_tokens is None and acceptance.per_position:
        args = replace(args, num_speculative_tokens=len(acceptance.per_position))
    throughput = item.number("output_throughput")
    peak = item.number("max_output_tokens_per_s")
    if throughput and peak and peak < throughput:
        warnings.append(
            f"max_output_tokens_per_s ({peak:.4g}) is below the mean of {throughput:.4g} because "
            "it counts chunks, not tokens; it was not used"
        )
    e2el = stats["e2el"]
    busy = sums.concurrency_mean if sums is not None else None
    if busy is None and e2el is not None and e2el.mean and completed and duration:
        busy = e2el.mean * completed / duration
    sweep = item.number("run_number", minimum=-1)
    backend = item.text("backend")
    run = BenchRun(
        source=origin,
        format=NAME if sweep is None else "vllm bench sweep",
        engine="vllm" if acceptance is not None else _ENGINES.get(backend or ""),
        model=item.text("model_id"),
        label=item.text("label"),
        date=item.text("date"),
        load=Load(
            request_rate=item.number("request_rate", infinite=True),
            max_concurrency=item.count("max_concurrency"),
            burstiness=item.number("burstiness", infinite=True),
            num_prompts=item.count("num_prompts"),
            pattern=item.text("ramp_up_strategy"),
        ),
        completed=completed,
        failed=item.count("failed") if item.has("failed") else (sums.failed if sums else None),
        duration_s=duration,
        input_tokens=item.count("total_input_tokens"),
        output_tokens=output_tokens,
        input_tokens_mean=per_request(item.count("total_input_tokens"), completed),
        output_tokens_mean=per_request(output_tokens, completed),
        output_tok_s=throughput,
        request_rate_achieved=item.number("request_throughput"),
        concurrency_mean=busy,
        ttft_s=stats["ttft"],
        tpot_s=stats["tpot"],
        itl_s=stats["itl"],
        e2el_s=e2el,
        acceptance=acceptance,
        tokens_per_step=sums.tokens_per_step if sums is not None else None,
        tokens_per_step_basis="chunks" if sums is not None else None,
        server_args=args,
        requests=rows,
        metadata=extra if sweep is None else {**extra, "run_number": f"{sweep:g}"},
        warnings=tuple(warnings),
    )
    if run.load.pattern is not None:
        run = replace(
            run,
            warnings=(
                *run.warnings,
                "the request rate ramps up during the run: it has no single load level",
            ),
        )
    return with_step_yield(run)


def _stat(item: Fields, name: str) -> Stat | None:
    mean = item.number(f"mean_{name}_ms", 1e-3)
    if mean is None:
        return None
    found = {}
    for key in item.data:
        match = _PERCENTILE.fullmatch(key)
        if match and match[2] == name:
            value = item.number(key, 1e-3)
            if value is not None:
                found[f"p{match[1]}"] = value
    return Stat(
        mean=mean,
        median=item.number(f"median_{name}_ms", 1e-3),
        std=item.number(f"std_{name}_ms", 1e-3),
        percentiles=found,
    )


def _latencies(item: Fields) -> Stat | None:
    """E2EL from `latencies`, which newer versions keep without details; failures are zeros."""
    return stat_of(value for value in item.numbers("latencies") or () if value > 0)


def _acceptance(item: Fields) -> Acceptance | None:
    length = item.number("spec_decode_acceptance_length")
    drafts = item.count("spec_decode_num_drafts")
    if length is None and not drafts:
        return None
    if length is not None and length < 1:
        raise item.error("spec_decode_acceptance_length", length, "a length of at least 1")
    rates = item.numbers("spec_decode_per_position_acceptance_rates") or ()
    for position, rate in enumerate(rates):
        if rate > 1 + 1e-9:
            raise item.error(
                f"spec_decode_per_position_acceptance_rates[{position}]", rate, "a fraction"
            )
    return Acceptance(
        acceptance_length=length,
        acceptance_rate=item.share("spec_decode_acceptance_rate", 0.01),
        per_position=rates,
        num_drafts=drafts,
        draft_tokens=item.count("spec_decode_draft_tokens"),
        accepted_tokens=item.count("spec_decode_accepted_tokens"),
    )


def _rows(item: Fields) -> tuple[RequestRow, ...]:
    """The lists of --save-detailed as rows; none when they are not there."""
    outputs, ttfts = item.counts("output_lens"), item.numbers("ttfts")
    if outputs is None or ttfts is None:
        return ()
    gaps = [
        item.number_list(f"itls[{position}]", values)
        for position, values in enumerate(item.items("itls") or ())
    ]
    chunks = [
        _chunk_tokens(item, position, values)
        for position, values in enumerate(item.items("chunk_tokens") or ())
    ]
    inputs = item.counts("input_lens")
    latencies, starts = item.numbers("latencies"), item.numbers("start_times")
    errors = item.items("errors")
    for name, values in (
        ("ttfts", ttfts),
        ("itls", gaps or None),
        ("chunk_tokens", chunks or None),
        ("input_lens", inputs),
        ("latencies", latencies),
        ("start_times", starts),
        ("errors", errors),
    ):
        if values is not None and len(values) != len(outputs):
            raise FormatError(
                f"{item.where}{name} has {len(values)} entries and output_lens {len(outputs)}; "
                "the lists of one run are equally long"
            )
    origin = min(starts) if starts else 0.0
    rows = []
    for i, tokens in enumerate(outputs):
        good = not errors[i] if errors is not None else tokens > 0
        itls = gaps[i] if gaps else ()
        # Older files have no latencies; their sum of gaps is the same by construction.
        e2el = latencies[i] if latencies is not None else (ttfts[i] + sum(itls) if gaps else None)
        rows.append(
            RequestRow(
                arrival_s=starts[i] - origin if starts else None,
                input_tokens=inputs[i] if inputs is not None else None,
                output_tokens=tokens,
                ttft_s=ttfts[i] if good else None,
                e2el_s=e2el if good else None,
                itls_s=itls if good else (),
                success=good,
                chunk_tokens=chunks[i] if chunks and good else (),
            )
        )
    return tuple(rows)


def _chunk_tokens(item: Fields, position: int, values: object) -> tuple[int, ...]:
    name = f"chunk_tokens[{position}]"
    found = item.number_list(name, values)
    if any(value < 0 or value != int(value) for value in found):
        raise item.error(name, values, "a list of whole numbers")
    return tuple(int(value) for value in found)
