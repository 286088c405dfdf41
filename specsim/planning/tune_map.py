"""Which draft length at which batch and context: the map of `tune --by`.

A cell is a closed loop of so many clients whose prompts have that many tokens, priced as `predict`
prices it: prompts beside decoding, memory, requests that wait. An engine's own table knows the
batch alone, so it is made for one context and judged at all of them. At k = 0 such a table leaves
speculation on (see `tune_dynamic`); `off` is a deployment without it.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from specsim.analytic.closed import SteadyState, closed_loop
from specsim.analytic.intervals import interval_of
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import CapacityError, SpecSimError
from specsim.jsonable import Jsonable, picked
from specsim.planning.tune_dynamic import DynamicTable

CLIENTS = (1, 4, 16, 64, 128, 256)
CONTEXTS = (512, 2048, 8192, 32768, 98304)
MOST_CELLS = 2000

Policy = Callable[["MapCell"], float]


@dataclass(frozen=True, slots=True)
class MapCell(Jsonable):
    """One number of clients at one length of the prompts.

    k: the best draft length, 0 where speculation off is faster. speedup: output tokens per second
    over plain decoding of the best length of 1 or more, with its 90 % interval; pays: whether all
    of the interval lies above 1 (yes), below (no) or neither. running: the fewest requests at
    once, over speculation off and all draft lengths. speedups: by draft length; at 0 the drafter
    stays loaded and drafts nothing. reason: why nothing runs here, else ''."""

    concurrency: int
    context: int
    k: int | None = None
    speedup: float | None = None
    speedup_90: tuple[float, float] | None = None
    pays: Literal["yes", "no", "unsure", ""] = ""
    running: float = 0.0
    plain_tok_s: float | None = None
    speedups: Mapping[str, float] | None = None
    reason: str = ""

    @property
    def waits(self) -> bool:
        """Whether requests wait at some draft length, so that batches are unlike."""
        return self.running < self.concurrency - 0.5

    def at(self, k: int) -> float:
        """The speedup of a draft length; NaN where it does not run."""
        return (self.speedups or {}).get(str(k), math.nan)


@dataclass(frozen=True)
class DraftMap:
    """Cells by context, then clients. lead: the method; table: by batch alone, made for
    `workload`, None where one length is all there is."""

    lead: System
    workload: Workload
    lengths: tuple[int, ...]
    cells: tuple[MapCell, ...]
    table: DynamicTable | None = None

    @cached_property
    def judged(self) -> tuple[MapCell, ...]:
        """The cells where all clients run, at every draft length."""
        return tuple(
            cell for cell in self.cells
            if cell.speedups is not None and not cell.waits
            and len(cell.speedups) == len(self.lengths) + 1
        )

    @cached_property
    def constant_k(self) -> int:
        """The best single draft length over the judged cells, 0: speculation off."""
        def product(k: int) -> float:
            return math.fsum(math.log(_constant(k)(cell)) for cell in self.judged)

        return max((0, *self.lengths), key=lambda k: (product(k), -k))

    @property
    def off_cost(self) -> tuple[float, float] | None:
        """Least and most by which staying on at k = 0 slows plain decoding, a share of its time."""
        costs = [1 / cell.at(0) - 1 for cell in self.judged]
        return (min(costs), max(costs)) if costs else None

    def gain(self, policy: Policy) -> dict[str, float] | None:
        """What a policy gains over the best single draft length: geometric mean over the cells, and
        most, shares; None where no cell is judged."""
        base = _constant(self.constant_k)
        ratios = [policy(cell) / base(cell) for cell in self.judged]
        if not ratios:
            return None
        return {"mean": statistics.geometric_mean(ratios) - 1, "most": max(ratios) - 1}

    def by_cell(self, cell: MapCell) -> float:
        """Speedup of a table that knows batch and context."""
        return max(cell.at(k) for k in (0, *self.lengths))

    def by_batch(self, cell: MapCell) -> float:
        """Speedup of the engine's table, which knows the batch alone."""
        rows = self.table.rows if self.table is not None else ()
        return cell.at(next((k for _, last, k in rows if cell.running <= last), rows[-1][2]))

    def given_away(self) -> list[dict[str, object]]:
        """Per context: most that the table by batch loses to one that knows the context too."""
        lost: dict[int, list[float]] = {}
        for cell in self.judged if self.table is not None else ():
            lost.setdefault(cell.context, []).append(1 - self.by_batch(cell) / self.by_cell(cell))
        return [{"context": context, "most": max(some)} for context, some in lost.items()]

    def to_dict(self) -> dict[str, object]:
        return {
            **self.lead.summary("method", "draft"),
            **picked(self.workload, "output_len table_context=mean_context"),
            "lengths": list(self.lengths),
            "constant_k": self.constant_k if self.judged else None,
            "gains": {"by_batch_and_context": self.gain(self.by_cell),
                      "by_batch": self.gain(self.by_batch) if self.table is not None else None},
            "off_cost": list(self.off_cost) if self.off_cost else None,
            "given_away": self.given_away(),
            "cells": [cell.to_dict() for cell in self.cells],
        }


def _constant(k: int) -> Policy:
    """Always this draft length; 0: speculation off."""
    return lambda cell: cell.at(k) if k else 1.0


def draft_map(
    lead: System, lengths: Sequence[int], workload: Workload, clients: Iterable[int],
    contexts: Iterable[int], table: DynamicTable | None, report: Callable[[], None] = lambda: None,
) -> DraftMap:
    """Every number of clients at every length of the prompts. report() is called for each cell."""
    counts, cells = list(clients), []
    for context in contexts:
        load = replace(workload, input_len=context)
        for count in counts:
            cells.append(_cell(lead, lengths, load, count))
            report()
    return DraftMap(lead, workload, tuple(lengths), tuple(cells), table)


def _cell(lead: System, lengths: Sequence[int], workload: Workload, clients: int) -> MapCell:
    place = clients, workload.input_len
    most = lead.spec.max_position
    if most and workload.input_len + workload.output_len > most:
        return MapCell(*place, reason=f"longer than the {most} tokens of {lead.spec.name}")
    try:
        plain = closed_loop(lead.plain(), workload, clients)
    except CapacityError as error:
        return MapCell(*place, reason=str(error))
    found: dict[int, SteadyState] = {}
    for k in (0, *lengths):
        try:
            side = lead.with_(k=k) if k else _at_rest(lead.with_(k=max(lengths)))
            found[k] = closed_loop(side, workload, clients)
        except SpecSimError:
            continue  # a budget too small for so many drafts, a cache too small for the drafter's
    gains = {k: state.output_tok_s / plain.output_tok_s for k, state in found.items()}
    k = max((k for k in gains if k), key=lambda k: (gains[k], -k), default=0)
    running = min(state.running for state in (plain, *found.values()))
    cell = MapCell(*place, running=running, plain_tok_s=plain.output_tok_s)
    if not k:
        return replace(cell, reason="no draft length fits beside the drafter")
    interval = interval_of(lead.with_(k=k), "speedup", gains[k])
    low, high = interval or (gains[k], gains[k])
    return replace(
        cell, k=k if gains[k] > 1 else 0, speedup=gains[k], speedup_90=interval,
        pays="yes" if low > 1 else "no" if high < 1 else "unsure",
        speedups={str(length): gain for length, gain in gains.items()},
    )


def _at_rest(system: System) -> System:
    """Speculation on, in steps that draft nothing: k = 0 in an engine's table."""
    accepted = system.acceptance
    return system.with_(acceptance=accepted and replace(accepted, draft_probability=0.0))
