"""What a sweep computes: a grid over options, task by task (docs/planning.md).

A task is named by a key, the digest of its options and its repeat, so that it is the same task
wherever it stands in a definition. Its seed is the definition's, or derived from the key: neither
workers nor their order can change it.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field

from specsim.checked import Rule, Shape, check, toml_table
from specsim.errors import FormatError, UsageError, shown
from specsim.files import file_text
from specsim.jsonable import json_text

RUNS = ("simulate", "predict")
MAX_TASKS = 1_000_000
MAX_REPEATS = 1000
MAX_HASHED_BYTES = 256_000_000
SEEDS = 1 << 32
# Options whose value may be a file: what it holds decides the results too.
FILE_OPTIONS = ("model", "gpu", "draft", "trace", "scenario")


@dataclass(frozen=True, slots=True)
class Task:
    """index: its place in the definition's order. varied: the options that tell it from others.
    Its key and its seed are digests, made when they are asked for."""

    run: str
    index: int
    options: Mapping[str, object]
    varied: Mapping[str, object]
    repeat: int

    @property
    def key(self) -> str:
        return _digest([self.run, dict(self.options), self.repeat])[:24]

    @property
    def seed(self) -> int | None:
        if self.run == "predict":
            return None
        given = self.options.get("seed")
        if given is not None:
            assert isinstance(given, int)
            return (given + self.repeat) % SEEDS
        return int(_digest(["seed", self.key])[:8], 16)


@dataclass(frozen=True)
class Sweep:
    """run: 'simulate' or 'predict'. columns: names of results for tables, () for the usual."""

    run: str
    fixed: Mapping[str, object] = field(default_factory=dict)
    grid: Mapping[str, Sequence[object]] = field(default_factory=dict)
    cases: Sequence[Mapping[str, object]] = ()
    repeats: int = 1
    columns: tuple[str, ...] = ()
    name: str = "sweep"

    def __post_init__(self) -> None:
        if self.run not in RUNS:
            raise UsageError(f"run is {self.run!r}; a sweep runs {' or '.join(RUNS)}")
        if not 1 <= self.repeats <= MAX_REPEATS:
            raise UsageError(
                f"repeats is {shown(self.repeats)}; it must be from 1 to {MAX_REPEATS}"
            )
        if self.repeats > 1 and self.run == "predict":
            raise UsageError(f"repeats is {self.repeats}, but predict is not random; leave it out")
        for name, values in self.grid.items():
            if not values:
                raise UsageError(f"grid.{name} is empty; give the values to try")
            if len({_canonical(value) for value in values}) < len(values):
                raise UsageError(f"grid.{name} has the same value twice; give each once")
        if len({_canonical(dict(case)) for case in self.cases}) < len(self.cases):
            raise UsageError("two [[case]] groups are the same; give each once")
        self._check_overlap()
        if self.count > MAX_TASKS:
            raise UsageError(
                f"the sweep has {self.count} tasks; at most {MAX_TASKS}: give fewer values"
            )

    def _check_overlap(self) -> None:
        places: dict[str, str] = {}
        groups = [("fixed", self.fixed), ("grid", self.grid)]
        named = {key: None for case in self.cases for key in case}
        for place, names in (*groups, ("case", named)):
            for name in names:
                if name in places:
                    raise UsageError(
                        f"{name} is in {places[name]} and in {place}; give it in one place"
                    )
                places[name] = place

    @property
    def count(self) -> int:
        """Number of tasks."""
        total = max(1, len(self.cases)) * self.repeats
        for values in self.grid.values():
            total *= len(values)
        return total

    @cached_property
    def varied(self) -> tuple[str, ...]:
        """Names of the options that differ between tasks, in order."""
        names = dict.fromkeys(key for case in self.cases for key in case)
        return (*names, *self.grid)

    def tasks(self) -> Iterator[Task]:
        """All tasks in order: cases first, then the grid with its last option fastest, then
        repeats."""
        return map(self.task, range(self.count))

    def task(self, index: int) -> Task:
        """One of them."""
        rest, repeat = divmod(index, self.repeats)
        places = {}
        for name, values in reversed([*self.grid.items()]):
            rest, places[name] = divmod(rest, len(values))
        varied = dict((self.cases or ({},))[rest])
        varied |= {name: values[places[name]] for name, values in self.grid.items()}
        shown = {**varied, "repeat": repeat} if self.repeats > 1 else varied
        return Task(self.run, index, {**self.fixed, **varied}, shown, repeat)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with whatever changes results or tasks: the definition and the files it names."""
        files = {}
        for name in FILE_OPTIONS:
            values = [self.fixed.get(name), *self.grid.get(name, ())]
            values += [case.get(name) for case in self.cases]
            for value in values:
                if isinstance(value, str):
                    found = _content(value)
                    if found:
                        files[value] = found
        profiles = self.fixed.get("profiles")
        if isinstance(profiles, str) and Path(profiles).is_dir():
            for path in sorted(Path(profiles).glob("*.toml")):
                files[str(path)] = _content(str(path))
        return _digest([self.to_dict(), files])

    def to_dict(self) -> dict[str, object]:
        return {
            "run": self.run,
            "fixed": written_options(self.fixed),
            "grid": {name: [written(x) for x in values] for name, values in self.grid.items()},
            "cases": [written_options(case) for case in self.cases],
            "repeats": self.repeats,
        }


def written(value: object) -> object:
    """A value for JSON, which knows no infinity: that of `burstiness` is written as 'inf'."""
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def written_options(options: Mapping[str, object]) -> dict[str, object]:
    return {name: written(value) for name, value in options.items()}


def _canonical(value: object) -> str:
    return json_text(value, sort_keys=True, compact=True)


def _digest(value: object) -> str:
    return hashlib.sha256(_canonical(value).encode()).hexdigest()


def _content(name: str) -> str:
    """Digest of a file (or of the config.json in a folder), '' if there is none of that name."""
    path = Path(name)
    try:
        if path.is_dir():
            path = path / "config.json"
        if not path.is_file() or path.stat().st_size > MAX_HASHED_BYTES:
            return ""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return ""


Table = Annotated[dict[str, object], Rule("a table of options")]
Values = Annotated[
    list[object], Rule("a list of values; a single value belongs in [fixed]")
]


class Head(Shape):
    """[sweep]."""

    run: str = "simulate"
    repeats: Annotated[int, Rule("a whole number")] = 1
    columns: Annotated[tuple[str, ...], Field(strict=False), Rule("a list of names")] = ()
    name: str = "sweep"


class SweepShape(Shape):
    """A sweep's definition as a TOML file (`docs/planning.md` shows one): [sweep], options that are
    the same everywhere ([fixed]), vary independently ([grid]) or together ([[case]]). Option names
    are those of the command that is run, with - or _, which checks them and what they hold."""

    sweep: Head = Head()
    fixed: Table = Field(default_factory=dict)
    grid: dict[str, Values] = Field(default_factory=dict)
    case: Annotated[
        list[dict[str, object]], Rule("written as [[case]], one group of options each")
    ] = Field(default_factory=list)


def read_definition(path: Path | str) -> SweepShape:
    """The definition in a file, named as it is; FormatError that names the file, the place and the
    rule."""
    place = Path(path)
    if place.is_dir():
        raise FormatError(f"{path} is a folder; name a .toml file that defines a sweep")
    found = check(SweepShape, toml_table(file_text(place), str(path)), str(path))
    if "name" in found.sweep.model_fields_set:
        return found
    return found.model_copy(update={"sweep": found.sweep.model_copy(update={"name": place.stem})})
