"""GuideLLM 0.1 reports: the requests themselves, without the statistics of later versions.

first_token_time is the TTFT and decode_times.data the gaps between chunks, all in seconds;
start_time and end_time are clock readings. Every chunk was counted as one token unless the server
told otherwise.
"""

from dataclasses import replace
from typing import ClassVar

from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.fields import (
    Count,
    Foreign,
    Number,
    Numbers,
    Text,
    as_mapping,
    key,
    parts,
)
from specsim.formats.bench.guidellm import NAME
from specsim.formats.bench.record import BenchLoad, BenchRun, RequestRow
from specsim.formats.bench.shapes import CLOCKS, SETTINGS
from specsim.formats.bench.stats import of_rows


class FirstRequest(Foreign):
    """One successful request."""

    passed_over: ClassVar = {
        ".*_word_count|request": "the texts",
        "last_time": CLOCKS,
    }

    start_time: Number = None
    end_time: Number = None
    prompt_tokens: Count = key("prompt_token_count")
    output_tokens: Count = key("output_token_count")
    ttft_s: Number = key("first_token_time")
    gaps_s: Numbers = key("decode_times.data")

    def row(self, first: float) -> RequestRow:
        """first: when the first request of the run was sent, on the same clock."""
        gaps = self.gaps_s or ()
        return RequestRow(
            arrival_s=None if self.start_time is None else self.start_time - first,
            input_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            ttft_s=self.ttft_s,
            # the end of the stream comes a little after the last token
            e2el_s=None if self.ttft_s is None else self.ttft_s + sum(gaps),
            itls_s=gaps,
            success=self.ttft_s is not None,
        )


class FirstPoint(Foreign):
    """One load point."""

    passed_over: ClassVar = {"concurrencies": CLOCKS}

    mode: Text = None
    rate: Number = None
    results: list[FirstRequest] = parts()
    errors: list[object] = parts()

    def load(self) -> BenchLoad:
        if self.mode == "synchronous":
            return BenchLoad(float("inf"), 1, pattern=self.mode)
        if self.mode == "throughput":
            return BenchLoad(float("inf"), pattern=self.mode)
        return BenchLoad(self.rate, pattern=self.mode)


class FirstReport(Foreign):
    passed_over: ClassVar = {r"args\..*": SETTINGS}

    model: Text = key("args.model")
    benchmarks: list[FirstPoint] = parts()


def matches(document: ResultFile) -> bool:
    points = document.first.get("benchmarks")
    first = as_mapping(points[0]) if isinstance(points, list) and points else {}
    return "results" in first and "concurrencies" in first


def read(document: ResultFile) -> list[BenchRun]:
    return [
        _run(point, item.model, document.origin, f"{where}benchmarks[{number}].")
        for where, item in document.read(FirstReport)
        for number, point in enumerate(item.benchmarks)
    ]


def _run(point: FirstPoint, model: str | None, origin: str, where: str) -> BenchRun:
    starts = [item.start_time for item in point.results if item.start_time is not None]
    rows = [item.row(min(starts, default=0.0)) for item in point.results]
    run = of_rows(
        BenchRun(source=origin, format=NAME, format_version="0.1", model=model, load=point.load()),
        rows, where,
    )
    sent = len(rows) + len(point.errors)
    return replace(
        run, failed=(run.failed or 0) + len(point.errors), load=replace(run.load, num_prompts=sent)
    )
