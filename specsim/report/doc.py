"""The JSON of a result, whether just computed or read back from a file: what blocks are made from.

Every value is checked when it is used: one of the wrong kind is a FormatError that says where it
stands and what it must be. null, and a key that an older version did not write, is None.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from specsim.errors import FormatError
from specsim.jsonable import json_text
from specsim.report.tables import number, visible

LARGEST = 1e100  # beyond it sums and ratios overflow
MAX_ITEMS = 100_000  # entries of one list


@dataclass(frozen=True, slots=True)
class Doc:
    """A value with its place, e.g. 'points[3].speedup' of a file. Keys may be dotted."""

    value: object
    file: str = "the result"
    path: str = ""

    def fail(self, rule: str) -> FormatError:
        nothing = isinstance(self.value, float) and not math.isfinite(self.value)
        shown = str(self.value) if nothing else json_text(self.value, default=str)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        where = self.path or "the document"
        return FormatError(f"{self.file}: {where} is {shown}; it must be {rule}")

    def at(self, key: str = "") -> "Doc":
        """The value of a key; this one for ''."""
        found = self
        for part in key.split(".") if key else ():
            found = found.child(part)
        return found

    def child(self, key: str) -> "Doc":
        """The value of a key that may have dots in it."""
        name = visible(key, 60)
        path = f"{self.path}.{name}" if self.path else name
        if self.value is None:
            return Doc(None, self.file, path)
        if not isinstance(self.value, Mapping):
            raise self.fail("an object")
        return Doc(self.value.get(key), self.file, path)

    def has(self, key: str) -> bool:
        """Whether there is a value that is not null."""
        return self.at(key).value is not None

    def items(self, key: str = "") -> "list[Doc]":
        """The entries of a list; none where it is null."""
        found = self.at(key)
        if found.value is None:
            return []
        if not isinstance(found.value, list | tuple):
            raise found.fail("a list")
        if len(found.value) > MAX_ITEMS:
            raise FormatError(
                f"{self.file}: {found.path} has {len(found.value)} entries; at most {MAX_ITEMS} "
                "can be shown"
            )
        return [Doc(v, self.file, f"{found.path}[{i}]") for i, v in enumerate(found.value)]

    def members(self, key: str = "") -> "list[tuple[str, Doc]]":
        """Keys and values of an object; none where it is null."""
        found = self.at(key)
        if found.value is None:
            return []
        if not isinstance(found.value, Mapping):
            raise found.fail("an object")
        return [(str(name), found.child(str(name))) for name in found.value]

    def maybe(self, key: str = "") -> float | None:
        """A number of ordinary size, or None where it is null."""
        found = self.at(key)
        value = found.value
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise found.fail("a number or null")
        if not math.isfinite(value) if isinstance(value, float) else False:
            raise found.fail("a finite number")
        if abs(value) > LARGEST:
            raise found.fail(f"a number up to {LARGEST:g}")
        return value if abs(value) > 1 / LARGEST else type(value)(0)

    def number(self, key: str = "") -> float:
        """A number; a whole one stays whole."""
        value = self.maybe(key)
        if value is None:
            raise self.at(key).fail("a number")
        return value

    def text(self, key: str = "", default: str | None = None) -> str:
        """A text; `default` where it is null."""
        found = self.at(key)
        if found.value is None and default is not None:
            return default
        if not isinstance(found.value, str):
            raise found.fail("a text")
        return found.value

    def flag(self, key: str = "") -> bool:
        """true or false; null is false."""
        found = self.at(key)
        if found.value is not None and not isinstance(found.value, bool):
            raise found.fail("true or false")
        return bool(found.value)

    def pair(self, key: str = "") -> tuple[float, float] | None:
        """[low, high], or None where it is null or one of them is."""
        values = self.numbers(key)
        if not values and self.at(key).value is None:
            return None
        if len(values) != 2:
            raise self.at(key).fail("a pair [low, high] or null")
        low, high = values
        return None if low is None or high is None else (low, high)

    def numbers(self, key: str = "") -> list[float | None]:
        return [item.maybe() for item in self.items(key)]

    def texts(self, key: str = "") -> list[str]:
        return [item.text() for item in self.items(key)]

    def words(self, key: str = "") -> str:
        """A value of any kind in words."""
        value = self.at(key).value
        if isinstance(value, Mapping):
            return "; ".join(f"{name} {item.words()}" for name, item in self.members(key))
        if isinstance(value, list | tuple):
            return ", ".join(item.words() for item in self.items(key)[:20])
        if isinstance(value, float):
            return number(value)
        return "-" if value is None else str(value)
