"""The page of `specsim explore` in a real browser: what changes with a setting, with the keyboard
alone, on a narrow screen, and what is said of what cannot be."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from chromium import MARKS, open_browser, screen, until

pytest.importorskip("selenium")
pytest.importorskip("starlette")
pytest.importorskip("plotly")
pytestmark = MARKS
ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ("llama-3.1-8b", "--concurrency", "1,8,64")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where a server answers that starts with SETTINGS."""
    words = [sys.executable, "-m", "specsim", "explore", *SETTINGS, "--no-browser"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().split()[-1]
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver = open_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser: Any, address: str) -> Any:
    """The page as it opens, its charts drawn."""
    screen(browser, 1200, 900, False)
    browser.get("about:blank")
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(address)
    drawn(browser, 1)
    return browser


def drawn(browser: Any, count: int) -> None:
    """Waits until the change of that number is on the page."""
    until(browser, f"+(document.documentElement.dataset.drawn || 0) === {count}")


def put(browser: Any, name: str, text: str) -> None:
    browser.execute_script(
        "const e = document.getElementById('field-' + arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event('input', {bubbles: true}))", name, text,
    )


def above(browser: Any) -> str:
    return str(browser.execute_script("return document.getElementById('above').innerText"))


def curves(browser: Any, chart: int) -> dict[str, list[float]]:
    return dict(browser.execute_script(
        "return Object.fromEntries(document.getElementById('chart' + arguments[0]).data"
        ".filter(t => t.name).map(t => [t.name, [...t.y]]))", chart))


def test_a_change_redraws_and_asks_nobody_else(page: Any, address: str) -> None:
    before, first = above(page), curves(page, 1)
    put(page, "gpu", "l40s")
    drawn(page, 2)
    assert "l40s" in above(page) and "l40s" not in before
    assert curves(page, 1)["speedup"] != first["speedup"]
    until(page, "document.getElementById('below').innerText.includes('best k')")
    until(page, "document.querySelectorAll('#steps .main-svg').length > 0")
    assert page.get_log("browser") == []
    asked = [
        message["params"]["request"]["url"] for entry in page.get_log("performance")
        if (message := json.loads(entry["message"])["message"])["method"]
        == "Network.requestWillBeSent"
    ]
    own = address.partition("/?")[0]
    assert asked and all(url.startswith((own, "data:", "blob:", "about:")) for url in asked), asked


def test_what_the_fields_show_at_first_is_whole(page: Any) -> None:
    page.execute_script("document.querySelector('#choices details').open = true")
    cut = page.execute_script("""
        const pen = document.createElement('canvas').getContext('2d');
        const all = [...document.querySelectorAll('#choices :is(input, select)')]
            .filter(e => e.type !== 'checkbox');
        const room = (e, s) => e.clientWidth - parseFloat(s.paddingLeft)
            - parseFloat(s.paddingRight) - (e.tagName === 'SELECT' ? 20 : 0);
        return [all.length, all.filter(e => {
          const s = getComputedStyle(e);
          pen.font = s.font;
          const chosen = e.tagName === 'SELECT' && e.selectedOptions[0].text;
          const text = chosen || e.value || e.placeholder;
          return pen.measureText(text).width > room(e, s);
        }).map(e => e.name)]""")
    assert cut[0] > 30 and cut[1] == []


def test_of_quick_changes_the_last_one_stands(page: Any) -> None:
    for k in range(1, 8):
        put(page, "k", str(k))
    drawn(page, 8)
    assert "k = 7" in above(page)
    assert page.execute_script("return location.hash").count("k=7") == 1


def test_two_deployments_side_by_side(page: Any) -> None:
    page.execute_script("document.getElementById('pin').click()")
    drawn(page, 2)
    put(page, "method", "none")
    drawn(page, 3)
    chosen, pinned = "chosen: with speculation", "pinned: with speculation"
    both = curves(page, 2)
    assert both[chosen] != both[pinned]
    page.execute_script("document.getElementById('exchange').click()")
    drawn(page, 4)
    other = curves(page, 2)
    assert (other[chosen], other[pinned]) == (both[pinned], both[chosen])
    page.execute_script("document.getElementById('unpin').click()")
    drawn(page, 5)
    assert "with speculation" in " ".join(curves(page, 2)) and "pinned" not in above(page)


