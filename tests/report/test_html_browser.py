"""The page in a real browser (headless Chromium): no console message, no request, narrow screens,
dark, print, without JavaScript. Skipped where Chromium with its driver or selenium is missing."""

import base64
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import MARKS, open_browser, scheme, screen, until

from report_html_cases import EVIL, MAKERS, explanation, prediction, validation
from specsim.report.html.render import render
from specsim.report.kinds import KINDS, parse

pytest.importorskip("selenium")
pytest.importorskip("plotly")
pytestmark = MARKS


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver = open_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    return write(path, *(make() for make in MAKERS))


def write(path: Path, *values: dict[str, Any]) -> Path:
    items = [parse(f"r{i}.json", json.dumps(v), KINDS) for i, v in enumerate(values)]
    path.write_text(render(items), encoding="utf-8")
    return path


def visit(browser: Any, path: Path) -> list[str]:
    """Open a page, wait until its charts are drawn; the addresses it asked for."""
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(path.as_uri())
    until(browser, "document.documentElement.dataset.ready || ''")
    assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [
        event["params"]["request"]["url"]
        for event in events if event["method"] == "Network.requestWillBeSent"
    ]


def test_it_opens_without_a_message_or_a_request(browser: Any, page: Path) -> None:
    screen(browser, 1280, 900, False)
    asked = visit(browser, page)
    assert [a for a in asked if not a.startswith(("data:", "blob:"))] == [page.as_uri()]
    assert browser.get_log("browser") == []
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('.plot')].map("
        "p => p.querySelectorAll('.main-svg .trace, .main-svg .bars, .main-svg .hm').length)"
    )
    buttons = browser.execute_script(
        "return [...new Set([...document.querySelectorAll('.modebar-btn')]"
        ".map(b => b.dataset.title))].sort()"
    )
    assert buttons == ["Download plot", "Pan", "Reset axes", "Zoom", "Zoom in", "Zoom out"]
    assert len(drawn) >= 40 and all(count > 0 for count in drawn), drawn


def test_tables_of_charts_side_by_side_are_whole(browser: Any, page: Path) -> None:
    screen(browser, 1200, 900, False)
    visit(browser, page)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    cut = browser.execute_script(
        "const inside = [...document.querySelectorAll('.grid .scroll')];"
        "return [inside.length, inside.filter(e => e.scrollWidth > e.clientWidth + 1)"
        ".map(e => [e.getAttribute('aria-label'), e.scrollWidth, e.clientWidth])]"
    )
    assert cut[0] >= 40 and cut[1] == []


def test_a_narrow_screen_scrolls_only_downwards(browser: Any, page: Path) -> None:
    screen(browser, 375, 740, True)
    visit(browser, page)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    wide = browser.execute_script(
        "const w = document.documentElement.clientWidth;"
        "return [document.documentElement.scrollWidth, w, ...[...document.querySelectorAll("
        "'body *')].filter(e => !e.closest('.scroll, .plot, pre, #js-plotly-tester')"
        " && e.scrollWidth > w)"
        ".map(e => e.tagName + '.' + e.className)]"
    )
    assert wide == [375, 375]
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('.plot')].map("
        "p => [p.clientWidth, p.querySelector('svg.main-svg').getBoundingClientRect().width])"
    )
    assert sizes and all(inner <= outer for outer, inner in sizes), sizes
    small = browser.execute_script(
        "return Math.min(...[...document.querySelectorAll('p, li, td, dd, dt, summary')].map("
        "e => parseFloat(getComputedStyle(e).fontSize)))"
    )
    assert small >= 12
    captions, text = browser.execute_script(
        "return [[...document.querySelectorAll('caption')].filter(e => e.checkVisibility())"
        ".map(e => e.clientWidth), document.querySelector('main').innerText]")
    assert captions and min(captions) > 100
    assert re.findall(r".*\de[+]\d.*", text) == []
    assert browser.get_log("browser") == []


def test_charts_follow_the_scheme_of_the_reader(browser: Any, page: Path) -> None:
    screen(browser, 1280, 900, False)
    look = (
        "const s = document.querySelector('.plot .xtick text');"
        "return [getComputedStyle(document.documentElement).backgroundColor,"
        "getComputedStyle(s).fill]"
    )
    scheme(browser, "light")
    visit(browser, page)
    light = browser.execute_script(look)
    scheme(browser, "dark")
    dark = browser.execute_script(look)
    assert light[0] == "rgb(245, 246, 248)" and dark[0] == "rgb(16, 19, 23)"
    assert light[1] == "rgb(27, 31, 36)" and dark[1] == "rgb(231, 235, 239)"
    scheme(browser, "light")
    assert browser.execute_script(look) == light
    assert browser.get_log("browser") == []


def test_it_prints_light_with_its_short_tables(browser: Any, page: Path) -> None:
    screen(browser, 1280, 900, False)
    scheme(browser, "dark")
    visit(browser, page)
    browser.execute_script(
        "window.addEventListener('beforeprint', () => { window.seen = ["
        "getComputedStyle(document.documentElement).getPropertyValue('--ink'),"
        "document.querySelectorAll('details.short[open]').length,"
        "Math.max(...[...document.querySelectorAll('.plot svg.main-svg')].map("
        "s => s.getBoundingClientRect().width))] })"
    )
    done = browser.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})
    assert base64.b64decode(done["data"]).startswith(b"%PDF")
    ink, opened, width = browser.execute_script("return window.seen")
    assert ink.strip() == "#1b1f24" and opened >= 10 and width <= 690
    until(browser, "document.documentElement.className === ''"
          " && document.querySelectorAll('details.short[open]').length === 0")
    scheme(browser, "light")


def test_hostile_names_run_nothing(browser: Any, tmp_path: Path) -> None:
    value = prediction()
    value |= {"model": EVIL, "warnings": [EVIL], "method": EVIL, "command": EVIL, "draft": EVIL}
    value["acceptance"]["source"] = EVIL
    step = explanation()
    step["model"] = EVIL
    for item in step["steps"]:
        item["step"] = EVIL
        for op in item["ops"]:
            op["op"] = EVIL
    rows = validation()
    for row in rows["rows"]:
        row["name"] = row["note"] = EVIL
    asked = visit(browser, write(tmp_path / "evil.html", value, step, rows))
    assert len([a for a in asked if not a.startswith(("data:", "blob:"))]) == 1
    assert browser.title == "Speculative decoding report"
    assert browser.execute_script("return document.images.length") == 0
    assert EVIL[:20] in browser.execute_script("return document.body.innerText")
    assert browser.get_log("browser") == []


def test_without_javascript_the_tables_remain(browser: Any, page: Path) -> None:
    # Without scripts the driver cannot see whether a page is loaded, so the document is asked.
    wanted = {"Charts need JavaScript", "What speculation gains"}
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(page.as_uri())
        limit = time.monotonic() + 60
        missing = wanted
        while missing and time.monotonic() < limit:
            shown = json.dumps(browser.execute_cdp_cmd("DOM.getDocument", {"depth": -1}))
            missing = {text for text in wanted if text not in shown}
            time.sleep(0.1)
        assert not missing
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
