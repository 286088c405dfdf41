"""Declaring options: what stands beside a field (`Opt`), what is read from the fields, and the
command line that gives a result again."""

import shlex
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator
from pydantic.fields import FieldInfo

from specsim.errors import UsageError
from specsim.jsonable import json_text
from specsim.options.meaning import hint
from specsim.options.values import shown_value

_KIND_WORDS: dict[object, str] = {
    int: "a whole number", float: "a number", str: "text", bool: "True or False",
    Path: "a path", Sequence: "a list", Mapping: "a mapping",
}


REQUIRED: Any = object()  # instead of a default
# Headings of --help, in its order.
SECTIONS = (
    "Deployment", "Speculation", "Acceptance", "Load", "Requests", "Engine limits", "Sampling",
    "Server", "Measurements", "Study", "Output", "Advanced",
)


@dataclass(frozen=True)
class Opt:
    """What a field is on the command line.

    flags: spellings, where they are not just the field's name; '--on/--off' for both sides of a
    flag. also: further spellings that are understood, such as vLLM's and SGLang's own. bounds:
    of a number (ge, gt, le, lt); choices: of a word; rule: what it must be, where they do not
    say it. output: it says where a result goes, and is no part of the command that repeats it;
    it stands below "Output". argument: given by place. file_key: its name in scenario and fleet
    files, where that is another one."""

    flags: tuple[str, ...]
    also: tuple[str, ...]
    help: str
    metavar: str | None
    bounds: tuple[float | None, float | None, float | None, float | None]
    choices: tuple[str, ...]
    rule: str
    output: bool
    argument: bool
    file_key: str
    parser: Callable[[str], Path] | None

    def check(self, flag: str, value: object) -> None:
        """UsageError for a number out of its bounds, or a word that is no choice."""
        if self.choices and value is not None and value not in self.choices:
            *first, last = filter(None, self.choices)
            words = f"{', '.join(first)} or {last}"
            raise UsageError(f"{flag} is {shown_value(value)}; it must be {words}")
        ge, gt, le, lt = self.bounds
        if self.bounds == (None,) * 4 or not isinstance(value, int | float):
            return
        low = (ge is None or value >= ge) and (gt is None or value > gt)
        if low and (le is None or value <= le) and (lt is None or value < lt):
            return
        words = self.rule or _range_words(ge, gt, le)
        text = f"{value:g}" if isinstance(value, float) else str(value)
        raise UsageError(f"{flag} is {text}; it must be {words}")


def _range_words(ge: float | None, gt: float | None, le: float | None) -> str:
    """Bounds in words; bounds of another form have a rule of their own."""
    if gt is not None:
        return f"above {gt:.15g}" + ("" if le is None else f" and at most {le:.15g}")
    if le is None:
        return f"at least {ge:.15g}"
    return f"from {ge:.15g} to {le:.15g}" if ge is not None else f"at most {le:.15g}"


@dataclass(frozen=True)
class Declared:
    """One option as it was declared. section: the heading of --help below which it stands; kind:
    the class of its values on the command line; several: a list of them; accepted: the classes that
    a Python caller may give."""

    name: str
    option: Opt
    section: str
    kind: type
    several: bool
    accepted: tuple[object, ...]
    optional: bool
    required: bool
    default: object

    @property
    def spellings(self) -> tuple[str, ...]:
        """As typer takes them: '--on/--off' for a flag with two sides."""
        return (*self._own, *self.option.also)

    @property
    def _own(self) -> tuple[str, ...]:
        return self.option.flags or ("--" + self.name.strip("_").replace("_", "-"),)

    @property
    def on(self) -> tuple[str, ...]:
        """Its spellings, less those that switch it off."""
        return tuple(text.partition("/")[0] for text in self.spellings)

    @property
    def off(self) -> tuple[str, ...]:
        return tuple(off for text in self.spellings if (off := text.partition("/")[2]))

    @property
    def flag(self) -> str:
        """The longest spelling of its own, which says most; MODEL for what is given by place."""
        own = (text.partition("/")[0] for text in self._own)
        return self.name.upper() if self.option.argument else max(own, key=len)

    def read(self, value: object) -> object:
        """A value of a Python caller as the command line would have parsed it. UsageError."""
        if value is None and self.optional:
            return None
        items = _items(value)
        if self.several and items is not None:
            return [self._single(item) for item in items]
        return [self._single(value)] if self.several else self._single(value)

    def _single(self, value: object) -> object:
        number = plain_number(value)
        accepted = self.accepted
        if number is not None and (float in accepted or (int in accepted and number == value
                                                         and isinstance(number, int))):
            if self.kind is str:
                return f"{number:.17g}"
            return float(number) if float in accepted else number
        if isinstance(value, bool):
            if bool in accepted:
                return value
        elif isinstance(value, str | Path) and (str in accepted or Path in accepted):
            return self.kind(value)
        elif isinstance(value, Mapping) and Mapping in accepted:
            limits = all(plain_number(limit) is not None for limit in value.values())
            if limits and self.name == "slo":
                return ",".join(f"{gate}={limit}" for gate, limit in value.items())
            return json_text(value)
        elif Sequence in accepted and (items := _items(value)) is not None:
            return ",".join(self._word(item) for item in items)
        words = " or ".join(dict.fromkeys(_KIND_WORDS[kind] for kind in accepted))
        raise UsageError(f"{self.name} is {shown_value(value)}; it must be {words}")

    def _word(self, item: object) -> str:
        number = plain_number(item)
        if number is not None:
            return f"{number:.17g}"
        if isinstance(item, str):
            return item
        raise UsageError(f"{self.name} has {shown_value(item)}; it must be numbers or text")


