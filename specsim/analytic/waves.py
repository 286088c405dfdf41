"""How many prompts of a closed loop reach the engine together.

An engine that runs prompts before decoding freezes the sequences that decode while it does, so that
nobody finishes and no new prompt comes. Prompts therefore come in groups: the clients whose answers
end in the same decode step. Clients that start together and need equally many steps stay together
for ever (one wave of all of them); what pulls them apart is that requests need unequal numbers of
steps, by their lengths or by their luck with drafts. Two of them whose numbers of steps differ with
standard deviation s each end in the same step with probability

    1 / (2 sqrt(pi) s)      (two normals; at most 1)

s grows with the root of the waves behind them, and once they are spread over the whole cycle of n
steps the probability is 1 / n. (Public P50 times of SGLang with 16 clients and equal lengths, over
those of one client: 7.7 to 9.1 where the acceptance is pinned or there are no drafts, a whole wave
being 8.5; 1.1 to 2.4 where it varies.)
"""

import math
from functools import lru_cache

from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.speculation.acceptance import Acceptance

# Lengths this unlike spread clients over the whole cycle within a wave, whatever the acceptance.
_UNLIKE = 0.3
_MOST_WAVES = 256  # of a long run; after them clients are as spread as they get


def steps_spread(system: System, workload: Workload, steps: float) -> float:
    """Standard deviation of the number of decode steps between requests, over its mean."""
    lengths = workload.spread
    acceptance = system.acceptance
    if lengths >= _UNLIKE or workload.pinned or not system.speculative or acceptance is None:
        return lengths
    return math.hypot(lengths, _luck(acceptance, system.setup.method, system.setup.k, steps))


@lru_cache(maxsize=256)
def _luck(acceptance: Acceptance, method: str, k: int, steps: float) -> float:
    """The part of that from acceptance: requests differ, and so do the steps of one."""
    from specsim.speculation.acceptance_spread import build_tables, default_acceptance_spread

    spread = default_acceptance_spread(method, acceptance.draft_probability)
    tables = build_tables(acceptance, spread, k=k)
    shares = tables.request_weights()
    means = tables.tokens().mean(axis=1)
    mean = float(shares @ means)
    between = float(shares @ (means - mean) ** 2)
    memory = tables.persistence / (1 - tables.persistence)
    step = tables.token_variance() + 2 * memory * tables.tokens().var(axis=1)
    within = float(shares @ step) / max(1.0, steps)
    return math.sqrt(between + within) / mean


def together(running: int, steps: float, spread: float, waves: int) -> float:
    """Mean prompts that come at once (1 to running) after the start of a run.

    steps: decode steps of a request; spread: their standard deviation over their mean; waves:
    requests each client sends, 0 for a steady state."""
    if spread <= 0:
        return float(running)
    floor = 1 / max(1.0, steps)
    count = min(waves - 1, _MOST_WAVES)
    if count < 1:
        share = floor
    else:
        apart = [spread * steps * math.sqrt(wave) for wave in range(1, count + 1)]
        shares = [min(1.0, max(floor, 1 / (2 * math.sqrt(math.pi) * sd))) for sd in apart]
        share = sum(shares) / count
    return 1 + (running - 1) * min(1.0, share)


def typical_group(running: int, together: float) -> float:
    """Mean prompts of a group, each group counted once. `together` counts each once per prompt, as
    a request meets them: it finds itself in a large group more often than large groups come.

    Where each of the others joins with probability p, 1 + (running - 1) p = together, groups per
    prompt are the mean of 1 / (1 + others), which is (1 - (1 - p)^running) / (running p)."""
    if running <= 1 or together <= 1:
        return 1.0
    share = (together - 1) / (running - 1)
    return running * share / (1 - (1 - share) ** running)
