"""`python -m sglang.bench_serving` (sglang.benchmark.serving in 0.5.23): JSON Lines, appended.

TPOT is as in `record`, with the server's token counts. What is called ITL depends on the client:
  * backend sglang (native /generate): each gap is divided by its tokens and listed once per
    token, in the summary and in `itls` alike. Runs of equal values are one chunk, so the gaps
    between chunks are recovered from the details.
  * backends sglang-oai and sglang-oai-chat with speculation: the summary is per token (the text
    of each chunk is tokenized again), `itls` in the details are gaps between chunks.
  * other backends: gaps between chunks.
`accept_length` is the server's average over its whole life, not over this run. A rate of
infinity is written as Infinity, which only lenient JSON parsers take. random_range_ratio 1.0
means fixed lengths here (in vLLM 0.0 does).
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby

from specsim.errors import FormatError
from specsim.formats.bench.document import Document
from specsim.formats.bench.fields import Fields, simple_text
from specsim.formats.bench.record import Acceptance, BenchRun, Load, RequestRow, ServerArgs, Stat
from specsim.formats.bench.server_args import args_from_sglang
from specsim.formats.bench.stats import disagreement, per_request, total, with_step_yield

NAME = "sglang bench_serving"
_NATIVE = ("sglang", "sglang-native")
_RETOKENIZED = ("sglang-oai", "sglang-oai-chat")
_ENGINES = {"vllm": "vllm", "vllm-chat": "vllm", "trt": "trtllm"}


def matches(document: Document) -> bool:
    first = document.records[0] if document.records else None
    return (
        isinstance(first, dict)
        and "completed" in first
        and ("mean_e2e_latency_ms" in first or "server_info" in first)
    )


def read(document: Document) -> list[BenchRun]:
    return [_run(item, document.origin) for item in document.objects()]


def _run(item: Fields, origin: str) -> BenchRun:
    backend = item.text("backend") or ""
    duration, completed = item.number("duration"), item.count("completed")
    length = item.number("accept_length")
    info = _server_info(item)
    args = args_from_sglang(info)
    per_token_rows = backend in _NATIVE
    per_token_stat = per_token_rows or (backend in _RETOKENIZED and bool(length))
    warnings = []
    rows = _rows(item, per_token_rows)
    sums = total(rows, item.where, duration) if rows else None
    stats = {
        name: _stat(item, key)
        for name, key in (
            ("ttft", "ttft"),
            ("tpot", "tpot"),
            ("itl", "itl"),
            ("e2el", "e2e_latency"),
        )
    }
    if completed == 0:
        warnings.append("no request completed: the file's times are zeros and were left out")
        stats = dict.fromkeys(stats)
    per_token, per_chunk = (stats["itl"], None) if per_token_stat else (None, stats["itl"])
    if sums is not None:
        warnings += disagreement("TTFT", stats["ttft"], sums.ttft_s)
        warnings += disagreement("TPOT", stats["tpot"], sums.tpot_s)
        for name, stat in (("ttft", sums.ttft_s), ("tpot", sums.tpot_s), ("e2el", sums.e2el_s)):
            stats[name] = stat or stats[name]
        per_chunk = sums.itl_s
    if per_token is not None:
        warnings.append(
            "this tool's ITL is per token for this backend, each gap divided by its tokens; it "
            "is kept as ITL per token"
            + (", and the gaps between chunks come from the details" if sums is not None else "")
        )
    acceptance = None
    if length is not None and length >= 1:
        acceptance = _acceptance(length, args)
        warnings.append(
            f"accept_length {length:.4g} is the server's average since its start, not of this run"
        )
    output_tokens = item.count("total_output_tokens")
    run = BenchRun(
        source=origin,
        format=NAME,
        engine="sglang" if backend.startswith("sglang") else _ENGINES.get(backend),
        engine_version=simple_text(info.get("version")),
        model=simple_text(info.get("model_path")),
        label=item.text("tag"),
        load=_load(item, rows),
        completed=completed,
        failed=sums.failed if sums is not None else None,
        duration_s=duration,
        input_tokens=item.count("total_input_tokens"),
        output_tokens=output_tokens,
        input_tokens_mean=per_request(item.count("total_input_tokens"), completed),
        output_tokens_mean=per_request(output_tokens, completed),
        output_tok_s=item.number("output_throughput"),
        request_rate_achieved=item.number("request_throughput"),
        concurrency_mean=item.number("concurrency"),
        ttft_s=stats["ttft"],
        tpot_s=stats["tpot"],
        itl_s=per_chunk,
        itl_per_token_s=per_token,
        e2el_s=stats["e2el"],
        acceptance=acceptance,
        tokens_per_step=sums.tokens_per_step if sums is not None else None,
        tokens_per_step_basis="chunks" if sums is not None else None,
        server_args=args,
        requests=rows,
        metadata=_metadata(item),
        warnings=tuple(warnings),
    )
    return with_step_yield(run)


def _load(item: Fields, rows: tuple[RequestRow, ...]) -> Load:
    traced = item.data.get("request_rate") == "trace"
    rate = None if traced else item.number("request_rate", infinite=True)
    return Load(
        request_rate=rate,
        max_concurrency=item.count("max_concurrency"),
        # its gaps are exponential; at an infinite rate there are none
        burstiness=1.0 if rate is not None and rate != float("inf") else None,
        num_prompts=len(rows) or None,
        pattern="trace" if traced else None,
    )


def _server_info(item: Fields) -> Mapping[str, object]:
    """The server's arguments; of a disaggregated pair, those of the decode server."""
    info = item.child("server_info").data
    decode = info.get("decode")
    if isinstance(decode, list) and decode and isinstance(decode[0], Mapping):
        return decode[0]
    return info


