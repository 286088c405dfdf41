"""Draft length by batch size: the table that vLLM follows, and what staying on at k = 0 costs.

In a table k = 0 is not speculation switched off (docs/tune.md): the drafter's first pass runs over
every verified row, and the engine updates its state (vLLM 0.33.0, v1/worker/gpu/spec_decode;
measured 6.6 % of TPOT at 2 requests and 21.6 % at 189, vLLM issue 49548, older runner). So k = 0
has to beat drafting by more than that, and `tax` says what remains.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from specsim.analytic.closed import running_limit
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.jsonable import Jsonable
from specsim.planning.flags import adaptive_config
from specsim.search import first_between

SWITCH_GAIN = 0.01  # a change of k that gains less than this is not worth a row
_GRID = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


@dataclass(frozen=True, slots=True)
class BatchPoint(Jsonable):
    """One batch size. k: the table's; output_tok_s at it, with speculation off, and at the best
    single draft length; tax: what a step at k = 0 takes beyond one of plain decoding, a share."""

    seqs: int
    k: int
    output_tok_s: float
    plain_tok_s: float
    fixed_tok_s: float
    tax: float


@dataclass(frozen=True)
class DynamicTable:
    """rows: ((first batch, last batch, k), ...). fixed_k: the one draft length it is compared
    with. gain: most that the table gains over it at any batch, a share. system: the deployment
    that runs the table (its k is the table's longest)."""

    rows: tuple[tuple[int, int, int], ...]
    points: tuple[BatchPoint, ...]
    fixed_k: int
    system: System

    @property
    def gain(self) -> float:
        return max(p.output_tok_s / p.fixed_tok_s for p in self.points) - 1

    @property
    def turns_off(self) -> bool:
        return any(k == 0 for _, _, k in self.rows)

    def to_dict(self) -> dict[str, object]:
        return {
            "num_speculative_tokens_per_batch_size": [list(row) for row in self.rows],
            "num_speculative_tokens": self.system.setup.k,
            "speculative_adaptive_config": adaptive_config(self.rows),
            "fixed_k": self.fixed_k,
            "gain": self.gain,
            "points": [point.to_dict() for point in self.points],
        }


def dynamic_table(
    system: System, lengths: Sequence[int], workload: Workload, fixed_k: int
) -> DynamicTable:
    """The table for a method's draft lengths, up to the largest batch that runs.

    Batches of a grid are compared; where two neighbours want different lengths the border is found
    by bisection."""
    longest = system.with_(k=max(lengths))
    limit = running_limit(longest, workload)
    context = workload.mean_context
    kept: dict[int, dict[int, float]] = {}

    def rates(seqs: int) -> dict[int, float]:
        found = kept.get(seqs)
        if found is None:
            found = {0: seqs / longest.decoding_s(seqs, context, drafting=False)}
            for k in lengths:
                side = system.with_(k=k)
                found[k] = seqs * side.tokens_per_step / side.decoding_s(seqs, context)
            kept[seqs] = found
        return found

    def choice(seqs: int, previous: int | None) -> int:
        found = rates(seqs)
        best = max(found, key=lambda k: (found[k], -k))
        if previous is not None and found[best] < found[previous] * (1 + SWITCH_GAIN):
            return previous
        return best

    def leaves(seqs: int) -> bool:
        return choice(seqs, current) != current

    grid = [size for size in _GRID if size < limit] + [limit]
    current = choice(1, None)
    starts = [(1, current)]
    for before, size in pairwise(grid):
        wanted = choice(size, current)
        if wanted == current:
            continue
        starts.append((first_between(leaves, before, size), wanted))
        current = wanted
    lasts = [first - 1 for first, _ in starts[1:]] + [limit]
    rows = tuple((first, last, k) for (first, k), last in zip(starts, lasts, strict=True))
    top = max(k for _, _, k in rows)
    points = tuple(_point(system, rates(size), rows, size, context, fixed_k) for size in grid)
    return DynamicTable(rows, points, fixed_k, system.with_(k=top) if top else longest)


def _point(
    system: System, found: dict[int, float], rows: Sequence[tuple[int, int, int]], seqs: int,
    context: float, fixed_k: int,
) -> BatchPoint:
    k = next(k for first, last, k in rows if first <= seqs <= last)
    plain = seqs / system.plain().decoding_s(seqs, context)
    return BatchPoint(
        seqs, k, found[k], plain, found[fixed_k] if fixed_k else plain, plain / found[0] - 1
    )
