"""The page: head with its content policy, sections, charts, script. One string, the same for the
same results: no date, no random names.

Nothing is fetched: the policy forbids every request, and scripts run only if their SHA-256 stands
in it. Result files reach the page as escaped text or as JSON without '<'. plotly.js comes from the
`plotly` package, compressed: 4.8 MB become 2 MB of base64, which the browser unpacks; it is hashed
as it will run.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from specsim.errors import UsageError
from specsim.jsonable import json_text
from specsim.report.blocks import (
    Block,
    Chart,
    Charts,
    Command,
    Facts,
    Fold,
    Group,
    Lines,
    Notes,
    Section,
    Terms,
    Verdict,
    present,
)
from specsim.report.html import theme
from specsim.report.html.charts import Spec, figure, numbers
from specsim.report.html.elements import Child, Html, facts, fold, join, pairs, table, tag
from specsim.report.layout import split_decision
from specsim.report.tables import Table
from specsim.units import counted
from specsim.version import __version__


@dataclass(frozen=True, slots=True)
class Bundle:
    """packed: gzip in base64. digest: for the content policy. version: of the library."""

    packed: str
    digest: str
    version: str


@lru_cache(maxsize=1)
def plotly_bundle() -> Bundle:
    """plotly.js of the installed package; UsageError with the way out where it is missing."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise UsageError(
            "an HTML report needs plotly, which is not installed: pip install 'specsim-llm[report]'"
        ) from None
    source = get_plotlyjs()
    found = re.search(r"plotly\.js v([\w.]+)", source[:400])
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)  # 31: a gzip header without a date
    packed = packer.compress(source.encode()) + packer.flush()
    return Bundle(
        base64.b64encode(packed).decode("ascii"), sha256(source), found[1] if found else "unknown"
    )


def sha256(script: str) -> str:
    """A script as a content security policy names it."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def resource(name: str) -> str:
    """A file beside this module: the page's own script or style."""
    return (files("specsim.report.html") / name).read_text(encoding="utf-8")


MAX_PAGE_BYTES = 6_000_000
NOTE = "note: "
WHOLE = 32  # characters of a word in a command that a narrow screen holds in one line
SHORT_TABLE = 24  # rows that are printed although they are folded away on the screen
PLOTLY_NOTICE = "plotly.js {version}, © Plotly, Inc., MIT licence"


class Page:
    """Sections and charts as they are added; `html` puts them together."""

    def __init__(self, title: str, charts: str = "chart") -> None:
        """charts: what the names of their elements begin with."""
        self.title, self._charts = title, charts
        self.answered = False  # the verdicts stand above: sections repeat their decisions alone
        self.figures: dict[str, Spec] = {}
        self._told: set[str] = set()  # warnings
        self.sections: list[tuple[str, str, Html]] = []

    def add(self, section: Section, source: str = "") -> None:
        """A result's section. source: the file that it is from."""
        anchor = f"s{len(self.sections) + 1}"
        body = tag(
            "section", tag("h2", section.title, id=f"{anchor}-title"),
            tag("p", f"From {source}", class_="source") if source else None,
            self.blocks(section.blocks), id=anchor, aria_labelledby=f"{anchor}-title",
        )
        self.sections.append((anchor, section.short, body))

    def blocks(self, blocks: Sequence[Block | None]) -> list[Child]:
        """Markup of those that hold something."""
        return [self._block(block) for block in present(blocks)]

    def _block(self, block: Block) -> Child:
        match block:
            case Lines():
                return join(_line(text, block.role) for text in block.texts
                            if not text.strip().startswith(NOTE) or self._new(text))
            case Verdict() if self.answered:
                return self._block(block.decision())
            case Table():
                found = table(block.titles(), block.rows, block.title, left=block.words())
                return join([found, *(_line(text, "lead") for text in block.remarks)])
            case Notes():
                return self._notes(block.texts)
            case Command():
                code = tag("code", _unbroken(block.words))
                return tag("div", _line(block.lead, "plain"), tag("pre", code))
            case Group():
                return join(self.blocks(block.blocks))
            case Facts():
                return facts(block.items)
            case Terms():
                return fold(block.title, pairs(block.items), opened=True)
            case Fold():
                return fold(block.title, self.blocks(block.blocks))
            case Charts():
                drawn = [self._chart(item) for item in block.items if item is not None]
                return tag("div", drawn, class_="grid") if drawn else None

    def _new(self, text: str) -> bool:
        """Whether a warning has not been said yet; from now on it has."""
        text = text.strip().removeprefix(NOTE)
        known = text in self._told
        self._told.add(text)
        return not known

    def _notes(self, texts: Sequence[str]) -> Child:
        """Warnings, each once on the page."""
        fresh = [text for text in texts if self._new(text)]
        known = len(texts) - len(fresh)
        verb = "applies" if known == 1 else "apply"
        return tag(
            "aside", tag("h3", "What to know before trusting a figure"),
            tag("ul", [tag("li", text) for text in fresh], class_="notes") if fresh else None,
            _line(f"{counted(known, 'note')} from above {verb} here too.", "lead")
            if known else None,
        )

    def _chart(self, chart: Chart) -> Html:
        """A chart with its caption, which says what it shows for those who see it and those who do
        not, and, folded, the numbers behind it."""
        name = f"{self._charts}{len(self.figures) + 1}"
        self.figures[name] = figure(chart)
        behind = numbers(chart)
        opening = "<details>"
        if len(behind.rows) <= SHORT_TABLE:
            opening = '<details class="short">'
        folded = fold("The numbers as a table",
                      table(behind.titles(), behind.rows, chart.title, left=behind.words()))
        return tag(
            "figure", tag("figcaption", tag("h3", chart.title), tag("p", chart.words)),
            tag("div", "", class_=f"plot {chart.size}".strip(), id=name, role="img",
                aria_label=f"Chart: {chart.title}. {chart.words} The table that follows holds the "
                           "numbers."),
            tag("p", "This browser cannot draw the chart; the table holds its numbers.",
                class_="unable"),
            Html(folded.replace("<details>", opening, 1)),
        )

    def html(self, lead: Child, ending: Child) -> str:
        """The whole page. UsageError where it would be larger than a page should be."""
        entries = [
            tag("li", tag("a", short, href=f"#{anchor}")) for anchor, short, _ in self.sections
        ]
        body = join([
            tag("header", tag("h1", self.title), lead),
            tag("nav", tag("ul", entries), aria_label="Contents"),
            Html("\n"),
            tag("noscript", tag("p", "Charts need JavaScript; the tables hold the same numbers.")),
            tag("main", [join([Html("\n"), body]) for _, _, body in self.sections], id="main"),
        ])
        text = document(
            self.title, body, resource("page.js"), {"figures": self.figures}, ending=ending
        )
        size = len(text.encode())
        if size > MAX_PAGE_BYTES:
            raise UsageError(
                f"the report would have {size / 1e6:.1f} MB; the limit is "
                f"{MAX_PAGE_BYTES / 1e6:.0f} MB: give fewer results at a time"
            )
        return text


