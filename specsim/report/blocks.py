"""What a result shows, apart from how: blocks, made once for each kind of result.

`text` writes them for a terminal, `html` as a section of a page; numbers, words and tables stand
in the blocks. Some blocks are for a page only (charts, tiles of key figures, settings with their
sources): the terminal says the same in its lines and tables.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from specsim.report.plots import Bars, Heatmap, Panel, Parity, Waterfall
from specsim.report.tables import Table


@dataclass(frozen=True, slots=True)
class Lines:
    """Sentences, one to a line; one that begins with spaces belongs to the line before it. A
    verdict is the answer in a sentence."""

    texts: Sequence[str]
    role: Literal["plain", "lead", "verdict"] = "plain"


@dataclass(frozen=True, slots=True)
class Notes:
    """What the reader should know before trusting the result."""

    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Command:
    """Something to type, and what for; between: what a terminal puts between them."""

    lead: str
    words: str
    between: str = "\n  "


@dataclass(frozen=True, slots=True)
class Group:
    """Blocks that follow one another without an empty line between."""

    blocks: Sequence["Block"]


@dataclass(frozen=True, slots=True)
class Verdict(Group):
    """The answer of a result: its decision, the command, remarks on it. about: which of several
    runs it is for."""

    about: str = ""

    def decision(self) -> Lines:
        """The first sentence alone."""
        first = next(block for block in self.blocks if isinstance(block, Lines))
        return Lines(first.texts[:1], "verdict")


@dataclass(frozen=True, slots=True)
class Facts:
    """Key figures as tiles of a page: (label, value, remark); None is left out."""

    items: Sequence[tuple[str, str, str] | None]


@dataclass(frozen=True, slots=True)
class Terms:
    """Settings and where they are from, folded on a page: (term, what it is)."""

    title: str
    items: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks to open on a page; left out on a terminal."""

    title: str
    blocks: Sequence["Block"]


Chart = Panel | Bars | Heatmap | Waterfall | Parity


@dataclass(frozen=True, slots=True)
class Charts:
    """Charts side by side on a page, each with its numbers. None is left out."""

    items: Sequence[Chart | None]


Block = Lines | Table | Notes | Command | Group | Facts | Terms | Fold | Charts


@dataclass(frozen=True, slots=True)
class Section:
    """All blocks of a result. title: its heading on a page; short: its entry in the contents."""

    title: str
    short: str
    blocks: Sequence[Block | None] = field(default=())

    def present(self) -> Iterator[Block]:
        """The blocks that hold something."""
        return present(self.blocks)


def present(blocks: Iterable[Block | None]) -> Iterator[Block]:
    """Blocks without None and without those that hold nothing."""
    for block in blocks:
        match block:
            case None | Lines(texts=()) | Lines(texts=[]) | Notes(texts=()) | Notes(texts=[]):
                continue
            case _:
                yield block


def verdicts(blocks: Iterable[Block | None]) -> Iterator[Verdict]:
    """The answers among the blocks, in their order."""
    for block in present(blocks):
        if isinstance(block, Verdict):
            yield block
        elif isinstance(block, Group):
            yield from verdicts(block.blocks)