T = TypeVar("T")


def opt(
    default: T, *flags: str, help: str, also: tuple[str, ...] = (), metavar: str | None = None,
    ge: float | None = None, gt: float | None = None, le: float | None = None,
    lt: float | None = None, choices: tuple[str, ...] = (), rule: str = "",
    output: bool = False, argument: bool = False, file_key: str = "",
    parser: Callable[[str], Path] | None = None,
) -> T:
    """A field of an `OptionSet` with its default; the rest is said of `Opt`.

    (What it returns is the field, which type checkers take for the default, as for pydantic's
    own `Field`.)"""
    field: Any = Field() if default is REQUIRED else Field(default=default)
    field.metadata.append(Opt(
        flags, also=also, help=help, metavar=metavar, bounds=(ge, gt, le, lt), choices=choices,
        rule=rule, output=output, argument=argument, file_key=file_key, parser=parser,
    ))
    made: T = field
    return made


class OptionSet(BaseModel):
    """Some options with their values. All are checked one by one when it is made; `but` changes
    some of a checked set. `model_fields_set`: those that were given, not left as built in.

    A class that declares fields has the heading of --help below which they stand as its `section`,
    one of `SECTIONS`; '' where its commands have few options."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, protected_namespaces=()
    )
    NAME: ClassVar[str] = ""  # of the command, where it is that of one
    SECTION: ClassVar[str] = ""

    def __init_subclass__(cls, section: str = "", **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if section:
            cls.SECTION = section

    _of_file: frozenset[str] = PrivateAttr(default=frozenset())

    @model_validator(mode="before")
    @classmethod
    def _read_values(cls, given: Mapping[str, object]) -> dict[str, object]:
        known = declared(cls)
        return {
            name: known[name].read(value) if name in known else value
            for name, value in given.items()
        }

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        for name, option in declared(type(self)).items():
            if name in self.model_fields_set:
                option.option.check(option.flag, getattr(self, name))
        return self

    @classmethod
    def of_values(
        cls, given: Mapping[str, object], of_file: frozenset[str] = frozenset()
    ) -> Self:
        """The options of a command line or a file. of_file: those that specsim.toml has set."""
        made = cls.model_validate(given)
        made._of_file = of_file
        return made

    @classmethod
    def known(cls, given: Mapping[str, object]) -> None:
        """UsageError for a name that is no option, with near ones, and for one that is missing."""
        names = declared(cls)
        function = f"specsim.{cls.NAME.replace(' ', '_')}"
        missing = [name for name, item in names.items() if item.required and name not in given]
        if missing:
            raise UsageError(f"{function} needs {missing[0]}; give it by name")
        for name in given:
            if name not in names:
                raise UsageError(
                    f"{function} has no option {name!r}; {hint(name, names)}see help({function})"
                )

    def values(self) -> dict[str, object]:
        """All of them by name, in the order of --help."""
        return {name: getattr(self, name) for name in declared(type(self))}

    @property
    def typed(self) -> frozenset[str]:
        """Those that were given with the call itself, not by specsim.toml."""
        return frozenset(self.model_fields_set) - self._of_file

    @property
    def of_file(self) -> frozenset[str]:
        return self._of_file

    def but(self, **changes: object) -> Self:
        """The same with some values changed; these count as given, and all is checked again."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return self.of_values({**given, **changes}, self._of_file)


