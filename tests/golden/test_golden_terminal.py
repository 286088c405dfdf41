"""What commands print on a terminal of 80 columns, from results as they were saved.

The results are fixed, so that a text changes only with how results are shown: run
`python -m pytest tests/golden --regenerate` then, and look at the texts.
"""

import gzip
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specsim.commands import app
from specsim.report.blocks import Section
from specsim.report.doc import Doc
from specsim.report.explanation import explained_steps
from specsim.report.kinds import SECTIONS
from specsim.report.text import section_text

HERE = Path(__file__).parent / "terminal"
RESULTS = ("predict", "tune", "crossover", "matrix", "explain", "diagnose", "capacity", "fleet",
           "compare")
LISTS = {
    "models": ("models", "--search", "qwen3.6"), "gpus": ("gpus",), "help": ("--help",),
    "help_predict": ("predict", "--help"), "help_simulate": ("simulate", "--help"),
}
WIDTHS = (80, 100, 120, 137)


def section(name: str) -> Section:
    found = json.loads(gzip.decompress((HERE / f"{name}.json.gz").read_bytes()))
    if found["kind"] == "explanation":
        return explained_steps(Doc(found))
    return SECTIONS[found["kind"]](Doc(found))


def compare(name: str, text: str, regenerate: bool) -> None:
    file = HERE / f"{name}.txt"
    if regenerate:
        file.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == file.read_text(encoding="utf-8"), f"{name}.txt: look at the difference"


@pytest.mark.parametrize("name", RESULTS)
def test_results_at_80_columns(name: str, regenerate: bool) -> None:
    compare(name, section_text(section(name), 80), regenerate)


@pytest.mark.parametrize("name", LISTS)
def test_lists_at_80_columns(
    name: str, regenerate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app, list(LISTS[name]), catch_exceptions=False)
    compare(name, result.stdout.rstrip("\n"), regenerate)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", RESULTS)
def test_nothing_is_wider_than_the_terminal_but_a_word(name: str, width: int) -> None:
    shown = section(name)
    for line in section_text(shown, width).split("\n"):
        words = re.split(r" (?!\\)", line.strip())
        assert len(line) <= width or len(words) == 1 or line.lstrip().startswith("--"), line


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", RESULTS)
def test_what_fits_nowhere_is_named_and_all_else_is_there(name: str, width: int) -> None:
    """Every word and figure of the whole text is in the narrow one, or its column is named."""
    shown = section(name)
    whole, narrow = section_text(shown), section_text(shown, width)
    if "--wide shows all columns" not in narrow:
        assert set(whole.split()) - set(narrow.split()) <= {w for w in whole.split() if "---" in w}
