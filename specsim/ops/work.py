"""What one forward pass works on, and how it is split over GPUs. Shapes only, no hardware.

`Work` is a pass of some tokens through a network: decoding sequences that share a query
length, and prefill chunks. `rows` counts the rows that the linears really multiply, which
CUDA-graph padding can raise above the useful tokens.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist

from specsim.errors import UsageError
from specsim.model.spec import LayerGroup
from specsim.ops.op import OpCost

# What a layer part does with its rows, before and after its work on cache or state.
Rows = tuple[tuple[OpCost, ...], tuple[OpCost, ...]]


@dataclass(frozen=True, slots=True)
class Work:
    """seqs sequences of q_len new tokens over `ctx` cached tokens each (mean, may be fractional),
    with a coefficient of `variation` between them (see `ops.spread`);
    prefill: (new tokens, tokens cached before) per chunk; rows: linear rows incl. padding;
    head_rows: rows that go through the output head (decode rows and finished prompts)."""

    seqs: float
    q_len: int
    ctx: float
    prefill: tuple[tuple[int, int], ...]
    rows: float
    head_rows: float
    variation: float = 0.0

    @property
    def prefill_tokens(self) -> int:
        return sum(new for new, _ in self.prefill)

    def chunks(self, shared: bool = False) -> Iterator[tuple[int, int, bool, int]]:
        """(new tokens, tokens cached before, whether it shares a launch, how many alike) of the
        prompt chunks. They run in one call, whose launch the first pays, unless all share it."""
        if not self.prefill:
            return
        for (new, cached), times in Counter(self.prefill).items():
            alone = not shared
            if alone:
                yield new, cached, False, 1
                shared = True
            if times > alone:
                yield new, cached, True, times - alone


@dataclass(frozen=True, slots=True)
class Parallel:
    """tp: GPUs that share every layer. ep: GPUs over which whole experts are spread (divides
    tp * attention_dp; 1 = experts are sliced like dense layers). attention_dp: groups that each
    serve a share of the sequences with their own copy of the attention weights; the experts then
    span all tp * attention_dp GPUs. pp: stages of so many GPUs each, over which the layers are
    spread."""

    tp: int = 1
    ep: int = 1
    attention_dp: int = 1
    pp: int = 1

    def __post_init__(self) -> None:
        for name in ("tp", "ep", "attention_dp", "pp"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 1 <= value <= 1024:
                raise UsageError(f"{name} is {value!r}; it must be a whole number from 1 to 1024")
        if (self.tp * self.attention_dp) % self.ep:
            raise UsageError(
                f"ep {self.ep} does not divide the {self.tp * self.attention_dp} GPUs of "
                f"tp {self.tp} x attention_dp {self.attention_dp}; --ep counts GPUs of these: "
                "raise --tp or --attention-dp to it, or leave it out"
            )

    @property
    def gpus(self) -> int:
        """Of a stage."""
        return self.tp * self.attention_dp

    @property
    def all_gpus(self) -> int:
        return self.gpus * self.pp


@dataclass(frozen=True, slots=True)
class Routing:
    """How traffic chooses experts, where independent uniform choice is an upper bound.

    beta: T consecutive tokens of one sequence choose as many experts as T^beta independent ones
        would (0: all alike, 1: independent); the context prefers some experts, so likeness does
        not end with the next token.
    shape: popularity of the experts over the sequences of a batch, gamma distributed with this
        shape and mean 1 (infinite: all alike).
    evened: copies of popular experts lie on several GPUs, so that all get as many rows (EPLB).
    """

    beta: float
    shape: float
    evened: bool = False

    def distinct(self, experts: float, top_k: float, tokens: float, seqs: float) -> float:
        """Expected distinct experts of one layer that `tokens` tokens of `seqs` equal sequences
        choose, top_k of `experts` each: from top_k to what uniform choice gives.

        An expert is missed by one sequence with probability exp(-m), m = -ln(1 - k/E) T^beta, and
        by n sequences with (1 + n v/a)^-a, v = a (e^(m/a) - 1): exact for one sequence. Concave in
        tokens and in sequences. With beta = 1 and no shape: E (1 - (1 - k/E)^T) (MoESD,
        2505.19645). validation/scripts/fit_routing.py has the captures that bear it out.
        """
        if top_k >= experts:
            return experts
        if tokens <= 1:
            return tokens * top_k  # a mean over steps with and without a token
        groups = max(1.0, min(seqs, tokens))
        missed = -math.log1p(-top_k / experts) * (tokens / groups) ** self.beta
        if math.isinf(self.shape):
            return -experts * math.expm1(-groups * missed)
        if missed > _ALL * self.shape:
            return experts
        visits = math.expm1(missed / self.shape)
        return -experts * math.expm1(-self.shape * math.log1p(groups * visits))


    def busiest(
        self, local: float, ranks: int, assignments: float, clumping: float = 1.0
    ) -> float:
        """What the GPU with most rows of its `local` experts gets, over the mean of all `ranks`,
        when `assignments` rows are routed in all.

        The popularities of a GPU's experts add up to a gamma number with variance 1 / (shape
        local), and routed rows are counts besides, of `clumping` times the variance that they have
        where a token chooses among all experts. Of such sums the mean of the largest (Blom)."""
        mean = assignments / ranks
        if ranks <= 1 or mean <= 0:
            return 1.0
        popularity = 0.0 if self.evened else 1 / (self.shape * local)
        deviation = math.sqrt(popularity + clumping / mean)
        # At least one row, at most all.
        return min(float(ranks), max(1 / mean, 1 + blom(ranks) * deviation))


def groups_here(parts: int, groups: int, chosen: int) -> list[tuple[float, float]]:
    """(probability, share of a token's experts in expectation) of a part that holds 1 / parts of
    the experts in order, by how many of its groups are among the `chosen` of all `groups`."""
    if parts >= groups:  # a part of one group
        hit = chosen / groups
        return [(1 - hit, 0.0), (hit, groups / (chosen * parts))]
    held = groups // parts
    return [
        (math.comb(held, j) * math.comb(groups - held, chosen - j) / math.comb(groups, chosen),
         j / chosen)
        for j in range(min(held, chosen) + 1) if chosen - j <= groups - held
    ]


def clumping(ranks: int, top_k: int, groups: int, chosen: int) -> float:
    """Variance of the rows of one of `ranks` GPUs, over what it is where a token's experts may lie
    in all groups: those of one token come together."""
    if groups <= chosen or ranks <= 1:
        return 1.0
    parts = groups_here(ranks, groups, chosen)
    mean = top_k / ranks
    inside = sum(p * top_k * share * (1 - share) for p, share in parts)
    between = sum(p * (top_k * share - mean) ** 2 for p, share in parts)
    return (inside + between) / (mean * (1 - 1 / ranks))


def blom(count: int) -> float:
    """Mean of the largest of some standard normal numbers, by Blom's formula."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


_ALL = 700.0  # the largest exponent of a float: nothing is missed beyond
UNIFORM = Routing(beta=1.0, shape=math.inf)


def attention_share(work: Work, par: Parallel) -> Work:
    """The work of the attention group that all others wait for: sequences are dealt out evenly,
    chunks of prompts in their order, so many to each group, the first ones to it."""
    dp = par.attention_dp
    if dp == 1:
        return work
    chunks, rows = work.prefill, work.rows / dp
    if chunks:
        chunks = chunks[: -(-len(chunks) // dp)]
        rows += sum(new for new, _ in chunks) - work.prefill_tokens / dp
    return replace(
        work,
        seqs=work.seqs / dp,
        prefill=chunks,
        rows=max(1.0, rows),
        head_rows=max(min(1.0, work.head_rows), work.head_rows / dp),
    )


def shard(width: int, parts: int) -> float:
    """Width of one shard; never below one unit (heads are replicated below that)."""
    return max(1.0, width / parts)


def split_fault(layers: Iterable[LayerGroup], tp: int) -> str:
    """Why `tp` GPUs cannot share these layers, '' when they can."""
    faults = (group.mixer.split_fault(tp) for group in layers if group.mixer is not None)
    return next(filter(None, faults), "")
