"""Files and bodies whose shape is declared: a pydantic model, read with limits, one line of error.

    class Head(Shape):
        name: Annotated[str, Rule("text")]
        repeats: Annotated[int, Field(ge=1, le=100)] = 1

    head = check(Head, toml_table(file_text(path), path.name), path.name)

A field's rule in words is made from its type and bounds, or said with `Rule`. What pydantic finds
wrong becomes a `Problem` (place, value, rule, known keys) and that one line: a reader whose format
needs other words writes its own line from the same `Problem`. Validators that raise ValueError
say the whole sentence themselves.

Types are strict: true is no number and "3" no 3, but a whole number serves where a float belongs.
"""

import json
import math
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn, TypeVar

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from specsim.errors import FormatError, SpecSimError, closest, shown


class Shape(BaseModel):
    """A table whose keys are all known. Models are built when first used, not when imported."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class LooseShape(Shape):
    """A table of a foreign format: keys that nothing here reads may be there."""

    model_config = ConfigDict(extra="ignore")


class SparseShape(LooseShape):
    """A foreign table in which null is the same as absent."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, raw: object) -> object:
        if not isinstance(raw, Mapping):
            return raw
        return {name: value for name, value in raw.items() if value is not None}


@dataclass(frozen=True)
class Rule:
    """What a field may hold, in words that follow "it must be": 'a list of texts'."""

    words: str


# A list of the file as a tuple; strict mode would ask for a tuple, which no file has.
Texts = Annotated[tuple[str, ...], Field(strict=False), Rule("a list of texts")]

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class Problem:
    """The first thing that is wrong. kind: 'unknown' key, 'missing' key, 'wrong' value, or 'said':
    a validator's own sentence, in `rule`. place: keys and positions from the top. rule: what
    `value` must be. known: the keys that the table may have."""

    kind: str
    place: tuple[str | int, ...]
    value: object = None
    rule: str = ""
    known: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The last key of the place, with the positions behind it: 'cases[2]'."""
        return dotted(self.place).rpartition(".")[2]

    @property
    def table(self) -> str:
        """Where the key stands: '[users]' of a TOML file, '[[models]] 2' of its lists of tables, ''
        at the top."""
        holder = len(self.place) - 1
        while holder > 0 and isinstance(self.place[holder], int):
            holder -= 1
        return _heading(self.place[: max(0, holder)])

    def line(self, where: str) -> str:
        """The problem as one line that begins with the file."""
        place = f"{where}: {self.table}" if self.table else where
        if self.kind == "said":
            tables = len(self.place) > 1 and isinstance(self.place[1], int)
            return f"{where}: {_heading(self.place[:2]) + ': ' if tables else ''}{self.rule}"
        if self.kind == "unknown":
            return f"{place} has no key {shown(self.key)}; {did_you_mean(self.key, self.known)}"
        if self.kind == "missing":
            return f"{place} needs {self.key}, {self.rule}"
        what = f"{self.table} {self.key}".strip()
        if not what:
            return f"{where} holds {shown(self.value)}; it must be {self.rule}"
        return f"{where}: {what} is {shown(self.value)}; it must be {self.rule}"


class Broken(ValueError):
    """What a validator raises for a value that must be something else: `rule` follows "it must
    be". key, value: the part of the validated object that is meant, where it is not all of it."""

    def __init__(self, rule: str, key: str = "", value: object = None) -> None:
        super().__init__(rule)
        self.rule, self.key, self.value = rule, key, value


def _heading(place: tuple[str | int, ...]) -> str:
    """The table at a place as a file has it, lists of tables counted as people do."""
    if len(place) > 1 and isinstance(place[1], int):
        table = f"[[{place[0]}]] {place[1] + 1}"
        return f"{table} [{dotted(place[2:])}]" if place[2:] else table
    return f"[{dotted(place)}]" if place else ""


def dotted(place: tuple[str | int, ...]) -> str:
    """('models', 2, 'slo') as 'models[2].slo'."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The way out of a name that is not known: the closest one, or all there are."""
    names = sorted(known)
    return closest(name, names).rstrip() or f"it has {', '.join(names)}"


def problem_of(
    error: ValidationError, shape: type[BaseModel], key: str | int | None = None
) -> Problem:
    """What to tell of pydantic's list: unknown keys first, they are often misspelt needed ones.
    key: what is wrong with that one."""
    found = error.errors(include_url=False)
    found = [item for item in found if key is None or item["loc"][0] == key]
    first = next((item for item in found if item["type"] == "extra_forbidden"), found[0])
    kind = first["type"]
    if kind == "extra_forbidden":
        place, holder, _ = _walk(shape, first["loc"][:-1])
        return Problem("unknown", (*place, first["loc"][-1]), first["input"], known=_keys(holder))
    place, hint, words = _walk(shape, first["loc"])
    if kind == "missing":
        return Problem("missing", place, rule=words or _words(hint))
    if kind == "value_error":
        said = first["ctx"]["error"]
        if not isinstance(said, Broken):
            return Problem("said", place, first["input"], str(said))
        if said.key:
            return Problem("wrong", (*place, said.key), said.value, said.rule)
        return Problem("wrong", place, first["input"], said.rule)
    return Problem("wrong", place, first["input"], words or _words(hint) or first["msg"].lower())


def check(
    shape: type[S], raw: object, where: str, error: type[SpecSimError] = FormatError
) -> S:
    """`raw` in its declared shape; `error` with one line that begins with `where`."""
    try:
        return shape.model_validate(raw)
    except ValidationError as wrong:
        raise error(problem_of(wrong, shape).line(where)) from None
    except RecursionError:
        raise error(f"{where} is nested too deeply") from None


