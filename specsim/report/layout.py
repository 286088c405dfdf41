"""Text at the width of a terminal: tables that fit, sentences that break at words, commands that
break between their options.

`rich` would fold figures in the middle or cut them; here a row stays whole: columns of detail go
first, then long words are wrapped within their column, then the table goes on below with its first
column again.
"""

import os
import re
import shutil
import textwrap
from collections.abc import Sequence
from typing import TextIO

from specsim.report.tables import Table

GAP = "  "
READABLE = 100  # characters of a sentence's line, however wide the terminal is
UNKNOWN_WIDTH = 80  # of the lines of a verdict where there is no terminal
_SHORTEST = 14  # characters that a column of words keeps
_OF_THE_LAST = ("", "90%", "with", "plain")  # titles of columns that say more of the one before
_SENTENCE = 30  # characters: no figure is as wide
_TONES = {"yes": "32", "no": "31", "unsure": "33"}  # of the column 'pays'
_DECISIONS = {"ON": "good", "OFF": "bad", "NOT KNOWN": "unsure", "NO CHOICE": "bad",
              "NOT EVERYTHING FITS": "bad", "PROBLEM": "bad", "GOOD": "good"}
_ANSI = {"good": "1;32", "bad": "1;31", "unsure": "1;33"}


class _Cell(textwrap.TextWrapper):
    """Breaks the text of a cell between words, and paths after a slash."""

    wordsep_simple_re = re.compile(r"(\s+|(?<=[^/]/)(?=[^/]))")

    def chunks(self, text: str) -> list[str]:
        return self._split(text) or [""]

    def lines(self, text: str, width: int) -> list[str]:
        self.width = width
        return self.wrap(text)


_CELL = _Cell(break_long_words=False, break_on_hyphens=False)


def terminal_width() -> int | None:
    """Columns of the terminal, or what COLUMNS says; None where the output goes to a file or
    another program, whose rows are not folded."""
    width = shutil.get_terminal_size((0, 0)).columns
    return max(width, 40) if width > 0 else None


def coloured(stream: TextIO) -> bool:
    """Whether a stream is a terminal that wants colours (NO_COLOR, TERM=dumb: it does not)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def wrapped(text: str, width: int | None) -> str:
    """A sentence, broken between words; further lines stand as far in as the text after a label
    ('note: '), else a little further than the first."""
    if width is None or len(text) <= (width := min(width, READABLE)):
        return text
    lines = []
    for line in text.split("\n"):
        body = line.lstrip()
        first = len(line) - len(body)
        label = next((len(word) for word in ("note: ", "-> ") if body.startswith(word)), 2)
        lines += textwrap.wrap(
            body, width, initial_indent=line[:first], break_long_words=False,
            subsequent_indent=" " * (first + label), break_on_hyphens=False,
        ) or [""]
    return "\n".join(lines)


def command_lines(words: str, width: int | None, first: int, indent: int) -> str:
    """A command that a shell takes as it stands, in lines that end with a backslash where it is
    wider than the terminal. It breaks before options only, never within quotes. first, indent: of
    characters that stand before the first line and before the others."""
    if width is None or first + len(words) <= width:
        return words
    parts, quote, start = [], "", 0
    for i, ch in enumerate(words):
        if quote:
            quote = "" if ch == quote else quote
        elif ch in "'\"":
            quote = ch
        elif words.startswith(" -", i):
            parts.append(words[start:i])
            start = i + 1
    parts.append(words[start:])
    lines = [parts[0]]
    for part in parts[1:]:
        used = (indent if len(lines) > 1 else first) + len(lines[-1])
        if used + len(part) + 3 <= width:
            lines[-1] += f" {part}"
        else:
            lines.append(f"  {part}")
    return f" \\\n{' ' * indent}".join(lines)


def table_lines(table: Table, width: int | None, *, colour: bool = False) -> list[str]:
    """A table within `width` characters: header, units, rule and rows; of one that goes on below,
    parts with an empty line between them. None: as wide as it is."""
    head = [table.headers, *([table.units] if any(table.units) else [])]
    words = table.words()
    columns = list(range(len(table.headers)))
    widths = [max(len(row[i]) for row in (*head, *table.rows)) for i in columns]
    dropped = 0
    while width is not None and dropped < table.detail and _total(widths, columns) > width:
        columns.pop()
        dropped += 1
    parts = [columns]
    if width is not None and _total(widths, columns) > width:
        _narrow(table, words, columns, widths, width)
        parts = _stacked(table, columns, widths, width)
        for part in parts:
            _narrow(table, words, part, widths, width)
    out: list[str] = []
    for part in parts:
        out += [""] if out else []
        titles = [row for row in head if row is table.headers or any(row[i] for i in part)]
        out += [_line([row[i] for i in part], part, widths, words) for row in titles]
        out.append(GAP.join("-" * widths[i] for i in part))
        for row in table.rows:
            cells = _wrapped_cells([row[i] for i in part], part, widths)
            tones = [_TONES.get(row[i], "") if colour and table.headers[i] == "pays" else ""
                     for i in part]
            out += [_line(line, part, widths, words, tones) for line in cells]
    if dropped:
        names = ", ".join(table.headers[-dropped:])
        out.append(f"not shown: {names} (--wide shows all columns)")
    return out


def decided(line: str) -> str:
    """A verdict's line with its decision in colour."""
    start, word, rest, tone = split_decision(line)
    return f"{start}\x1b[{_ANSI[tone]}m{word}\x1b[0m{rest}" if tone else line


