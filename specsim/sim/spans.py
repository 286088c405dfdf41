"""Where the content pieces of prompts stand while their requests are inside a replica.

Each request's pieces lie side by side in two arrays of `Core` (key, and tokens up to the piece's
end). Space is handed out in order and closed up when it runs out. A piece in which no block ends
holds no block, so it is folded into the next one.
"""

import numpy as np

from specsim.sim import fields as f
from specsim.sim.fields import Core
from specsim.sim.request import Request

KEY_RANGE = (1 << 61) - 1


def fold_keys(first: int, second: int) -> int:
    """One key for two pieces that follow each other."""
    return (first * 1_000_003 + second + 1) % KEY_RANGE


def pieces_of(request: Request, block_size: int) -> list[tuple[int, int]]:
    """(key, tokens up to its end) of the pieces that hold blocks."""
    pieces: list[tuple[int, int]] = []
    end = blocks = 0
    folded: int | None = None
    last = len(request.spans) - 1
    for i, (key, tokens) in enumerate(request.spans):
        end = min(end + tokens, request.prompt_tokens)
        whole = key if folded is None else fold_keys(folded, key)
        folded = None
        if end // block_size == blocks and not (request.grows and i == last):
            folded = whole
            continue
        blocks = end // block_size
        pieces.append((whole, end))
    return pieces


class SpanPool:
    """Hands out space in `Core.span_key` and `Core.span_end`. count: requests with pieces."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._next = 0
        self._of_slot: dict[int, int] = {}

    @property
    def count(self) -> int:
        return len(self._of_slot)

    def place(self, core: Core, slot: int, request: Request) -> Core:
        """Store the pieces of a request. Returns the core, a new one if its arrays grew."""
        pieces = pieces_of(request, self._block_size)
        if not pieces:
            return core
        if self._next + len(pieces) > len(core.span_key):
            core = self._close_up(core, len(pieces))
        for i, (key, end) in enumerate(pieces):
            core.span_key[self._next + i] = key
            core.span_end[self._next + i] = end
        core.slot[slot][f.S_SPAN] = self._next
        core.slot[slot][f.S_N_SPANS] = len(pieces)
        core.slot[slot][f.S_GROWS] = int(request.grows)
        core.ints[f.I_SPAN_MAX] = max(core.ints[f.I_SPAN_MAX], len(pieces))
        self._of_slot[slot] = len(pieces)
        self._next += len(pieces)
        return core

    def forget(self, core: Core, slot: int) -> None:
        """The request in `slot` left."""
        self._of_slot.pop(slot, None)

    def _close_up(self, core: Core, wanted: int) -> Core:
        live = sum(self._of_slot.values())
        size = len(core.span_key)
        while 2 * (live + wanted) > size:
            size *= 2
        arrays = isinstance(core.span_key, np.ndarray)
        keys = np.zeros(size, dtype=np.int64) if arrays else [0] * size
        ends = np.zeros(size, dtype=np.int64) if arrays else [0] * size
        self._next = 0
        for slot, count in self._of_slot.items():
            first = int(core.slot[slot][f.S_SPAN])
            keys[self._next : self._next + count] = core.span_key[first : first + count]
            ends[self._next : self._next + count] = core.span_end[first : first + count]
            core.slot[slot][f.S_SPAN] = self._next
            self._next += count
        return core._replace(span_key=keys, span_end=ends)