def test_a_link_holds_the_settings(page: Any) -> None:
    put(page, "k", "2")
    drawn(page, 2)
    page.execute_script("document.getElementById('pin').click()")
    drawn(page, 3)
    put(page, "gpu", "b200")
    drawn(page, 4)
    page.execute_script("document.querySelector('#share details').open = true")
    until(page, "document.getElementById('command').value")
    link, told = page.execute_script(
        "return [document.getElementById('link').value, document.getElementById('command').value]")
    assert told.splitlines()[1] == (
        "specsim predict llama-3.1-8b --num-speculative-tokens 2 --concurrency 1,8,64")
    want = above(page)
    page.get("about:blank")
    page.get(link)
    drawn(page, 1)
    assert above(page) == want


SCRIPT = "<img src=x onerror=\"document.title='owned'\">"


@pytest.mark.parametrize(("given", "told"), [
    ({"model": SCRIPT}, "specsim models"), ({"gpu": SCRIPT}, "specsim gpus"), ({"k": "99999"}, "k"),
    ({"k": "x" + SCRIPT}, "Left out of this link"), ({SCRIPT: "1"}, "Left out of this link"),
    ({"__proto__": "1", "constructor": "2"}, "Left out of this link"),
    ({"equal_lengths": "yes"}, "Left out of this link"),
    ({"pinned.gpu": SCRIPT}, "pinned: a MODEL is needed"),
    ({"pinned." + SCRIPT: "1"}, "is no option of predict"), ({"tp": "1e9"}, "--tp"),
    ({"workload": "javascript:alert(1)"}, "is not known"), ({"concurrency": "1," * 3000}, "--conc"),
])
def test_whatever_a_link_holds_is_text(
    page: Any, address: str, given: dict[str, str], told: str
) -> None:
    """A clear message, no script, and a page that goes on."""
    link = urlencode({"model": "llama-3.1-8b", "concurrency": "1,8", **given})
    page.get("about:blank")
    page.get(f"{address}#{link}")
    drawn(page, 1)
    said = page.execute_script("return document.getElementById('fault').innerText")
    assert told in said and "undefined" not in said, said
    title, images = page.execute_script("return [document.title, document.images.length]")
    assert title == "Explore speculative decoding" and images == 0
    page.get("about:blank")
    page.get(f"{address}#model=llama-3.1-8b&concurrency=1,8&k=2")
    drawn(page, 1)
    assert "k = 2" in above(page)
    assert page.execute_script("return document.getElementById('fault').innerText") == ""


def test_a_link_that_is_pasted_into_the_open_page_is_followed(page: Any) -> None:
    page.execute_script("location.hash = 'model=qwen3.6-27b&concurrency=4&k=1"
                        "&pinned.model=llama-3.1-8b'")
    drawn(page, 2)
    assert "k = 1" in above(page) and "pinned: Llama-3.1-8B" in above(page)
    page.execute_script("location.hash = 'model=qwen3.6-27b&concurrency=4&k=1&tp=3'")
    drawn(page, 3)
    assert "3" in page.execute_script("return document.getElementById('fault').innerText")


def test_a_narrow_screen_begins_with_the_verdict(page: Any) -> None:
    screen(page, 375, 740, True)
    tops = page.execute_script(
        "return ['verdict', 'choices', 'charts'].map(i => document.getElementById(i)"
        ".getBoundingClientRect().top)")
    assert tops == sorted(tops) and tops[0] < 200
    screen(page, 1200, 900, False)
    left, right = page.execute_script(
        "return ['choices', 'verdict'].map(i => document.getElementById(i)"
        ".getBoundingClientRect().left)")
    assert left < right


