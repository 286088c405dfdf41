"""How many steps of drafts and verification an output takes.

Steps until so many tokens are there are a renewal process: with X tokens per step, E(N(n)) = 1 +
sum P(X = x) E(N(n - x)) exactly, and n / E(X) + (E(X^2) - E(X)) / (2 E(X)^2) far from the start
(Feller 1968, vol. 1, XIII.10), where the second term is what the last step gives beyond the end.
"""

from functools import lru_cache

from specsim.speculation.acceptance import Acceptance

EXACT_STEPS = 8  # the longest steps that take an output up to which the recursion is played out


@lru_cache(maxsize=4096)
def steps_to(tokens: int, acceptance: Acceptance | None, k: int) -> float:
    """Mean steps that give `tokens` tokens after the first, with k drafts where a step has any;
    None: one token each."""
    if acceptance is None or k == 0 or tokens <= 0:
        return float(max(0, tokens))
    drafted = acceptance.draft_probability
    reached = [drafted * rate for rate in acceptance.probabilities(k)]  # at least i + 1 drafts
    exactly = [1 - reached[0], *(a - b for a, b in zip(reached, [*reached[1:], 0.0], strict=True))]
    longest = len(exactly)
    if tokens > EXACT_STEPS * longest:
        mean = sum(x * share for x, share in enumerate(exactly, start=1))
        square = sum(x * x * share for x, share in enumerate(exactly, start=1))
        return tokens / mean + (square - mean) / (2 * mean * mean)
    means = [0.0]
    for n in range(1, tokens + 1):
        means.append(1 + sum(
            share * means[n - x] for x, share in enumerate(exactly[: n - 1], start=1)
        ))
    return means[tokens]
