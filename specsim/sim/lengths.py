"""Laws of lengths and times: what scenario files and loads draw from.

In TOML a law is a number (constant) or a table with `dist`:

    {dist = "uniform", low = 80, high = 350, plus = 40}
    {dist = "lognormal", median = 12, sigma = 0.7, high = 90}      or mean = ... (after the clip)
    {dist = "mixture", parts = [{p = 0.3, dist = "uniform", ...}, ...]}
    {dist = "values", values = [...]}                               drawn with replacement

`plus` is added to what is drawn, `low` and `high` clip lognormals. Lengths are rounded to whole
tokens by whoever needs tokens.
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from statistics import NormalDist
from typing import Protocol

import numpy as np

from specsim.errors import UsageError, shown

MAX_SIGMA = 10.0  # e^10 either way is already four orders of magnitude
MAX_AMOUNT = 1e8  # three years, or five times the longest request that traces may have


class Law(Protocol):
    def draw(self, generator: np.random.Generator) -> float:
        """One value, 0 or more."""
        ...

    @property
    def mean(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Constant:
    value: float

    def draw(self, generator: np.random.Generator) -> float:
        return self.value

    @property
    def mean(self) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class Uniform:
    """Uniform from low to high, both included when rounded, plus a constant."""

    low: float
    high: float
    plus: float = 0.0

    def __post_init__(self) -> None:
        if self.high < self.low:
            raise UsageError(f"high is {self.high:g}, below low {self.low:g}")
        if math.isinf(self.high):
            raise UsageError("high is infinite; a uniform law needs an end")

    def draw(self, generator: np.random.Generator) -> float:
        return self.plus + self.low + (self.high - self.low) * generator.random()

    @property
    def mean(self) -> float:
        return self.plus + (self.low + self.high) / 2


@dataclass(frozen=True, slots=True)
class Lognormal:
    """exp(normal(log(median), sigma)), clipped to [low, high], plus a constant."""

    median: float
    sigma: float
    low: float = 0.0
    high: float = math.inf
    plus: float = 0.0

    def __post_init__(self) -> None:
        _check_sigma(self.sigma)
        if self.median <= 0:
            raise UsageError(f"median is {self.median:g}; a lognormal needs one above 0")
        if self.high <= self.low:
            raise UsageError(f"high is {self.high:g}; it must be above low, {self.low:g}")

    def draw(self, generator: np.random.Generator) -> float:
        value = self.median * math.exp(self.sigma * generator.standard_normal())
        return self.plus + min(max(value, self.low), self.high)

    @property
    def mean(self) -> float:
        return self.plus + clipped_mean(self.median, self.sigma, self.low, self.high)


def _check_sigma(sigma: float) -> None:
    if not 0 < sigma <= MAX_SIGMA:
        raise UsageError(
            f"sigma is {sigma:g}; a lognormal needs one above 0 and at most {MAX_SIGMA:g} "
            "(lengths of people's texts have 0.3 to 1.5)"
        )


def clipped_mean(median: float, sigma: float, low: float, high: float) -> float:
    """Mean of min(max(X, low), high) for a lognormal X: partial expectations of the lognormal."""
    normal = NormalDist()

    def below(limit: float) -> tuple[float, float]:
        """P(X < limit) and E[X; X < limit]."""
        if limit <= 0.0:
            return 0.0, 0.0
        whole = median * math.exp(sigma * sigma / 2)
        if math.isinf(limit):
            return 1.0, whole
        z = math.log(limit / median) / sigma
        return normal.cdf(z), whole * normal.cdf(z - sigma)

    share_low, part_low = below(low)
    share_high, part_high = below(high)
    tail = 0.0 if math.isinf(high) else high * (1.0 - share_high)
    return low * share_low + (part_high - part_low) + tail


def lognormal_with_mean(
    mean: float, sigma: float, low: float = 0.0, high: float = math.inf, plus: float = 0.0
) -> Lognormal:
    """The lognormal whose mean *after* clipping is `mean`; UsageError if the clip forbids it."""
    _check_sigma(sigma)
    wanted = mean - plus
    if not low < wanted < high:
        raise UsageError(
            f"a lognormal clipped to [{low:g}, {high:g}] cannot have the mean {wanted:g}; "
            "the mean must lie inside"
        )
    below, above = 1e-9, 1e12
    for _ in range(200):
        middle = math.sqrt(below * above)
        if clipped_mean(middle, sigma, low, high) < wanted:
            below = middle
        else:
            above = middle
    return Lognormal(math.sqrt(below * above), sigma, low, high, plus)


@dataclass(frozen=True, slots=True)
class Mixture:
    """One of several laws, with the given probabilities."""

    parts: tuple[tuple[float, Law], ...]

    def draw(self, generator: np.random.Generator) -> float:
        u = generator.random()
        for share, law in self.parts:
            if u < share:
                return law.draw(generator)
            u -= share
        return self.parts[-1][1].draw(generator)

    @property
    def mean(self) -> float:
        return math.fsum(share * law.mean for share, law in self.parts)


@dataclass(frozen=True, slots=True)
class Values:
    """Recorded values, drawn with replacement."""

    values: tuple[float, ...]

    def draw(self, generator: np.random.Generator) -> float:
        return self.values[int(generator.integers(len(self.values)))]

    @property
    def mean(self) -> float:
        return math.fsum(self.values) / len(self.values)


_LAWS: dict[str, type[Constant | Uniform | Lognormal | Mixture | Values]] = {
    "constant": Constant,
    "uniform": Uniform,
    "lognormal": Lognormal,
    "mixture": Mixture,
    "values": Values,
}
# Keys of a table beside the fields of its law.
_BESIDES = {"constant": ("plus",), "lognormal": ("mean",)}
_NOT_OF_THE_LAW = ("dist", "p", "kind")  # p: share in a mixture; kind: a name for people


def law_from(value: object, where: str) -> Law:
    """The law a TOML value describes. `where` names the entry in errors. UsageError."""
    if not isinstance(value, Mapping):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(
                f"{where} is {shown(value)}; it must be a number or a table with 'dist'"
            )
        return Constant(_amount(value, where))
    kind = value.get("dist")
    if not isinstance(kind, str) or kind not in _LAWS:
        raise UsageError(f"{where}: dist is {shown(kind)}; it must be one of {', '.join(_LAWS)}")
    table = {key: given for key, given in value.items() if key not in _NOT_OF_THE_LAW}
    own = fields(_LAWS[kind])
    known = sorted({*(item.name for item in own), *_BESIDES.get(kind, ())})
    for key in table:
        if key not in known:
            raise UsageError(
                f"{where}: {key!r} does not belong to dist {kind!r}; it has {', '.join(known)}"
            )
    if kind == "values":
        rule = f"{where}: values must be a list with at least one number"
        values = _listed(table, "values", rule)
        return Values(tuple(_amount(x, f"{where}: values") for x in values))
    if kind == "mixture":
        parts = _listed(table, "parts", f"{where}: a mixture needs parts, a list of laws with p")
        return _mixture(parts, where)
    for item in own:
        needed = item.default is MISSING and not (kind == "lognormal" and item.name == "median")
        if needed and item.name not in table:
            raise UsageError(f"{where}: dist {kind!r} needs {item.name}")
    numbers = {key: _amount(given, f"{where}: {key}") for key, given in table.items()}
    if kind == "constant":
        return Constant(sum(numbers.values()))
    try:
        if kind == "uniform":
            return Uniform(**numbers)
        if ("median" in numbers) == ("mean" in numbers):
            raise UsageError("a lognormal needs either median or mean")
        return lognormal_with_mean(**numbers) if "mean" in numbers else Lognormal(**numbers)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _listed(table: Mapping[str, object], key: str, rule: str) -> list[object]:
    value = table.get(key)
    if not isinstance(value, list) or not value:
        raise UsageError(rule)
    return value


def _mixture(parts: list[object], where: str) -> Mixture:
    laws = []
    for i, part in enumerate(parts):
        share = part.get("p") if isinstance(part, Mapping) else None
        inner = f"{where}: part {i + 1}"
        laws.append((_amount(share, f"{inner}: p"), law_from(part, inner)))
    total = math.fsum(share for share, _ in laws)
    if abs(total - 1.0) > 1e-6:
        raise UsageError(f"{where}: the shares p of the mixture sum to {total:g}, not to 1")
    return Mixture(tuple(laws))


def _amount(value: object, where: str) -> float:
    number = not isinstance(value, bool) and isinstance(value, int | float)
    if number and where.endswith(": high") and value == math.inf:
        return math.inf
    if not number or not 0 <= value <= MAX_AMOUNT:  # type: ignore[operator]
        raise UsageError(f"{where} is {shown(value)}; it must be a number from 0 to {MAX_AMOUNT:g}")
    return float(value)  # type: ignore[arg-type]
