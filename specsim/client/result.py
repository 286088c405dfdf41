"""What a run against a server was: one record per request, as the simulator writes them.

`LiveRun.bench` gives the normal form of benchmark results, `vllm_bench` a result file with the keys
of `vllm bench serve --save-result --save-detailed` (schema of 0.33.0), which every tool that
reads those can read.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise

from specsim.errors import FormatError
from specsim.formats.bench.record import (
    BenchAcceptance,
    BenchLoad,
    BenchRun,
    RequestRow,
    ServerSide,
)
from specsim.formats.bench.server_metrics import run_of
from specsim.formats.bench.stats import acceptance_from_counts, per_request, total, with_derived
from specsim.formats.metrics_text import Snapshot, difference
from specsim.jsonable import picked
from specsim.sim.request import FINISHED, RequestRecord
from specsim.vllm_files import acceptance_fields, latency_fields


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """chunk_times_s: since the run's start. chunk_tokens: tokens of each chunk, () where the
    server did not count them. steps_accepted: accepted drafts of each step that had some, where
    the server sends it. usage: whether the token count is the server's."""

    record: RequestRecord
    chunk_times_s: tuple[float, ...] = ()
    chunk_tokens: tuple[int, ...] = ()
    steps_accepted: tuple[int, ...] = ()
    usage: bool = True
    version: str = ""

    @property
    def itls_s(self) -> tuple[float, ...]:
        return tuple(b - a for a, b in pairwise(self.chunk_times_s))


