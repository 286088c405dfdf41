"""Checked access to the fields of an untrusted Hugging Face config.

Each getter returns a value of the right kind within its range or raises a
ModelConfigError of one line that names the file or model, the field, the value and the
rule. Nothing is ever guessed: a field without a default must be there.
"""

import json
import stat
from pathlib import Path
from typing import Any, TypeVar

from specsim.errors import FormatError, ModelConfigError

MAX_FILE_BYTES = 10_000_000
MAX_LAYERS = 1_000  # the deepest model known has 126
MAX_WIDTH = 10_000_000  # hidden sizes, intermediate sizes, vocabularies
MAX_HEADS = 100_000
MAX_EXPERTS = 100_000

_MISSING: Any = object()
_T = TypeVar("_T")


def show(value: object, limit: int = 60) -> str:
    """A value as it may appear in an error message: one line, cut to `limit` characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # integers of over 4300 digits cannot be printed
        text = f"a {type(value).__name__} too large to print"
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def read_json(path: Path) -> dict[str, object]:
    """A JSON object from a regular file of at most MAX_FILE_BYTES bytes.

    Raises FormatError when the file is missing, too large, not JSON or not an object.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{path}: not a regular file; give a config.json or its folder")
        if status.st_size > MAX_FILE_BYTES:
            raise FormatError(
                f"{path}: {status.st_size:,} bytes, over the limit of {MAX_FILE_BYTES:,} for a "
                "model config; give the config.json, not the weights"
            )
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:  # a null byte in the path
        raise FormatError(f"{show(str(path))}: not a path ({error})") from None
    if len(raw) > MAX_FILE_BYTES:
        raise FormatError(f"{path}: over the limit of {MAX_FILE_BYTES:,} bytes for a model config")
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else show(str(error), 120)
        raise FormatError(f"{path}: not valid JSON ({reason})") from None
    if not isinstance(data, dict):
        raise FormatError(f"{path}: a model config is a JSON object, not a {type(data).__name__}")
    return data


class Fields:
    """A mapping from a config with checked getters. `where` names it in messages."""

    def __init__(self, data: dict[str, object], where: str) -> None:
        self.data = data
        self.where = where

    def fail(self, name: str, rule: str) -> ModelConfigError:
        """The error for field `name`; the caller raises it."""
        value = f" = {show(self.data[name])}" if name in self.data else " is missing"
        return ModelConfigError(f"{self.where}: {name}{value}: {rule}")

    def has(self, name: str) -> bool:
        """Whether the field is present and not null."""
        return self.data.get(name) is not None

    def first(self, names: tuple[str, ...]) -> str:
        """The first of `names` that is present, else the first of all."""
        return next((name for name in names if self.has(name)), names[0])

    def integer(
        self, *names: str, default: int = _MISSING, low: int = 1, high: int = MAX_WIDTH
    ) -> int:
        """An integer in [low, high] under the first of `names` that is present."""
        name = self.first(names)
        if not self.has(name):
            if default is _MISSING:
                also = f" (or {', '.join(names[1:])})" if names[1:] else ""
                raise ModelConfigError(
                    f"{self.where}: {name}{also} is missing: this architecture needs it"
                )
            return default
        value = self.data[name]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.fail(name, f"must be an integer from {low} to {high}")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(name, "must be true or false")
        return value

    def text(self, name: str, default: str = "") -> str:
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.fail(name, "must be a string")
        return value

    def strings(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        return self._list(name, str, "strings", default)

    def integers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        values = self._list(name, int, "integers", default)
        if any(isinstance(value, bool) for value in values):
            raise self.fail(name, "must be a list of integers")
        return values

    def _list(
        self, name: str, kind: type[_T], words: str, default: tuple[_T, ...]
    ) -> tuple[_T, ...]:
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            raise self.fail(name, f"must be a list of {words}")
        return tuple(value)

    def sub(self, name: str, required: bool = True) -> "Fields":
        """A nested object; an empty one when absent and not required."""
        value = self.data.get(name)
        if value is None and not required:
            return Fields({}, f"{self.where}.{name}")
        if not isinstance(value, dict):
            raise self.fail(name, "must be an object")
        return Fields(value, f"{self.where}.{name}")

    def per_layer(self, name: str, layers: int) -> tuple[str, ...] | None:
        """A list with one string per layer, or None when absent."""
        if not self.has(name):
            return None
        values = self.strings(name)
        if len(values) != layers:
            raise ModelConfigError(
                f"{self.where}: {name} has {len(values)} entries: must have one for each of the "
                f"{layers} layers"
            )
        return values

    def with_default(self, name: str, value: object) -> "Fields":
        """The same fields, with `name` set to `value` where it is absent."""
        if name in self.data:
            return self
        return Fields({**self.data, name: value}, self.where)

    def require(self, name: str, allowed: tuple[object, ...], reason: str) -> None:
        """Refuse a field that is set to something this reader does not model."""
        value = self.data.get(name)
        if value is not None and value not in allowed:
            raise self.fail(name, reason)
