"""What stands in the way of more load, named from the runs at a load that fails (docs/capacity.md
lists the names). The gate that fails by the largest factor says where to look; the evidence is
figures of the runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from specsim.jsonable import Jsonable
from specsim.planning.capacity_runs import Summary, mean_of
from specsim.sim.config import SimConfig
from specsim.units import counted, rounded

ADMISSION, GATEWAY, KV = "admission queue", "gateway", "KV cache"
PREFILL, DECODE, UNSTABLE, REFUSALS = "prefill", "decode", "unstable", "refusals"
MOSTLY = 0.5  # share of the time to first token from which waiting is its cause
FULL = 0.97  # share of the cache from which it is what is waited for
KEEPS_UP = 0.95  # share of what arrives that must leave


@dataclass(frozen=True, slots=True)
class Limit(Jsonable):
    """name: one of the above; cause: the resource behind 'unstable', else the name. gate: that
    fails worst. amount: the load at which. evidence: sentences."""

    renamed: ClassVar = {"amount": "load"}

    name: str
    cause: str
    gate: str
    amount: float
    evidence: tuple[str, ...]


def name_limit(
    runs: Sequence[Summary], config: SimConfig, gate: str, amount: float, offered: float | None
) -> Limit:
    """The limit that the runs at a failing load show. offered: requests per second that arrive
    whatever the server does, None where people wait for answers."""

    def mean(path: str) -> float:
        return mean_of(runs, path) or 0.0

    evidence: list[str] = []
    slots = config.rules.max_num_seqs
    waits = _waiting(runs)
    if waits is not None:
        evidence.append(f"{waits:.0%} of the time to first token (p95) is waiting for admission")
    if gate.startswith("error_rate"):
        cause = REFUSALS
        evidence.append(f"{mean('error_rate'):.1%} of the requests are refused or given up")
    elif gate.startswith(("ttft", "queue", "e2el")) and (waits or 0.0) >= MOSTLY:
        cause = _waited_for(runs, config, evidence)
    elif gate.startswith(("ttft", "queue")):
        cause = PREFILL
        evidence.append(_shares(runs))
    else:
        prompts = mean("time_share.prefill")
        steps = sum(mean(f"time_share.{name}") for name in ("draft", "verify", "decode"))
        cause = PREFILL if prompts > steps else DECODE
        evidence.append(_shares(runs))
        evidence.append(f"{mean('running_mean'):.1f} of {slots} request slots are taken on average")
    name = cause
    done = mean("request_rate")
    if offered is not None and done < KEEPS_UP * offered:
        name = UNSTABLE
        evidence.append(
            f"{rounded(offered)} requests/s arrive and {rounded(done)} leave: the queue grows"
        )
    return Limit(name, cause, gate, amount, tuple(evidence))


def _waiting(runs: Sequence[Summary]) -> float | None:
    """Share of the p95 of TTFT that passes before a request is scheduled."""
    queue, ttft = mean_of(runs, "queue_s.p95"), mean_of(runs, "ttft_s.p95")
    if ttft is None:
        return 1.0  # so long that the run did not see it
    if queue is None or ttft <= 0:
        return None
    return min(1.0, queue / ttft)


def _waited_for(runs: Sequence[Summary], config: SimConfig, evidence: list[str]) -> str:
    """What the waiting requests wait for."""

    def largest(path: str) -> float:
        return max(mean_of([run], path) or 0.0 for run in runs)

    def mean(path: str) -> float:
        return mean_of(runs, path) or 0.0

    slots = config.rules.max_num_seqs * config.n_replicas
    cache, preempted = largest("kv_usage_max"), largest("preemptions")
    evidence.append(
        f"at most {largest('running_max'):.0f} of {slots} request slots and "
        f"{cache:.0%} of the cache blocks were taken, {mean('running_mean'):.1f} slots on average"
    )
    if config.max_concurrent and largest("gateway_queue_max") > 0:
        queued = counted(largest("gateway_queue_max"), "request")
        evidence.append(f"the gateway's queue holds up to {queued}")
        return GATEWAY
    evidence.append(f"the engine's queue holds up to {counted(largest('waiting_max'), 'request')}")
    if cache >= FULL or preempted > 0:
        if preempted:
            evidence.append(f"{counted(round(mean('preemptions')), 'preemption')} per run")
        if mean("running_mean") < 0.9 * slots:
            return KV
    if largest("running_max") >= slots:
        return ADMISSION
    evidence.append(_shares(runs))
    return PREFILL


def _shares(runs: Sequence[Summary]) -> str:
    names = ("prefill", "verify", "decode", "draft", "host", "idle")
    parts = [
        f"{name} {share:.0%}"
        for name in names
        if (share := mean_of(runs, f"time_share.{name}")) is not None and share >= 0.005
    ]
    return "time of the engine: " + ", ".join(parts)
