"""A simulated run in the shape of `vllm bench serve --save-result --save-detailed` (vLLM 0.33),
with vLLM's definitions; docs/formats.md says what is marked and left out.

When each chunk of an answer came follows from the log of steps: a request gets tokens in every step
of its replica that gives any, from its first token to its last. One that was preempted, or left out
of steps for lack of token budget, has fewer chunks: then the last ends are taken (its long gap
stands first).
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from specsim.errors import UsageError
from specsim.sim.core import StepLog
from specsim.sim.request import FINISHED, RequestRecord
from specsim.sim.result import SimulationFigures
from specsim.sim.run import SimResult
from specsim.version import __version__
from specsim.vllm_files import acceptance_fields, latency_fields

Floats = NDArray[np.float64]


class ChunkTimes:
    """Chunk times of a run that kept its steps; UsageError for one that did not."""

    def __init__(self, result: SimResult) -> None:
        replicas = result.cluster.replicas
        if not all(replica.stats.keep_trace for replica in replicas):
            raise UsageError("this run kept no steps; simulate with keep_trace=True to export them")
        self._ends: list[Floats] = [_emits(replica.stats.trace) for replica in replicas]

    def gaps(self, record: RequestRecord) -> list[float]:
        """Seconds between the chunks of a finished request: chunks - 1 of them."""
        first, last = record.first_token_s, record.last_token_s
        if first is None or last is None or record.chunks < 2 or record.replica < 0:
            return []
        ends = self._ends[record.replica]
        low = int(np.searchsorted(ends, first, side="right"))
        high = int(np.searchsorted(ends, last, side="right"))
        inside = ends[low:high][-(record.chunks - 1) :]
        return [float(gap) for gap in np.diff(inside, prepend=first)]


def _emits(trace: list[StepLog]) -> Floats:
    parts = [log.end_s[log.emits > 0] for log in trace]
    return np.concatenate(parts) if parts else np.empty(0)


NO_DATE = "19700101-000000"  # a simulation has none, and the same run gives the same bytes


def vllm_bench_dict(simulation: SimulationFigures) -> dict[str, object]:
    """The first run with speculation, which must have kept its steps (keep_trace), as one object
    for JSON."""
    result, inputs = simulation.comparison.first, simulation.inputs
    start = result.window.start_s
    sent = sorted(
        (record for record in result.records if record.arrival_s >= start),
        key=lambda record: (record.arrival_s, record.request_id),
    )
    done = [record for record in sent if record.status == FINISHED]
    chunks = ChunkTimes(result)
    gaps = {record.request_id: chunks.gaps(record) for record in done}
    duration = max((record.last_token_s or 0.0) for record in done) - start if done else 0.0
    load = simulation.load
    rate, clients = load.get("rate"), load.get("concurrency")
    shape = load.get("burstiness") or 1.0
    if rate is None and clients is None and len(sent) > 1:
        # people, or a trace at its own times: the rate they came to, and no law of their gaps
        span = sent[-1].arrival_s - sent[0].arrival_s
        rate, shape = (len(sent) - 1) / span if span > 0 else "inf", None
    prompt_tokens = sum(record.prompt_tokens for record in done)
    output_tokens = sum(record.output_tokens for record in done)
    out: dict[str, object] = {
        "date": NO_DATE,
        "endpoint_type": inputs["engine"],
        "backend": inputs["engine"],
        "label": "specsim simulation",
        "model_id": inputs["model"],
        "tokenizer_id": inputs["model"],
        "num_prompts": len(sent),
        "simulated": "true",
        "specsim_version": __version__,
        "gpu": inputs["gpu"],
        "tensor_parallel_size": inputs["tp"],
        "num_speculative_tokens": inputs["k"],
        "method": inputs["method"],
        "seed": simulation.seed,
        "request_rate": "inf" if rate in (None, "inf") else rate,
        "burstiness": shape,
        "max_concurrency": clients,
        "duration": duration,
        "completed": len(done),
        "failed": len(sent) - len(done),
        "total_input_tokens": prompt_tokens,
        "total_output_tokens": output_tokens,
        "request_throughput": len(done) / duration if duration else 0.0,
        "request_goodput": None,
        "output_throughput": output_tokens / duration if duration else 0.0,
        "total_token_throughput": (
            (prompt_tokens + output_tokens) / duration if duration else 0.0
        ),
        "max_output_tokens_per_s": _peak_chunks(done, gaps),
        "max_concurrent_requests": _most_at_once(sent),
    }
    out.update(_lists(sent, gaps, start))
    out.update(_acceptance(done, simulation))
    times = {
        "ttft": [record.ttft_s for record in done if record.ttft_s is not None],
        "tpot": [record.tpot_s for record in done if record.tpot_s is not None],
        "itl": [gap for values in gaps.values() for gap in values],
        "e2el": [_latency(record) for record in done],
    }
    for name, values in times.items():
        out.update(latency_fields(name, values))
    return out


def _latency(record: RequestRecord) -> float:
    assert record.last_token_s is not None
    return record.last_token_s - record.arrival_s


def _lists(
    sent: Sequence[RequestRecord], gaps: dict[int, list[float]], start: float
) -> dict[str, object]:
    """What --save-detailed keeps; failed requests hold their place with zeros."""
    good = [record.status == FINISHED for record in sent]
    return {
        "input_lens": [record.prompt_tokens for record in sent],
        "output_lens": [
            record.output_tokens if ok else 0 for record, ok in zip(sent, good, strict=True)
        ],
        "ttfts": [
            (record.ttft_s or 0.0) if ok else 0.0 for record, ok in zip(sent, good, strict=True)
        ],
        "itls": [gaps.get(record.request_id, []) for record in sent],
        "latencies": [
            _latency(record) if ok else 0.0 for record, ok in zip(sent, good, strict=True)
        ],
        "start_times": [record.arrival_s - start for record in sent],
        "generated_texts": ["" for _ in sent],
        "errors": [
            "" if ok else f"{record.status}: {record.reason}".rstrip(": ")
            for record, ok in zip(sent, good, strict=True)
        ],
    }


def _acceptance(done: Sequence[RequestRecord], simulation: SimulationFigures) -> dict[str, object]:
    drafts = sum(record.verify_steps for record in done)
    drafted = sum(record.drafted_tokens for record in done)
    accepted = sum(record.accepted_tokens for record in done)
    rates = position_rates(simulation, accepted / drafts, drafted, drafts) if drafts else []
    return acceptance_fields(drafts, drafted, accepted, rates)


def position_rates(
    simulation: SimulationFigures, per_draft: float, drafted: int, drafts: int
) -> list[float]:
    """P(at least i drafts accepted) whose sum is the run's accepted tokens per draft; [] where
    drafts had different lengths, so that the input's shape is not the run's."""
    system = simulation.deployment.system
    k = system.setup.k
    if system.acceptance is None or drafted != k * drafts or system.setup.tree_topk > 1:
        return []
    shape = system.acceptance.probabilities(k)
    total = math.fsum(shape)
    if total <= 0:
        return [0.0] * k
    return [min(1.0, rate * per_draft / total) for rate in shape]


def _peak_chunks(done: Sequence[RequestRecord], gaps: dict[int, list[float]]) -> float:
    """Most chunks in one second: vLLM's "peak output token throughput", which counts chunks."""
    times: list[float] = []
    for record in done:
        assert record.first_token_s is not None
        times.append(record.first_token_s)
        times.extend(record.first_token_s + np.cumsum(gaps[record.request_id]))
    if not times:
        return 0.0
    seconds = np.floor(np.asarray(times) - min(times)).astype(np.int64)
    return float(np.bincount(seconds).max())


def _most_at_once(sent: Sequence[RequestRecord]) -> int:
    """Most requests between their sending and their end."""
    events = [(record.arrival_s, 1) for record in sent]
    events += [(record.end_s, -1) for record in sent if record.end_s is not None]
    most = now = 0
    for _, change in sorted(events):
        now += change
        most = max(most, now)
    return most
