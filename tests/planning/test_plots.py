"""Plots with characters: every series is seen where its values are, on any axis."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from specsim.errors import UsageError
from specsim.report.plots import Panel, Picture, Series
from specsim.report.plots_file import check_plot, write_picture
from specsim.report.plots_text import MARGIN, panel_text


def rows_of(text: str) -> list[str]:
    """The cells of the plot, top first."""
    return [line[MARGIN + 2 :] for line in text.splitlines()[2:] if line[MARGIN:].startswith(" |")]


def test_a_rising_line_goes_from_bottom_left_to_top_right() -> None:
    panel = Panel("t", "x", "y", (Series("a", [1, 10], [2, 4]),))
    rows = rows_of(panel_text(panel, 60, 10))
    assert len(rows) == 10
    columns = [row.index("o") for row in rows]
    assert columns == sorted(columns, reverse=True) and columns[-1] == 0
    assert rows[0].rstrip()[-1] == "o" and len(rows[0].rstrip()) == 60 - MARGIN - 2


def test_powers_are_straight_on_logarithmic_axes() -> None:
    x = [2.0**i for i in range(9)]
    panel = Panel("t", "x", "y", (Series("a", x, [v**2 for v in x], style="points"),), True, True)
    cells = [(i, row.index("o")) for i, row in enumerate(rows_of(panel_text(panel, 100, 17)))
             if "o" in row]
    steps = {(b[0] - a[0], a[1] - b[1]) for a, b in pairwise(cells)}
    assert {step[0] for step in steps} == {2} and len({step[1] for step in steps}) == 1


def test_series_have_marks_and_levels_a_line() -> None:
    panel = Panel(
        "title", "clients", "gain",
        (Series("one", [1, 2], [1, 1]), Series("two", [1, 2], [3, 3], 1, "dashed"),
         Series("behind", [1, 2], [2, 2], 2, "points", faint=True, keyed=False)),
        levels=((2.0, "even"),),
    )
    text = panel_text(panel)
    assert text.startswith("title\ngain\n")
    assert "o one   x two   - even" in text and "behind" not in text
    rows = rows_of(text)
    assert set(rows[-1].strip()) == {"o"} and "x" in rows[0] and "." in text
    assert any(row.count("- ") > 10 for row in rows)


def test_colour_is_asked_for() -> None:
    panel = Panel("t", "x", "y", (Series("a", [1, 2], [1, 2]),))
    assert "\x1b" not in panel_text(panel) and "\x1b[36mo\x1b[0m" in panel_text(panel, colour=True)
    plain = panel_text(panel, colour=True).replace("\x1b[36m", "").replace("\x1b[0m", "")
    assert plain == panel_text(panel)


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("values", [[], [1.0], [5.0, 5.0], [0.0, 1.0], [float("nan"), 2.0],
                                    [-3.0, 1e9], [1e-9, 1e9]])
def test_nothing_breaks_on_odd_values(values: list[float], log: bool) -> None:
    panel = Panel("t", "x", "y", (Series("a", values, values),), log, log)
    text = panel_text(panel, 70, 12)
    assert all(len(line) <= 70 for line in text.splitlines())
    assert text.isascii()


def test_files_need_a_known_format() -> None:
    check_plot(None)
    with pytest.raises(UsageError, match="must end in"):
        check_plot("x.jpeg")


def test_files_are_of_their_format_and_repeat(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    series = (Series("a", [1, 2, 4], [1, 2, 3]), Series("b", [1, 2], [2, 1], 1, "points", True))
    picture = Picture("t", (Panel("p", "x", "y", series, log_x=True, levels=((2.0, "l"),)),))
    svg, png, again = (tmp_path / name for name in ("a.svg", "a.png", "b.SVG"))
    for path in (svg, png, again):
        write_picture(picture, str(path))
    assert png.read_bytes().startswith(b"\x89PNG")
    assert svg.read_bytes() == again.read_bytes() and b"<svg" in svg.read_bytes()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = Picture("t", (Panel("t", "x", "y", (Series("a", [1, 2], [1, 2]),)),))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        write_picture(picture, f"{tmp_path}/file/plot.png")


def test_the_legend_stands_off_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure_class = pytest.importorskip("matplotlib.figure").Figure
    drawn = []
    save = figure_class.savefig

    def kept(figure: Any, *given: Any, **options: Any) -> None:
        drawn.append(figure)
        save(figure, *given, **options)

    monkeypatch.setattr(figure_class, "savefig", kept)
    panel = Panel("t", "x", "y", tuple(
        Series(f"a curve with a long name {i}", [1, 2, 3], [i, 5 - i, i]) for i in range(5)
    ), levels=((1.0, "break-even"),))
    write_picture(Picture("t", (panel, panel)), str(tmp_path / "two.png"))
    for axes in drawn[0].axes:
        legend = axes.get_legend().get_window_extent()
        assert legend.y1 < axes.get_window_extent().y0  # below the axes, their title included
        assert legend.y1 < axes.xaxis.label.get_window_extent().y0
        assert len(axes.get_legend().get_texts()) == 6