def plain_number(value: object) -> int | float | None:
    """A number of Python or NumPy as a plain one; None for everything else."""
    if isinstance(value, bool | str | Path) or value is None:
        return None
    if isinstance(value, int | float):
        return value
    scalar = getattr(value, "item", None)  # NumPy's scalars
    if scalar is None or getattr(value, "shape", ()) != ():
        return None
    plain = scalar()
    return plain if isinstance(plain, int | float) and not isinstance(plain, bool) else None


def _items(value: object) -> list[object] | None:
    """The items of lists, tuples, ranges, arrays and the like; None for text, mappings, raw bytes
    and what is one thing."""
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        return None
    return list(value)


@cache
def declared(options: type[OptionSet]) -> dict[str, Declared]:
    """The options of a model by name, in the order of --help. Do not change the dict."""
    found = {}
    sections: dict[str, str] = {}
    for name, section in _names(options):
        sections.setdefault(name, section)
    for name, section in sections.items():
        field = options.model_fields[name]
        option = next((item for item in field.metadata if isinstance(item, Opt)), None)
        if option is not None:
            found[name] = _declared(name, option, "Output" if option.output else section, field)
    # What is given by place is said first, where a result goes last.
    first = [name for name, item in found.items() if item.option.argument]
    last = [name for name in ("wide", "json_out", "csv_out") if name in found]
    middle = [name for name in found if name not in (*first, *last)]
    return {name: found[name] for name in (*first, *middle, *last)}


def _names(options: type[OptionSet]) -> Iterator[tuple[str, str]]:
    """Names of fields with their sections, as the classes are written: those of the bases, then
    its own."""
    for base in options.__bases__:
        if issubclass(base, OptionSet):
            yield from _names(base)
    yield from ((name, options.SECTION) for name in options.__annotations__
                if name in options.model_fields)


def _declared(name: str, option: Opt, section: str, field: FieldInfo) -> Declared:
    parts = [part for part in _parts(field.annotation) if part is not type(None)]
    several = get_origin(parts[0]) in (list, Sequence)
    if several:
        parts = [*_parts(get_args(parts[0])[0])]
    kinds = tuple(get_origin(part) or part for part in parts)
    if not isinstance(kinds[0], type):
        raise TypeError(f"{name}: {field.annotation} has no class of values")
    return Declared(
        name, option, section, kinds[0], several, kinds, type(None) in _parts(field.annotation),
        field.is_required(), None if field.is_required() else field.default,
    )


def _parts(hint: object) -> tuple[object, ...]:
    """The members of a union, inner unions dissolved."""
    if get_origin(hint) is Annotated:
        return _parts(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(inner for part in get_args(hint) for inner in _parts(part))
    return (hint,)


def repeat(options: OptionSet) -> str:
    """`specsim COMMAND ...` with the options that were given, quoted for a POSIX shell, as results
    carry it with them.

    What only says where the result goes (`--json`, `--csv`, output files) is left out. Options
    stand in the order of `--help`, so that the same options give the same text however they were
    given. What specsim.toml has set is written out: it decides the result as much as a typed
    option."""
    words = ["specsim", *options.NAME.split()]
    places: list[str] = []
    flags: list[str] = []
    for name, option in declared(type(options)).items():
        value: object = getattr(options, name)
        if option.option.output or name not in options.model_fields_set or value is None:
            continue
        if option.option.argument:
            places += [_text(item) for item in _each(value)]
        elif isinstance(value, bool):
            if value or option.off:  # what has no off side is off where it is not given
                flags.append(option.flag if value else max(option.off, key=len))
        else:
            for item in _each(value):
                flags += [option.flag, _text(item)]
    if any(word.startswith("-") for word in places):
        places.insert(0, "--")
        return shlex.join([*words, *flags, *places])
    return shlex.join([*words, *places, *flags])


def _each(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else (value,)


def _text(value: object) -> str:
    """A value as one would type it: whole floats without a point, all digits of others."""
    whole = isinstance(value, float) and repr(value).endswith(".0")
    return f"{value:.17g}" if whole else str(value)
