"""A headless Chromium for tests of pages. Those tests are skipped where it, its driver or selenium
is missing."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MARKS = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver"),
]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=1280,900",
)


def open_browser(profile: Path) -> Any:
    """profile: an empty folder of its own."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(DRIVER))
    driver.set_page_load_timeout(60)
    driver.get("about:blank")  # away from the browser's own page, which goes on asking
    return driver


def until(browser: Any, script: str, limit_s: float = 60.0) -> None:
    """Waits for an expression of the page to be true."""
    from selenium.webdriver.support.ui import WebDriverWait

    hold: Callable[[Any], bool] = lambda b: bool(b.execute_script(f"return {script}"))  # noqa: E731
    WebDriverWait(browser, limit_s, 0.1).until(hold, script)


def screen(browser: Any, width: int, height: int, mobile: bool) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile},
    )


def scheme(browser: Any, name: str) -> None:
    """Set light or dark, and wait until the page was told: events come before the next frame."""
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": name}]},
    )
    browser.execute_async_script(
        "const done = arguments[0], next = requestAnimationFrame; next(() => next(() => done()))"
    )
