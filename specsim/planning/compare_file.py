"""Files of deployments to compare, TOML or JSON (docs/howto/compare.md shows one): options that all
have on top, then one [[deployment]] each with those of its own.

Option names are those of `specsim predict` (or of simulate), with - or _. This module reads the
form; which options there are and what they may hold is checked where a deployment is built.
"""

from collections import Counter
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field

from specsim.checked import Rule, Shape, check, json_value, toml_table
from specsim.errors import FormatError, UsageError, shown
from specsim.files import file_text

MOST = 500  # deployments
LONGEST = 60  # characters of a name


class Entry(Shape):
    """One [[deployment]]; what else it holds are options."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[
        str, Field(max_length=LONGEST), Rule(f"text, {LONGEST} characters at most")
    ] = ""
    price_per_gpu_hour: Annotated[
        float | None, Field(gt=0, lt=1e6), Rule("above 0 and below 1000000")
    ] = None

    @property
    def options(self) -> dict[str, object]:
        return dict(self.model_extra or {})


class CompareShape(Entry):
    """The file."""

    run: Annotated[str, Field(pattern="^(predict|simulate)$"), Rule("predict or simulate")] = (
        "predict")
    objective: Annotated[str | None, Rule("text")] = None
    slo: object = None  # these three as the options of their names have them
    concurrency: object = None
    rate: object = None
    deployment: Annotated[
        list[Entry], Field(min_length=1),
        Rule("written as [[deployment]], one table of options each"),
    ]


def read_deployments(source: str) -> CompareShape:
    """The deployments of a file, or of JSON given in its place, each with a name of its own.
    FormatError, UsageError."""
    text, where = source, "the JSON given"
    if not source.lstrip().startswith("{"):
        text, where = file_text(Path(source)), source
    if not text.strip():
        raise FormatError(f"{where} is empty; write options and one [[deployment]] for each")
    as_json = text.lstrip().startswith("{")
    raw = json_value(text, where) if as_json else toml_table(text, where)
    if isinstance(raw, dict) and "deployment" not in raw:
        raise FormatError(
            f"{where} has no [[deployment]]; write one for each that is compared, such as "
            "[[deployment]] with method = \"none\""
        )
    count = len(raw["deployment"]) if isinstance(raw, dict) and isinstance(
        raw["deployment"], list) else 0
    if count > MOST:
        raise UsageError(
            f"{where} has {count} deployments; at most {MOST} are compared pair by pair, `specsim "
            "sweep` runs more"
        )
    found = check(CompareShape, raw, where)
    named = [entry.model_copy(update={"name": entry.name.strip() or _described(entry)})
             for entry in found.deployment]
    for name, times in Counter(entry.name for entry in named).items():
        places = [i + 1 for i, entry in enumerate(named) if entry.name == name]
        if times > 1:
            raise UsageError(
                f"{where}: deployments {places[0]} and {places[1]} are both called {shown(name)}; "
                "give each a name of its own"
            )
    return found.model_copy(update={"deployment": named})


def _described(entry: Entry) -> str:
    """A name from the options of an entry."""
    said = ", ".join(f"{name} {value}" for name, value in entry.options.items())
    text = " ".join(said.split()) or "the options on top"
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
