"""NVIDIA GenAI-Perf 0.0.16: profile_export_genai_perf.json, and the raw profile_export.json of
perf_analyzer beneath it. Names and their meaning as in `metric_table`.

The summary has no gap between chunks. The raw file has the time of every response in
nanoseconds but no token counts (the tool tokenizes the texts itself), so it gives TTFT, chunk
gaps and latency, not TPOT. Empty responses at the end, such as [DONE], are not tokens.
"""

import json
from dataclasses import replace
from itertools import pairwise

from pydantic import model_validator

from specsim.checked import Broken
from specsim.formats.bench import aiperf
from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.fields import (
    MAX_TEXT,
    Count,
    Foreign,
    Number,
    Stamp,
    Stamps,
    Text,
    as_mapping,
    key,
    part,
    parts,
)
from specsim.formats.bench.metric_table import MetricTable, looks_like, run_of
from specsim.formats.bench.record import BenchLoad, BenchRun, RequestRow
from specsim.formats.bench.stats import of_rows, with_derived

NAME = "genai-perf"


class Stimulus(Foreign):
    concurrency: Count = None
    request_rate: Number = None


class GenaiConfig(Stimulus):
    """The tool's arguments; older versions kept the stimulus at the top."""

    names: list[object] = parts("model_names", "model")
    stimulus: Stimulus | None = key("perf_analyzer.stimulus")

    def load(self) -> BenchLoad:
        given = self.stimulus or self
        rate = given.request_rate
        if rate is None and given.concurrency is not None:
            rate = float("inf")
        return BenchLoad(rate, given.concurrency)


class GenaiResult(MetricTable):
    input_config: GenaiConfig = part(GenaiConfig)


def matches(document: ResultFile) -> bool:
    return looks_like(document.first) and not aiperf.matches(document)


def read(document: ResultFile) -> list[BenchRun]:
    runs = []
    for _, item in document.read(GenaiResult):
        run = run_of(item, document.origin, NAME, item.input_config.load())
        names = item.input_config.names
        model = names[0][:MAX_TEXT] if names and isinstance(names[0], str) else None
        runs.append(with_derived(replace(run, model=model)))
    return runs


class RawRequest(Foreign):
    """Times in nanoseconds: when it was sent, and of every response."""

    timestamp: Stamp = None
    response_timestamps: Stamps = ()
    response_outputs: list[object] | None = None

    @model_validator(mode="after")
    def _in_order(self) -> "RawRequest":
        if self.timestamp is None:
            raise Broken("the time of sending in nanoseconds", "timestamp")
        times, outputs = self.response_timestamps, self.response_outputs
        if outputs is not None and len(outputs) != len(times):
            rule = f"a list of {len(times)}, like response_timestamps"
            raise Broken(rule, "response_outputs", outputs)
        for before, after in pairwise((self.timestamp, *self._with_text())):
            if after < before:
                rule = f"a time not before the one preceding it ({before})"
                raise Broken(rule, "response_timestamps", after)
        return self

    def _with_text(self) -> tuple[int, ...]:
        """The times without those of empty responses at the end."""
        count, outputs = len(self.response_timestamps), self.response_outputs
        while outputs and count and not _has_text(outputs[count - 1]):
            count -= 1
        return self.response_timestamps[:count]

    def row(self, first: int) -> RequestRow:
        sent, times = self.timestamp or 0, self._with_text()
        arrival = (sent - first) * 1e-9
        if not times:
            return RequestRow(arrival, None, None, None, None, success=False)
        return RequestRow(
            arrival, None, None, (times[0] - sent) * 1e-9, (times[-1] - sent) * 1e-9,
            itls_s=tuple((after - before) * 1e-9 for before, after in pairwise(times)),
        )


class Experiment(Foreign):
    mode: Text = key("experiment.mode")
    value: Number = key("experiment.value")
    requests: list[RawRequest] = parts()

    def load(self) -> BenchLoad:
        if self.mode == "concurrency" and self.value is not None:
            return BenchLoad(float("inf"), round(self.value), pattern=self.mode)
        if self.mode == "request_rate":
            return BenchLoad(self.value, pattern=self.mode)
        return BenchLoad()


class RawExport(Foreign):
    version: Text = None
    experiments: list[Experiment] = parts()


def matches_raw(document: ResultFile) -> bool:
    found = document.first.get("experiments")
    return isinstance(found, list) and bool(found) and "requests" in as_mapping(found[0])


def read_raw(document: ResultFile) -> list[BenchRun]:
    runs = []
    for where, item in document.read(RawExport):
        for number, trial in enumerate(item.experiments):
            first = min((request.timestamp or 0 for request in trial.requests), default=0)
            run = BenchRun(
                source=document.origin, format="genai-perf raw", format_version=item.version,
                load=trial.load(),
                warnings=(
                    "the raw export has times of responses but no token counts: no TPOT and no "
                    "token throughput; profile_export_genai_perf.json has them",
                ),
            )
            rows = [request.row(first) for request in trial.requests]
            runs.append(of_rows(run, rows, f"{where}experiments[{number}]."))
    return runs


def _has_text(output: object) -> bool:
    """Whether a response carries text: not empty, not [DONE], not a chunk without choices."""
    response = as_mapping(output).get("response")
    if not isinstance(response, str):
        return response is not None
    body = response.strip().removeprefix("data:").strip()
    if not body or body.startswith("[DONE]"):
        return False
    try:
        parsed = json.loads(body.split("\n\n")[0])
    except (ValueError, RecursionError):
        return True
    return as_mapping(parsed).get("choices") != []
