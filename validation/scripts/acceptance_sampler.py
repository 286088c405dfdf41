"""Accepted lengths of many requests step by step, drawn from the tables of the acceptance spread.

What `fit_acceptance_spread.py` compares with measured sequences: the law that the simulator draws
from (`specsim.sim.acceptance`), row by row instead of in blocks. State per row: `state`
(int64, request level * L + step level) and, if some steps have no draft, `drafted` (bool).
Constants: tables of `build_tables` (accept (k, S), draft (S,)), L = step_levels,
M = request_levels, R = L / (1 - persistence).

new request with id i in row r (no generator is touched, so a request has the same level however
it is scheduled):
    h = splitmix64(seed * 0x9E3779B97F4A7C15 + i);  a = h >> 32;  b = h & 0xFFFFFFFF
    state[r] = ((a * M) >> 32) * L + ((b * L) >> 32)
    drafted[r] = (splitmix64(h) >> 11) * 2**-53 < draft[state[r]]

draw for n rows: u = generator.random(c * n), a PCG64 generator (`numpy.random.default_rng(seed)`),
read as c rows of n, c = 1 + (L > 1) + (some steps have no draft):
    u[0]: accepted = number of i with u[0] < accept[i, state]        (0 where not drafted)
    next, if L > 1: z = floor(u * R); if z < L: state = state - state % L + z
    last, if some steps have no draft: drafted = u < draft[state]

One draw of n rows after another reads the generator like one block of their total size. Everything
is comparison and one multiplication, so no rounding can differ between implementations.
"""

import common  # noqa: F401  (so that specsim is this checkout's)
import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.errors import UsageError
from specsim.sim.acceptance import splitmix64
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.acceptance_spread import (
    INDEPENDENT,
    AcceptanceSpread,
    SpreadTables,
    Weighting,
    build_tables,
)

IntArray = NDArray[np.int64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class AcceptanceSampler:
    """Draws accepted lengths with the given marginals, spread and memory.

    Same seed, same calls: same bytes. `k` is the longest draft; shorter ones are cut from it, as a
    verifier would.
    """

    def __init__(
        self,
        acceptance: Acceptance,
        spread: AcceptanceSpread = INDEPENDENT,
        *,
        k: int | None = None,
        seed: int = 0,
        rows: int = 256,
        weighting: Weighting = "request",
    ) -> None:
        self.tables: SpreadTables = build_tables(acceptance, spread, k=k, weighting=weighting)
        self.k: int = self.tables.k
        self.seed = seed
        self.always_drafts = acceptance.draft_probability >= 1.0
        self.columns = 1 + (self.tables.step_levels > 1) + (not self.always_drafts)
        self.redraw_scale = self.tables.step_levels / (1.0 - self.tables.persistence)
        self.generator = np.random.default_rng(seed)
        self._accept = np.ascontiguousarray(self.tables.accept)
        self._step_levels = self.tables.step_levels
        states = np.arange(self.tables.draft.size, dtype=np.int64)
        self._base: IntArray = states - states % self._step_levels
        self.state: IntArray = np.zeros(rows, dtype=np.int64)
        self.has_draft: NDArray[np.bool_] = np.ones(rows, dtype=np.bool_)

    def new_requests(self, rows: ArrayLike, request_ids: ArrayLike) -> None:
        """Start requests in rows. Rows grow as needed; ids are non-negative whole numbers."""
        where = np.atleast_1d(np.asarray(rows, dtype=np.int64))
        ids = np.atleast_1d(np.asarray(request_ids, dtype=np.uint64))
        if where.shape != ids.shape:
            raise UsageError(f"{where.size} rows for {ids.size} requests; give one row per request")
        if where.size == 0:
            return
        self._grow(int(where.max()) + 1)
        offset = np.uint64((self.seed * _GOLDEN) & _MASK)
        first = splitmix64(ids + offset)
        high = first >> np.uint64(32)
        low = first & np.uint64(0xFFFFFFFF)
        tables = self.tables
        level = (high * np.uint64(tables.request_levels)) >> np.uint64(32)
        step = (low * np.uint64(tables.step_levels)) >> np.uint64(32)
        state = (level * np.uint64(tables.step_levels) + step).astype(np.int64)
        self.state[where] = state
        if not self.always_drafts:
            uniform = (splitmix64(first) >> np.uint64(11)).astype(np.float64) * 2.0**-53
            self.has_draft[where] = uniform < tables.draft[state]

    def drafted(self, rows: IntArray) -> NDArray[np.bool_] | None:
        """Which rows carry a draft in the coming step; None if all do."""
        return None if self.always_drafts else self.has_draft[rows]

    def draw(self, rows: IntArray, k: int | IntArray | None = None) -> IntArray:
        """Accepted drafts (0..k) of each row in this step; rows may not repeat."""
        n = len(rows)
        uniforms = self.generator.random(self.columns * n)
        state = self.state[rows]
        accepted: IntArray = np.add.reduce(
            uniforms[:n] < self._accept.take(state, axis=1), axis=0, dtype=np.int64
        )
        if not self.always_drafts:
            accepted *= self.has_draft[rows]
        levels = self._step_levels
        if levels > 1:
            redrawn = (uniforms[n : 2 * n] * self.redraw_scale).astype(np.int64)
            np.putmask(state, redrawn < levels, self._base.take(state) + redrawn)
            self.state[rows] = state
        if not self.always_drafts:
            self.has_draft[rows] = uniforms[-n:] < self.tables.draft.take(state)
        if k is not None:
            np.minimum(accepted, k, out=accepted)
        return accepted

    def _grow(self, rows: int) -> None:
        have = len(self.state)
        if rows > have:
            size = max(rows, 2 * have)
            self.state = np.concatenate([self.state, np.zeros(size - have, dtype=np.int64)])
            self.has_draft = np.concatenate([self.has_draft, np.ones(size - have, dtype=np.bool_)])
