"""From results to what JSON holds: one way for every dataclass whose keys are its fields.

`to_dict` of a `Jsonable` is its fields in their order, tuples as lists, results inside as their own
`to_dict`. `also` names properties that stand behind the fields, `renamed` fields whose key is
another. A result that is put together otherwise writes its own `to_dict` (see `picked`).
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar, Protocol, runtime_checkable


@runtime_checkable
class HasDict(Protocol):
    """Anything that says of itself what JSON holds of it."""

    def to_dict(self) -> dict[str, object]: ...


class Jsonable:
    """Base of a dataclass whose JSON keys are its fields."""

    __slots__ = ()
    also: ClassVar[tuple[str, ...]] = ()
    renamed: ClassVar[Mapping[str, str]] = {}

    def to_dict(self) -> dict[str, object]:
        """Plain types for JSON."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return {
            self.renamed.get(name, name): jsonable(getattr(self, name))
            for name in (*names, *self.also)
        }


@cache
def _paths(names: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    pairs = [name.partition("=") for name in names.split()]
    return tuple((key, tuple((path or key).split("."))) for key, _, path in pairs)


def taken(item: object, names: str) -> dict[str, Any]:
    """Attributes in the order named: "a b" gives `a` and `b`, "key=b.c" gives c of b as `key`; None
    where b is None."""
    found: dict[str, object] = {}
    for key, path in _paths(names):
        value = item
        for part in path:
            value = None if value is None else getattr(value, part)
        found[key] = value
    return found


def picked(item: object, names: str) -> dict[str, object]:
    """The same in plain types for JSON."""
    return {key: jsonable(value) for key, value in taken(item, names).items()}


def jsonable(value: object) -> object:
    """A value in plain types. Infinite numbers and NaN (what an unstable load has), which JSON
    does not know, are None."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, HasDict):
        return value.to_dict()
    if isinstance(value, tuple | list):
        return [jsonable(item) for item in value]
    if isinstance(value, Mapping):
        return {name: jsonable(item) for name, item in value.items()}
    return value