def toml_table(text: str, where: str) -> dict[str, Any]:
    """Tables of TOML text; FormatError naming the line when it is broken."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError, OverflowError) as error:
        # Besides syntax: absurd integers, dates and nesting.
        raise FormatError(f"{where} is not valid TOML: {_reason(error)}") from None


def json_value(text: str | bytes, where: str) -> object:
    """A JSON value in which no object has a key twice and no number is NaN or Infinity, which are
    none of JSON's; FormatError."""
    try:
        value: object = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where} is not valid JSON: {_reason(error)}") from None
    return value


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {shown(twice)} stands twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return " ".join(str(error).split())[:200]


Place = tuple[str | int, ...]


def _walk(shape: type[BaseModel], place: Place) -> tuple[Place, object, str]:
    """(the place without what pydantic adds for unions, the type of what is there, the words of
    the innermost `Rule` on the way to it)."""
    hint: object = shape
    words = ""
    kept: Place = ()
    while place:
        taken, following, said = _inner(hint, place)
        kept += place[:taken]
        if taken:
            hint, words = following, said
        place = place[taken or 1 :]
    return kept, hint, words


def _inner(hint: object, place: Place) -> tuple[int, object, str]:
    """(how many parts of `place` lead to the next type, that type, its rule); 0: none, it is a
    tag of a union."""
    model = _model(hint)
    if model is not None:
        for name, field in model.model_fields.items():
            for spelling in _spellings(name, field):
                if place[: len(spelling)] == spelling:
                    said = next((m.words for m in field.metadata if isinstance(m, Rule)), "")
                    return len(spelling), _annotated(field), said
        if model.model_config.get("extra") == "allow" and isinstance(place[0], str):
            extra = typing.get_args(model.__annotations__.get("__pydantic_extra__"))
            return 1, extra[1] if extra else object, ""
        return 0, None, ""
    for arm in _arms(hint):
        origin, arguments = typing.get_origin(arm), typing.get_args(arm)
        keyed = origin in (dict, Mapping) and isinstance(place[0], str)
        if keyed or (isinstance(place[0], int) and arguments):
            element = arguments[1] if keyed else arguments[0]
            return 1, element, _rule(element) or _rule(hint)
    return (1, object, "") if hint is object else (0, None, "")


def _spellings(name: str, field: Any) -> list[Place]:
    """The places of a field in its table: its name, aliases, and paths of an AliasPath."""
    choices = getattr(field.validation_alias, "choices", [field.validation_alias])
    paths = [tuple(getattr(choice, "path", (choice,))) for choice in choices]
    return sorted([(name,), (field.alias,), *paths], key=len, reverse=True)


def _annotated(field: Any) -> object:
    hint = field.annotation
    for item in field.metadata:
        hint = Annotated[hint, item]
    return hint


def _arms(hint: object) -> list[object]:
    """The alternatives of a union, without None and without annotations."""
    if typing.get_origin(hint) is Annotated:
        return _arms(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        arms = [arm for arm in typing.get_args(hint) if arm is not type(None)]
        return [inner for arm in arms for inner in _arms(arm)]
    return [hint]


def _model(hint: object) -> type[BaseModel] | None:
    for arm in _arms(hint):
        if isinstance(arm, type) and issubclass(arm, BaseModel):
            return arm
    return None


def _rule(hint: object) -> str:
    """The words of a `Rule` on a type, or on an alternative of it."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(filter(None, map(_rule, typing.get_args(hint))), "")
    if typing.get_origin(hint) is Annotated:
        for item in typing.get_args(hint)[1:]:
            if isinstance(item, Rule):
                return item.words
    return ""


def _keys(hint: object) -> tuple[str, ...]:
    model = _model(hint)
    if model is None:
        return ()
    return tuple(f.alias or name for name, f in model.model_fields.items())


def _words(hint: object) -> str:
    """The rule in words that a type and its bounds state."""
    said = _rule(hint)
    if said:
        return said
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return _words(next(arm for arm in typing.get_args(hint) if arm is not type(None)))
    arm = _arms(hint)[0]
    bounds = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    if arm is bool:
        return "true or false"
    if arm is str:
        return "text"
    if arm in (int, float):
        return ("a whole number" if arm is int else "a number") + _range(bounds)
    origin = typing.get_origin(arm)
    if origin is typing.Literal:
        return "one of " + ", ".join(str(value) for value in typing.get_args(arm))
    if origin in (list, tuple):
        return "a list"
    return "a table"


def _range(bounds: tuple[object, ...]) -> str:
    low = high = ""
    for item in _flat(bounds):
        if isinstance(item, Ge):
            low = f" from {_figure(item.ge)}"
        elif isinstance(item, Gt):
            low = f" above {_figure(item.gt)}"
        elif isinstance(item, Le):
            high = f" to {_figure(item.le)}"
        elif isinstance(item, Lt):
            high = f" to below {_figure(item.lt)}"
    return low + (high if low else high.replace(" to", " up to", 1))


def _flat(bounds: tuple[object, ...]) -> list[object]:
    """Bounds with those inside a `Field(...)` beside the plain ones."""
    found: list[object] = []
    for item in bounds:
        found += getattr(item, "metadata", None) or [item]
    return found


def _figure(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    return f"{value:g}" if isinstance(value, float) and math.isfinite(value) else str(value)
