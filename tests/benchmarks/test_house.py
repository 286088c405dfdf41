"""The measures of benchmarks/house.py, on a small package whose figures are known."""

from pathlib import Path

import house
import pytest

FILES = {
    "one/__init__.py": "",
    "one/first.py": '''"""A module."""

from typing import Any


class Plan:
    x: dict[str, Any]
    y: int


def short(a: Any) -> int:  # why
    return a


def wide(a, b, c, d, e, f, g, *h, **i):
    from specsim.two.second import Plan
    return Plan
''',
    "two/__init__.py": "",
    "two/second.py": '''from specsim.one import first

METHODS = ("none", "dflash")
SINCE = (0, 25, 1)


class Plan:
    """Not "b60", which is a docstring."""

    first = first


def ask(exit_layers: int) -> int:
    return exit_layers
''',
    "two/alone.py": "x = 1  # mamba2\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "specsim" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "a.toml").write_text('methods = ["dflash"]\n')
    (tmp_path / "engines" / "b.toml").write_text("# dflash\n")
    return tmp_path


def test_figures_of_a_small_package(tree: Path) -> None:
    found = house.house(tree)
    assert found.folders == {"specsim/one": 17, "specsim/two": 15}
    assert found.anys.total() == 2 and found.untyped == 1
    assert found.wide == ["specsim.one.first.wide"]
    assert found.cycles == [["specsim.one.first", "specsim.two.second"]]
    assert found.shared == {"Plan": ["specsim.one.first", "specsim.two.second"]}
    assert found.documented == 4  # two docstrings and two comments
    assert sorted(found.lengths) == [2, 2, 3]


def test_places_are_named_outside_of_comments_and_docstrings(tree: Path) -> None:
    places = house.house(tree).places
    second = "specsim/two/second.py"
    assert places["a drafting method"] == [second, "engines/a.toml"]
    assert places["an engine version"] == [second, "engines/vllm-*.toml"]
    assert places["an option"] == [second]
    assert places["a GPU"] == ["hw_profiles/b60.toml"]
    assert places["a new mixer"] == []


def test_two_checkouts_stand_side_by_side(tree: Path) -> None:
    now = house.house(tree)
    text = house.report(now, now)
    assert "| lines of specsim/ | 32 | 32 |" in text
    assert "| specsim/one | 17 | 17 | 2 | 2 |" in text
    assert "nine parameters: specsim.one.first.wide" in house.details(now)
