"""Result files as they come from outside: read with limits, told apart, every value checked on use.

A file is one JSON document of `specsim ... --json`. `Node` walks through it; a value of the wrong
kind is a FormatError that says where it stands and what it should be.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from specsim.errors import FormatError
from specsim.files import read_limited
from specsim.report.html.elements import visible

MAX_BYTES = 32_000_000
LARGEST = 1e100  # beyond it sums and ratios overflow
MAX_ITEMS = 100_000  # entries of one list


@dataclass(frozen=True, slots=True)
class Node:
    """A value inside a document. path: where it stands, e.g. 'points[3].speedup'."""

    value: Any
    file: str
    path: str = ""

    def fail(self, rule: str) -> FormatError:
        shown = json.dumps(self.value, ensure_ascii=True, default=str)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        where = self.path or "the document"
        return FormatError(f"{self.file}: {where} is {shown}; it must be {rule}")

    def __contains__(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def get(self, key: str) -> "Node":
        """A key's value; null where it is missing."""
        if self.value is None:
            return Node(None, self.file, self._below(key))
        if not isinstance(self.value, dict):
            raise self.fail("an object")
        return Node(self.value.get(key), self.file, self._below(key))

    def at(self, dotted: str) -> "Node":
        node = self
        for key in dotted.split("."):
            node = node.get(key)
        return node

    def _below(self, key: str) -> str:
        return f"{self.path}.{visible(key, 60)}" if self.path else visible(key, 60)

    def items(self) -> list["Node"]:
        """The entries of a list; none where it is null."""
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            raise self.fail("a list")
        if len(self.value) > MAX_ITEMS:
            raise FormatError(
                f"{self.file}: {self.path} has {len(self.value)} entries; at most {MAX_ITEMS} can "
                "be shown"
            )
        return [Node(v, self.file, f"{self.path}[{i}]") for i, v in enumerate(self.value)]

    def members(self) -> Iterator[tuple[str, "Node"]]:
        """Keys and values of an object; none where it is null."""
        if self.value is None:
            return
        if not isinstance(self.value, dict):
            raise self.fail("an object")
        for key in self.value:
            yield str(key), self.get(key)

    @property
    def missing(self) -> bool:
        return self.value is None

    def maybe(self) -> float | None:
        """A finite number, or None where it is null."""
        value = self.value
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail("a number or null")
        try:
            value = float(value)
        except OverflowError:
            raise self.fail("a number of ordinary size") from None
        if not math.isfinite(value):
            raise self.fail("a finite number")
        if abs(value) > LARGEST:
            raise self.fail(f"a number up to {LARGEST:g}")
        return value if abs(value) > 1 / LARGEST else 0.0

    def number(self) -> float:
        value = self.maybe()
        if value is None:
            raise self.fail("a number")
        return value

    def text(self, default: str | None = None) -> str:
        """A string; `default` where it is null. Numbers are written out."""
        value = self.value
        if value is None:
            if default is None:
                raise self.fail("a text")
            return default
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.fail("a text")
        return visible(value)

    def flag(self) -> bool:
        if self.value is None:
            return False
        if not isinstance(self.value, bool):
            raise self.fail("true or false")
        return self.value

    def pair(self) -> tuple[float, float] | None:
        """[low, high], or None where it is null or one of them is."""
        if self.value is None:
            return None
        found = self.items()
        if len(found) != 2:
            raise self.fail("a pair [low, high] or null")
        low, high = found[0].maybe(), found[1].maybe()
        return None if low is None or high is None else (low, high)

    def numbers(self) -> list[float | None]:
        return [item.maybe() for item in self.items()]

    def texts(self) -> list[str]:
        return [item.text() for item in self.items()]


@dataclass(frozen=True, slots=True)
class Document:
    """A result file. kind: of the document; name: of the file, as given."""

    kind: str
    node: Node
    name: str


def read_text(path: str, text: str | bytes | None = None) -> str:
    """The text of a file (or of what was read from standard input), with limits."""
    name = visible(path, 200)
    if text is None:
        try:
            text = read_limited(Path(path), MAX_BYTES)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise FormatError(f"cannot read {name}: {reason}") from None
    if len(text) > MAX_BYTES:
        raise FormatError(
            f"{name} is larger than {MAX_BYTES / 1e6:.0f} MB; a result of specsim --json is smaller"
        )
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise FormatError(f"{name} is not UTF-8 text (byte {error.start})") from None
    return text


def parse(name: str, text: str, kinds: tuple[str, ...]) -> Document:
    """The document in a text. FormatError where it is no JSON or of no known kind."""
    name = visible(name, 200)
    if not text.strip():
        raise FormatError(f"{name} is empty; give a result of specsim ... --json")
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise FormatError(f"{name} is nested too deeply for a result") from None
    except ValueError as error:
        raise FormatError(f"{name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise FormatError(f"{name} holds no object; give a result of specsim ... --json")
    kind = value.get("kind") or _guess(value)
    if kind not in kinds:
        known = ", ".join(kinds)
        if kind is None:
            raise FormatError(f"{name} has no kind that is known; a report shows {known}")
        near = get_close_matches(str(kind), kinds, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise FormatError(f"{name}: kind is {str(kind)[:60]!r}; {hint}a report shows {known}")
    return Document(str(kind), Node(value, name), name)


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def _guess(value: dict[str, Any]) -> str | None:
    """Kind of a document from before kinds were written."""
    shapes = {
        "prediction": {"points", "break_even_concurrency"},
        "simulation": {"ttft_s", "inputs"},
        "explanation": {"steps", "engine", "fidelity"},
        "mindrouter": {"table"},
        "published": {"overall", "sets"},
    }
    return next((kind for kind, keys in shapes.items() if keys <= value.keys()), None)
