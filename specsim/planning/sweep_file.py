"""A sweep's definition as a TOML file (`docs/planning.md` shows one): [sweep], options that are the
same everywhere ([fixed]), vary independently ([grid]) or together ([[case]]).

Option names are those of the command that is run, with - or _. This module reads the form; which
options there are and what they may hold is checked by the command.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from specsim.checked import Problem, Rule, Shape, did_you_mean, problem_of, toml_table
from specsim.errors import FormatError, shown
from specsim.files import file_text

Table = Annotated[dict[str, object], Rule("a table of options")]
Values = Annotated[
    list[object], Rule("a list of values; a single value belongs in [fixed]")
]


class Head(Shape):
    """[sweep]."""

    run: str = "simulate"
    repeats: Annotated[int, Rule("a whole number")] = 1
    columns: Annotated[tuple[str, ...], Field(strict=False), Rule("a list of names")] = ()
    name: str | None = None


class SweepShape(Shape):
    """The file: option names are looked at later."""

    sweep: Head = Head()
    fixed: Table = Field(default_factory=dict)
    grid: dict[str, Values] = Field(default_factory=dict)
    case: Annotated[
        list[dict[str, object]], Rule("written as [[case]], one group of options each")
    ] = Field(default_factory=list)


@dataclass
class Definition:
    """A definition as it was written, option names not looked at yet."""

    run: str = "simulate"
    repeats: int = 1
    columns: tuple[str, ...] = ()
    name: str = "sweep"
    fixed: dict[str, object] = field(default_factory=dict)
    grid: dict[str, list[object]] = field(default_factory=dict)
    cases: list[dict[str, object]] = field(default_factory=list)


def read_definition(path: Path | str) -> Definition:
    """The definition in a file; FormatError that names the file, the place and the rule."""
    place = Path(path)
    if place.is_dir():
        raise FormatError(f"{path} is a folder; name a .toml file that defines a sweep")
    raw = toml_table(file_text(place), str(path))
    try:
        found = SweepShape.model_validate(raw)
    except ValidationError as error:
        raise FormatError(_told(problem_of(error, SweepShape), str(path))) from None
    head = found.sweep
    return Definition(
        head.run, head.repeats, head.columns, place.stem if head.name is None else head.name,
        found.fixed, found.grid, found.case,
    )


def _told(problem: Problem, where: str) -> str:
    """What is wrong, in the words of a sweep file."""
    if problem.kind == "unknown":
        known = ", ".join(problem.known)
        what = "key" if len(problem.place) > 1 else "section"
        near = did_you_mean(problem.key, problem.known)
        hint = f"{near} " if near.startswith("did") else ""
        at = f"{where}: [sweep]" if len(problem.place) > 1 else where
        return f"{at}: unknown {what} {shown(problem.key)}; {hint}there are {known}"
    return problem.line(where)
