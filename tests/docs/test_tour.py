"""The tour of docs/model.md: its places exist, and k really goes that way."""

import ast
import re
import traceback
from pathlib import Path

import pytest

from specsim.commands import app
from specsim.latency.price import Pricer

ROOT = Path(__file__).resolve().parents[2]
STOP = re.compile(r"^\| (\d+) \| `(specsim/[\w/]+\.py)`: `(\w+)` \|", re.MULTILINE)
STOPS = STOP.findall((ROOT / "docs" / "model.md").read_text(encoding="utf-8"))


def test_the_tour_has_at_most_fourteen_stops_that_exist() -> None:
    assert [int(number) for number, _, _ in STOPS] == list(range(1, len(STOPS) + 1))
    assert 10 <= len(STOPS) <= 14
    for _, file, name in STOPS:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        names = {
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
        }
        assert name in names, f"{file} has no {name}"


def test_k_goes_that_way_and_through_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    ways: list[list[str]] = []
    total = Pricer.total

    def watched(self: Pricer, parts: list[object]) -> object:
        stack = [Path(frame.filename) for frame in traceback.extract_stack()]
        ways.append([str(p.relative_to(ROOT)) for p in stack if p.is_relative_to(ROOT)])
        return total(self, parts)  # type: ignore[arg-type]

    monkeypatch.setattr(Pricer, "total", watched)
    # A length that no other test asks for: a step that is priced is not priced again.
    command = ["predict", "llama-3.1-8b", "--method", "eagle3", "--k", "5", "--concurrency", "8",
               "--input-len", "1013"]
    assert app(command, standalone_mode=False) in (None, 0)
    tour = [file for _, file, _ in STOPS]
    # The tour is that of a verify step; what prompts add to one is priced on a side way.
    aside = {"specsim/analytic/prompts.py", "specsim/analytic/full_steps.py"}
    verifying = [way for way in ways if not aside.intersection(way)]
    assert len(verifying) < len(ways)
    way = [file for file in max(verifying, key=len) if file.startswith("specsim/")]
    passed = [file for file in dict.fromkeys(way) if file != "specsim/commands/__init__.py"]
    assert passed and not set(passed) - set(tour), "the tour leaves out a file on the way"
    assert passed == [file for file in tour if file in passed], "the tour is in another order"
