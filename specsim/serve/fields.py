"""Typed reading of a JSON object: each field once, with its range; errors name the field.

JSON has more values than the protocol: NaN and Infinity (which Python accepts), true where a
number belongs, numbers of thousands of digits, nesting thousands deep, halves of surrogate pairs.
All of them end as one 400.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from specsim.serve.errors import ApiError, bad

MAX_SHOWN = 80  # characters of a bad value that an error repeats


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a request body."""
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise bad("the body is nested too deeply") from None
    except ValueError as error:  # also bytes that are not UTF-8 and numbers that are too long
        raise bad(f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise bad(f"the body must be a JSON object, got {shown(value)}")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def shown(value: object) -> str:
    """A value as an error shows it, cut to a readable length."""
    text = json.dumps(value, default=str)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def wrong(name: str, value: object, rule: str) -> ApiError:
    return bad(f"{name} is {shown(value)}; it must be {rule}", name)


def clean_text(name: str, value: object) -> str:
    """A string that is valid Unicode: half a surrogate pair cannot be tokenised."""
    if not isinstance(value, str):
        raise wrong(name, value, "a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        rule = "it must be valid Unicode"
        raise bad(f"{name} holds half of a surrogate pair; {rule}", name) from None
    return value


class Fields:
    """Reads fields of one object. null is the same as absent."""

    def __init__(self, raw: Mapping[str, Any], path: str = "") -> None:
        self._raw, self._path = raw, path

    def get(self, name: str) -> Any:
        return self._raw.get(name)

    def has(self, name: str) -> bool:
        return self._raw.get(name) is not None

    def boolean(self, name: str, default: bool = False) -> bool:
        value = self._raw.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise wrong(self._path + name, value, "true or false")
        return value

    def integer(self, name: str, default: int | None, low: int, high: int) -> int | None:
        value = self._raw.get(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise wrong(self._path + name, value, f"a whole number from {low} to {high}")
        return value

    def number(self, name: str, default: float, low: float, high: float) -> float:
        value = self._raw.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not (
            low <= value <= high
        ):
            raise wrong(self._path + name, value, f"a number from {low:g} to {high:g}")
        return float(value)

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self._raw.get(name)
        return default if value is None else clean_text(self._path + name, value)

    def inner(self, name: str) -> "Fields":
        """The object in a field, empty when absent."""
        value = self._raw.get(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise wrong(self._path + name, value, "an object")
        return Fields(value, f"{self._path}{name}.")


def token_ids(name: str, value: Sequence[Any], vocab_size: int) -> list[int]:
    """A list of token ids of the model's vocabulary."""
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < vocab_size:
            raise bad(
                f"{name} holds {shown(item)}; token ids are whole numbers from 0 to "
                f"{vocab_size - 1}", name,
            )
    return list(value)
