"""Blocks as the text of a terminal."""

from collections.abc import Iterable
from textwrap import indent

from specsim.report.blocks import Block, Command, Group, Lines, Notes, Section, present
from specsim.report.tables import Table, printable, table


def section_text(section: Section) -> str:
    """The blocks of a result one after another, an empty line between them; the title and what
    is for a page only are left out. Names that a terminal would obey are written out."""
    return printable(_joined(section.blocks, "\n\n"))


def _joined(blocks: Iterable[Block | None], between: str) -> str:
    return between.join(text for block in present(blocks) if (text := block_text(block)))


def block_text(block: Block) -> str:
    """One block; '' for what a terminal does not show."""
    match block:
        case Lines():
            return "\n".join(block.texts)
        case Notes():
            return "\n".join(f"note: {text}" for text in block.texts)
        case Table():
            body = indent(table(block.headers, block.rows, block.left), " " * block.indent)
            return "\n".join([*([block.title] if block.title else []), body, *block.remarks])
        case Command():
            return f"{block.lead}{block.between}{block.words}"
        case Group():
            return _joined(block.blocks, "\n")
        case _:
            return ""
