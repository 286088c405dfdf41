"""Results as plain types: fields in order, results inside, what JSON does not know."""

import json
import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from specsim.jsonable import Jsonable, jsonable


@dataclass(frozen=True, slots=True)
class Inner(Jsonable):
    renamed: ClassVar = {"amount": "load"}
    also: ClassVar = ("twice",)

    amount: float
    name: str = "x"

    @property
    def twice(self) -> float:
        return 2 * self.amount


@dataclass(frozen=True)
class Outer(Jsonable):
    parts: tuple[Inner, ...]
    pair: tuple[float, float] | None
    table: object


def test_fields_in_their_order_then_properties() -> None:
    found = Inner(1.5).to_dict()
    assert found == {"load": 1.5, "name": "x", "twice": 3.0}
    assert list(found) == ["load", "name", "twice"]


def test_what_is_inside_becomes_plain_too() -> None:
    outer = Outer((Inner(1.0), Inner(math.inf)), None, MappingProxyType({"a": (1, True, None)}))
    found = outer.to_dict()
    assert found["parts"] == [
        {"load": 1.0, "name": "x", "twice": 2.0}, {"load": None, "name": "x", "twice": None}
    ]
    assert found["pair"] is None and found["table"] == {"a": [1, True, None]}
    assert json.dumps(found, allow_nan=False)


def test_values_that_are_plain_stay_themselves() -> None:
    for value in (None, True, 3, "text", 2.5):
        assert jsonable(value) is value
    assert jsonable(math.nan) is None
