"""Statistics from the log of steps: gaps between chunks, queue and batch over time, time shares.

The step loop only writes down what it did; this adds it up whenever the log is full. Averages over
time count from the end of the warm-up.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from specsim.latency.shape import PrefillChunk, StepShape
from specsim.sim.core import Core, StepLog
from specsim.sim.distributions import LogHistogram
from specsim.sim.streams import cut_runs
from specsim.sim.surface import Surface

MOST_BINS = 1024


def chunks_like(new: int, span: float) -> tuple[PrefillChunk, ...]:
    """Prompt chunks of `new` tokens in all that attend to `span` tokens each on average.

    As few prompts of equal length as attend to no more than that by themselves, each behind as
    many cached tokens as make up the rest.
    """
    count = min(new, max(1, math.ceil(new / max(1.0, 2 * span - 1))))
    size, more = divmod(new, count)
    cached = max(0, round(span - (new / count + 1) / 2))
    return tuple(PrefillChunk(size + (i < more), cached) for i in range(count))


def _halved(area: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same areas in bins of twice the width."""
    return np.concatenate([area[:, ::2] + area[:, 1::2], np.zeros_like(area[:, ::2])], axis=1)


def _first(log: StepLog, count: int) -> StepLog:
    """A copy of the first `count` entries of a log (which may be a structure, see `structs`)."""
    return StepLog(*(getattr(log, item.name)[:count].copy() for item in fields(StepLog)))


