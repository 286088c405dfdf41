"""A sweep's definition as a TOML file (`docs/planning.md` shows one): [sweep], options that are the
same everywhere ([fixed]), vary independently ([grid]) or together ([[case]]).

Option names are those of the command that is run, with - or _. This module reads the form; which
options there are and what they may hold is checked by the command.
"""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from specsim.checked import Rule, Shape, check, toml_table
from specsim.errors import FormatError
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
    name: str = "sweep"


class SweepShape(Shape):
    """The file: option names are looked at later."""

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
    return found.model_copy(
        update={"sweep": found.sweep.model_copy(update={"name": place.stem})}
    )