@dataclass(frozen=True)
class LiveRun:
    """A run. rate: of the open loop, infinite for a closed one. before, after: /metrics around
    it. samples: (seconds, running, waiting). partial: interrupted."""

    url: str
    model: str
    version: str
    name: str
    rate: float
    burstiness: float
    max_concurrency: int | None
    planned: int
    duration_s: float
    requests: tuple[LiveRequest, ...]
    before: Snapshot | None = None
    after: Snapshot | None = None
    samples: tuple[tuple[float, float, float], ...] = ()
    partial: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def finished(self) -> tuple[LiveRequest, ...]:
        return tuple(r for r in self.requests if r.record.status == FINISHED)

    def failures(self) -> dict[str, int]:
        """Reasons of requests that did not finish, with their number."""
        out: dict[str, int] = {}
        for request in self.requests:
            if request.record.status != FINISHED:
                key = f"{request.record.status}: {request.record.reason}"
                out[key] = out.get(key, 0) + 1
        return out

    def bench(self) -> BenchRun:
        """The run in the normal form, with the server's own figures between the two scrapes."""
        rows = tuple(_row(r) for r in self.requests)
        sums = total(rows, f"{self.url}: ", self.duration_s)
        warnings = list(self.warnings)
        server = self._server(warnings)
        acceptance = (
            server.acceptance if server is not None else self._from_requests(warnings)
        )
        output = sums.output_tokens
        run = BenchRun(
            source=self.url, format="specsim live", engine=server.engine if server else None,
            engine_version=self.version or None, model=self.model, label=self.name or None,
            date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            load=BenchLoad(self.rate, self.max_concurrency, self.burstiness, self.planned),
            **sums.of_run(), duration_s=self.duration_s,
            input_tokens_mean=per_request(sums.input_tokens, sums.completed),
            output_tokens_mean=per_request(output, sums.completed),
            output_tok_s=output / self.duration_s if output is not None else None,
            request_rate_achieved=sums.completed / self.duration_s,
            acceptance=acceptance,
            tokens_per_step_basis="chunks" if sums.tokens_per_step else None,
            draft_share=self._draft_share(server, sums.chunks),
            server=self._gauges(server), requests=rows, warnings=tuple(warnings),
        )
        if server is not None and server.server_args.num_speculative_tokens:
            run = replace(run, server_args=server.server_args)
        return with_derived(run)

    def _server(self, warnings: list[str]) -> BenchRun | None:
        if self.before is None or self.after is None:
            return None
        try:
            server = run_of(difference(self.before, self.after))
        except FormatError as error:
            warnings.append(f"the server's counters were not used: {error}")
            return None
        done = len(self.finished)
        if server.completed is not None and server.completed > done + len(self.failures()):
            warnings.append(
                f"the server finished {server.completed} requests during the run, but this client "
                f"sent {done} of them: others use the server too"
            )
        return server

    def _from_requests(self, warnings: list[str]) -> BenchAcceptance | None:
        """Acceptance from what the responses themselves say, without /metrics."""
        records = [r.record for r in self.finished]
        drafts = sum(r.verify_steps for r in records)
        steps = [a for r in self.finished for a in r.steps_accepted]
        longest = max(steps, default=0)
        rates = [sum(a > i for a in steps) / drafts for i in range(longest)] if drafts else []
        try:
            return acceptance_from_counts(
                drafts or None, sum(r.drafted_tokens for r in records),
                sum(r.accepted_tokens for r in records), rates,
            )
        except FormatError as error:
            warnings.append(f"the answers' own counts were not used: {error}")
            return None

    def _draft_share(self, server: BenchRun | None, chunks: int) -> float | None:
        """Share of decode steps that carried a draft: the server's counters, or drafts over the
        chunks after the first ones."""
        if server is not None and server.draft_share is not None:
            return server.draft_share
        drafts = sum(r.record.verify_steps for r in self.finished)
        return min(1.0, drafts / chunks) if drafts and chunks else None

    def _gauges(self, server: BenchRun | None) -> ServerSide | None:
        """The server's side with the gauges' means over the time when requests were open."""
        if server is None or server.server is None:
            return None
        inside = [s for s in self.samples if 0 <= s[0] <= self.duration_s]
        if not inside:
            return replace(server.server, running=None, waiting=None)
        count = len(inside)
        return replace(
            server.server, gauges="mean", running=sum(s[1] for s in inside) / count,
            waiting=sum(s[2] for s in inside) / count,
        )

    def vllm_bench(self, metadata: Mapping[str, str] | None = None) -> dict[str, object]:
        """The result as `vllm bench serve --save-result --save-detailed` writes it, without the
        texts, and with the tokens of every chunk. Times rounded to microseconds."""
        done, run = self.finished, self.bench()
        acceptance = run.acceptance
        out: dict[str, object] = {
            "date": datetime.now(UTC).strftime("%Y%m%d-%H%M%S"),
            "endpoint_type": "openai-chat" if "chat" in str(self.settings.get("endpoint"))
            else "openai",
            "backend": "vllm" if run.engine == "vllm" else "openai", "label": self.name or None,
            "model_id": self.model, "tokenizer_id": self.model, "num_prompts": self.planned,
            **dict(metadata or {}),
            "request_rate": self.rate if math.isfinite(self.rate) else "inf",
            "burstiness": self.burstiness if math.isfinite(self.burstiness) else "inf",
            "max_concurrency": self.max_concurrency, "duration": round(self.duration_s, 6),
            "completed": len(done), "failed": len(self.requests) - len(done),
            "total_input_tokens": sum(r.record.prompt_tokens for r in done),
            "total_output_tokens": sum(r.record.output_tokens for r in done),
            "request_throughput": run.request_rate_achieved,
            "output_throughput": run.output_tok_s,
        }
        if acceptance is not None and acceptance.num_drafts:
            out |= acceptance_fields(
                acceptance.num_drafts, acceptance.draft_tokens or 0,
                acceptance.accepted_tokens or 0, acceptance.per_position,
            )
        out |= {
            "input_lens": [r.record.prompt_tokens for r in self.requests],
            "output_lens": [
                r.record.output_tokens if r.record.status == FINISHED else 0
                for r in self.requests
            ],
            "ttfts": [_micro(r.record.ttft_s) for r in self.requests],
            "itls": [[round(gap, 6) for gap in r.itls_s] for r in self.requests],
            "chunk_tokens": [list(r.chunk_tokens) for r in self.requests],
            "latencies": [_micro(r.record.e2el_s) for r in self.requests],
            "start_times": [round(r.record.arrival_s, 6) for r in self.requests],
            "errors": [
                "" if r.record.status == FINISHED else r.record.reason or r.record.status
                for r in self.requests
            ],
        }
        for name, values in (
            ("ttft", [r.record.ttft_s for r in done]),
            ("tpot", [r.record.tpot_s for r in done]),
            ("itl", [gap for r in done for gap in r.itls_s]),
            ("e2el", [r.record.e2el_s for r in done]),
        ):
            known = [v for v in values if v is not None]
            out |= latency_fields(name, known) if known else {}
        return out

    def to_dict(self) -> dict[str, object]:
        """Everything seen, for a self-contained record: per request its times and tokens."""
        return {
            **picked(self, "url model version name"),
            "rate": self.rate if math.isfinite(self.rate) else "inf",
            "burstiness": self.burstiness if math.isfinite(self.burstiness) else "inf",
            **picked(self, "max_concurrency planned duration_s partial settings warnings"),
            "failures": self.failures(),
            "samples": [[round(x, 3) for x in sample] for sample in self.samples],
            "requests": [_request_dict(r) for r in self.requests],
        }


def _row(request: LiveRequest) -> RequestRow:
    record = request.record
    good = record.status == FINISHED
    return RequestRow(
        arrival_s=record.arrival_s, input_tokens=record.prompt_tokens,
        output_tokens=record.output_tokens, ttft_s=record.ttft_s if good else None,
        e2el_s=record.e2el_s if good else None, itls_s=request.itls_s if good else (),
        success=good, chunk_tokens=request.chunk_tokens if good else (),
    )


def _request_dict(request: LiveRequest) -> dict[str, object]:
    record = request.record
    return {
        **picked(record, "status reason prompt_tokens cached_tokens output_tokens "
                         "requested_tokens verify_steps accepted_tokens"),
        "arrival_s": round(record.arrival_s, 6),
        "chunk_times_s": [round(t, 5) for t in request.chunk_times_s],
        "chunk_tokens": list(request.chunk_tokens),
    }


def _micro(value: float | None) -> float:
    return 0.0 if value is None else round(value, 6)
