"""The page: head with its content policy, sections, charts, script. One string, the same for the
same results: no date, no random names.

Nothing is fetched: the policy forbids every request, and scripts run only if their SHA-256 stands
in it. Result files reach the page as escaped text or as JSON without '<'.
"""

import json
from collections.abc import Sequence
from typing import Any

from specsim import __version__
from specsim.errors import UsageError
from specsim.report.html import theme
from specsim.report.html.bundle import Bundle, plotly_bundle, resource, sha256
from specsim.report.html.charts import Spec
from specsim.report.html.elements import Child, Html, escape, fold, join, table, tag

MAX_PAGE_BYTES = 6_000_000
SHORT_TABLE = 24  # rows that are printed although they are folded away on the screen
PLOTLY_NOTICE = "plotly.js {version}, © Plotly, Inc., MIT licence"


class Page:
    """Sections and charts as they are added; `html` puts them together."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.figures: dict[str, Spec] = {}
        self.sections: list[tuple[str, str, Html]] = []

    def section(self, title: str, short: str, *children: Child | Sequence[Child]) -> None:
        """Add a section; `short` is its entry in the table of contents."""
        anchor = f"s{len(self.sections) + 1}"
        body = tag(
            "section", tag("h2", title, id=f"{anchor}-title"), *children, id=anchor,
            aria_labelledby=f"{anchor}-title",
        )
        self.sections.append((anchor, short, body))

    def chart(
        self,
        title: str,
        words: str,
        spec: Spec,
        headers: Sequence[str],
        rows: Sequence[Sequence[Child]],
        *,
        left: int = 1,
        size: str = "",
    ) -> Html:
        """A chart with its caption and, folded, the numbers behind it.

        words: what the chart shows, for those who see it and those who do not. size: '', 'tall' or
        'low'."""
        name = f"chart{len(self.figures) + 1}"
        self.figures[name] = spec
        numbers = fold(
            "The numbers as a table", table(headers, rows, title, left=left),
        )
        if len(rows) <= SHORT_TABLE:
            numbers = Html(numbers.replace("<details>", '<details class="short">', 1))
        return tag(
            "figure",
            tag("figcaption", tag("h3", title), tag("p", words)),
            tag("div", "", class_=f"plot {size}".strip(), id=name, role="img",
                aria_label=f"Chart: {title}. {words} The table that follows holds the numbers."),
            tag("p", "This browser cannot draw the chart; the table holds its numbers.",
                class_="unable"),
            numbers,
        )

    def html(self, lead: Child, ending: Child) -> str:
        """The whole page. UsageError where it would be larger than a page should be."""
        bundle = plotly_bundle()
        script = resource("page.js")
        text = _document(self, bundle, script, lead, ending)
        size = len(text.encode())
        if size > MAX_PAGE_BYTES:
            raise UsageError(
                f"the report would have {size / 1e6:.1f} MB; the limit is "
                f"{MAX_PAGE_BYTES / 1e6:.0f} MB: give fewer results at a time"
            )
        return text


def json_block(name: str, value: Any) -> Html:
    """Data for the script. '<' is written as an escape, so that no text can end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
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


def _document(page: Page, bundle: Bundle, script: str, lead: Child, ending: Child) -> str:
    policy = (
        f"default-src 'none'; script-src {bundle.digest} {sha256(script)}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    entries = [
        tag("li", tag("a", short, href=f"#{anchor}")) for anchor, short, _ in page.sections
    ]
    head = join([
        tag("meta", charset="utf-8"),
        Html(f'\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n'),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="referrer", content="no-referrer"),
        tag("meta", name_="generator", content=f"specsim {__version__}"),
        tag("title", page.title),
        Html(f"\n<style>\n{_style()}</style>\n"),
    ])
    notice = PLOTLY_NOTICE.format(version=bundle.version)
    body = join([
        tag("a", "Skip to the results", href="#main", class_="skip"),
        Html("\n"),
        tag("header", tag("h1", page.title), lead),
        tag("nav", tag("ul", entries), aria_label="Contents"),
        Html("\n"),
        tag("noscript", tag("p", "Charts need JavaScript; the tables hold the same numbers.")),
        tag("main", [join([Html("\n"), body]) for _, _, body in page.sections], id="main"),
        Html("\n"),
        tag("footer", ending, tag("p", f"Made with specsim {__version__}. Charts: {notice}.")),
        Html("\n"),
        json_block("figures", page.figures),
        json_block("roles", theme.roles()),
        Html(f'<script type="text/plain" id="plotly">{bundle.packed}</script>\n'),
        Html(f"<script>{script}</script>\n"),
    ])
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>{body}</body>\n</html>\n'


def notes(items: Sequence[str]) -> Html | None:
    """Warnings as a list that stands out; None without any."""
    if not items:
        return None
    return tag(
        "aside", tag("h3", "What to know before trusting a figure"),
        tag("ul", [tag("li", escape(text)) for text in items], class_="notes"),
    )
