"""How one model is served on one type of GPU: TP, draft length, slots, capacity of a replica.

    TP      the smallest that fits, or twice that where formulas give more load per GPU
    k       the file's; else the draft length with the highest throughput at half the slots
    slots   the file's max_num_seqs; else the most that keep the floor per stream with all slots
            taken (by formulas, then checked by simulation and lowered until it holds)
    load    the largest that meets the gates (the floor is one of them): by simulation, or by
            formulas (quick)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from specsim.analytic.closed import closed_loop
from specsim.analytic.predict import best_k_at, candidate_k
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import CapacityError, ProfileError, UsageError
from specsim.planning.capacity import Finder, with_waiting_gate
from specsim.planning.capacity_loads import LoadShape, People
from specsim.planning.capacity_result import Point, Wishes
from specsim.planning.capacity_runs import WITH, Heard, Runner, Study
from specsim.planning.capacity_slots import GATE, first_slots, step_of
from specsim.planning.capacity_start import estimate_capacity, lengthened, usual_workload
from specsim.planning.limits import Limit
from specsim.planning.matrix import WIDTHS

REPLICATIONS = 8
RESOLUTION = 0.05
MOST_SLOTS = 1024  # recommended for one replica


@dataclass(frozen=True)
class Asked:
    """A model to size. build(gpu, tp): its system (CapacityError where it does not fit). demand: in
    the unit of the shape, 0 for what fills. tp, slots, k_fixed: what the file says; 0, 0, False:
    to be chosen."""

    name: str
    build: Callable[[str, int], System]
    shape: LoadShape
    slo: Mapping[str, float]
    floor_tok_s: float
    demand: float = 0.0
    tp: int = 0
    slots: int = 0
    k_fixed: bool = False
    settings: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Effort:
    """How figures are made. quick: by formulas, not by simulation; jobs: processes."""

    quick: bool = False
    seed: int = 0
    jobs: int = 1


class _Found(NamedTuple):
    """A way to serve a model: load of one replica by formulas, and where its max_num_seqs is
    from."""

    load: float
    system: System
    slots: int
    origin: str


@dataclass(frozen=True)
class Sized:
    """A model on a type of GPU. capacity: load of one replica at the edge of its gates. slots_from:
    where max_num_seqs is from. running: mean running requests at capacity. stream_tok_s: p10 there.
    limit: what limits it, None by formulas. study: to run more."""

    name: str
    gpu: str
    system: System
    slots: int
    slots_from: str
    capacity: float
    estimate: float
    running: float
    stream_tok_s: float
    limit: Limit | None
    study: Study
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        return self.system.parallel.all_gpus


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a model cannot be served on a type of GPU. refused: by a rule that the file's options
    break at every TP, so that no GPU is too small."""

    name: str
    gpu: str
    reason: str
    refused: bool = False


def gates_of(asked: Asked) -> dict[str, float]:
    """The gates with the floor as one of them."""
    gates = dict(asked.slo)
    if asked.floor_tok_s > 0:
        gates[GATE] = max(asked.floor_tok_s, gates.get(GATE, 0.0))
    return with_waiting_gate(gates)


def size_model(
    asked: Asked, gpu: str, effort: Effort, heard: Heard | None = None
) -> Sized | Misfit:
    """The best way found to serve a model on a type of GPU, or why there is none."""
    gates = gates_of(asked)
    best: _Found | None = None
    fits: _Found | None = None
    reasons: list[str] = []
    refused = True
    for tp in _widths(asked):
        try:
            system = asked.build(gpu, tp)
            if tp > system.profile.gpus_per_node > 0 and not asked.tp:
                break
            system, slots, origin = _tuned(system, asked, gates)
            load = estimate_capacity(system, asked.shape, gates)
        except (CapacityError, UsageError, ProfileError) as error:
            reasons.append(str(error))
            refused &= isinstance(error, UsageError)
            if best is not None:
                break
            continue
        found = _Found(load, system, slots, origin)
        fits = fits or found
        if best is not None:
            # Twice the smallest width that serves: no wider one is tried.
            if load / system.parallel.all_gpus > best.load / best.system.parallel.all_gpus:
                best = found
            break
        if load > asked.shape.lowest:
            best = found
    best = best or fits
    if best is None:
        why = reasons[0] if reasons else "no TP was tried"
        return Misfit(asked.name, gpu, why, refused and bool(reasons))
    asked = replace(asked, shape=lengthened(best.system, asked.shape, gates))
    study = Study(best.system, (asked.shape,), gates, asked.settings)
    if effort.quick:
        return _by_formulas(asked, gpu, study, best)
    return _by_runs(asked, gpu, study, best, effort, heard)


def _widths(asked: Asked) -> tuple[int, ...]:
    return (asked.tp,) if asked.tp else WIDTHS


