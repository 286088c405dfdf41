"""HTML built from Python values in which every text is escaped.

`Html` marks text that is markup already; any other string becomes visible characters, whatever it
holds: names in a result file are not trusted. Control characters and absurd lengths are cut.
"""

import html
from collections.abc import Iterable, Sequence

from specsim.report.tables import visible

MAX_ROWS = 200  # rows of one table
CARD_ROWS = 12  # of a table that a narrow screen shows as a list of figures for each row
NARROW = 44  # characters across, gaps included, that a narrow screen has room for
LONG = 40  # characters of a cell that wraps, but not into a column of single words
_EMPTY = frozenset({"br", "col", "hr", "img", "input", "meta"})


class Html(str):
    """Markup, as opposed to text."""

    __slots__ = ()


Child = str | Html | None


def escape(text: object) -> Html:
    """Text as markup that shows exactly that text."""
    if isinstance(text, Html):
        return text
    return Html(html.escape(visible(text), quote=True))


def tag(name: str, *children: Child | Iterable[Child], **attributes: object) -> Html:
    """An element. Attribute names: a trailing underscore is dropped, others become hyphens."""
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        parts.append(f" {label}" if value is True else f' {label}="{escape(value)}"')
    parts.append(">")
    if name in _EMPTY:
        return Html("".join(parts))
    parts.append(join(children))
    parts.append(f"</{name}>")
    return Html("".join(parts))


def join(children: Iterable[Child | Iterable[Child]]) -> Html:
    """Children side by side; None is left out."""
    out: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, str):
            out.append(escape(child))
        else:
            out.append(join(child))
    return Html("".join(out))


def table(
    headers: Sequence[str], rows: Sequence[Sequence[Child]], caption: str, *,
    left: frozenset[int] = frozenset({0}),
) -> Html:
    """A table that scrolls inside itself where it is wider than the screen; a short one becomes a
    list on a narrow screen, each figure under its header. `left`: the columns that hold words, the
    others hold figures. A row whose label begins with spaces stands further in, as it does in text.
    Of more than MAX_ROWS rows the first are shown."""
    widths = [max(len(str(row[i])) for row in (headers, *rows)) for i in range(len(headers))]
    cards = len(rows) <= CARD_ROWS and sum(widths) + 2 * len(widths) > NARROW

    def kind(column: int, cell: Child = "") -> str | None:
        return ("long" if len(str(cell)) > LONG else None) if column in left else "n"

    names = [text.partition(",")[0] for text in headers]

    def named(column: int) -> str | None:
        if column and names.count(names[column]) > 1:  # "plain", told apart by what is before it
            return f"{names[column - 1]}: {headers[column]}" if cards else None
        return headers[column] or None if cards else None

    def label(cell: Child) -> Html:
        under = isinstance(cell, str) and cell.startswith(" ")
        return tag("th", cell, scope="row", class_="under" if under else None,
                   data_label=named(0))

    head = tag("tr", [tag("th", text, scope="col", class_=kind(i)) for i, text in
                      enumerate(headers)])
    body = []
    for row in rows[:MAX_ROWS]:
        cells = [
            label(cell) if i == 0 and 0 in left else
            tag("td", cell, class_=kind(i, cell), data_label=named(i))
            for i, cell in enumerate(row)
        ]
        body.append(tag("tr", cells))
    words = caption
    if len(rows) > MAX_ROWS:
        words += f" (the first {MAX_ROWS} of {len(rows)} rows)"
    titled = tag("caption", words) if words else None
    inner = tag("table", titled, tag("thead", head), tag("tbody", body),
                class_="cards" if cards else None)
    # What a screen reader says.
    spoken = words or "Table of " + ", ".join(text for text in headers if text)
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=spoken)


def facts(items: Iterable[tuple[str, str, str] | None]) -> Html:
    """Key figures as tiles: (label, value, remark)."""
    tiles = [
        tag(
            "div", tag("dt", label), tag("dd", value),
            tag("dd", remark, class_="remark") if remark else None,
        )
        for label, value, remark in (item for item in items if item is not None)
    ]
    return tag("dl", tiles, class_="facts")


def pairs(items: Iterable[tuple[str, Child]]) -> Html:
    """A list of terms and what they are."""
    out = []
    for label, value in items:
        out.append(tag("div", tag("dt", label), tag("dd", value)))
    return tag("dl", out, class_="pairs")


def fold(summary: str, *children: Child | Iterable[Child], opened: bool = False) -> Html:
    """Something to open: the numbers behind a chart, the sources of a profile."""
    return tag("details", tag("summary", summary), *children, open=opened)
