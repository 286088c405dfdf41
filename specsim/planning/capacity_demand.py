"""How much load is wanted, and how many replicas carry it (docs/capacity.md).

A demand is one amount, or amounts over time from a file: CSV with a column `users` or `rate`
(requests per second); TOML or JSON with a list of that name. Sizing is for the largest amount:

    least       ceil(demand / capacity)                       nothing to spare
    replicas    ceil(demand / (share x capacity))             at the operating point
    with N - 1  max(replicas, ceil(demand / capacity) + 1)    any one may fail
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specsim.checked import json_value, toml_table
from specsim.errors import FormatError, UsageError, shown
from specsim.files import file_text
from specsim.jsonable import picked
from specsim.options.tables import real

MAX_BYTES = 20_000_000
MAX_AMOUNT = 1e8
COLUMNS = ("users", "rate")


@dataclass(frozen=True)
class Demand:
    """unit: 'users' or 'requests/s'. amounts over time (one: just a peak). source: for people."""

    unit: str
    amounts: tuple[float, ...]
    source: str

    @property
    def peak(self) -> float:
        return max(self.amounts)

    @property
    def mean(self) -> float:
        return math.fsum(self.amounts) / len(self.amounts)


@dataclass(frozen=True)
class Replicas:
    """Replicas for a demand. mean_needed: replicas if they followed the demand (operating point),
    None for a single amount."""

    demand: Demand
    capacity: float
    share: float
    least: int
    count: int
    with_spare: int
    mean_needed: float | None

    def to_dict(self) -> dict[str, object]:
        return {
            **picked(self.demand, "unit source peak mean"),
            "points": len(self.demand.amounts),
            **picked(self, "capacity_per_replica=capacity operating_share=share "
                           "least_replicas=least replicas=count replicas_n_minus_1=with_spare"),
            "load_per_replica": self.demand.peak / self.with_spare,
            "load_per_replica_after_a_failure": self.demand.peak / max(1, self.with_spare - 1),
            "replicas_if_scaled_mean": self.mean_needed,
        }



def replicas_for(demand: Demand, capacity: float, share: float) -> Replicas | None:
    """Replicas that carry a demand; None where nothing can be carried."""
    if capacity <= 0:
        return None
    least = whole(demand.peak / capacity)
    count = whole(demand.peak / (share * capacity))
    each = [whole(amount / (share * capacity)) for amount in demand.amounts]
    follow = math.fsum(each) / len(each) if len(each) > 1 else None
    return Replicas(demand, capacity, share, least, count, max(count, least + 1), follow)


def whole(ratio: float) -> int:
    """Least whole number of replicas for a ratio; a hair above one is rounding, not load."""
    return max(1, math.ceil(ratio - 1e-9))


def read_demand(name: str) -> Demand:
    """A demand file. FormatError names the line or key and the rule."""
    path = Path(name)
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise UsageError(f"demand file {shown(name)} {what}")
    text = file_text(path, MAX_BYTES)
    kind = path.suffix.lower()
    if kind == ".toml":
        return _of_table(toml_table(text, path.name), path.name)
    return _of_table(json_value(text, path.name), path.name) if kind == ".json" else (
        _of_csv(text, path.name)
    )


def _of_table(raw: object, where: str) -> Demand:
    if not isinstance(raw, Mapping):
        raise FormatError(f"{where} must hold a table with a list `users` or `rate`")
    named = [key for key in COLUMNS if key in raw]
    if len(named) != 1:
        raise FormatError(f"{where} must hold one of {' and '.join(COLUMNS)}, a list of numbers")
    values = raw[named[0]]
    values = values if isinstance(values, list) else [values]
    amounts = [
        _amount(value, named[0], f"{where}, entry {i}") for i, value in enumerate(values, start=1)
    ]
    return _demand(named[0], amounts, where)


def _of_csv(text: str, where: str) -> Demand:
    try:
        rows = iter(list(csv.reader(text.splitlines())))
    except csv.Error as error:  # a cell beyond the reader's limit, for one
        raise FormatError(f"{where} is not CSV: {error}") from None
    header = [cell.strip().lower() for cell in next(rows, [])]
    named = [key for key in COLUMNS if key in header]
    if len(named) != 1:
        raise FormatError(
            f"{where} must have a first line with one of the columns {' or '.join(COLUMNS)}; it "
            f"has {shown(', '.join(header[:8]))[1:-1] or 'nothing'}"
        )
    column = header.index(named[0])
    amounts = []
    for number, row in enumerate(rows, start=2):
        if not any(cell.strip() for cell in row):
            continue
        cell = row[column] if column < len(row) else ""
        try:
            value: object = float(cell)
        except ValueError:
            value = cell
        amounts.append(_amount(value, named[0], f"{where}, line {number}"))
    return _demand(named[0], amounts, where)


def _amount(value: object, name: str, where: str) -> float:
    amount = real(value)
    if amount is None or not 0 <= amount <= MAX_AMOUNT:
        raise FormatError(f"{where}: {name} is {shown(value)}; it must be a number from 0 to 1e8")
    return amount


def _demand(name: str, amounts: Sequence[float], where: str) -> Demand:
    if not amounts or max(amounts) <= 0:
        raise FormatError(f"{where} holds no demand above 0; give at least one")
    return Demand("users" if name == "users" else "requests/s", tuple(amounts), where)
