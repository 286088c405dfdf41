"""Per-request lists of one result, as `vllm bench serve` and SGLang's `bench_serving` save them."""

from itertools import groupby

from pydantic import model_validator

from specsim.formats.bench.fields import Count, Counts, Foreign, Number, Numbers, Text, key
from specsim.formats.bench.record import RequestRow


class Details(Foreign):
    """What both tools state, and lists with one entry per request, failed ones included. `itls`:
    gaps of each request. Times by name (`mean_ttft_ms`, ...) are read with `named_stat`."""

    backend: Text = None
    completed: Count = None
    duration_s: Number = key("duration")
    input_tokens: Count = key("total_input_tokens", "total_input")
    output_tokens: Count = key("total_output_tokens", "total_output")
    output_tok_s: Number = key("output_throughput")
    request_rate_achieved: Number = key("request_throughput")
    max_concurrency: Count = None
    output_lens: Counts | None = None
    ttfts: Numbers | None = None
    itls: list[Numbers] | None = None
    chunk_tokens: list[Counts] | None = None
    input_lens: Counts | None = None
    latencies: Numbers | None = None
    start_times: Numbers | None = None
    errors: list[object] | None = None

    @model_validator(mode="after")
    def _equally_long(self) -> "Details":
        if self.output_lens is None or self.ttfts is None:
            return self
        for name in ("ttfts", "itls", "chunk_tokens", "input_lens", "latencies", "start_times",
                     "errors"):
            values = getattr(self, name)
            if values is None or (not values and name in ("itls", "chunk_tokens")):
                continue
            if len(values) != len(self.output_lens):
                raise ValueError(
                    f"{name} has {len(values)} entries and output_lens {len(self.output_lens)}; "
                    "the lists of one run are equally long"
                )
        return self

    def rows(self, gaps_per_token: bool = False) -> tuple[RequestRow, ...]:
        """One row per request; none where the details were not saved."""
        if self.output_lens is None or self.ttfts is None:
            return ()
        first = min(self.start_times) if self.start_times else 0.0
        rows = []
        for i, tokens in enumerate(self.output_lens):
            good = not self.errors[i] if self.errors is not None else tokens > 0
            itls: tuple[float, ...] = self.itls[i] if self.itls else ()
            itls = chunk_gaps(itls) if gaps_per_token else itls
            e2el = None
            if self.latencies is not None:
                e2el = self.latencies[i]
            elif self.itls:  # older files have no latencies; the sum of gaps is the same
                e2el = self.ttfts[i] + sum(itls)
            rows.append(
                RequestRow(
                    arrival_s=self.start_times[i] - first if self.start_times else None,
                    input_tokens=self.input_lens[i] if self.input_lens is not None else None,
                    output_tokens=tokens, ttft_s=self.ttfts[i] if good else None,
                    e2el_s=e2el if good else None, itls_s=itls if good else (), success=good,
                    chunk_tokens=self.chunk_tokens[i] if self.chunk_tokens and good else (),
                )
            )
        return tuple(rows)


def chunk_gaps(per_token: tuple[float, ...]) -> tuple[float, ...]:
    """Gaps between chunks from a list that repeats gap / n for each of a chunk's n tokens.

    Two neighbouring chunks with the same quotient to the last bit would be taken for one; with
    clocks that tick in nanoseconds that does not happen in practice.
    """
    return tuple(value * len(list(same)) for value, same in groupby(per_token))
