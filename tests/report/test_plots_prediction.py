"""`specsim predict --plot`: the speedup over the load, in the terminal."""

from typing import Any

import pytest
from typer.testing import CliRunner

from specsim.commands import app
from specsim.errors import UsageError

QWEN = ("predict", "qwen3.6-27b", "--weights", "fp8", "--acceptance-length", "3.18")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_the_plot_follows_the_table() -> None:
    plain = run(*QWEN, "--concurrency", "1,8,64,128").stdout
    drawn = run(*QWEN, "--concurrency", "1,8,64,128", "--plot").stdout
    assert drawn.startswith(plain.rstrip("\n"))
    picture = drawn[len(plain):]
    assert "What speculation gains" in picture and "clients" in picture
    assert all(len(line) <= 110 for line in picture.splitlines())
    # Four points fall from the upper left to the lower right.
    rows = [line for line in picture.splitlines() if "o" in line and "|" in line]
    columns = [line.index("o") for line in rows]
    assert len(rows) >= 3 and columns == sorted(columns)


def test_one_load_and_an_open_loop_are_drawn_too() -> None:
    assert "What speculation gains" in run(*QWEN, "--concurrency", "4", "--plot").stdout
    assert "requests/s" in run(*QWEN, "--rate", "0.1,0.5", "--plot").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*QWEN, "--plot", "--json"), "leave it out with --json"),
        ((*QWEN, "--plot", "--csv"), "leave it out with --json"),
        (("predict", "--plot"), "--plot needs a MODEL"),
    ],
)
def test_where_it_cannot_be_drawn_it_is_refused(arguments: tuple[str, ...], words: str) -> None:
    error = run(*arguments).exception
    assert isinstance(error, UsageError) and words in str(error)
