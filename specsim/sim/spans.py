"""Where the content pieces of prompts stand while their requests are inside a replica.

Each request's pieces lie side by side in `PrefixCache.piece_key` and `piece_end`. Space is handed
out in order and closed up when it runs out. A piece in which no block ends holds no block, so it
is folded into the next one.
"""

from specsim.sim.core import Core
from specsim.sim.request import Request
from specsim.sim.structs import longer

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
    """Hands out space for pieces in a `PrefixCache`. count: requests that have some."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._next = 0
        self._of_slot: dict[int, int] = {}

    @property
    def count(self) -> int:
        return len(self._of_slot)

    def place(self, core: Core, slot: int, request: Request) -> bool:
        """Store the pieces of a request. True if the arrays of the core were replaced."""
        pieces = pieces_of(request, self._block_size)
        if not pieces:
            return False
        cache = core.cache
        grew = self._next + len(pieces) > len(cache.piece_key)
        if grew:
            self._close_up(core, len(pieces))
        for i, (key, end) in enumerate(pieces):
            cache.piece_key[self._next + i] = key
            cache.piece_end[self._next + i] = end
        inside = core.slots[slot]
        inside.first_piece = self._next
        inside.pieces = len(pieces)
        inside.grows = int(request.grows)
        cache.most_pieces = max(cache.most_pieces, len(pieces))
        self._of_slot[slot] = len(pieces)
        self._next += len(pieces)
        return grew

    def forget(self, slot: int) -> None:
        """The request in `slot` left."""
        self._of_slot.pop(slot, None)

    def _close_up(self, core: Core, wanted: int) -> None:
        """Move the pieces of the live requests together, into arrays that hold `wanted` more."""
        old_keys, old_ends = core.cache.piece_key, core.cache.piece_end
        size = len(old_keys)
        while 2 * (sum(self._of_slot.values()) + wanted) > size:
            size *= 2
        keys = longer(old_keys[:0], size, 0)
        ends = longer(old_ends[:0], size, 0)
        self._next = 0
        for slot, count in self._of_slot.items():
            request = core.slots[slot]
            first = request.first_piece
            keys[self._next : self._next + count] = old_keys[first : first + count]
            ends[self._next : self._next + count] = old_ends[first : first + count]
            request.first_piece = self._next
            self._next += count
        core.cache.piece_key, core.cache.piece_end = keys, ends