def fragment(section: Section) -> str:
    """A section for a notebook, without style and script: of its charts the numbers, folded."""
    blocks: list[Block] = []
    for block in present(section.blocks):
        if isinstance(block, Charts):
            charts = [chart for chart in block.items if chart is not None]
            blocks += [Fold(chart.title, [numbers(chart)]) for chart in charts]
        else:
            blocks.append(block)
    return tag("div", Page(section.title).blocks(blocks))


def _line(text: str, role: str) -> Html:
    """A sentence; one that belongs to the line before it stands further in."""
    if not text.strip():
        return Html("")
    under = "under" if text.startswith(" ") else None
    if role != "verdict":
        return tag("p", text.strip(), class_=under if role == "plain" else role)
    _, word, rest, tone = split_decision(text.strip())
    return tag("p", tag("b", word, class_=tone) if word else None, rest, class_=role)


def json_block(name: str, value: object) -> Html:
    """Data for the script. '<' is written as an escape, so that no text can end the element."""
    text = json_text(value, compact=True)
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return Html(f'<script type="application/json" id="{name}">{text}</script>\n')


def _style() -> str:
    light = theme.variables(theme.LIGHT)
    dark = theme.variables(theme.DARK)
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not(.printing){{{dark}}}}}\n"
        + resource("page.css")
    )


def document(
    title: str, body: Html, script: str, data: Mapping[str, object], *, ending: Child = None,
    style: str = "", policy: str = "",
) -> str:
    """A whole page around `body`, whose element "main" holds the results. script: runs behind
    charts.js; data: what it finds by element; style, policy: beyond those of every page."""
    bundle = plotly_bundle()
    script = resource("charts.js") + script
    policy = (
        f"default-src 'none'; script-src {bundle.digest} {sha256(script)}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
        + policy
    )
    head = join([
        tag("meta", charset="utf-8"),
        Html(f'\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n'),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="referrer", content="no-referrer"),
        tag("meta", name_="generator", content=f"specsim {__version__}"),
        tag("title", title),
        Html(f"\n<style>\n{_style()}{style}</style>\n"),
    ])
    notice = PLOTLY_NOTICE.format(version=bundle.version)
    shown = join([
        tag("a", "Skip to the results", href="#main", class_="skip"),
        Html("\n"),
        body,
        Html("\n"),
        tag("footer", ending, tag("p", f"Made with specsim {__version__}. Charts: {notice}.")),
        Html("\n"),
        *(json_block(name, value) for name, value in data.items()),
        json_block("roles", theme.roles()),
        Html(f'<script type="text/plain" id="plotly">{bundle.packed}</script>\n'),
        Html(f"<script>{script}</script>\n"),
    ])
    opening = '<!DOCTYPE html>\n<html lang="en">'
    return f'{opening}\n<head>{head}</head>\n<body>{shown}</body>\n</html>\n'


def _unbroken(words: str) -> Html:
    """A command whose options and names do not break at their hyphens."""
    parts: list[Html | str] = []
    for i, word in enumerate(words.split(" ")):
        kept = "-" in word.strip("-") and len(word) <= WHOLE
        parts += [" " if i else "", tag("span", word, class_="w") if kept else word]
    return join(parts)
