"""validation/reports/serving.json and serving.md: one section per script, rewritten by it alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import REPORTS, read_json, write_json, write_text

SECTIONS = ("mindrouter", "e2e")
INTRO = [
    "# The simulator against measured serving runs",
    "",
    "Written by `python validation/scripts/simulate_mindrouter.py` and",
    "`python validation/scripts/simulate_e2e.py`; all numbers are in serving.json. Error is",
    "simulated / measured - 1.",
]


def update(
    section: str, data: dict[str, Any], lines: Sequence[str], folder: Path = REPORTS
) -> None:
    """Replace one section of both files."""
    path = folder / "serving.json"
    known = read_json(path) if path.is_file() else {}
    known[section] = {"data": data, "lines": list(lines)}
    ordered = {name: known[name] for name in SECTIONS if name in known}
    write_json(path, ordered)
    text = [*INTRO]
    for name in ordered:
        text += ["", *ordered[name]["lines"]]
    write_text(folder / "serving.md", "\n".join(text) + "\n")


def number(value: float | None) -> str:
    """Three significant digits, without exponent."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def signed(error: float | None) -> str:
    return "" if error is None else f"{error:+.1%}"
