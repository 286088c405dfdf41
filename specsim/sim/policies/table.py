"""Draft lengths by batch size, fixed before the run: vLLM's table and its special cases.

vLLM's `num_speculative_tokens_per_batch_size` has rows (first batch, last batch, k), counted in
scheduled requests, prompts included. One row is a fixed length; two, with 0 in the second, switch
speculation off above a load (vLLM's `disable_by_batch_size` of older versions).
"""

from dataclasses import field

from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.errors import UsageError
from specsim.sim.policies.protocol import STRICT

BatchTable = tuple[tuple[int, int, int], ...]
MOST_REQUESTS = 65536


def drafts_by_batch(table: BatchTable, k: int, max_num_seqs: int) -> list[int]:
    """Draft length by number of scheduled requests, 0..max_num_seqs; k without a table. Gaps and
    what follows the last row keep the length before."""
    if not table:
        return [k] * (max_num_seqs + 1)
    lengths, current = [], min(k, table[0][2])
    starts = {first: min(k, drafts) for first, _, drafts in table}
    for batch in range(max_num_seqs + 1):
        current = starts.get(batch, current)
        lengths.append(current)
    return lengths


class TablePolicy:
    """A policy that is a table of the step loop."""

    def table(self, k: int) -> BatchTable:
        """Its rows, for drafts of at most `k`."""
        raise NotImplementedError


@dataclass(kw_only=True, config=STRICT)
class FixedLength(TablePolicy):
    """k drafts at any load; without k the longest."""

    k: int | None = Field(None, ge=0)

    def table(self, k: int) -> BatchTable:
        if self.k is not None and self.k > k:
            raise UsageError(f"static has k={self.k}, but at most {k} are drafted; raise --k")
        return () if self.k in (None, k) else ((1, MOST_REQUESTS, self.k),)


@dataclass(kw_only=True, config=STRICT)
class OffAbove(TablePolicy):
    """The longest drafts up to `batch` requests in a step, none above."""

    batch: int = Field(32, ge=1, lt=MOST_REQUESTS)

    def table(self, k: int) -> BatchTable:
        return ((1, self.batch, k), (self.batch + 1, MOST_REQUESTS, 0))


@dataclass(kw_only=True, config=STRICT)
class LengthTable(TablePolicy):
    """From a batch on so many drafts: {batch: k}."""

    by_batch: dict[int, int] = field(default_factory=dict)

    def table(self, k: int) -> BatchTable:
        if not self.by_batch:
            raise UsageError("table has no rows; write the draft length from each batch size on, "
                             "such as table,1=3,9=1,33=0")
        for batch, length in self.by_batch.items():
            if not (1 <= batch <= MOST_REQUESTS and 0 <= length <= k):
                raise UsageError(
                    f"table has {batch}={length}; batch sizes are 1 to {MOST_REQUESTS} and "
                    f"lengths 0 to the longest, {k}: lower it, or raise --k"
                )
        firsts = sorted(self.by_batch)
        lasts = [*(first - 1 for first in firsts[1:]), MOST_REQUESTS]
        return tuple(
            (first, last, self.by_batch[first])
            for first, last in zip(firsts, lasts, strict=True)
        )
