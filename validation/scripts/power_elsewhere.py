"""What the power model says of public figures of other devices than the one it was fitted on: watts
of the H100 at a known pace, joules with and without speculation on the RTX 3090."""

import math
from dataclasses import dataclass, replace

from common import DATA, PUBLISHED_2, read_csv

from specsim.analytic.predict import load_point
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.latency.power import Z90, KernelDemand, Power
from specsim.options.groups import DeploymentOptions

# Step cost of the RTX 3090's source over a plain step, r = first + each x k (its
# docs/COST_MODEL.md, rows THC-024 to 030), with which a speedup tells tokens per step.
STEP_COST = {"mtp": (0.8888, 0.2904), "dflash": (0.9443, 0.2481)}
PLAIN_J, ANSWER = 3980.0, 400  # of a plain answer, and its tokens
ENERGY = {"THC-019": 2503.0, "THC-020": 2684.0, "THC-021": 2835.0, "THC-022": 3228.0,
          "THC-023": 3786.0}
MEMORY = 0.99  # the drafter is taken in 16 bits, which leaves less
CONTEXT = 400  # tokens: of these sources' short chats, which state none


@dataclass(frozen=True)
class Check:
    """One value. inside: of the 90% interval."""

    name: str
    predicted: float
    measured: float
    inside: bool

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def log_error(self) -> float:
        return math.log(self.predicted / self.measured)


def system(**options: object) -> System:
    return build_request(DeploymentOptions(**options)).system


def power_of(some: System) -> Power:
    found = Power.of(some.profile)
    assert found is not None
    return found


def paced(some: System, running: int, wall_s: float) -> float:
    """Watts of a GPU whose decode step takes so long."""
    asked = some.latency.demand(some.decode_shape(running, CONTEXT))
    return power_of(some).watts(KernelDemand(
        asked.bytes, asked.peak_s, min(asked.kernel_s, wall_s), wall_s
    ))


def h100() -> list[Check]:
    found = []
    for row in read_csv(DATA / "power" / "ecologits_h100.csv"):
        some = system(
            model=row["model"], gpu="h100-sxm", tp=int(row["gpus"]), method="none", weights="bf16"
        )
        batch, wall_s = int(row["batch"]), float(row["latency_s"])
        watts = paced(some, batch, wall_s)
        measured = float(row["gpu_j_per_token"]) * batch / wall_s
        factor = math.exp(Z90 * power_of(some).spread)
        inside = watts / factor <= measured <= watts * factor
        found.append(Check(row["model"], watts, measured, inside))
    return found


def rtx_3090() -> tuple[list[Check], list[Check]]:
    """Ratios with / without speculation: of watts at the measured pace, of predicted joules."""
    at_pace, whole = [], []
    for row in read_csv(PUBLISHED_2):
        if row["id"] not in ENERGY:
            continue
        method, k, gain = row["method"], int(row["k"]), float(row["speedup"])
        first, each = STEP_COST[method]
        cost = first + each * k
        some = system(
            model="qwen3.8-27b", gpu="rtx-3090", weights="int4", method=method, k=k,
            acceptance_length=gain * cost, gpu_memory_utilization=MEMORY,
        )
        plain_s = 1 / float(row["baseline_tok_s"])
        name = f"{row['id']}, {method} k = {k}"
        joules = ENERGY[row["id"]] / PLAIN_J
        pair = math.exp(Z90 * power_of(some).pair_spread)
        watts = paced(some, 1, cost * plain_s) / paced(some.plain(), 1, plain_s)
        measured = joules * float(row["spec_tok_s"]) / float(row["baseline_tok_s"])
        at_pace.append(Check(name, watts, measured, watts / pair <= measured <= watts * pair))
        ratio, (low, high) = predicted(some)
        whole.append(Check(name, ratio, joules, low <= joules <= high))
    return at_pace, whole


def predicted(some: System) -> tuple[float, list[float]]:
    """joules_ratio of one client with its interval. The source's drafter is smaller than the 16-bit
    one here, so that memory is taken to suffice."""
    roomy = some.with_(profile=replace(some.profile, mem_bytes=2 * some.profile.mem_bytes))
    point = load_point(roomy, Workload(CONTEXT - ANSWER // 2, ANSWER), 1)
    interval = point.interval_90["joules_ratio"]
    assert point.joules_ratio is not None and interval is not None
    return point.joules_ratio, interval
