"""Accepted drafts of every request, step by step, independent of how requests are scheduled.

The step loop reads accepted lengths from a table of bytes, one row per request inside a replica,
refilled in blocks. A request's draws depend only on the run's seed and the request's id, so the
same request has the same random draws with another batch, router or scheduler: differences between
two runs are differences between the systems (common random numbers).

A draw is the number of accepted drafts of the longest draft allowed, at most k; a step that
proposes fewer cuts it. NO_DRAFT marks a step without a draft (n-gram misses).
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from specsim.errors import UsageError
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.acceptance_spread import INDEPENDENT, AcceptanceSpread, build_tables

DRAWS = 256  # per block
GROUP = 64  # requests whose blocks are drawn together
BLOCKS_KEPT = 128  # 2 MiB

Bytes = NDArray[np.uint8]
IntArray = NDArray[np.int64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def splitmix64(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Steele, Lea and Flood's 64-bit finaliser (the step of SplitMix64), element by element."""
    z = value + np.uint64(_GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


class DrawSource(Protocol):
    """Blocks of draws."""

    k: int
    skips: bool

    def block(self, request_id: int, number: int) -> Bytes:
        """Draws number * DRAWS ... of the request, DRAWS of them."""
        ...

    def first_blocks(self, request_ids: IntArray) -> Bytes:
        """Block 0 of each of these requests [request, draw]."""
        ...


class SpreadDraws:
    """Draws with given marginals, request-level spread and step-to-step memory.

    The latent level of a request is kept from one step to the next with probability
    `persistence`, else drawn anew. Same seed, same draws. compiled: they are read off by machine
    code, to the same bytes.
    """

    def __init__(
        self, acceptance: Acceptance, spread: AcceptanceSpread = INDEPENDENT, *, k: int,
        seed: int = 0, compiled: bool = False,
    ) -> None:
        self.k = k
        self.seed = seed
        self.tables = build_tables(acceptance, spread, k=k)
        self.skips = acceptance.draft_probability < 1.0
        states = self.tables.draft.size
        # Thresholds on one uniform by state: at least i drafts accepted, after (if some steps have
        # none) the draft exists.
        accept = self.tables.accept * self.tables.draft
        self._thresholds = np.vstack([self.tables.draft, accept]) if self.skips else accept
        moving = states > 1 and self.tables.step_levels > 1
        self._moves = np.empty((GROUP if moving else 0, DRAWS))
        self._uniform = np.empty((GROUP, DRAWS))
        self._loop: Callable[..., None] | None = None
        if compiled:
            from specsim.sim.compiled import draw_steps

            self._loop = draw_steps
        self._states = states
        self._blocks: dict[tuple[int, int], tuple[Bytes, IntArray]] = {}

    def first_blocks(self, request_ids: IntArray) -> Bytes:
        groups, places = np.divmod(request_ids, GROUP)
        out: Bytes = np.empty((len(request_ids), DRAWS), dtype=np.uint8)
        for group in np.unique(groups).tolist():
            here = groups == group
            out[here] = self._group_block(group, 0)[0][places[here]]
        return out

    def block(self, request_id: int, number: int) -> Bytes:
        group, place = divmod(request_id, GROUP)
        draws: Bytes = self._group_block(group, number)[0][place]
        return draws

    def _group_block(self, group: int, number: int) -> tuple[Bytes, IntArray]:
        """Draws [GROUP, DRAWS] of a block, and the latent states after it."""
        found = self._blocks.pop((group, number), None)
        if found is None:
            if number == 0:
                ids = np.arange(group * GROUP, (group + 1) * GROUP, dtype=np.uint64)
                start = self._start(ids)
            else:
                start = self._group_block(group, number - 1)[1]
            generator = np.random.default_rng([self.seed, group, number])
            found = self._draw(start, generator)
            if len(self._blocks) >= BLOCKS_KEPT:
                del self._blocks[next(iter(self._blocks))]
        self._blocks[group, number] = found  # the one used last is forgotten last
        return found

    def _start(self, ids: NDArray[np.uint64]) -> IntArray:
        """First latent state of each request, from its id alone."""
        tables = self.tables
        mixed = splitmix64(ids + np.uint64((self.seed * _GOLDEN) & _MASK))
        level = ((mixed >> np.uint64(32)) * np.uint64(tables.request_levels)) >> np.uint64(32)
        step = ((mixed & np.uint64(0xFFFFFFFF)) * np.uint64(tables.step_levels)) >> np.uint64(32)
        return (level * np.uint64(tables.step_levels) + step).astype(np.int64)

    def _draw(self, start: IntArray, generator: np.random.Generator) -> tuple[Bytes, IntArray]:
        """Draws [GROUP, DRAWS] from the first latent states, and the states of the step after."""
        moves, steps = self._moves, self.tables.step_levels
        if len(moves):
            generator.random(out=moves)
            moves *= steps / (1.0 - self.tables.persistence)
        uniform = generator.random(out=self._uniform)
        passed = np.zeros((GROUP, DRAWS), dtype=np.uint8)
        if self._loop is not None:
            after = start.copy()
            drawn = passed.reshape(-1)
            self._loop(after, moves.ravel(), uniform.ravel(), self._thresholds, steps, drawn)
            return self._encode(passed), after
        if self._states == 1:
            for threshold in self._thresholds[:, 0]:
                passed += uniform < threshold
            return self._encode(passed), start
        states = np.empty((GROUP, DRAWS + 1), dtype=np.int64)
        states[:, 0] = start
        if len(moves):
            # The level of a step is that of the last move before it.
            last = np.where(moves < steps, np.arange(1, DRAWS + 1), 0)
            np.maximum.accumulate(last, axis=1, out=last)
            levels = np.empty((GROUP, DRAWS + 1), dtype=np.int64)
            levels[:, 0] = start
            np.minimum(moves, steps - 1, out=moves)
            levels[:, 1:] = moves
            levels[:, 1:] += (start - start % steps)[:, None]
            last += np.arange(0, GROUP * (DRAWS + 1), DRAWS + 1)[:, None]
            states[:, 1:] = levels.ravel().take(last)
        else:
            states[:, 1:] = start[:, None]
        now = np.ascontiguousarray(states[:, :DRAWS])
        for thresholds in self._thresholds:
            passed += uniform < thresholds.take(now)
        return self._encode(passed), states[:, DRAWS].copy()

    def _encode(self, passed: Bytes) -> Bytes:
        """Thresholds passed to accepted drafts; where drafts may be missing, 0 means no draft."""
        return passed - np.uint8(1) if self.skips else passed  # 0 - 1 wraps to NO_DRAFT


class Recorded:
    """Recorded accepted drafts, request by request; ids beyond the record start over.

    sequences: accepted drafts of each verify step, in order. A request that outlives its record
    starts it again.
    """

    skips = False

    def __init__(self, sequences: Sequence[Sequence[int]], *, k: int) -> None:
        if not sequences:
            raise UsageError("there is no recorded request to replay; give at least one")
        self.k = k
        self._sequences: list[Bytes] = []
        for i, sequence in enumerate(sequences):
            if not len(sequence):
                raise UsageError(f"recorded request {i} is empty; leave it out")
            values = np.asarray(sequence, dtype=np.int64)
            if values.min() < 0 or values.max() > k:
                worst = int(values.min() if values.min() < 0 else values.max())
                raise UsageError(
                    f"recorded request {i} has an accepted length of {worst}, but it must be from "
                    f"0 to k = {k}; the bonus token is not counted"
                )
            self._sequences.append(values.astype(np.uint8))

    def block(self, request_id: int, number: int) -> Bytes:
        sequence = self._sequences[request_id % len(self._sequences)]
        places = np.arange(number * DRAWS, (number + 1) * DRAWS) % len(sequence)
        return sequence[places]

    def first_blocks(self, request_ids: IntArray) -> Bytes:
        return np.stack([self.block(request_id, 0) for request_id in request_ids.tolist()])
