"""The figures of foreign results as declared types, and the shape of an object that holds them.

Files come from anywhere, so nothing is taken on trust: a value of the wrong type, a negative
time or a number beyond any float is a FormatError that names file, field, what stood there and
what was expected. A missing value, null and NaN all mean "not measured" and are None.

Shapes call their fields as `record` does; the tool's own name is the alias (`key`).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BeforeValidator,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from specsim.checked import Broken, LooseShape, Rule, dotted, problem_of
from specsim.data import data_table
from specsim.errors import FormatError
from specsim.formats.bench.record import BenchRun, Stat

MAX_COUNT = 10**15
MAX_NUMBER = 1e15  # no time, rate or count of a benchmark comes near; keeps every sum finite
MAX_TEXT = 500  # characters that are kept of a name
_SHOWN = 60
_PERCENT = r"\d{1,2}(?:\.\d{1,4})?|100"


class Foreign(LooseShape):
    """An object of a foreign result: what has no figure counts as missing.

    by_name: patterns of keys that are read otherwise than by a field; passed_over: those of the
    tool's own keys that are left out, with the reason (`unread` names the rest), as
    `catalog/foreign.toml` has them for this shape and its bases."""

    by_name: ClassVar[tuple[str, ...]] = ()
    passed_over: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **settings: Any) -> None:
        own = data_table("catalog", "foreign.toml")["passed_over"].get(cls.__name__, {})
        cls.passed_over = {**cls.passed_over, **own}

    def normal(self) -> object:
        """What stands for the object in the normal form."""
        return self

    @model_validator(mode="before")
    @classmethod
    def _measured(cls, raw: object) -> object:
        if not isinstance(raw, Mapping):
            return raw
        found = _measured(raw, 6)
        for path in _holders(cls):
            _object_at(found, path)
        return found


@cache
def _holders(shape: type[Foreign]) -> tuple[tuple[str, ...], ...]:
    """Where the fields of a shape expect objects: ('a',) and ('a', 'b') of a field 'a.b.c'."""
    found: dict[tuple[str, ...], None] = {}
    for name, item in shape.model_fields.items():
        for path in paths_of(name, item):
            found.update({path[:count]: None for count in range(1, len(path))})
    return tuple(found)


def paths_of(name: str, item: FieldInfo) -> list[tuple[str, ...]]:
    """Where a field may stand in the file, one key a level."""
    alias = item.validation_alias
    if not isinstance(alias, AliasChoices):
        return [(alias if isinstance(alias, str) else name,)]
    return [
        tuple(str(step) for step in choice.path) if isinstance(choice, AliasPath) else (choice,)
        for choice in alias.choices
    ]


def _object_at(raw: Mapping[str, object], path: tuple[str, ...]) -> None:
    """Broken where something else stands: a path would pass over it as if nothing were there."""
    value: object = raw
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return
        value = value[name]
    if not isinstance(value, Mapping):
        raise Broken("an object", ".".join(path), value)


def _measured(raw: Mapping[str, object], depth: int) -> dict[str, object]:
    """Without null and NaN, also inside (`depth` levels: deeper than any path of a field)."""
    return {
        name: _measured(value, depth - 1) if depth and isinstance(value, Mapping) else value
        for name, value in raw.items()
        if not no_figure(value)
    }


def no_figure(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def key(*names: str) -> Any:
    """A field that is missing unless the file has it, under the first of `names` that is there;
    'a.b.c' is c of b of a."""
    return Field(None, validation_alias=_alias(names))


def part(shape: type, *names: str) -> Any:
    """The same for an object, empty where it is missing."""
    return Field(default_factory=shape, validation_alias=_alias(names) if names else None)


def parts(*names: str) -> Any:
    """The same for a list of objects."""
    return Field(default_factory=list, validation_alias=_alias(names) if names else None)


def _alias(names: tuple[str, ...]) -> AliasChoices:
    return AliasChoices(*(AliasPath(*name.split(".")) if "." in name else name for name in names))


def _as_int(value: object) -> object:
    """8.0 counts as 8."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _infinite(value: object) -> object:
    """Some tools write infinity as text."""
    text = value.strip().lower() if isinstance(value, str) else ""
    return math.inf if text in ("inf", "infinity") else value


def _rate(value: float | None) -> float | None:
    if value is not None and MAX_NUMBER < value < math.inf:
        raise Broken(AT_LEAST_0)
    return value


def _from_ms(value: float | None) -> float | None:
    return None if value is None else value * 1e-3


def _from_percent(value: float | None) -> float | None:
    """As a fraction; above 100 by no more than rounding is 100."""
    if value is None:
        return None
    if value / 100.0 > 1 + 1e-9:
        raise Broken("at most 100")
    return min(value * (1 / 100.0), 1.0)


AT_LEAST_0 = "a number of at least 0"
_BOUNDS = (Field(ge=0, le=MAX_NUMBER), Rule(AT_LEAST_0))
_WHOLE = (Field(ge=0, le=MAX_COUNT), Rule("a whole number of at least 0"), BeforeValidator(_as_int))
_STAMP = (Field(ge=0, lt=10**20), Rule("a time in whole nanoseconds"))
_A_LIST = Field(strict=False)