def split_decision(line: str) -> tuple[str, str, str, str]:
    """What stands before the decision of a verdict's line, the decision, what follows; and its
    tone: good, bad, unsure, or '' for a line without one."""
    body = line.lstrip()
    for word, tone in _DECISIONS.items():
        if body.startswith(word):
            return line[: len(line) - len(body)], word, body[len(word):], tone
    return "", "", line, ""


def _total(widths: Sequence[int], columns: Sequence[int]) -> int:
    return sum(widths[i] for i in columns) + len(GAP) * (len(columns) - 1)


def _narrow(
    table: Table, words: frozenset[int], columns: Sequence[int], widths: list[int], width: int
) -> None:
    """Takes from the widest columns of words what is too much, as far as their longest words and
    _SHORTEST let it. `widths` changes."""
    least = {}
    for i in columns:
        if i in words or widths[i] > _SENTENCE:
            longest = max(len(part) for row in table.rows for part in _CELL.chunks(row[i]))
            least[i] = max(longest, min(_SHORTEST, widths[i]), len(table.headers[i]))
    if _total([least.get(i, w) for i, w in enumerate(widths)], columns) > width:
        return
    while _total(widths, columns) > width:
        widest = max((i for i in least if widths[i] > least[i]), key=lambda i: widths[i])
        widths[widest] -= 1


def _stacked(
    table: Table, columns: Sequence[int], widths: Sequence[int], width: int
) -> list[list[int]]:
    """Columns in as few parts as fit, about equally wide, so that none is left over for a part of
    its own; each with the first columns. What is said of the column before stays with it."""
    if _total(widths, columns) <= width:
        return [list(columns)]
    lead, groups = list(columns[:table.keys()]), list[list[int]]()
    for i in columns[len(lead):]:
        if groups and table.headers[i] in _OF_THE_LAST:
            groups[-1].append(i)
        else:
            groups.append([i])
    parts = _filled(lead, groups, widths, width)
    while max(_total(widths, part) for part in parts) <= width:
        narrower = _filled(lead, groups, widths, width := width - 1)
        if len(narrower) > len(parts):
            break
        parts = narrower
    return parts


def _filled(
    lead: Sequence[int], groups: Sequence[Sequence[int]], widths: Sequence[int], width: int
) -> list[list[int]]:
    """Parts as full as `width` lets them be, each with the columns `lead`."""
    parts, part = [], list(lead)
    for group in groups:
        if len(part) > len(lead) and _total(widths, [*part, *group]) > width:
            parts.append(part)
            part = list(lead)
        part += group
    return [*parts, part]


def _wrapped_cells(
    cells: Sequence[str], part: Sequence[int], widths: Sequence[int]
) -> list[list[str]]:
    """A row's lines: more than one where a cell is wider than its column."""
    columns = [
        _CELL.lines(cell, widths[i]) if len(cell) > widths[i] else [cell]
        for i, cell in zip(part, cells, strict=True)
    ]
    depth = max(map(len, columns))
    return [[column[n] if n < len(column) else "" for column in columns] for n in range(depth)]


def _line(
    cells: Sequence[str], part: Sequence[int], widths: Sequence[int], words: frozenset[int],
    tones: Sequence[str] = (),
) -> str:
    placed = [
        cell.ljust(widths[i]) if i in words else cell.rjust(widths[i])
        for i, cell in zip(part, cells, strict=True)
    ]
    line = GAP.join(placed).rstrip()
    if any(tones):
        placed = [f"\x1b[{tone}m{cell}\x1b[0m" if tone else cell
                  for cell, tone in zip(placed, tones, strict=True)]
        line = GAP.join(placed).rstrip()
    return line