def _tuned(system: System, asked: Asked, gates: Mapping[str, float]) -> tuple[System, int, str]:
    """The system with draft length and slots. (system, slots, where the slots are from)"""
    floor = gates.get(GATE, 0.0)
    slots, origin = asked.slots, "file"
    if not slots:
        slots, origin = system.seqs_limit, f"default of {system.engine.name}"
        if floor > 0:
            most = min(MOST_SLOTS, first_slots(system, asked.shape, floor))
            step = step_of(most)
            slots, origin = max(1, most // step * step), f"floor of {floor:g} tok/s"
    system = system.with_(max_num_seqs=slots or system.max_num_seqs)
    candidates = candidate_k(system)
    if not asked.k_fixed and candidates:
        workload = usual_workload(asked.shape)
        k = best_k_at(system, workload, max(1, min(slots, 256) // 2), candidates)
        system = system.with_(k=k)
    return system, slots, origin


def _by_formulas(asked: Asked, gpu: str, study: Study, best: _Found) -> Sized:
    from specsim.planning.capacity_start import CrowdModel, arrivals_at

    shape, load = asked.shape, best.load
    if isinstance(shape, People):
        found = CrowdModel(study.system, shape).at(load)
    else:
        found = arrivals_at(study.system, shape, load)
    stream = 1.0 / found.tpot_s if found.tpot_s > 0 else 0.0
    usable = load if load > shape.lowest else 0.0
    return Sized(
        asked.name, gpu, study.system, best.slots, best.origin, usable, load, found.running,
        stream, None, study, ("capacity by formulas, not simulated",),
    )


def _by_runs(
    asked: Asked, gpu: str, study: Study, best: _Found, effort: Effort, heard: Heard | None
) -> Sized:
    wishes = Wishes(
        replications=REPLICATIONS, seed=effort.seed, resolution=RESOLUTION, baseline=False
    )
    slots = best.slots
    notes: list[str] = []
    floor = study.slo.get(GATE, 0.0)
    with Runner(study, effort.jobs, heard) as runner:
        finder = Finder(runner, wishes)
        if floor > 0 and asked.floor_tok_s > 0 and not asked.slots:
            found = finder.slots(WITH, floor)
            if found.slots:
                slots = found.slots
        elif floor > 0 and asked.slots:
            trial = finder.slot_trial(WITH, asked.slots, floor)
            if not trial.ok:
                got = trial.stream_tok_s_p10 or 0.0
                notes.append(
                    f"{asked.name}: with all {asked.slots} request slots taken streams fall to "
                    f"{got:.3g} tok/s (p10), below the floor of {floor:g}: lower max_num_seqs"
                )
        side = finder.side(WITH, slots)
        if finder.interrupted:
            raise KeyboardInterrupt
    at = side.at
    running = (at.figures["running_mean"] or 0.0) if at else 0.0
    stream = (at.figures["stream_tok_s.p10"] or 0.0) if at else 0.0
    system = study.system.with_(max_num_seqs=slots or study.system.max_num_seqs)
    return Sized(
        asked.name, gpu, system, slots, best.origin, side.capacity, side.estimate, running, stream,
        side.limit, replace(study, system=system), tuple(notes),
    )


def point_at(sized: Sized, amount: float, seed: int) -> Point:
    """Figures of one replica at a load, by simulation."""
    with Runner(sized.study, 1) as runner:
        return Finder(runner, Wishes(seed=seed)).point(WITH, 0, amount)


PROMPTS = (0.125, 0.25, 0.5, 1.0, 1.5, 2.0)  # of the usual context
CONTEXTS = (0.5, 1.0, 2.0)
MAX_BATCHES = 12


def planner_profile(sized: Sized) -> tuple[dict[str, object], dict[str, object]]:
    """A replica as Dynamo's planner wants it profiled: time to first token by prompt length, time
    per token by share of the cache in use and context, as (prefill, decode), each a table of
    equally long columns (what its profiler writes as `prefill_raw_data.json` and
    `decode_raw_data.json`; read in ai-dynamo 1.5.1, dynamo/planner/monitoring/perf_metrics.py,
    Apache-2.0). Milliseconds; throughput per GPU."""
    system, context = sized.system, sized.study.shape.context_tokens
    prompts = sorted({max(16, round(context * part)) for part in PROMPTS})
    ttft_s = [closed_loop(system, Workload(tokens, 2), 1).ttft_s for tokens in prompts]
    cache = system.memory.kv_tokens
    rows = []
    for tokens in (max(16, round(context * part)) for part in CONTEXTS):
        most = max(1, min(sized.slots or system.seqs_limit, system.memory.max_requests(tokens)))
        for batch in sorted({max(1, round(most ** (i / MAX_BATCHES)))
                             for i in range(MAX_BATCHES + 1)}):
            step_s = system.decoding_s(batch, tokens)
            rows.append((batch * tokens / cache, tokens, step_s / system.tokens_per_step, batch))
    return (
        {"prefill_isl": prompts, "prefill_ttft": [1e3 * s for s in ttft_s],
         "prefill_thpt_per_gpu": [
             n / s / sized.gpus for n, s in zip(prompts, ttft_s, strict=True)]},
        {"x_kv_usage": [use for use, *_ in rows], "y_context_length": [n for _, n, *_ in rows],
         "z_itl": [1e3 * s for *_, s, _ in rows],
         "z_thpt_per_gpu": [n / s / sized.gpus for *_, s, n in rows], "max_kv_tokens": cache},
    )
