"""Results as plain types: fields in order, results inside, what JSON does not know."""

import ast
import json
import math
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import pytest
from sources import modules, nodes_of

from specsim.jsonable import Jsonable, json_text, jsonable


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


def test_json_text_holds_no_number_that_json_does_not_know() -> None:
    value = {"a": math.inf, "b": [1.5, -math.inf, {"c": math.nan}], "d": (2,)}
    for options in ({}, {"indent": 1}, {"compact": True}, {"sort_keys": True}):
        text = json_text(value, **options)
        assert json.loads(text) == {"a": None, "b": [1.5, None, {"c": None}], "d": [2]}
    assert json_text({"b": "ä", "a": 1}, compact=True, sort_keys=True) == '{"a":1,"b":"\\u00e4"}'
    assert json_text("ä", ensure_ascii=False) == '"ä"'
    assert json_text({1: Path("x")}, default=str) == '{"1": "x"}'
    with pytest.raises(TypeError):
        json_text({"a": object()})


def test_nothing_else_writes_json() -> None:
    for path in modules():
        for node in nodes_of(path):
            if isinstance(node, ast.Attribute) and node.attr in ("dumps", "dump", "JSONEncoder"):
                name = getattr(node.value, "id", "")
                assert name not in ("json", "orjson", "ujson") or path.name == "jsonable.py", (
                    f"{path.name}, line {node.lineno}: use specsim.jsonable.json_text"
                )
