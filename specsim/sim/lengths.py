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
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Protocol

import numpy as np
from pydantic import Field, ValidationError

from specsim.checked import Rule, Shape, problem_of
from specsim.errors import UsageError

MAX_SIGMA = 10.0  # e^10 either way is already four orders of magnitude


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

    def draw(self, generator: np.random.Generator) -> float:
        value = self.median * math.exp(self.sigma * generator.standard_normal())
        return self.plus + min(max(value, self.low), self.high)

    @property
    def mean(self) -> float:
        return self.plus + clipped_mean(self.median, self.sigma, self.low, self.high)


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


Amount = Annotated[float, Field(ge=0), Rule("a number, 0 or more")]


class _Table(Shape):
    """A law as a table. p: its share in a mixture; kind: a name for people."""

    dist: str
    p: object = None
    kind: object = None


class _Constant(_Table):
    value: Amount
    plus: Amount = 0.0

    def law(self, where: str) -> Law:
        return Constant(self.value + self.plus)


class _Uniform(_Table):
    low: Amount
    high: Amount
    plus: Amount = 0.0

    def law(self, where: str) -> Law:
        if self.high < self.low:
            raise UsageError(f"{where}: high is {self.high:g}, below low {self.low:g}")
        return Uniform(self.low, self.high, self.plus)


class _Lognormal(_Table):
    sigma: Amount
    low: Amount = 0.0
    high: Amount = math.inf
    plus: Amount = 0.0
    median: Amount | None = None
    mean: Amount | None = None

    def law(self, where: str) -> Law:
        if not 0 < self.sigma <= MAX_SIGMA:
            raise UsageError(
                f"{where}: sigma is {self.sigma:g}; a lognormal needs one above 0 and at most "
                f"{MAX_SIGMA:g} (lengths of people's texts have 0.3 to 1.5)"
            )
        if self.high <= self.low:
            raise UsageError(f"{where}: high is {self.high:g}; it must be above low, {self.low:g}")
        if self.median is not None and self.mean is None:
            return Lognormal(self.median, self.sigma, self.low, self.high, self.plus)
        if self.mean is not None and self.median is None:
            return lognormal_with_mean(self.mean, self.sigma, self.low, self.high, self.plus)
        raise UsageError(f"{where}: a lognormal needs either median or mean")


class _Values(_Table):
    values: Annotated[
        tuple[Amount, ...],
        Field(strict=False, min_length=1),
        Rule("a list with at least one number, each 0 or more"),
    ]

    def law(self, where: str) -> Law:
        return Values(self.values)


class _Mixture(_Table):
    parts: Annotated[
        tuple[dict[str, object], ...],
        Field(strict=False, min_length=1),
        Rule("a list of laws with p"),
    ]

    def law(self, where: str) -> Law:
        laws = [
            (_amount(part.get("p"), f"{where}: part {i + 1}: p"),
             law_from(part, f"{where}: part {i + 1}"))
            for i, part in enumerate(self.parts)
        ]
        total = math.fsum(share for share, _ in laws)
        if abs(total - 1.0) > 1e-6:
            raise UsageError(f"{where}: the shares p of the mixture sum to {total:g}, not to 1")
        return Mixture(tuple(laws))


_TABLES: dict[str, type[_Constant | _Uniform | _Lognormal | _Mixture | _Values]] = {
    "constant": _Constant,
    "uniform": _Uniform,
    "lognormal": _Lognormal,
    "mixture": _Mixture,
    "values": _Values,
}


def law_from(value: object, where: str) -> Law:
    """The law a TOML value describes. `where` names the entry in errors. UsageError."""
    if not isinstance(value, Mapping):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"{where} is {value!r}; it must be a number or a table with 'dist'")
        return Constant(_amount(value, where))
    kind = value.get("dist")
    shape = _TABLES.get(kind) if isinstance(kind, str) else None
    if shape is None:
        raise UsageError(f"{where}: dist is {kind!r}; it must be one of {', '.join(_TABLES)}")
    try:
        table = shape.model_validate(value)
    except ValidationError as wrong:
        problem = problem_of(wrong, shape)
        if problem.kind == "unknown":
            known = sorted({*problem.known} - {*_Table.model_fields})
            text = f"{problem.key!r} does not belong to dist {kind!r}; it has {', '.join(known)}"
        elif problem.kind == "missing":
            text = f"dist {kind!r} needs {problem.key}"
        else:
            text = f"{problem.key} is {problem.value!r}; it must be {problem.rule}"
        raise UsageError(f"{where}: {text}") from None
    return table.law(where)


def _amount(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise UsageError(f"{where} is {value!r}; it must be a number, 0 or more")
    return float(value)