class Timeline:
    """Time averages of running, waiting, held blocks and tokens per bin of equal width.

    The width doubles whenever the run outgrows the bins, so memory does not grow with time.
    """

    FIELDS = ("running", "waiting", "kv_blocks", "tokens", "busy")

    def __init__(self, width_s: float = 0.125) -> None:
        self.width_s = width_s
        self.area: NDArray[np.float64] = np.zeros((len(self.FIELDS), MOST_BINS))
        self.end_s = 0.0

    def add(self, start: NDArray[np.float64], end: NDArray[np.float64], values: NDArray[np.float64]
            ) -> None:
        """Add steps; values [field, step], of which tokens is a count and not a level."""
        if not len(end):
            return
        self.end_s = max(self.end_s, float(end[-1]))
        while self.end_s >= self.width_s * MOST_BINS:
            self.area = _halved(self.area)
            self.width_s *= 2
        first = (start / self.width_s).astype(np.int64)
        last = np.minimum((end / self.width_s).astype(np.int64), MOST_BINS - 1)
        tokens = self.FIELDS.index("tokens")
        np.add.at(self.area[tokens], last, values[tokens])
        levels = [i for i in range(len(self.FIELDS)) if i != tokens]
        inside = first == last
        span = (end - start)[inside]
        for i in levels:
            np.add.at(self.area[i], first[inside], values[i][inside] * span)
        # The others in pieces, one for each bin that they touch.
        across = np.flatnonzero(~inside)
        pieces = (last - first)[across] + 1
        step = np.repeat(across, pieces)
        place = np.arange(len(step)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        bins = first[step] + place
        left = np.where(place == 0, start[step], bins * self.width_s)
        right = np.where(bins == last[step], end[step], (bins + 1) * self.width_s)
        for i in levels:
            np.add.at(self.area[i], bins, values[i][step] * (right - left))

    def merge(self, other: "Timeline") -> "Timeline":
        """Sum of two timelines (replicas side by side)."""
        both = Timeline(max(self.width_s, other.width_s))
        both.end_s = max(self.end_s, other.end_s)
        for one in (self, other):
            area, width = one.area, one.width_s
            while width < both.width_s:
                area = _halved(area)
                width *= 2
            both.area = both.area + area
        return both


@dataclass(slots=True)
class StepStats:
    """What a replica's steps add up to. warmup_s, until_s: averages and shares count from here to
    there, also of a step that is still in progress at the end."""

    warmup_s: float = 0.0
    until_s: float = math.inf
    keep_trace: bool = False
    itl: LogHistogram = field(default_factory=LogHistogram)
    timeline: Timeline = field(default_factory=Timeline)
    steps: int = 0
    switches: int = 0  # decode steps whose draft length is another than in the one before
    last_width: int = 0
    busy_s: float = 0.0
    running_area: float = 0.0
    waiting_area: float = 0.0
    kv_area: float = 0.0
    running_max: int = 0
    last_emit_s: float = 0.0
    shapes: dict[tuple[int, int, int, bool], NDArray[np.float64]] = field(default_factory=dict)
    trace: list[StepLog] = field(default_factory=list)

    def flush(self, core: Core) -> None:
        """Take in the log of `core` and empty it."""
        cut_runs(core)
        if core.n_gaps:
            self.itl.add_many(core.gaps[: core.n_gaps].copy())
        if core.logged:
            self._take(_first(core.log, core.logged), core.cover)
        core.logged = 0
        core.n_gaps = 0
        core.cover[:] = 0
        core.cover_from = core.emit_step - 1

    def _take(self, log: StepLog, cover: NDArray[np.int64]) -> None:
        start, end = log.start_s, log.end_s
        emit_ends = end[log.emits > 0]
        weights = np.cumsum(cover)[1 : 1 + len(emit_ends)]
        if len(emit_ends):
            self.itl.add_many(np.diff(emit_ends, prepend=self.last_emit_s), weights)
            self.last_emit_s = float(emit_ends[-1])
        self.steps += len(end)
        running = log.rows + log.chunks
        self.running_max = max(self.running_max, int(running.max()))
        values = np.stack([running, log.waiting, log.held, log.out, np.ones(len(end))])
        self.timeline.add(start, end, values.astype(np.float64))
        if self.keep_trace:
            self.trace.append(log)
        widths = log.width[log.rows > 0]
        if len(widths):
            before = self.last_width or int(widths[0])
            self.switches += int(np.count_nonzero(np.diff(widths, prepend=before)))
            self.last_width = int(widths[-1])
        measured_end = np.minimum(end, self.until_s)
        seconds = np.maximum(0.0, measured_end - np.maximum(start, self.warmup_s))
        self.busy_s += float(seconds.sum())
        self.running_area += float((seconds * running).sum())
        self.waiting_area += float((seconds * log.waiting).sum())
        self.kv_area += float((seconds * log.held).sum())
        self._shapes(seconds, log)

    def _shapes(self, seconds: NDArray[np.float64], log: StepLog) -> None:
        """Add up steps of equal kind: verify width, drafts, and (coarsely) batch and prompts."""
        measured = seconds > 0.0
        batch = np.where(log.rows < 32, log.rows, log.rows // 16 * 16)
        key = ((log.width << 8 | log.next_drafts) << 20 | batch) << 1
        key |= log.new > 0
        kinds, place = np.unique(key[measured], return_inverse=True)
        columns = np.stack(
            [np.ones(len(seconds)), seconds, log.rows, log.context, log.new, log.span_work]
        )[:, measured]
        for i, kind in enumerate(kinds.tolist()):
            total = columns[:, place == i].sum(axis=1)
            name = (kind >> 29, (kind >> 21) & 255, (kind >> 1) & ((1 << 20) - 1), bool(kind & 1))
            known = self.shapes.get(name)
            self.shapes[name] = total if known is None else known + total

    def mean_shapes(self, surface: Surface) -> Iterator[tuple[StepShape, float]]:
        """(mean step, seconds) of each kind."""
        for (width, drafts, _, _), total in self.shapes.items():
            steps, seconds, rows, context, new, span = total.tolist()
            count = round(rows / steps)
            per_row = context / rows if rows else 0.0
            prompts = chunks_like(round(new / steps), span / new) if new else ()
            yield surface.shape(count, width, count * per_row, prompts, drafts), seconds

    def joules(self, surface: Surface, window_s: float) -> tuple[float, float] | None:
        """(all, of them while no step runs) of a replica over the measured time, from the watts of
        the mean step of each kind. None where the step cost knows no watts."""
        power_w: Callable[[StepShape | None], float | None] | None
        power_w = getattr(surface.cost, "power_w", None)
        if power_w is None or (idle_w := power_w(None)) is None:
            return None
        idle_j = idle_w * max(0.0, window_s - self.busy_s)
        return idle_j + sum(
            seconds * (power_w(shape) or 0.0) for shape, seconds in self.mean_shapes(surface)
        ), idle_j

    def time_parts(self, surface: Surface) -> dict[str, float]:
        """Seconds of draft, verify (or decode), prefill and host, from the mean shape of each kind
        of step; scaled to the simulated time. Needs a step cost with `parts(shape)`; without it
        prefill is what mixed steps cost beyond the same step without prompts."""
        out: dict[str, float] = {}
        split = getattr(surface.cost, "parts", None)
        for shape, seconds in self.mean_shapes(surface):
            width, count = shape.decode_q_len, shape.decode_seqs
            if split is not None:
                parts = dict(split(shape))
            else:
                whole = surface.cost.seconds(shape)
                bare = replace(shape, prefill=())
                alone = surface.cost.seconds(bare) if count else 0.0
                decode = min(alone, whole)
                parts = {"verify" if width > 1 else "decode": decode, "prefill": whole - decode}
            scale = sum(parts.values())
            for name, part in parts.items():
                out[name] = out.get(name, 0.0) + (seconds * part / scale if scale else 0.0)
        return out
