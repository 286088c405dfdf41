"""What all results that Python callers get have in common: how to look at them.

Each is a result of a lower layer (all of its fields and properties are there) with

    to_dict()      what `--json` prints, key by key
    to_frame()     its rows as a pandas or polars data frame
    str(result)    the text that the command prints
    _repr_html_()  the same blocks for a notebook; every text in them is escaped
    command        the command line that repeats it
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import Any, ClassVar, Self, TypeVar

from specsim.errors import UsageError
from specsim.jsonable import Key, json_text, jsonable
from specsim.planning.verdict import Verdict
from specsim.report.blocks import Lines, Section
from specsim.report.doc import Doc
from specsim.report.text import section_text
from specsim.rows import columns_of, texts_at
from specsim.rows import flat as dotted

T = TypeVar("T")
FRAMES = ("pandas", "polars")


class Result:
    """Base of all results; subclasses say what their text and rows are."""

    BLOCKS: ClassVar[str] = ""  # 'module.function' of specsim.report: what shows such a result
    command: str = ""
    kind = Key[str]()

    def to_dict(self) -> dict[str, object]:
        """JSON-ready, as `--json` of the command prints it."""
        # the result of the lower layer is the next class in line
        found: dict[str, object] = super().to_dict()  # type: ignore[misc]
        return {**found, "command": self.command}

    def to_rows(self) -> list[dict[str, object]]:
        """Flat rows, what `--csv` prints; nested values under dotted names."""
        return [flat(row) for row in self.rows()]  # type: ignore[attr-defined]  # as above

    def live(self) -> dict[str, object]:
        """What the text says beside the JSON: titles, sources (`report.deployment.live`)."""
        return {}

    def section(self) -> Section:
        """The blocks that a terminal and a notebook show."""
        module, _, name = self.BLOCKS.partition(".")
        found, live = self.to_dict(), {"live": self.live()}
        if isinstance(inputs := found.get("inputs"), dict):
            found["inputs"] = {**inputs, **live}
        made: Section = getattr(import_module(f"specsim.report.{module}"), name)(
            Doc({**found, **live}))
        return made

    def to_text(self) -> str:
        """What the command prints on a terminal."""
        return section_text(self.section())

    @classmethod
    def of(cls, found: Any, command: str) -> Self:
        """The lower layer's result as one of this class."""
        self = cls(**{item.name: getattr(found, item.name) for item in fields(found)})
        object.__setattr__(self, "command", command)  # the results are frozen
        return self

    def to_frame(self, library: str | None = None) -> Any:
        """The rows as a data frame of pandas or, without it, polars; `library` asks for one.

        UsageError where none of them is installed."""
        return frame(self.to_rows(), library)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"<specsim.{type(self).__name__}: {self.command}>"

    def _repr_html_(self) -> str:
        from specsim.report.html.page import fragment

        section = self.section()
        return fragment(replace(section, blocks=(Lines([repr(self)], "lead"), *section.blocks)))


@dataclass(frozen=True, repr=False)
class Documented(Result):
    """A result that is its JSON: `document`, as `--json` of its command prints it."""

    document: dict[str, Any]

    @property
    def warnings(self) -> tuple[str, ...]:
        return texts_at(self.document, "warnings")

    def to_dict(self) -> dict[str, object]:
        return self.document


class Decided(Result):
    """A result with a verdict, the first of what it says: None where nothing was compared."""

    verdict: Verdict | None = None

    def to_dict(self) -> dict[str, object]:
        found = super().to_dict()
        return {"kind": found.pop("kind"), "verdict": jsonable(self.verdict), **found}

    def with_verdict(self, verdict: Verdict | None) -> Self:
        """This result, with the verdict on it."""
        object.__setattr__(self, "verdict", verdict)  # the results are frozen
        return self


@dataclass(frozen=True, repr=False)
class Listing(Result, Sequence[T]):
    """Things of one kind, one after the other; subclasses say what JSON and a terminal show."""

    entries: tuple[T, ...]
    command: str

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, place: Any) -> Any:
        return self.entries[place]

    def __iter__(self) -> Iterator[T]:
        return iter(self.entries)

    def to_json(self) -> list[object]:
        """What `--json` prints."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, object]:
        """What `--json` prints, as `entries`."""
        return {"entries": self.to_json()}

    def to_rows(self) -> list[dict[str, object]]:
        """One flat row per entry."""
        return [flat(entry) for entry in self.to_json() if isinstance(entry, dict)]


class Deployed:
    """What a result of one deployment says of it."""

    model = gpu = engine = fidelity = Key[str]()


class DeployedAs(Deployed):
    """Where the deployment is one for the whole result."""

    tp = pp = Key[int]()
    weights = kv_dtype = engine_version = Key[str]()


def frame(rows: Sequence[dict[str, object]], library: str | None = None) -> Any:
    """Rows as a data frame. library: pandas or polars; None: the first that is installed."""
    if library is not None and library not in FRAMES:
        raise UsageError(f"library is {library!r}; it must be pandas or polars")
    columns = columns_of(rows)
    data = {name: [row.get(name) for row in rows] for name in columns}
    for name in FRAMES if library is None else (library,):
        with suppress(ImportError):
            frames = import_module(name)
            return frames.DataFrame(data, **(
                {"columns": columns} if name == "pandas" else {"strict": False}))
    words = library or "pandas or polars"
    raise UsageError(
        f"a data frame needs {words}, which is not installed; run `pip install "
        f"{library or 'pandas'}`, or use to_dict()"
    )


def flat(value: Mapping[str, object]) -> dict[str, object]:
    """Nested mappings as one, with dotted names; lists, such as [low, high], as JSON text."""
    return {
        name: json_text(list(inner)) if isinstance(inner, list | tuple) else inner
        for name, inner in dotted(value).items()
    }