def test_what_cannot_be_is_said_beside_its_field(page: Any) -> None:
    was = curves(page, 1)
    put(page, "tp", "3")
    drawn(page, 2)
    invalid = page.execute_script(
        "return [...document.querySelectorAll('[aria-invalid]')].map(e => [e.name, "
        "document.getElementById(e.getAttribute('aria-describedby').split(' ')[0]).innerText])")
    assert len(invalid) == 1 and invalid[0][0] == "tp" and "3" in invalid[0][1]
    assert page.execute_script("return document.getElementById('fault').innerText") == invalid[0][1]
    assert curves(page, 1) == was
    put(page, "tp", "2")
    drawn(page, 3)
    assert page.execute_script("return document.querySelectorAll('[aria-invalid]').length") == 0
    assert page.execute_script("return document.getElementById('fault').innerText") == ""


def test_the_keyboard_is_enough(page: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    focused = "return document.activeElement.id || document.activeElement.className"
    keys = ActionChains(page)
    keys.send_keys(Keys.TAB).perform()
    assert page.execute_script(focused) == "skip"
    seen = []
    while page.execute_script(focused) != "field-k":
        assert len(seen) < 30, seen
        ActionChains(page).send_keys(Keys.TAB).perform()
        seen.append(page.execute_script(focused))
        ring = page.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
        assert ring != "none", seen[-1]
    assert seen[0] == "field-model"
    ActionChains(page).send_keys("4").perform()
    drawn(page, 2)
    assert "k = 4" in above(page)
    while page.execute_script(focused) != "pin":
        ActionChains(page).send_keys(Keys.TAB).perform()
    ActionChains(page).send_keys(Keys.ENTER).perform()
    drawn(page, 3)
    assert "pinned" in above(page)
    while page.execute_script(focused) != "load":
        ActionChains(page).send_keys(Keys.TAB).perform()
    ActionChains(page).send_keys(Keys.ARROW_DOWN).perform()
    until(page, "document.getElementById('steps').innerText.includes('8 x ')")


def test_a_screen_reader_hears_names_states_and_the_verdict(page: Any) -> None:
    nodes = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    kinds = {"textbox", "combobox", "spinbutton", "checkbox", "button", "image", "group"}
    named: dict[str, list[str]] = {}
    for node in nodes:
        role = node.get("role", {}).get("value")
        if role in kinds and not node.get("ignored"):
            named.setdefault(role, []).append(node.get("name", {}).get("value", ""))
    assert all(all(names) for role, names in named.items() if role != "group"), named
    assert "GPU" in named["combobox"] and "draft tokens (k)" in named["spinbutton"]
    assert "Pin this beside" in named["button"]
    assert any(name.startswith("Chart: What speculation gains.") for name in named["image"])
    said = "return document.querySelector('[role=status]').textContent"
    assert page.execute_script(said).startswith("ON: eagle3")
    put(page, "method", "none")
    drawn(page, 2)
    assert not page.execute_script(said).startswith("ON: eagle3")
    put(page, "k", "99")
    drawn(page, 3)
    assert page.execute_script("return document.querySelector('[role=alert]').textContent")


def test_hovering_shows_the_steps_of_that_load(page: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    until(page, "document.getElementById('steps').innerText.includes('1 x ')")
    point = page.execute_script(
        "return document.querySelector('#chart1 .scatterlayer .points path:last-of-type')")
    ActionChains(page).move_to_element(point).perform()
    until(page, "document.getElementById('load').value === '2'")
    until(page, "document.getElementById('steps').innerText.includes('64 x ')")


def test_a_narrow_screen_scrolls_only_downwards(page: Any) -> None:
    screen(page, 375, 740, True)
    page.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    page.execute_script("document.getElementById('pin').click()")
    drawn(page, 2)
    until(page, "document.querySelectorAll('#steps .main-svg').length > 0")
    wide = page.execute_script(
        "const w = document.documentElement.clientWidth;"
        "return [document.documentElement.scrollWidth, w, ...[...document.querySelectorAll("
        "'body *')].filter(e => !e.closest('.scroll, .plot, pre, .help, .hidden, "
        "#js-plotly-tester') && e.scrollWidth > w).map(e => e.tagName + '.' + e.className)]"
    )
    assert wide == [375, 375]
