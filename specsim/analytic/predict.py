"""predict: what speculation does for one deployment, at one or several loads.

Every point compares the deployment with the same deployment without speculation at the same
load. Definitions:
    speedup           output tokens per second under speculation / without, same concurrency; in
                      an open loop that both sustain, where both serve the same tokens, TPOT
                      without / with (1 when nothing is decoded)
    step_cost_ratio   r: a pure decode step under speculation (draft, verify, overhead) / a plain
                      step of the same sequences (where speculation admits fewer, of those)
    tpot_s            seconds per output token of a stream after its first
    break-even        smallest concurrency at which speculation no longer pays
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specsim.analytic.apart import Apart, decode_load
from specsim.analytic.closed import closed_loop, running_limit
from specsim.analytic.compare import compared
from specsim.analytic.energy import Energy, energy_of, ratio_interval, token_interval
from specsim.analytic.intervals import interval_note, interval_of
from specsim.analytic.open import OpenState
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import CapacityError, UsageError
from specsim.jsonable import Jsonable, picked
from specsim.search import first_from_one
from specsim.units import counted

# Draft lengths looked at for best_k, where the method drafts a chain of free length.
LONGEST_CANDIDATE = 8
# An open loop whose times are said not to be sharp: share of the capacity, or steepness.
NEAR, STEEP = 0.95, 3.0


@dataclass(frozen=True, slots=True)
class LoadPoint(Jsonable):
    """One load. concurrency: clients (closed loop) or mean running requests (open loop).

    running: mean running requests. queue_s: mean wait for admission. request_rate: requests per
    second (offered in the open loop, completed in the closed one). utilisation: of the capacity,
    open loop only. steepness: per cent that TPOT rises when the rate rises by one; None in a
    closed loop and beyond the capacity. best_k: draft length with the highest throughput at this
    load, 0 when plain decoding wins, None when it was not looked for. energy, baseline_energy: None
    where a device's power is not known; joules_ratio: of an output token, with speculation over
    without. interval_90: per quantity
    [low, high], None for datasheet bounds and for what is not finite."""

    concurrency: float
    ttft_s: float
    tpot_s: float
    itl_s: float
    step_s: float
    output_tok_s: float
    stream_tok_s: float
    baseline_ttft_s: float
    baseline_tpot_s: float
    baseline_step_s: float
    baseline_output_tok_s: float
    speedup: float
    step_cost_ratio: float
    bound: str
    running: float
    queue_s: float
    request_rate: float
    utilisation: float | None
    steepness: float | None
    stable: bool
    best_k: int | None
    energy: Energy | None
    baseline_energy: Energy | None
    joules_ratio: float | None
    interval_90: dict[str, list[float] | None]


@dataclass(frozen=True)
class PredictionFigures:
    """Result of `predict`. break_even_concurrency: smallest number of clients at which speculation
    does not pay, looked for up to the largest batch of either side; None when it pays throughout
    (or there is none), 1 when it never does. max_concurrency: most requests of this length that
    run together. apart: replicas that compute the prompts, where others decode."""

    system: System
    workload: Workload
    points: tuple[LoadPoint, ...]
    break_even_concurrency: int | None
    max_concurrency: int
    warnings: tuple[str, ...] = ()
    apart: Apart | None = None

    @property
    def best_k(self) -> int | None:
        """Best draft length at the first load asked for (each point has its own)."""
        return self.points[0].best_k if self.points else None

    @property
    def acceptance_length(self) -> float | None:
        return self.system.acceptance_length

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": "prediction",
            **self.system.summary(
                "model", "gpu", "tp", "ep", "attention_dp", "weights", "kv_dtype", "engine",
                "engine_version", "method", "draft", "k", "acceptance_length", "acceptance",
            ),
            **picked(self, "input_len=workload.input_len output_len=workload.output_len "
                           "fidelity=system.fidelity points break_even_concurrency best_k "
                           "max_concurrency memory=system.memory"),
            **({"apart": self.apart.to_dict()} if self.apart is not None else {}),
            "warnings": list(self.warnings),
        }


def predict(
    system: System,
    workload: Workload,
    concurrencies: list[int] | None = None,
    rates: list[float] | None = None,
    warnings: tuple[str, ...] = (),
    search_k: bool = True,
    apart: Apart | None = None,
) -> PredictionFigures:
    """Predicts every load asked for (closed loop by concurrency, open loop by rate).

    apart: replicas that compute the prompts, while `system` decodes; rates alone may be asked for,
    and break-even, best k and the limit are those of decode replicas."""
    notes = list(warnings)
    points = [load_point(system, workload, clients) for clients in concurrencies or []]
    for rate in rates or []:
        point = load_point(system, workload, rate=rate, apart=apart)
        if not point.stable:
            notes.append(f"rate {rate:g}/s is beyond the capacity: the queue grows without end")
        elif point.steepness is not None and point.utilisation is not None and (
            point.utilisation >= NEAR or point.steepness >= STEEP
        ):
            notes.append(
                f"rate {rate:g}/s is {point.utilisation:.0%} of the capacity and near what the "
                f"server keeps up with: 1% more requests make TPOT {point.steepness:.1f}% longer"
            )
        points.append(point)
    if workload.requests_per_client:
        notes.append(
            f"TTFT: mean of a run of {counted(workload.requests_per_client, 'request')} per client "
            "that starts with all clients at once"
        )
    seen, replicas = workload, 1
    if apart is not None:
        seen, replicas = decode_load(workload), apart.decode_replicas
    limit = running_limit(system, seen)
    if note := interval_note(system):
        notes.append(note)
    candidates = candidate_k(system) if search_k else []
    if candidates:
        points = [
            replace(p, best_k=best_k_at(
                system, seen, max(1, round(p.concurrency / replicas)), candidates
            ))
            for p in points
        ]
    even = None
    if system.speculative:
        even = break_even(system, seen)
    return PredictionFigures(
        system, workload, tuple(points), even, limit * replicas, tuple(notes), apart
    )


def load_point(
    system: System, workload: Workload, clients: int = 1, rate: float | None = None,
    apart: Apart | None = None,
) -> LoadPoint:
    """One load: so many clients, or requests per second."""
    pair = compared(system, workload, clients, rate, apart)
    found, base, plain = pair.found, pair.base, system.plain()
    alone = apart.plain() if apart is not None else None
    energy, base_energy = (
        energy_of(system, workload, found, apart), energy_of(plain, workload, base, alone)
    )
    ratio = None
    if energy is not None and base_energy is not None:
        ratio = energy.joules_per_output_token / base_energy.joules_per_output_token
    intervals = {
        "tpot_s": interval_of(system, "tpot", found.tpot_s),
        "ttft_s": interval_of(system, "ttft", found.ttft_s),
        "baseline_tpot_s": interval_of(plain, "tpot", base.tpot_s),
        "baseline_ttft_s": interval_of(plain, "ttft", base.ttft_s),
        "speedup": interval_of(system, "speedup", pair.speedup),
        "step_cost_ratio": interval_of(system, "step_cost_ratio", pair.step_cost_ratio),
        "joules_per_output_token": token_interval(
            system, energy, found.tpot_s, rate is not None
        ),
        "baseline_joules_per_output_token": token_interval(
            plain, base_energy, base.tpot_s, rate is not None
        ),
        "joules_ratio": ratio_interval(system, ratio, pair.speedup),
    }
    return LoadPoint(
        concurrency=clients if rate is None else found.running,
        ttft_s=found.ttft_s,
        tpot_s=found.tpot_s,
        itl_s=found.tpot_s * system.tokens_per_step,
        step_s=pair.state.step_s,
        output_tok_s=found.output_tok_s,
        stream_tok_s=found.stream_tok_s,
        baseline_ttft_s=base.ttft_s,
        baseline_tpot_s=base.tpot_s,
        baseline_step_s=pair.base_state.step_s,
        baseline_output_tok_s=base.output_tok_s,
        speedup=pair.speedup,
        step_cost_ratio=pair.step_cost_ratio,
        bound=pair.state.bound,
        running=found.running,
        queue_s=found.queue_s,
        request_rate=pair.state.request_rate if rate is None else rate,
        utilisation=found.utilisation if isinstance(found, OpenState) else None,
        steepness=found.steepness if isinstance(found, OpenState) and found.stable else None,
        stable=found.stable if isinstance(found, OpenState) else True,
        best_k=None,
        energy=energy,
        baseline_energy=base_energy,
        joules_ratio=ratio,
        interval_90={name: list(pair) if pair else None for name, pair in intervals.items()},
    )


def break_even(
    system: System, workload: Workload, limit: int | None = None, resolution: float = 0.0
) -> int | None:
    """Smallest concurrency up to `limit` at which the speedup is below 1; None when there is none.
    limit: None: the largest batch of either side, as clients beyond the one that speculation holds
    wait, while a plain server may run them. resolution: share of the answer that it may lie too
    high.

    Powers of two are scanned first: routed models lose before they win again as the batch grows,
    so the curve is not monotone and a bisection over the whole range would miss crossings.
    """
    plain = system.plain()
    if limit is None:
        limit = max(running_limit(side, workload) for side in (system, plain))

    def loses(concurrency: int) -> bool:
        with_it = closed_loop(system, workload, concurrency).output_tok_s
        return with_it < closed_loop(plain, workload, concurrency).output_tok_s

    return first_from_one(loses, limit, resolution)


def candidate_k(system: System) -> list[int]:
    """Draft lengths to compare, where the method drafts a chain of free length; else none."""
    setup = system.setup
    if not setup.drafting.free_length or setup.tree_topk > 1:
        return []
    return setup.draft_lengths(system.engine, LONGEST_CANDIDATE)


def throughputs(
    system: System, workload: Workload, concurrency: int, candidates: Sequence[int]
) -> dict[int, float]:
    """Output tokens per second by draft length at one concurrency, plain decoding (0) among them.

    Candidates whose cache or token budget does not hold one request are left out."""
    rates = {0: closed_loop(system.plain(), workload, concurrency).output_tok_s}
    for k in candidates:
        try:
            rates[k] = closed_loop(system.with_(k=k), workload, concurrency).output_tok_s
        except (CapacityError, UsageError):
            continue
    return rates


def best_k_at(
    system: System, workload: Workload, concurrency: int, candidates: Sequence[int]
) -> int:
    """The candidate with the highest throughput at one concurrency (0: plain decoding wins)."""
    rates = throughputs(system, workload, concurrency, candidates)
    return max(rates, key=lambda k: (rates[k], -k))
