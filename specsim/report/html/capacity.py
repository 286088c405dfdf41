"""Section of `specsim capacity`: the largest load within the service levels, and what ends it."""

from typing import Any

from specsim.report.html import common
from specsim.report.html.charts import Curve, curves
from specsim.report.html.documents import Document, Node
from specsim.report.html.elements import (
    Child,
    Html,
    bullets,
    facts,
    fold,
    number,
    table,
    tag,
    times,
)
from specsim.report.html.page import Page
from specsim.report.tables import seconds


def capacity(page: Page, document: Document) -> None:
    """Add the section of a `specsim capacity --json` document."""
    node = document.node
    unit = node.get("unit").text("load")
    base = node.get("baseline")
    words = f"{number(node.get('capacity').maybe())} {unit} within the service levels"
    if not base.missing:
        words += f"; {number(base.get('capacity').maybe())} without speculation"
        gain = node.get("gain").maybe()
        words += f" ({times(gain)})" if gain is not None else ""
    limit = node.get("binding_limit")
    operating = node.get("operating_point")
    page.section(
        f"Capacity: {common.deployment(node)}",
        f"Capacity: {node.get('model').text()}",
        common.source_line(document),
        tag("p", "Interrupted: parts are missing. " if node.get("partial").flag() else "",
            words + ".", class_="verdict"),
        facts([
            ("Capacity", number(node.get("capacity").maybe()), unit),
            ("Sure to pass", number(node.get("sure_pass").maybe()), unit),
            ("Sure to fail", number(node.get("sure_fail").maybe()), unit),
            None if node.get("ladder_capacity").missing else
            ("On the ladder", number(node.get("ladder_capacity").maybe()), unit),
            None if operating.missing else
            ("Operating point", number(operating.get("load").maybe()), unit),
            None if limit.missing else
            ("Binding limit", limit.get("name").text("-"), limit.get("gate").text("")),
            None if node.get("recommended_max_num_seqs").missing else
            ("Recommended max_num_seqs", number(node.get("recommended_max_num_seqs").maybe()),
             "for the floor per stream"),
        ]),
        _limit(limit),
        tag("div", _trials(page, node, unit), _seats(page, node), class_="grid"),
        _points(node, unit),
        _demand(node),
        _cost(node),
        common.warnings(node),
        common.assumptions(node, ("rule", node.get("rule").text("-")),
                           *((f"gate {name}", number(value.maybe()))
                             for name, value in node.get("slo").members())),
    )


def _limit(limit: Node) -> Html | None:
    if limit.missing:
        return None
    name, cause = limit.get("name").text("-"), limit.get("cause").text("")
    return tag(
        "div", tag("h3", f"What ends it: {name}"),
        tag("p", f"Cause: {cause}.") if cause not in ("", name) else None,
        bullets(limit.get("evidence").texts()),
    )


def _trials(page: Page, node: Node, unit: str) -> Html | None:
    """Share of replications that pass, by load."""
    items, rows = [], []
    for i, (name, side) in enumerate((("with speculation", node), ("without",
                                                                   node.get("baseline")))):
        trials = sorted(side.get("trials").items(), key=lambda t: t.get("load").number())
        if not trials:
            continue
        shares = []
        for trial in trials:
            runs = trial.get("replications").maybe() or 0
            passes = trial.get("passes").maybe()
            shares.append(passes / runs if runs and passes is not None else None)
            rows.append([
                f"{name}, {number(trial.get('load').maybe())}",
                f"{number(passes)} of {number(runs)}",
                "passes" if trial.get("pass").flag() else "fails",
                "sure" if trial.get("sure").flag() else "too close to call",
                number(trial.get("margin").maybe(), 3), trial.get("worst_gate").text("-"),
            ])
        items.append(Curve(name, [t.get("load").number() for t in trials], shares, style=i))
    if not items:
        return None
    return page.chart(
        "Loads that were tried", "Share of the replications that meet every gate.",
        curves(items, unit, "share that passes", share=True, level=(0.5, "half")),
        [f"side, {unit}", "passing", "verdict", "", "margin of the worst gate", "worst gate"],
        rows,
    )


def _seats(page: Page, node: Node) -> Html | None:
    floor = node.get("stream_floor")
    trials = floor.get("trials").items()
    if not trials:
        return None
    trials = sorted(trials, key=lambda t: t.get("max_num_seqs").number())
    x = [trial.get("max_num_seqs").number() for trial in trials]
    limit = floor.get("floor_stream_tok_s_p10").maybe()
    return page.chart(
        "Speed of the slowest streams by max_num_seqs",
        "Tokens per second that nine of ten streams reach while all seats are taken.",
        curves([Curve("p10 of the streams", x,
                      [t.get("stream_tok_s_p10").maybe() for t in trials])],
               "max_num_seqs", "tokens per second",
               level=(limit, "floor") if limit is not None else None),
        ["max_num_seqs", "p10 of the streams", "holds"],
        [[number(a), number(t.get("stream_tok_s_p10").maybe()),
          "yes" if t.get("pass").flag() else "no"] for a, t in zip(x, trials, strict=True)],
    )


def _points(node: Node, unit: str) -> Html | None:
    """Figures at the capacity and at the operating point, both sides."""
    found = []
    for side, place in (("with speculation", node), ("without", node.get("baseline"))):
        for name, key in (("at capacity", "at_capacity"), ("operating point", "operating_point")):
            point = place.get(key)
            if not point.missing:
                found.append((f"{side}, {name}", point))
    if not found:
        return None
    names = list(dict.fromkeys(
        key for _, point in found for key, _ in point.get("figures").members()
    ))
    rows: list[list[Child]] = [[unit, *(number(p.get("load").maybe()) for _, p in found)]]
    for name in names:
        timed = "_s" in name and "tok_s" not in name
        shown = seconds if timed else number
        rows.append([name, *(shown(p.get("figures").get(name).maybe()) for _, p in found)])
    return fold("Figures at these loads",
                table(["", *(name for name, _ in found)], rows, "Means over the replications"))


def _demand(node: Node) -> Html | None:
    demand = node.get("demand")
    if demand.missing:
        return None
    rows = [[key.replace("_", " "), _shown(value)] for key, value in demand.members()]
    return table(["demand", "value"], rows, "Replicas for the demand")


def _cost(node: Node) -> Html | None:
    cost = node.get("cost")
    if cost.missing:
        return None
    rows = [[key.replace("_", " "), _shown(value)] for key, value in cost.members()
            if not value.missing]
    return fold("Cost and energy", table(["figure", "value"], rows, "At the operating point"))


def _shown(node: Node) -> str:
    value: Any = node.value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(node.maybe())
    return node.text("-")
