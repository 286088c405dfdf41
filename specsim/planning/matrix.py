"""Models x GPUs: what one GPU sustains, with speculation and without, at one operating point
(docs/capacity.md).

The point of a cell, per replica of the smallest TP that fits: exactly `concurrency` clients, or the
largest number of requests that keep the floor per stream and the limit of the mean TTFT. Users
follow Little's law: requests per second x (pause between two turns + time of an answer). Both sides
are held to the same point, so the ratio is what speculation adds in capacity, not in speed.
Formulas only (`analytic.closed`); seconds and tokens.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specsim.analytic.closed import SteadyState, closed_loop, running_limit
from specsim.analytic.system import System
from specsim.analytic.workload import Workload, request_s
from specsim.errors import CapacityError, SpecSimError, UsageError
from specsim.jsonable import Jsonable, picked
from specsim.search import first_from_one

WIDTHS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """Where cells are compared. concurrency: clients per replica, 0: by the floor. think_s: pause
    of a user between an answer and the next request."""

    workload: Workload
    think_s: float
    stream_floor: float = 0.0
    ttft_limit_s: float = 0.0
    concurrency: int = 0

    def to_dict(self) -> dict[str, object]:
        return {
            **picked(self.workload, "input_len output_len cached_share"),
            "think_s": self.think_s,
            "stream_floor": self.stream_floor or None,
            "ttft_limit_s": self.ttft_limit_s or None,
            "concurrency": self.concurrency or None,
        }


@dataclass(frozen=True, slots=True)
class Served(Jsonable):
    """One side of a cell. concurrency: running requests of the replica."""

    concurrency: int
    tok_s_per_gpu: float
    users_per_gpu: float
    stream_tok_s: float
    ttft_s: float
    tpot_s: float


@dataclass(frozen=True)
class Cell:
    """A model on a GPU. reason: why it cannot be served there ('' where it can).
    efficiencies_assumed: whether the kernel efficiencies of this device are. The sides are None
    where the operating point cannot be reached (`missed` says so), or there is no speculation."""

    model: str
    weights: str
    gpu: str
    tp: int
    method: str
    k: int
    acceptance_length: float | None
    plain: Served | None
    speculative: Served | None
    efficiencies_assumed: bool
    reason: str = ""
    missed: str = ""

    @property
    def fits(self) -> bool:
        return not self.reason

    @property
    def gain(self) -> float | None:
        if self.plain is None or self.speculative is None:
            return None
        return self.speculative.tok_s_per_gpu / self.plain.tok_s_per_gpu

    def to_dict(self) -> dict[str, object]:
        return {
            **picked(self, "model weights gpu"),
            "fits": self.fits,
            "tp": self.tp or None,
            **picked(self, "method k acceptance_length plain speculative gain "
                           "efficiencies_assumed"),
            "reason": self.reason or self.missed or None,
        }

    def row(self) -> dict[str, object]:
        """Flat, for CSV."""
        out = self.to_dict()
        for name, side in (("plain", self.plain), ("speculative", self.speculative)):
            del out[name]
            found = side.to_dict() if side else dict.fromkeys(Served.__slots__)
            out |= {f"{name}_{key}": value for key, value in found.items()}
        return out


@dataclass(frozen=True)
class MatrixFigures:
    """Cells in the order of models, then GPUs. partial: Ctrl-C came before the last one."""

    point: OperatingPoint
    cells: tuple[Cell, ...]
    warnings: tuple[str, ...] = ()
    partial: bool = False

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": "matrix",
            "operating_point": self.point.to_dict(),
            "cells": [cell.to_dict() for cell in self.cells],
            "partial": self.partial,
            "warnings": list(self.warnings),
        }


Build = Callable[[str, str, int], tuple[System, Sequence[str]]]
"""(model, gpu, tp) -> system and warnings; CapacityError where it does not fit."""


def matrix(
    models: Sequence[str], gpus: Sequence[str], build: Build, point: OperatingPoint, tp: int = 0,
    report: Callable[[int, int], None] | None = None,
) -> MatrixFigures:
    """Every model on every GPU. tp: this one; 0: the smallest that fits. A cell whose options are
    refused says why; UsageError where all are. report(done, total) hears of the progress."""
    cells: list[Cell] = []
    notes: list[str] = []
    refusals: list[UsageError] = []
    total, partial = len(models) * len(gpus), False
    try:
        for model, gpu in itertools.product(models, gpus):
            try:
                cell, said = cell_of(model, gpu, build, point, tp)
            except UsageError as error:
                # One model's heads or missing drafter must not cost the others their cells.
                refusals.append(error)
                cell, said = _empty(model, gpu, str(error)), []
            cells.append(cell)
            notes += [f"{model}: {text}" for text in said]
            if report is not None:
                report(len(cells), total)
    except KeyboardInterrupt:
        if not cells:
            raise
        partial = True
    if refusals and len(refusals) == total:
        raise refusals[0]
    if partial:
        notes.append(f"interrupted after {len(cells)} of {total} cells")
    return MatrixFigures(point, tuple(cells), tuple(dict.fromkeys(notes)), partial)


def cell_of(
    model: str, gpu: str, build: Build, point: OperatingPoint, tp: int
) -> tuple[Cell, list[str]]:
    """One cell, and what to know about it."""
    reason = ""
    tokens = point.workload.input_len + point.workload.output_len
    for width in (tp,) if tp else WIDTHS:
        try:
            system, said = build(model, gpu, width)
            if width > max(1, system.profile.gpus_per_node) and not tp:
                break
            if system.memory.max_requests(tokens) < 1:
                raise CapacityError(
                    f"no request of {tokens} tokens fits beside the weights at tp {width}"
                )
        except CapacityError as error:
            reason = str(error)  # of the widest tried
            continue
        except UsageError:
            # Heads or experts that do not divide by this width: only an error if it was asked for.
            if tp or width == 1:
                raise
            continue
        return _served(system, point, gpu), [
            text for text in said if not text.startswith("kernel efficiencies")
        ]
    return _empty(model, gpu, reason or "no tp fits"), []


def _empty(model: str, gpu: str, reason: str) -> Cell:
    return Cell(model, "", gpu, 0, "", 0, None, None, None, False, reason)


def _served(system: System, point: OperatingPoint, gpu: str) -> Cell:
    plain = _side(system.plain(), point)
    other = _side(system, point) if system.speculative else None
    missed = ""
    if plain is None and other is None:
        missed = "the operating point is not reached by a single request"
    elif plain is None:
        missed = "without speculation the operating point is not reached"
    elif system.speculative and other is None:
        missed = "with speculation the operating point is not reached"
    return Cell(
        model=system.spec.name, weights=system.spec.weights, gpu=gpu, tp=system.parallel.tp,
        method=system.setup.method, k=system.setup.k, acceptance_length=system.acceptance_length,
        plain=plain, speculative=other,
        efficiencies_assumed=system.profile.kernels_known != "measured", missed=missed,
    )


def _side(system: System, point: OperatingPoint) -> Served | None:
    """The operating point of one side; None where even one request misses it."""
    workload = point.workload
    try:
        if point.concurrency:
            return _at(closed_loop(system, workload, point.concurrency), system, point)
        limit = running_limit(system, workload)
    except SpecSimError:
        return None

    def state(running: int) -> SteadyState:
        return closed_loop(system, workload, running)

    def misses(running: int) -> bool:
        found = state(running)
        if found.tpot_s > 0 and 1.0 / found.tpot_s < point.stream_floor:
            return True
        return bool(point.ttft_limit_s) and found.ttft_s > point.ttft_limit_s

    # The time of a routed model's step is not smooth, and a batch that leaves the captured graphs
    # is slower, but what is looked for is the end of the first stretch.
    beyond = first_from_one(misses, limit) or limit + 1
    return _at(state(beyond - 1), system, point) if beyond > 1 else None


def _at(state: SteadyState, system: System, point: OperatingPoint) -> Served:
    gpus = system.parallel.all_gpus
    answer_s = request_s(state.ttft_s, state.tpot_s, point.workload.output_len)
    return Served(
        concurrency=round(state.running), tok_s_per_gpu=state.output_tok_s / gpus,
        users_per_gpu=state.request_rate * (point.think_s + answer_s) / gpus,
        stream_tok_s=state.stream_tok_s, ttft_s=state.ttft_s, tpot_s=state.tpot_s,
    )
