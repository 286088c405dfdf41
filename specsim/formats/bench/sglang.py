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
from typing import ClassVar, Literal

from specsim.formats.bench.details import Details
from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.fields import (
    Number,
    Rate,
    Text,
    as_mapping,
    key,
    named_stat,
    read_as,
    simple_text,
    stat_names,
    stated,
)
from specsim.formats.bench.record import (
    BenchAcceptance,
    BenchLoad,
    BenchRun,
    RequestRow,
    ServerArgs,
)
from specsim.formats.bench.server_args import args_from_sglang
from specsim.formats.bench.stats import disagreement, total, with_derived

NAME = "sglang bench_serving"
_NATIVE = ("sglang", "sglang-native")
_RETOKENIZED = ("sglang-oai", "sglang-oai-chat")
_TIMES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e_latency"}
_ENGINES = {"vllm": "vllm", "vllm-chat": "vllm", "trt": "trtllm"}
_KEPT = ("backend", "dataset_name", "random_input_len", "random_output_len", "random_range_ratio",
         "sharegpt_output_len")


class SglangResult(Details):
    """One line."""

    by_name: ClassVar = (stat_names(*_TIMES.values()), "|".join(_KEPT))

    label: Text = key("tag")
    concurrency_mean: Number = key("concurrency")
    accept_length: Number = None
    request_rate: Rate | Literal["trace"] = None
    server_info: dict[str, object] | None = None


def matches(document: ResultFile) -> bool:
    first = document.first
    return "completed" in first and ("mean_e2e_latency_ms" in first or "server_info" in first)


def read(document: ResultFile) -> list[BenchRun]:
    return [_run(raw, where, document.origin) for where, raw in document.objects()]


def _run(raw: Mapping[str, object], where: str, origin: str) -> BenchRun:
    item = read_as(SglangResult, raw, where)
    backend, length = item.backend or "", item.accept_length
    info = _server_info(item)
    args = args_from_sglang(info)
    per_token_rows = backend in _NATIVE
    per_token_stat = per_token_rows or (backend in _RETOKENIZED and bool(length))
    warnings = []
    rows = item.rows(per_token_rows)
    sums = total(rows, where, item.duration_s) if rows else None
    stats = {
        name: stat if (stat := named_stat(raw, tool, where)) and stat.typical else None
        for name, tool in _TIMES.items()
    }
    if item.completed == 0:
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
    run = BenchRun(
        source=origin, format=NAME, **stated(item),
        engine="sglang" if backend.startswith("sglang") else _ENGINES.get(backend),
        engine_version=simple_text(info.get("version")), model=simple_text(info.get("model_path")),
        load=_load(item, rows), failed=sums.failed if sums is not None else None,
        ttft_s=stats["ttft"], tpot_s=stats["tpot"], itl_s=per_chunk, itl_per_token_s=per_token,
        e2el_s=stats["e2el"], acceptance=acceptance,
        **(sums.per_step() if sums is not None else {}), server_args=args, requests=rows,
        metadata={
            name: text for name in _KEPT if (text := simple_text(raw.get(name))) is not None
        },
        warnings=tuple(warnings),
    )
    return with_derived(run)


def _load(item: SglangResult, rows: tuple[RequestRow, ...]) -> BenchLoad:
    rate = item.request_rate
    if rate == "trace":
        return BenchLoad(None, item.max_concurrency, None, len(rows) or None, "trace")
    # its gaps are exponential; at an infinite rate there are none
    burstiness = 1.0 if rate is not None and rate != float("inf") else None
    return BenchLoad(rate, item.max_concurrency, burstiness, len(rows) or None)


def _server_info(item: SglangResult) -> Mapping[str, object]:
    """The server's arguments; of a disaggregated pair, those of the decode server."""
    info = item.server_info or {}
    decode = info.get("decode")
    return as_mapping(decode[0] if isinstance(decode, list) and decode else None) or info


def _acceptance(length: float, args: ServerArgs) -> BenchAcceptance:
    """The rate follows from the length only for a chain, where each step drafts k tokens."""
    k = args.num_speculative_tokens
    chain = args.other.get("speculative_eagle_topk", "1") == "1"
    rate = (length - 1) / k if k and chain and length - 1 <= k else None
    return BenchAcceptance(length, rate, scope="since server start")
