"""validation/serving.json and serving.md: one section per script, rewritten by it alone."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
SECTIONS = ("mindrouter", "e2e")
INTRO = [
    "# The simulator against measured serving runs",
    "",
    "Written by `python validation/simulate_mindrouter.py` and",
    "`python validation/simulate_e2e.py`; all numbers are in serving.json. Error is simulated /",
    "measured - 1.",
]


def update(section: str, data: dict[str, Any], lines: Sequence[str], folder: Path = FOLDER) -> None:
    """Replace one section of both files."""
    path = folder / "serving.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    known[section] = {"data": data, "lines": list(lines)}
    ordered = {name: known[name] for name in SECTIONS if name in known}
    path.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    text = [*INTRO]
    for name in ordered:
        text += ["", *ordered[name]["lines"]]
    (folder / "serving.md").write_text("\n".join(text) + "\n", encoding="utf-8")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A markdown table."""
    rule = ["---", *("---:" for _ in header[1:])]
    return [f"| {' | '.join(row)} |" for row in (header, rule, *rows)]


def number(value: float | None) -> str:
    """Three significant digits, without exponent."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def signed(error: float | None) -> str:
    return "" if error is None else f"{error:+.1%}"
