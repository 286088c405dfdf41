"""Why accepted lengths differ between requests and come in runs: a latent ease.

Measured per-step accepted lengths are neither independent nor identically distributed: requests
differ, neighbouring steps resemble each other, and conditional acceptance stays flat or rises with
depth because the steps that get deep are the easy ones. One latent number explains all three:

    logit P(draft i accepted | i-1 accepted, step t of request r) = b_i + u_r + v_rt

* u_r, fixed per request, is normal with standard deviation `request_sd` (logits);
* v_rt is normal with standard deviation `step_sd` and is kept from one step to the next with
  probability `persistence`, otherwise drawn anew. It has the autocorrelation persistence^lag of an
  AR(1) process and the same stationary law, but needs one uniform and no arithmetic per step.
* For drafters that propose in only some steps the existence of the draft is one more link in front,
  driven by the same latent number: logit P(draft) = b_0 + draft_loading (u_r + v_rt). Whether an
  n-gram matches has less memory than how long the match runs, so its loading is below 1.

Both normals are discretised to equally likely levels at the mid-quantiles, so a step's law is one
row of a small table and every statement below is exact on that grid. The intercepts b_i are solved
such that the pooled shares P_i (what an engine's counters show) equal the given `Acceptance`
exactly. Pooled over steps, easy requests weigh less, because they need fewer steps for the same
tokens: with `weighting="request"` (every request writes equally many tokens; the default) a request
counts with 1 / its mean tokens per step; with `weighting="step"` every request has equally many
steps.

Parameters fitted to measured traces are in `catalog/acceptance_spread.csv`, which
`validation/scripts/fit_acceptance_spread.py` writes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specsim.data import data_rows
from specsim.errors import UsageError
from specsim.methods.base import find_method
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.checks import check_draft_length

FloatArray = NDArray[np.float64]
Weighting = Literal["request", "step"]

_BISECTIONS = 64
# Links this close to 0 or 1 are taken as certain; their logits would only overflow.
_NEGLIGIBLE = 1e-12
_WEIGHT_ROUNDS = 60
# Data set of the traces, by kind of work or name of a workload.
_MEASURED_ON = {
    "math": "gsm8k", "reasoning": "gsm8k",
    "summarization": "cnn_dailymail", "summarize": "cnn_dailymail",
}


@dataclass(frozen=True, slots=True)
class AcceptanceSpread:
    """Spread and memory of acceptance: standard deviations in logits, persistence in [0, 1),
    draft_loading in [0, 1] (only used where some steps have no draft)."""

    request_sd: float = 0.0
    step_sd: float = 0.0
    persistence: float = 0.0
    draft_loading: float = 1.0
    source: str = "independent steps"

    def __post_init__(self) -> None:
        for name in ("request_sd", "step_sd"):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0.0 <= value <= 20.0):
                raise UsageError(
                    f"acceptance spread: {name} is {value}, but it must be a number of logits "
                    "from 0 to 20"
                )
        if not 0.0 <= self.persistence < 1.0:
            raise UsageError(
                f"acceptance spread: persistence is {self.persistence}, but it must be at least 0 "
                "and below 1; for a level that never changes use request_sd"
            )
        if not 0.0 <= self.draft_loading <= 1.0:
            raise UsageError(
                f"acceptance spread: draft_loading is {self.draft_loading}, but it must be from 0 "
                "to 1"
            )


INDEPENDENT = AcceptanceSpread()


@dataclass(frozen=True, slots=True, eq=False)
class SpreadTables:
    """The discretised model: state = request level * step_levels + step level.

    accept   (k, states)  P(at least i drafts accepted | draft, state), i = 1..k
    draft    (states,)    P(the step carries a draft | state)
    weights  (states,)    share of steps spent in a state, under the weighting asked for
    """

    accept: FloatArray
    draft: FloatArray
    weights: FloatArray
    request_levels: int
    step_levels: int
    persistence: float

    @property
    def k(self) -> int:
        """Draft positions."""
        return int(self.accept.shape[0])

    def tokens(self) -> FloatArray:
        """(request_levels, step_levels) mean tokens of a step in each state."""
        mean = 1.0 + self.draft * self.accept.sum(axis=0)
        return np.asarray(mean.reshape(self.request_levels, self.step_levels))

    def token_variance(self) -> FloatArray:
        """(request_levels,) variance of the tokens per step within a request of each level."""
        order = 2.0 * np.arange(1, self.k + 1)[:, None] - 1.0
        second = (self.draft * (order * self.accept).sum(axis=0)).reshape(
            self.request_levels, self.step_levels
        )
        accepted = self.tokens() - 1.0
        return np.asarray(second.mean(axis=1) - accepted.mean(axis=1) ** 2)

    def autocovariance(self, lag: int) -> FloatArray:
        """(request_levels,) covariance of the tokens of two steps `lag` apart in one request."""
        if lag == 0:
            return self.token_variance()
        return np.asarray(self.persistence**lag * self.tokens().var(axis=1))

    def request_weights(self) -> FloatArray:
        """(request_levels,) share of steps spent in requests of each level."""
        return np.asarray(self.weights.reshape(self.request_levels, self.step_levels).sum(axis=1))


def build_tables(
    acceptance: Acceptance,
    spread: AcceptanceSpread = INDEPENDENT,
    *,
    k: int | None = None,
    levels: int = 16,
    weighting: Weighting = "request",
) -> SpreadTables:
    """Tables whose pooled marginals equal the acceptance at k (default: all its positions).

    `levels` is the number of levels of each of the two latent parts that has any spread.
    """
    k = acceptance.positions if k is None else check_draft_length(k)
    check_draft_length(levels, name="levels")
    if weighting not in ("request", "step"):
        raise UsageError(f"weighting is {weighting!r}, but it must be 'request' or 'step'")
    request_levels = levels if spread.request_sd > 0.0 else 1
    step_levels = levels if spread.step_sd > 0.0 else 1
    latent = (
        spread.request_sd * _mid_quantiles(request_levels)[:, None]
        + spread.step_sd * _mid_quantiles(step_levels)[None, :]
    ).ravel()
    rates = acceptance.probabilities(k)
    states = latent.size
    weights = np.full(states, 1.0 / states)
    guesses = np.zeros(k + 1)
    for _ in range(_WEIGHT_ROUNDS):
        draft, guesses[0] = _link(
            acceptance.draft_probability, spread.draft_loading * latent, weights, guesses[0]
        )
        accept = _accept(rates, latent, weights * draft, guesses)
        if weighting == "step" or request_levels == 1:
            break
        mean = (1.0 + draft * accept.sum(axis=0)).reshape(request_levels, step_levels).mean(axis=1)
        share = (1.0 / mean) / (1.0 / mean).sum()
        updated = np.repeat(share / step_levels, step_levels)
        change = float(np.abs(updated - weights).max() * states)
        weights = updated
        if change < 1e-13:
            break
    return SpreadTables(accept, draft, weights, request_levels, step_levels, spread.persistence)


def _accept(
    rates: tuple[float, ...], latent: FloatArray, reached: FloatArray, guesses: FloatArray
) -> FloatArray:
    """P(at least i drafts accepted | draft, state); updates the intercepts in `guesses`[1:].

    `reached` is the share of steps in each state that carry a draft."""
    total = reached.sum()
    if total > 0.0:
        reached = reached / total
    accept = np.empty((len(rates), latent.size))
    survival = np.ones(latent.size)
    previous = 1.0
    for i, rate in enumerate(rates):
        # `reached` sums to P_{i-1}; the link takes it to P_i.
        target = rate / previous if previous > 0.0 else 0.0
        share = reached / previous if previous > 0.0 else reached
        link, guesses[i + 1] = _link(target, latent, share, guesses[i + 1])
        reached = reached * link
        survival = survival * link
        accept[i] = survival
        previous = rate
    return accept


def _link(
    target: float, latent: FloatArray, weights: FloatArray, guess: float
) -> tuple[FloatArray, float]:
    """sigmoid(b + latent) with the b whose weighted mean is the target, and b."""
    if not _NEGLIGIBLE < target < 1.0 - _NEGLIGIBLE:
        return np.full(latent.size, 1.0 if target > 0.5 else 0.0), guess
    if latent.size == 1:
        return np.full(1, target), guess
    spread = float(np.abs(latent).max())
    centre = math.log(target / (1.0 - target))
    low, high = centre - spread, centre + spread
    b = min(max(guess, low), high)
    for _ in range(_BISECTIONS):
        # Newton's step where it stays inside the bracket, else the middle.
        value = 1.0 / (1.0 + np.exp(-(b + latent)))
        gap = float(weights @ value) - target
        if gap > 0.0:
            high = b
        else:
            low = b
        slope = float(weights @ (value * (1.0 - value)))
        newton = b - gap / slope if slope > 0.0 else math.inf
        if abs(newton - b) <= 1e-15 * max(1.0, abs(b)):  # b is an end of the bracket then
            break
        following = newton if low < newton < high else 0.5 * (low + high)
        if following == b:
            break
        b = following
    return np.asarray(1.0 / (1.0 + np.exp(-(b + latent)))), b


def _mid_quantiles(levels: int) -> FloatArray:
    """Equally likely levels of a standard normal, scaled to unit variance on the grid."""
    if levels == 1:
        return np.zeros(1)
    normal = NormalDist()
    points = np.array([normal.inv_cdf((i + 0.5) / levels) for i in range(levels)])
    return np.asarray(points / points.std())


@cache
def _catalogue() -> dict[str, AcceptanceSpread]:
    return {
        row["name"]: AcceptanceSpread(
            float(row["request_sd"]),
            float(row["step_sd"]),
            float(row["persistence"]),
            float(row["draft_loading"]),
            f"easiness {row['name']}: {row['fitted_to']}",
        )
        for row in data_rows("catalog", "acceptance_spread.csv")
    }


def acceptance_spread_names() -> tuple[str, ...]:
    """Names of the fitted parameter sets."""
    return tuple(_catalogue())


def fitted_acceptance_spread(name: str) -> AcceptanceSpread:
    """A parameter set of `catalog/acceptance_spread.csv` by name."""
    found = _catalogue().get(name)
    if found is None:
        known = ", ".join(_catalogue())
        raise UsageError(f"acceptance spread {name!r} is not known; choose one of {known}")
    return found


def default_acceptance_spread(
    method: str, draft_probability: float = 1.0, work: str = "chat"
) -> AcceptanceSpread:
    """The parameter set used where the user names none; its source says which one it is.

    Model drafters take the ShareGPT chat set; n-gram and suffix drafting take the sets measured
    with their own step-skipping, or, for an n-gram acceptance given over all steps (draft
    probability 1), the set measured that way. Other work than chat has the set measured on it,
    where there is one: requests of one kind of work differ less than those of a chat.
    """
    name = find_method(method).acceptance_spread(draft_probability)
    other = name.replace("-sharegpt", f"-{_MEASURED_ON.get(work)}")
    return fitted_acceptance_spread(other if other in _catalogue() else name)
