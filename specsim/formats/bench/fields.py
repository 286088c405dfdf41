"""Reading values of foreign JSON with their type checked: every error names the field.

Files come from anywhere, so nothing is taken on trust: a value of the wrong type, a negative
time or a number beyond any float is a FormatError that names file, field, what stood there and
what was expected. A missing value, null and NaN all mean "not measured" and become None.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from specsim.errors import FormatError

MAX_COUNT = 10**15
MAX_NUMBER = 1e15  # no time, rate or count of a benchmark comes near; keeps every sum finite
_SHOWN = 60


def describe(value: Any) -> str:
    """A value for an error message: short, one line, containers by size."""
    if isinstance(value, Mapping):
        keys = ", ".join(ascii(str(key))[1:-1][:30] for key in list(value)[:6])
        return f"an object with the keys {keys}" if value else "an empty object"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, int) and abs(value) > MAX_COUNT:
        return "a number with too many digits"
    text = ascii(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def as_number(value: Any, infinite: bool = False) -> float | None:
    """A JSON number as float; None for NaN. ValueError for everything that is not a number.

    `infinite` also takes infinity, and "inf" as text, as some tools write it.
    """
    if infinite and isinstance(value, str) and value.strip().lower() in ("inf", "infinity"):
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    try:
        number = float(value)
    except OverflowError:
        raise ValueError from None
    if math.isnan(number):
        return None
    if infinite and number == math.inf:
        return number
    if abs(number) > MAX_NUMBER:
        raise ValueError
    return number


class Fields:
    """One JSON object of a file, with its place for error messages."""

    __slots__ = ("data", "where")

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data = data
        self.where = where

    def error(self, name: str, value: Any, wanted: str) -> FormatError:
        return FormatError(f"{self.where}{name} is {describe(value)}; {wanted} is expected there")

    def has(self, *names: str) -> bool:
        """Whether all the names are present and not null."""
        return all(self.data.get(name) is not None for name in names)

    def number(
        self, name: str, scale: float = 1.0, minimum: float | None = 0.0, infinite: bool = False
    ) -> float | None:
        """The number times `scale`; None when missing, null or NaN."""
        value = self.data.get(name)
        if value is None:
            return None
        wanted = "a number" if minimum is None else f"a number of at least {minimum:g}"
        try:
            number = as_number(value, infinite)
        except ValueError:
            raise self.error(name, value, wanted) from None
        if number is None:
            return None
        if minimum is not None and number < minimum:
            raise self.error(name, value, wanted)
        return number * scale

    def share(self, name: str, scale: float = 1.0) -> float | None:
        """A fraction of 0 to 1 (after `scale`, e.g. 0.01 for a percentage)."""
        number = self.number(name, scale)
        if number is not None and number > 1 + 1e-9:
            raise self.error(name, self.data.get(name), f"at most {1 / scale:g}")
        return None if number is None else min(number, 1.0)

    def count(self, name: str) -> int | None:
        """A whole number of at least 0; 8.0 counts as 8."""
        value = self.data.get(name)
        if value is None:
            return None
        return self._count(name, value)

    def _count(self, name: str, value: Any) -> int | None:
        try:
            number = as_number(value)
        except ValueError:
            raise self.error(name, value, "a whole number") from None
        if number is None:
            return None
        if number < 0 or number > MAX_COUNT or number != int(number):
            raise self.error(name, value, "a whole number of at least 0")
        return int(number)

    def stamps(self, name: str) -> tuple[int, ...] | None:
        """A list of clock readings in whole nanoseconds (beyond what a float holds exactly)."""
        values = self.items(name)
        if values is None:
            return None
        return tuple(self._stamp(f"{name}[{i}]", value) for i, value in enumerate(values))

    def stamp(self, name: str) -> int | None:
        """A clock reading in whole nanoseconds."""
        value = self.data.get(name)
        return None if value is None else self._stamp(name, value)

    def _stamp(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**20:
            raise self.error(name, value, "a time in whole nanoseconds")
        return value

    def text(self, name: str) -> str | None:
        """Text of readable length; None when missing or null."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.error(name, value, "text")
        return value[:500]

    def flag(self, name: str) -> bool | None:
        value = self.data.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.error(name, value, "true or false")
        return value

    def child(self, name: str) -> "Fields":
        """The object under `name`; an empty one when it is missing or null."""
        value = self.data.get(name)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise self.error(name, value, "an object")
        return Fields(value, f"{self.where}{name}.")

    def children(self, name: str) -> list["Fields"]:
        """The objects of the list under `name`; none when it is missing or null."""
        value = self.data.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.error(name, value, "a list of objects")
        out = []
        for position, item in enumerate(value):
            if not isinstance(item, Mapping):
                raise self.error(f"{name}[{position}]", item, "an object")
            out.append(Fields(item, f"{self.where}{name}[{position}]."))
        return out

    def items(self, name: str) -> list[Any] | None:
        """The raw list under `name`."""
        value = self.data.get(name)
        if value is not None and not isinstance(value, list):
            raise self.error(name, value, "a list")
        return value

    def numbers(self, name: str, scale: float = 1.0) -> tuple[float, ...] | None:
        """The list of numbers of at least 0 under `name`."""
        values = self.items(name)
        if values is None:
            return None
        return self.number_list(name, values, scale)

    def number_list(self, name: str, values: Any, scale: float = 1.0) -> tuple[float, ...]:
        """`values` as numbers of at least 0, errors naming the element."""
        if not isinstance(values, list):
            raise self.error(name, values, "a list of numbers")
        if all(type(value) is float and 0 <= value <= MAX_NUMBER for value in values):
            # millions of gaps are the bulk of a large file
            return tuple(values) if scale == 1.0 else tuple(value * scale for value in values)
        out = []
        for position, value in enumerate(values):
            try:
                number = as_number(value)
            except ValueError:
                number = None
            if number is None or number < 0:
                raise self.error(f"{name}[{position}]", value, "a number of at least 0")
            out.append(number * scale)
        return tuple(out)

    def counts(self, name: str) -> tuple[int, ...] | None:
        """The list of whole numbers under `name`."""
        values = self.items(name)
        if values is None:
            return None
        out = []
        for position, value in enumerate(values):
            number = None if value is None else self._count(f"{name}[{position}]", value)
            if number is None:
                raise self.error(f"{name}[{position}]", value, "a whole number")
            out.append(number)
        return tuple(out)

    def first(self, read: Callable[[str], Any], *names: str) -> Any:
        """The first of several spellings that is present, read by `read`."""
        for name in names:
            if self.data.get(name) is not None:
                return read(name)
        return None


def simple_text(value: Any) -> str | None:
    """A scalar of a file as short text for `metadata`; None for containers and null."""
    if value is None or isinstance(value, Mapping | list):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_COUNT:
        return None
    return str(value)[:200]


def whole(value: Any) -> int | None:
    """A whole number written as a number or as text ("3"); None for anything else.

    For configuration that tools copy as text, where an unreadable value is just not known.
    """
    if isinstance(value, str):
        text = value.strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        return None
    return value
