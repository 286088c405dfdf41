"""From results to what JSON holds: one way for every dataclass whose keys are its fields, and the
one encoder of JSON text.

`to_dict` of a `Jsonable` is its fields in their order, tuples as lists, results inside as their own
`to_dict`. `also` names properties that stand behind the fields, `renamed` fields whose key is
another. A result that is put together otherwise writes its own `to_dict` (see `picked`).
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar, Generic, Protocol, TypeVar

T = TypeVar("T")


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


class Key(Generic[T]):
    """A key of what JSON holds of a result, as an attribute of the same name: `gpu = Key[str]()`,
    for several `model = gpu = Key[str]()`.

    Its value is that of the JSON. AttributeError where this result has none (`pp` without stages).
    """

    def __init__(self) -> None:
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        if self._name:  # each name has a key of its own
            own = type(self)()
            own.__set_name__(owner, name)
            setattr(owner, name, own)
        else:
            self._name = name

    def __get__(self, item: HasDict | None, owner: type) -> T:
        if item is None:
            return self  # type: ignore[return-value]
        found: Any = item.to_dict()
        if self._name not in found:
            raise AttributeError(f"this {owner.__name__} has no {self._name}")
        value: T = found[self._name]
        return value


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
    if (to_dict := getattr(value, "to_dict", None)) is not None:
        return to_dict()
    if isinstance(value, tuple | list):
        return [jsonable(item) for item in value]
    if isinstance(value, Mapping):
        return {name: jsonable(item) for name, item in value.items()}
    return value


@cache
def _encoder(
    indent: int | None, compact: bool, sort_keys: bool, ensure_ascii: bool,
    default: Callable[[object], object] | None,
) -> json.JSONEncoder:
    return json.JSONEncoder(
        indent=indent, separators=(",", ":") if compact else None, sort_keys=sort_keys,
        ensure_ascii=ensure_ascii, default=default, allow_nan=False,
    )


def json_text(
    value: object, *, indent: int | None = None, compact: bool = False, sort_keys: bool = False,
    ensure_ascii: bool = True, default: Callable[[object], object] | None = None,
) -> str:
    """A value of plain types as JSON text, keys in their order. No text of specsim's holds NaN or
    Infinity, which no other reader of JSON knows: they are null, as in `jsonable`. TypeError for
    what JSON cannot hold and `default` does not turn into what it can, RecursionError for what
    holds itself."""
    encoder = _encoder(indent, compact, sort_keys, ensure_ascii, default)
    try:
        return encoder.encode(value)
    except ValueError:  # found while encoding: looking for such numbers first would cost more
        return encoder.encode(jsonable(value))
