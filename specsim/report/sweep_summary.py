"""What a sweep found, setting by setting: quantiles of its figures over all else that was varied.

Rows are read once; of each only its figures and the places of its values are held, so that a study
of a million rows fits in memory.
"""

from array import array
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from specsim.jsonable import json_text
from specsim.report.doc import LARGEST, Doc
from specsim.report.plots import Bars, Panel, Picture, Series, Value
from specsim.report.tables import Table, number
from specsim.rows import flat
from specsim.units import counted

if TYPE_CHECKING:
    from specsim.planning.sweep_run import SweepRun

MOST_VALUES = 60  # of a setting that is summed up
MOST_CURVES = 8
MOST_CHARTS = 6
WIDE = 20.0  # largest over smallest value from which on an axis is logarithmic
USUAL = {
    "simulate": ("output_tok_s", "tpot_s.mean", "ttft_s.p95", "acceptance_length",
                 "gain.output_tok_s"),
    "predict": ("speedup", "output_tok_s", "tpot_s", "ttft_s", "step_cost_ratio"),
}


def numeric(value: object) -> Value:
    """A number that can be drawn, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= LARGEST else None


class _Setting:
    """The values of an option in the order they come, and for each row the place of its value."""

    def __init__(self) -> None:
        self.values: list[object] = []
        self.places = array("L")
        self._known: dict[str, int] = {}

    def add(self, value: object) -> None:
        place = self._known.setdefault(json_text(value), len(self.values))
        if place == len(self.values):
            self.values.append(value)
        self.places.append(place)

    @property
    def ordered(self) -> bool:
        return len(self.values) > 1 and None not in map(numeric, self.values)


def summary_of(run: "SweepRun") -> dict[str, object]:
    """`across`: of the settings whose values are numbers the one that has most, and these, rising;
    `by_setting`: for each value of each setting its tasks, those refused, quantiles of the figures,
    and the median of the first figure at each value of `across`."""
    settings = {name: _Setting() for name in run.sweep.varied}
    figures = {name: array("d") for name in run.sweep.columns or USUAL[run.sweep.run]}
    refused = array("b")
    for row in run.rows():
        found = flat(row["result"] or {})
        for name, setting in settings.items():
            setting.add(row["params"].get(name))
        for name, column in figures.items():
            value = numeric(found.get(name))
            column.append(float("nan") if value is None else value)
        refused.append(row["error"] is not None)
    return _summed(settings, figures, refused)


def _summed(
    settings: Mapping[str, _Setting], figures: Mapping[str, "array[float]"], refused: "array[int]"
) -> dict[str, object]:
    import numpy as np

    def quantiles(goal: str, mask: Any) -> dict[str, float] | None:
        there = np.asarray(figures[goal])[mask]
        there = there[~np.isnan(there)]
        if not there.size:
            return None
        p10, median, p90 = np.quantile(there, (0.1, 0.5, 0.9)).tolist()
        return {"p10": p10, "median": median, "p90": p90}

    shown = {name: item for name, item in settings.items() if len(item.values) <= MOST_VALUES}
    masks = {name: [np.asarray(item.places) == place for place in range(len(item.values))]
             for name, item in shown.items()}
    ordered = [name for name, item in shown.items() if item.ordered]
    across = max(reversed(ordered), key=lambda name: len(masks[name]), default=None)
    axis: list[tuple[Any, Any]] = [] if across is None else sorted(
        zip(shown[across].values, masks[across], strict=True), key=itemgetter(0))
    groups = []
    for name, item in shown.items():
        for value, mask in zip(item.values, masks[name], strict=True):
            curve = [quantiles(next(iter(figures)), mask & there) for _, there in axis]
            groups.append({
                "setting": name, "value": value, "tasks": int(mask.sum()),
                "refused": int(np.asarray(refused)[mask].sum()),
                "figures": {goal: quantiles(goal, mask) for goal in figures},
                "medians": [found and found["median"] for found in curve],
            })
    return {
        "across": across and {"setting": across, "values": [value for value, _ in axis]},
        "by_setting": groups,
    }


def summary_table(doc: Doc) -> Table | None:
    """One line per value of a setting: the first figure with its spread, of others the median."""
    groups = doc.items("by_setting")
    if not groups:
        return None
    goals = [name for name, _ in groups[0].members("figures")]
    rows = [
        [group.text("setting"), cell(group.at("value").value), group.words("tasks"),
         group.words("refused"), *_figures(group, goals)]
        for group in groups
    ]
    first = [goals[0].removesuffix(".mean"), "p10", "p90"]
    rest = [name.removesuffix(".mean") for name in goals[1:]]
    return Table(["setting", "value", "tasks", "refused", *first, *rest], rows, left=2)


def _figures(group: Doc, goals: Sequence[str]) -> list[str]:
    found = [group.at("figures").child(name) for name in goals]
    first = [number(found[0].maybe(key)) for key in ("median", "p10", "p90")]
    return [*first, *(number(item.maybe("median")) for item in found[1:])]


def summary_charts(doc: Doc) -> Sequence[Panel | Bars]:
    """The first figure over the setting of most numbers, with a curve per value of each other; bars
    of the medians where no setting is a number."""
    groups: dict[str, list[Doc]] = {}
    for group in doc.items("by_setting"):
        groups.setdefault(group.text("setting"), []).append(group)
    goals = [name for group in doc.items("by_setting")[:1] for name, _ in group.members("figures")]
    if not goals:
        return []
    goal = goals[0]
    if not doc.has("across"):
        return [_bars(goal, name, found) for name, found in groups.items()][:MOST_CHARTS]
    across = doc.text("across.setting")
    places = [value.number() for value in doc.items("across.values")]
    log_x = min(places) > 0 and max(places) > WIDE * min(places)
    charts: list[Panel | Bars] = []
    for name, found in groups.items():
        title = f"{goal} over {across}" + (f", by {name}" if name != across else "")
        if name == across:
            series, words = [_spread(goal, places, found)], "Median, p10 and p90 of all tasks."
        elif len(found) > MOST_CURVES:
            charts.append(_bars(goal, name, found))
            continue
        else:
            series, words = [
                Series(f"{name} {cell(group.at('value').value)}", places,
                       [value.maybe() for value in group.items("medians")], hue)
                for hue, group in enumerate(found)
            ], "Medians of all tasks."
        charts.append(Panel(title, across, goal, tuple(series), log_x=log_x, words=words))
    return charts[:MOST_CHARTS]


def _spread(goal: str, places: Sequence[float], found: Sequence[Doc]) -> Series:
    """The quantiles of a figure at each value of a setting."""
    by_value = {group.at("value").number(): group.at("figures").child(goal) for group in found}
    items = [by_value[place] for place in places]
    band = [(item.number("p10"), item.number("p90")) if item.value else None for item in items]
    return Series("median", places, [item.maybe("median") for item in items], band=band)


def _bars(goal: str, name: str, found: Sequence[Doc]) -> Bars:
    medians = [group.at("figures").child(goal).maybe("median") for group in found]
    values = [cell(group.at("value").value) for group in found]
    return Bars(f"{goal} by {name}", "Medians of all tasks.", values, [("median", medians)], goal)


def summary_picture(doc: Doc) -> Picture:
    """The curves of `summary_charts`, for a file."""
    title = f"Sweep of {counted(doc.number('tasks'), doc.text('run') + ' run')}"
    panels = [chart for chart in summary_charts(doc) if isinstance(chart, Panel)]
    note = f"{counted(doc.number('finished'), 'task')}, {doc.words('refused')} refused"
    return Picture(title, tuple(panels), (note,))


def cell(value: object) -> str:
    """A value of a setting or a figure, in a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return number(value)
    text = value if isinstance(value, str) else json_text(value)
    return text if len(text) <= 40 else text[:37] + "..."