Number = Annotated[float | None, *_BOUNDS]
Signed = Annotated[float | None, Field(ge=-MAX_NUMBER, le=MAX_NUMBER), Rule("a number")]
Millis = Annotated[float | None, *_BOUNDS, AfterValidator(_from_ms)]
Rate = Annotated[
    float | None, Field(ge=0), Rule(AT_LEAST_0), AfterValidator(_rate), BeforeValidator(_infinite)
]
Percent = Annotated[float | None, *_BOUNDS, AfterValidator(_from_percent)]
Count = Annotated[int | None, *_WHOLE]
Stamp = Annotated[int | None, *_STAMP]  # a clock in ns, beyond what a float holds exactly
Text = Annotated[str | None, AfterValidator(lambda text: text and text[:MAX_TEXT]), Rule("text")]
Flag = Annotated[bool | None, Rule("true or false")]
Numbers = Annotated[tuple[Annotated[float, *_BOUNDS], ...], _A_LIST, Rule("a list of numbers")]
Counts = Annotated[tuple[Annotated[int, *_WHOLE], ...], _A_LIST, Rule("a list of whole numbers")]
Stamps = Annotated[tuple[Annotated[int, *_STAMP], ...], _A_LIST, Rule("a list of times")]

S = TypeVar("S", bound=Foreign)


def read_as(shape: type[S], raw: object, where: str) -> S:
    """`raw` in its declared shape; FormatError that begins with `where`."""
    try:
        return shape.model_validate(raw)
    except ValidationError as error:
        wrong = problem_of(error, shape)
    if wrong.kind == "said":
        raise FormatError(f"{where}{wrong.rule}")
    rule = "an object" if wrong.rule == "a table" else wrong.rule  # as JSON calls it
    raise field_error(where + dotted(wrong.place), wrong.value, rule)


def field_error(place: str, value: object, wanted: str) -> FormatError:
    return FormatError(f"{place} is {describe(value)}; {wanted} is expected there")


def describe(value: object) -> str:
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


def stated(item: Foreign, form: type = BenchRun) -> dict[str, Any]:
    """What a shape calls as the normal form does."""
    known = {item.name for item in fields(form)}
    found = {name: getattr(item, name) for name in type(item).model_fields if name in known}
    return {name: value.normal() if isinstance(value, Foreign) else value
            for name, value in found.items()}


def figure(raw: Mapping[str, object], name: str, where: str, scale: float = 1.0) -> float | None:
    """The number under a key that no shape can declare, times `scale`."""
    value = raw.get(name)
    if no_figure(value):
        return None
    number = as_figure(value)
    if number is None:
        raise field_error(where + name, value, AT_LEAST_0)
    return number * scale


def as_figure(value: object) -> float | None:
    """A number of at least 0 as float, None for anything else."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if good and 0 <= value <= MAX_NUMBER else None  # type: ignore[operator, arg-type]


def percentiles(
    raw: Mapping[str, object], names: re.Pattern[str], where: str, scale: float = 1.0
) -> dict[str, float]:
    """The numbers whose key is a percentile's, as {"p99": value}; group 1 of `names`: the 99."""
    found = {}
    for name in raw:
        match = names.fullmatch(name)
        value = figure(raw, name, where, scale) if match else None
        if match is not None and value is not None:
            found[f"p{match[1]}"] = value
    return found


def named_stat(raw: Mapping[str, object], name: str, where: str) -> Stat | None:
    """`mean_ttft_ms`, `median_ttft_ms`, `p99_ttft_ms` and so on, as vLLM and SGLang write them.

    Scripts around them (InferenceMAX) turn these into seconds and drop the unit from the name;
    milliseconds win where both are there. The mean may be missing."""
    for unit, scale in (("_ms", 1e-3), ("_s", 1.0), ("", 1.0)):
        key = f"_{name}{unit}"
        mean = figure(raw, f"mean{key}", where, scale)
        median = figure(raw, f"median{key}", where, scale)
        if mean is None and median is None:
            continue
        return Stat(
            mean=mean, median=median, std=figure(raw, f"std{key}", where, scale),
            percentiles=percentiles(raw, re.compile(rf"p({_PERCENT}){key}"), where, scale),
        )
    return None


def stat_names(*names: str) -> str:
    """A pattern of all that `named_stat` reads of these names."""
    return rf"(?:mean|median|std|p(?:{_PERCENT}))_(?:{'|'.join(names)})(?:_ms|_s)?"


def as_mapping(value: object) -> Mapping[str, object]:
    """An object of a file, empty for anything else: for configuration that need not be there."""
    return value if isinstance(value, Mapping) else {}


def simple_text(value: object) -> str | None:
    """A scalar of a file as short text for `metadata`; None for containers and null."""
    if value is None or isinstance(value, Mapping | list):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_COUNT:
        return None
    return str(value)[:200]


def whole(value: object) -> int | None:
    """A whole number written as a number or as text ("3"); None for anything else.

    For configuration that tools copy as text, where an unreadable value is just not known.
    """
    if isinstance(value, str):
        text = value.strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        return None
    return value
