"""A sweep's definition as a TOML file:

    [sweep]
    run = "simulate"            # or "predict"
    repeats = 3                 # runs of each combination (simulate)
    columns = ["k", "output_tok_s", "tpot_s.mean"]

    [fixed]                     # options that are the same everywhere
    model = "qwen3.6-27b"

    [grid]                      # options that vary independently: all combinations
    k = [1, 2, 3]

    [[case]]                    # options that vary together; each case is crossed with the grid
    gpu = "h200-sxm"
    tp = 1

Option names are those of the command that is run, with - or _. This module reads the form; which
options there are and what they may hold is checked by the command.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from specsim.errors import FormatError
from specsim.files import read_limited

MAX_FILE_BYTES = 1_000_000
SECTIONS = ("sweep", "fixed", "grid", "case")
KEYS = ("run", "repeats", "columns", "name")


@dataclass
class Definition:
    """A definition as it was written, option names not looked at yet."""

    run: str = "simulate"
    repeats: int = 1
    columns: tuple[str, ...] = ()
    name: str = "sweep"
    fixed: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    cases: list[dict[str, Any]] = field(default_factory=list)


def read_definition(path: Path | str) -> Definition:
    """The definition in a file; FormatError that names the file, the place and the rule."""
    place = Path(path)
    try:
        if place.is_dir():
            raise FormatError(f"{path} is a folder; name a .toml file that defines a sweep")
        raw = read_limited(place, MAX_FILE_BYTES)
    except OSError as error:
        raise FormatError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except ValueError as error:
        raise FormatError(f"cannot read {str(path)!r}: {error}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise FormatError(f"{path} is larger than {MAX_FILE_BYTES} bytes; no sweep file is")
    try:
        document = tomllib.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise FormatError(f"{path} is not valid TOML: {reason}") from None
    return _definition(document, str(path), place.stem)


def _definition(document: Mapping[str, Any], where: str, stem: str) -> Definition:
    _known(document, SECTIONS, where, "section")
    head = _table(document.get("sweep", {}), where, "[sweep]")
    _known(head, KEYS, f"{where}: [sweep]", "key")
    found = Definition(name=stem)
    for key, kind, words in (("run", str, "text"), ("name", str, "text"),
                             ("repeats", int, "a whole number")):
        value = head.get(key)
        if value is None:
            continue
        if not isinstance(value, kind) or isinstance(value, bool):
            raise FormatError(f"{where}: [sweep] {key} is {value!r}; it must be {words}")
        setattr(found, key, value)
    columns = head.get("columns", [])
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise FormatError(f"{where}: [sweep] columns must be a list of names")
    found.columns = tuple(columns)
    found.fixed = dict(_table(document.get("fixed", {}), where, "[fixed]"))
    for name, values in _table(document.get("grid", {}), where, "[grid]").items():
        if not isinstance(values, list):
            raise FormatError(
                f"{where}: [grid] {name} must be a list of values; a single value belongs in "
                "[fixed]"
            )
        found.grid[name] = list(values)
    cases = document.get("case", [])
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise FormatError(f"{where}: write cases as [[case]], one group of options each")
    found.cases = [dict(case) for case in cases]
    return found


def _table(value: Any, where: str, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"{where}: {name} must be a table of options")
    return value


def _known(table: Mapping[str, Any], names: tuple[str, ...], where: str, what: str) -> None:
    for key in table:
        if key not in names:
            near = get_close_matches(key, names, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise FormatError(
                f"{where}: unknown {what} {key!r}; {hint}there are {', '.join(names)}"
            )