def _acceptance(length: float, args: ServerArgs) -> Acceptance:
    """The rate follows from the length only for a chain, where each step drafts k tokens."""
    k = args.num_speculative_tokens
    chain = args.other.get("speculative_eagle_topk", "1") == "1"
    rate = (length - 1) / k if k and chain and length - 1 <= k else None
    return Acceptance(acceptance_length=length, acceptance_rate=rate, scope="since server start")


def _stat(item: Fields, name: str) -> Stat | None:
    mean = item.number(f"mean_{name}_ms", 1e-3)
    if not mean:
        return None
    found = {}
    for percent in ("p90", "p95", "p99"):
        value = item.number(f"{percent}_{name}_ms", 1e-3)
        if value is not None:
            found[percent] = value
    return Stat(
        mean=mean,
        median=item.number(f"median_{name}_ms", 1e-3),
        std=item.number(f"std_{name}_ms", 1e-3),
        percentiles=found,
    )


def _metadata(item: Fields) -> dict[str, str]:
    keys = (
        "backend",
        "dataset_name",
        "random_input_len",
        "random_output_len",
        "random_range_ratio",
        "sharegpt_output_len",
    )
    return {key: text for key in keys if (text := simple_text(item.data.get(key))) is not None}


def _rows(item: Fields, per_token: bool) -> tuple[RequestRow, ...]:
    """The lists of --output-details. Send times are not in the file, so arrivals are unknown."""
    outputs, ttfts = item.counts("output_lens"), item.numbers("ttfts")
    if outputs is None or ttfts is None:
        return ()
    inputs, errors = item.counts("input_lens"), item.items("errors")
    gaps = [
        item.number_list(f"itls[{position}]", values)
        for position, values in enumerate(item.items("itls") or ())
    ]
    for name, values in (
        ("ttfts", ttfts),
        ("itls", gaps or None),
        ("input_lens", inputs),
        ("errors", errors),
    ):
        if values is not None and len(values) != len(outputs):
            raise FormatError(
                f"{item.where}{name} has {len(values)} entries and output_lens {len(outputs)}; "
                "the lists of one run are equally long"
            )
    rows = []
    for i, tokens in enumerate(outputs):
        good = not errors[i] if errors is not None else tokens > 0
        row = RequestRow(
            arrival_s=None,
            input_tokens=inputs[i] if inputs is not None else None,
            output_tokens=tokens,
            ttft_s=ttfts[i] if good else None,
            e2el_s=None,
            success=good,
        )
        if good and gaps:
            chunks = chunk_gaps(gaps[i]) if per_token else gaps[i]
            row = replace(row, itls_s=chunks, e2el_s=ttfts[i] + sum(chunks))
        rows.append(row)
    return tuple(rows)


def chunk_gaps(per_token: tuple[float, ...]) -> tuple[float, ...]:
    """Gaps between chunks from a list that repeats gap / n for each of a chunk's n tokens.

    Two neighbouring chunks with the same quotient to the last bit would be taken for one; with
    clocks that tick in nanoseconds that does not happen in practice.
    """
    return tuple(value * len(list(same)) for value, same in groupby(per_token))
