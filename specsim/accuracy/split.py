"""A gap between prediction and measurement as factors: of what a step costs, and of how many tokens
it yields.

TPOT is the time of a step over the tokens per step, so of predicted / measured
    TPOT = step cost x acceptance        throughput = rest / TPOT
exactly: logarithms add up. rest: prompts, queues and the ends of a run. Where the prediction takes
its acceptance from the measurement, the factor of acceptance is that of what was `expected` before.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from specsim.accuracy.live_replay import Figures
from specsim.errors import UsageError
from specsim.formats.bench.record import BenchRun
from specsim.jsonable import Jsonable

SHARE, SHARE_OF_CHUNKS, SIGMAS = 0.02, 0.05, 3.0
FEWEST_DRAFTS = 20


@dataclass(frozen=True, slots=True)
class GapSplit(Jsonable):
    """Of one point; factors are predicted over measured. tokens_per_step: expected, measured."""

    name: str
    tpot: float
    step_cost: float
    acceptance: float
    output_tok_s: float | None
    rest: float | None
    expected_tokens_per_step: float
    tokens_per_step: float


def split_of(
    name: str, measured: Mapping[str, float], predicted: Figures, expected: float | None
) -> GapSplit | None:
    """The factors; None without TPOT or tokens per step. expected: tokens per step where the
    prediction did not use its own."""
    tpots = measured.get("tpot_mean_s"), predicted.get("tpot_mean_s")
    ours = predicted.get("tokens_per_step", 1.0)
    seen = measured.get("tokens_per_step", None if ours > 1 else 1.0)
    if not (tpots[0] and tpots[1] and seen):
        return None
    cost = tpots[1] * ours / (tpots[0] * seen)
    told = expected or ours
    tpot = cost * seen / told
    rates = measured.get("output_tok_s"), predicted.get("output_tok_s")
    rate = rates[1] / rates[0] * told / ours if rates[0] and rates[1] else None
    return GapSplit(name, tpot, cost, seen / told, rate, rate and rate * tpot, told, seen)


def check_pinned(run: BenchRun, length: float, where: str, start: str) -> float | None:
    """The acceptance length that a run shows, which is to be `length`; None where a server has
    drafted too little to tell. UsageError with the command that pins it where it is not."""
    found, share, drafts = run.acceptance, SHARE, 0.0
    seen = found.acceptance_length if found is not None else None
    if found is not None and found.num_drafts is not None:
        drafts = found.num_drafts
        if drafts < FEWEST_DRAFTS:
            return None
    if seen is None and run.tokens_per_step_basis == "chunks":
        seen, share = run.tokens_per_step, SHARE_OF_CHUNKS  # the last chunk of an answer is short
    if seen is None:
        raise UsageError(
            f"{where}: neither /metrics nor the chunks of answers say what is accepted, so nobody "
            f"can see whether it is pinned; {start}"
        )
    part = math.modf(length)[0]
    scatter = SIGMAS * math.sqrt(part * (1 - part) / drafts) if drafts else 0.0
    if abs(seen - length) > share * length + scatter:
        raise UsageError(
            f"{where}: {seen:.3g} tokens per step are accepted (with the bonus), not the "
            f"{length:g} of --pinned; {start}"
        )
    return seen
