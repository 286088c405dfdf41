"""The trace of a run for Perfetto (Chrome trace event format)."""

from collections.abc import Iterator
from pathlib import Path

from specsim.errors import UsageError
from specsim.files import writing
from specsim.jsonable import json_text
from specsim.sim.cluster import Cluster
from specsim.sim.core import StepLog
from specsim.sim.records import Records

REQUEST_LANES = 256  # request slices are spread over so many rows of the trace


def write_chrome_trace(cluster: Cluster, path: Path) -> None:
    """For Perfetto or chrome://tracing: steps as slices and counters per replica, requests as
    slices (queue, prefill, decode). UsageError for a run without keep_trace=True, and where it
    cannot be written."""
    if not any(replica.stats.trace for replica in cluster.replicas):
        raise UsageError("this run kept no steps; simulate with keep_trace=True to write a trace")
    with writing(path) as file:
        mark = '{"displayTimeUnit": "ms", "traceEvents": [\n'
        for event in _events(cluster):
            file.write(mark + json_text(event))
            mark = ",\n"
        file.write("\n]}\n")


def _events(cluster: Cluster) -> Iterator[dict[str, object]]:
    for replica in cluster.replicas:
        pid = replica.index
        yield _named("process_name", pid, 0, f"replica {pid}")
        yield _named("thread_name", pid, 0, "steps")
        for log in replica.stats.trace:
            yield from _step_events(log, pid, cluster.config.speculation.num_speculative_tokens)
    yield from _request_events(cluster.records)


def _step_events(log: StepLog, pid: int, most: int) -> Iterator[dict[str, object]]:
    """Steps of a log. most: drafts; a step logged with more has no drafter (`price.proposing`)."""
    columns = (
        log.start_s, log.end_s, log.rows, log.width, log.new, log.chunks, log.next_drafts, log.out,
        log.waiting, log.held,
    )
    for start, end, rows, width, new, chunks, next_drafts, out, waiting, held in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        yield {
            "name": "prefill" if not rows else "mixed" if new else "decode",
            "ph": "X", "pid": pid, "tid": 0, "ts": start * 1e6, "dur": (end - start) * 1e6,
            "args": {
                "decoding": rows, "verify_width": width, "prompt_tokens": new,
                "prompt_chunks": chunks, "drafts_next": next_drafts if next_drafts <= most else 0,
                "tokens_out": out,
            },
        }
        yield {
            "name": "requests", "ph": "C", "pid": pid, "ts": start * 1e6,
            "args": {"running": rows + chunks, "waiting": waiting},
        }
        yield {
            "name": "kv_blocks", "ph": "C", "pid": pid, "ts": start * 1e6, "args": {"held": held}
        }


def _request_events(records: Records) -> Iterator[dict[str, object]]:
    for record in records:
        if record.replica < 0:
            continue
        lane = 1 + record.request_id % REQUEST_LANES
        parts = (
            ("queue", record.arrival_s, record.scheduled_s),
            ("prefill", record.scheduled_s, record.first_token_s),
            ("decode", record.first_token_s, record.last_token_s),
        )
        for name, start, end in parts:
            if start is not None and end is not None:
                yield {
                    "name": f"{name} {record.request_id}", "cat": name, "ph": "X",
                    "pid": record.replica, "tid": lane, "ts": start * 1e6,
                    "dur": (end - start) * 1e6,
                    "args": {"prompt": record.prompt_tokens, "cached": record.cached_tokens,
                             "output": record.output_tokens, "status": record.status},
                }


def _named(kind: str, pid: int, tid: int, name: str) -> dict[str, object]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
