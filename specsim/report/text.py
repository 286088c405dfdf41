"""Blocks as the text of a terminal."""

from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import indent

from specsim.report.blocks import Block, Command, Group, Lines, Notes, Section, present
from specsim.report.layout import (
    UNKNOWN_WIDTH,
    command_lines,
    decided,
    table_lines,
    wrapped,
)
from specsim.report.tables import Table
from specsim.rows import printable


def section_text(section: Section, width: int | None = None, *, colour: bool = False) -> str:
    """The blocks of a result one after another, an empty line between them; the title and what
    is for a page only are left out. Names that a terminal would obey are written out.

    width: of the terminal, which nothing but a word is wider than; None: of none, rows and
    sentences stay whole. colour: with the escape codes of a terminal."""
    return _Writer(width, colour).joined(section.blocks, "\n\n")


@dataclass(frozen=True)
class _Writer:
    width: int | None
    colour: bool

    def joined(self, blocks: Iterable[Block | None], between: str) -> str:
        return between.join(text for block in present(blocks) if (text := self.block(block)))

    def block(self, block: Block) -> str:
        """One block; '' for what a terminal does not show."""
        match block:
            case Lines(role="verdict"):
                width = self.width or UNKNOWN_WIDTH
                lines = [wrapped(printable(text), width) for text in block.texts]
                return "\n".join(map(decided, lines) if self.colour else lines)
            case Lines():
                return self._lines(block.texts)
            case Notes():
                return self._lines([f"note: {text}" for text in block.texts])
            case Table():
                return self._table(block)
            case Command():
                return self._command(block)
            case Group():
                return self.joined(block.blocks, "\n")
            case _:
                return ""

    def _lines(self, texts: Iterable[str]) -> str:
        return "\n".join(wrapped(printable(text), self.width) for text in texts)

    def _table(self, found: Table) -> str:
        room = None if self.width is None else self.width - found.indent
        clean = Table(
            [printable(text) for text in found.headers],
            [[printable(cell) for cell in row] for row in found.rows], found.left,
            units=found.units, detail=found.detail,
        )
        body = "\n".join(table_lines(clean, room, colour=self.colour))
        title = [self._lines([found.title])] if found.title else []
        return "\n".join([*title, indent(body, " " * found.indent),
                          *([self._lines(found.remarks)] if found.remarks else [])])

    def _command(self, block: Command) -> str:
        lead, between = printable(block.lead), block.between
        before, broken, last = f"{lead}{between}".rpartition("\n")
        indent = len(last) if broken else 4
        words = command_lines(printable(block.words), self.width, len(last), indent)
        return f"{before}{broken}{last}{words}"
