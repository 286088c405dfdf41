"""The static paged cache of keys and values: who owns which page (the memory is `KVCache`).

Memory: one tensor [layers, pages, 2, kv_heads, page, head_dim], 2 being keys and values, allocated
once, full of zeros. Head-major inside a page, so that one head's keys are one block: a CPU slice of
a slot is a view that torch's attention reads in place, and a GPU tile is one contiguous load. Keys
and values share the tensor so that one kernel stores both. The zeros matter: a masked attention
over a NaN left in an unused position is NaN (0 * NaN).

Nothing is ever cropped or cleared. Positions at or beyond a sequence's length hold stale values;
lengths are the only truth, and a step overwrites what it will read. Pages for a whole request
(prompt + answer + one step's drafts) are reserved when it is admitted, because under a readback
lag the host does not know lengths in time to allocate on demand.

The last slot is scratch: padded rows of a batch write there. Its page is never handed out.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class BlockTable:
    """Which page holds which positions of which slot: table [slots, max_pages] int64 on device.

    `whole_slots`: one page per slot, page id = slot id (both are handed out lowest first); then the
    table never changes and a range of slots is a view of the cache. Otherwise page 0 is scratch and
    every table entry without a page of its own points there.
    """

    __slots__ = ("max_pages", "page_size", "slots", "table", "whole_slots")

    def __init__(self, slots: int, max_tokens: int, page_size: int, device: torch.device) -> None:
        self.slots, self.page_size = slots, page_size
        self.max_pages = -(-max_tokens // page_size)
        self.whole_slots = self.max_pages == 1
        if self.whole_slots:
            self.table = torch.arange(slots, device=device).view(slots, 1)
        else:
            self.table = torch.zeros((slots, self.max_pages), dtype=torch.int64, device=device)

    @property
    def capacity(self) -> int:
        """Positions the pages of one slot hold."""
        return self.max_pages * self.page_size

    def store_index(self, rows: Tensor, positions: Tensor, kv_heads: int) -> Tensor:
        """Flat cache rows of positions [B, Q] of slots rows [B]: [B * Q, 2 * kv_heads], keys first.

        Positions past the slot's last page go to its last page's last place, which no live
        sequence reads (pages are reserved with room for every position that is read).
        """
        where = positions.clamp(0, self.capacity - 1)
        page = self.table[rows.unsqueeze(1), where // self.page_size]  # [B, Q]
        heads = torch.arange(2 * kv_heads, device=rows.device)
        base = (page.unsqueeze(-1) * (2 * kv_heads) + heads) * self.page_size
        return (base + (where % self.page_size).unsqueeze(-1)).view(-1, 2 * kv_heads)

    def assign(self, slot: int, pages: Sequence[int]) -> None:
        """Give `slot` its pages; entries beyond them point at the scratch page, 0."""
        if self.whole_slots:
            return
        row = torch.zeros((self.max_pages,), dtype=torch.int64)
        row[: len(pages)] = torch.tensor(pages, dtype=torch.int64)
        self.table[slot].copy_(row, non_blocking=True)


class PageAllocator:
    """Free list of page ids on the host. Lowest first, so runs are reproducible."""

    __slots__ = ("_free", "page_size", "total")

    def __init__(self, pages: Sequence[int], page_size: int) -> None:
        self._free = sorted(pages, reverse=True)
        self.total, self.page_size = len(self._free), page_size

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share that is handed out, 0 to 1."""
        return (self.total - len(self._free)) / self.total

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def reserve(self, tokens: int) -> list[int] | None:
        """Pages for `tokens`, or None when too few are free now."""
        need = self.pages_for(tokens)
        if need > len(self._free):
            return None
        return [self._free.pop() for _ in range(need)]

    def release(self, pages: Sequence[int]) -> None:
        self._free.extend(pages)
        self._free.sort(reverse=True)
