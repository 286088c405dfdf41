"""An object of a Hugging Face config: how it is read, and the types of its fields.

What a field may be (type, range, spellings) stands in `hf_shape` once; whether it must be there is
up to the architecture that reads it: a field without a default fails when it is read and missing,
null counting as missing. Errors are one line that names file or model, field, value and rule.

Configs are untrusted: at most MAX_FILE_BYTES of plain JSON, every declared field checked; fields
that are not declared may hold anything.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import AliasChoices, Field, PrivateAttr, ValidationError

from specsim.checked import Rule, SparseShape, problem_of
from specsim.errors import FormatError, ModelConfigError, shown
from specsim.files import text_of

MAX_FILE_BYTES = 10_000_000
MAX_LAYERS = 1_000  # the deepest model known has 126
MAX_WIDTH = 10_000_000  # hidden sizes, intermediate sizes, vocabularies
MAX_HEADS = 100_000
MAX_EXPERTS = 100_000

_MISSING: Any = object()
V = TypeVar("V")


def read_json(path: Path) -> dict[str, object]:
    """A JSON object from a regular file of at most MAX_FILE_BYTES bytes.

    Raises FormatError when the file is missing, too large, not JSON or not an object.
    """
    text = text_of(
        path, MAX_FILE_BYTES, "give a config.json or its folder, or a name of `specsim models`",
        f"over the limit of {MAX_FILE_BYTES:,} bytes for a model config; give the config.json, not "
        "the weights", "save the file as UTF-8",
    )
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        deep = isinstance(error, RecursionError)
        reason = "nested too deeply" if deep else shown(str(error), 120)
        raise FormatError(f"{path}: not valid JSON ({reason})") from None
    if not isinstance(data, dict):
        raise FormatError(f"{path}: a model config is a JSON object, not a {type(data).__name__}")
    return data


def needed(*names: str) -> Any:
    """A field that must be there where it is read, under the first of `names`."""
    return Field(_MISSING, validation_alias=AliasChoices(*names) if names else None)


def either(default: object, *names: str) -> Any:
    """A field of several spellings with a default."""
    return Field(default, validation_alias=AliasChoices(*names))


def between(low: int, high: int) -> tuple[object, object]:
    return Field(ge=low, le=high), Rule(f"must be an integer from {low} to {high}")


Width = Annotated[int, *between(1, MAX_WIDTH)]
WidthOrNone = Annotated[int, *between(0, MAX_WIDTH)]
Heads = Annotated[int, *between(1, MAX_HEADS)]
HeadDim = Annotated[int, *between(1, 65_536)]
Layers = Annotated[int, *between(1, MAX_LAYERS)]
LayersOrNone = Annotated[int, *between(0, MAX_LAYERS)]
LastLayer = Annotated[int, *between(-1, MAX_LAYERS)]
ExpertCount = Annotated[int, *between(1, MAX_EXPERTS)]
Few = Annotated[int, *between(0, 1000)]
Some = Annotated[int, *between(1, 1000)]
Positions = Annotated[int, *between(0, 1 << 40)]
Kernel = Annotated[int, *between(2, 64)]
Switch = Annotated[bool, Rule("must be true or false")]
Text = Annotated[str, Rule("must be a string")]
Strings = Annotated[tuple[str, ...], Field(strict=False), Rule("must be a list of strings")]
Integers = Annotated[tuple[int, ...], Field(strict=False), Rule("must be a list of integers")]
Object = Annotated[dict[str, object], Rule("must be an object")]


class ConfigObject(SparseShape):
    """An object of a config with the place it stands in. Read it with `of`."""

    _raw: Mapping[str, object] = PrivateAttr(default_factory=dict)
    _where: str = PrivateAttr("config")
    _faults: dict[str, str] = PrivateAttr(default_factory=dict)
    _asked: set[str] = PrivateAttr(default_factory=set)
    _written: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def of(
        cls, raw: Mapping[str, object], where: str, written: Mapping[str, str] | None = None
    ) -> Self:
        """The object in its declared shape. A field that is not as declared fails when it is read,
        with ModelConfigError naming field, value and rule: most architectures read few of them,
        and published files say odd things about the others. written: what the file calls fields
        that stand in `raw` under their usual name; errors say that."""
        faults: dict[str, str] = {}
        try:
            found = cls.model_validate(raw)
        except ValidationError as error:
            for item in error.errors(include_url=False):
                key = item["loc"][0]
                name = next(n for n in cls.model_fields if key in cls._spellings(n))
                if name not in faults:
                    faults[name] = _line(error, cls, raw, where, key, written or {})
            good = {key: value for key, value in raw.items() if not _among(cls, key, faults)}
            found = cls.model_validate(good)
        found._placed(raw, where)
        found._faults, found._written = faults, written or {}
        return found

    def _placed(self, raw: Mapping[str, object], where: str) -> None:
        self._raw, self._where = raw, where
        for name in type(self).model_fields:
            inner, given = self.__dict__.get(name), raw.get(name)
            if not isinstance(given, Mapping):
                continue
            if isinstance(inner, ConfigObject):
                inner._placed(given, f"{where}.{name}")
            elif isinstance(inner, dict):
                for key, item in inner.items():
                    if isinstance(item, ConfigObject):
                        item._placed(given[key], f"{where}.{name}.{key}")

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name.startswith("_") or name not in type(self).model_fields:
            return value
        # The private attributes themselves: each way to them through `self` comes here first.
        private = super().__getattribute__("__pydantic_private__")
        private["_asked"].update(self._spellings(name))
        if name in private["_faults"]:
            raise ModelConfigError(private["_faults"][name])
        if value is not _MISSING:
            return value
        raise self.missing(name)

    @classmethod
    def _spellings(cls, name: str) -> list[str]:
        alias = cls.model_fields[name].validation_alias
        return [str(choice) for choice in getattr(alias, "choices", [name])]

    def spelling(self, name: str) -> str:
        """What the file calls a field of several spellings."""
        spelt = self._spellings(name)
        return next((key for key in spelt if self.has(key)), spelt[0])

    def missing(self, name: str) -> ModelConfigError:
        first, *others = [self._written.get(key, key) for key in self._spellings(name)]
        also = f" (or {', '.join(others)})" if others else ""
        return ModelConfigError(
            f"{self._where}: {first}{also} is missing: this architecture needs it"
        )

    @property
    def where(self) -> str:
        return self._where

    @property
    def raw(self) -> Mapping[str, object]:
        """As it stands in the file."""
        return self._raw

    def has(self, name: str) -> bool:
        """Whether the file has a field, and not null."""
        self._asked.add(name)
        return self._raw.get(name) is not None

    def flag(self, name: str, default: bool) -> bool:
        """A switch whose default is the architecture's own."""
        value = getattr(self, name)
        return default if value is None else bool(value)

    def given(self, name: str, value: V | None) -> V:
        """`value`, which an architecture needs although others do without."""
        if value is None:
            raise self.missing(name)
        return value

    def fail(self, name: str, rule: str) -> ModelConfigError:
        """The error for field `name`; the caller raises it."""
        value = f" = {shown(self._raw[name])}" if name in self._raw else " is missing"
        return ModelConfigError(f"{self._where}: {self._written.get(name, name)}{value}: {rule}")

    def require(self, name: str, allowed: tuple[object, ...], reason: str) -> None:
        """Refuse a field that is set to something this reader does not model."""
        self._asked.add(name)
        value = self._raw.get(name)
        if value is not None and value not in allowed:
            raise self.fail(name, reason)

    def with_default(self, name: str, value: object) -> Self:
        """The same object, with `name` set to `value` where the file does not mention it."""
        if name in self._raw:
            return self
        filled = type(self).of({**self._raw, name: value}, self._where, self._written)
        filled._asked = self._asked
        return filled

    def costs_nothing(self, *names: str) -> None:
        """Fields that this architecture has and that change neither sizes nor reads."""
        self._asked.update(names)

    def unasked(self) -> dict[str, object]:
        """The fields of the file that nobody has read so far, less those that are null, false,
        zero or empty."""
        return {key: value for key, value in self._raw.items() if value and key not in self._asked}

    def per_layer(self, name: str, values: tuple[str, ...] | None, layers: int) -> None:
        """Refuse a list that has not one entry per layer."""
        if values is not None and len(values) != layers:
            raise ModelConfigError(
                f"{self._where}: {name} has {len(values)} entries: must have one for each of the "
                f"{layers} layers"
            )


def _among(shape: type[ConfigObject], key: str, names: Iterable[str]) -> bool:
    return any(key in shape._spellings(name) for name in names)


def _line(
    error: ValidationError, shape: type[ConfigObject], raw: object, where: str, key: int | str,
    written: Mapping[str, str],
) -> str:
    """What is wrong with the field under `key`, as one line. A list is shown whole: the rule is
    about it."""
    wrong = problem_of(error, shape, key)
    names = [part for part in wrong.place if isinstance(part, str)]
    value = raw
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else value
    rule = "must be an object" if wrong.rule == "a table" else wrong.rule
    names[0] = written.get(names[0], names[0])
    return f"{'.'.join((where, *names[:-1]))}: {names[-1]} = {shown(value)}: {rule}"
