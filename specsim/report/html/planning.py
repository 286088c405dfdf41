"""Sections of `specsim crossover`, `pareto` and `sweep`."""

from collections.abc import Sequence
from typing import Any

from specsim.report.html import common
from specsim.report.html.charts import Curve, bars, curves
from specsim.report.html.documents import Document, Node
from specsim.report.html.elements import (
    Child,
    Html,
    bullets,
    facts,
    fold,
    number,
    percent,
    span,
    table,
    tag,
    times,
)
from specsim.report.html.page import Page
from specsim.report.tables import seconds


def crossover(page: Page, document: Document) -> None:
    """Add the section of a `specsim crossover --json` document."""
    node = document.node
    lines = [line for line in node.get("curves").items() if line.get("points").items()]
    refused = [
        f"{number(line.get('context').maybe())} tokens: {line.get('error').text('')}"
        for line in node.get("curves").items() if not line.get("error").missing
    ]
    page.section(
        f"Where speculation stops paying: {common.deployment(node)}",
        f"Crossover: {node.get('model').text()}",
        common.source_line(document),
        _crossings(node),
        tag("div", _speedups(page, lines), _compared(page, lines), class_="grid"),
        bullets(refused),
        common.warnings(node),
        common.assumptions(node),
    )


def _crossings(node: Node) -> Html:
    rows = []
    for line in node.get("curves").items():
        ends = [end.maybe() for end in line.get("break_even_90").items()]
        both = " to ".join("not reached" if e is None else number(e) for e in ends) or "-"
        limit = line.get("break_even_concurrency").maybe()
        rows.append([
            number(line.get("context").maybe()), number(line.get("cheap_until").maybe()),
            number(line.get("ridge").maybe()), "not reached" if limit is None else number(limit),
            both, number(line.get("max_concurrency").maybe()),
        ])
    share = percent(node.get("cheap_share").maybe(), 0)
    return table(
        ["context, tokens", f"verify adds at most {share} until", "compute-bound from",
         "stops paying at", "90 % interval", "largest batch"], rows,
        "Concurrency (clients) at which speculative work stops being cheap, and stops paying",
    )


def _speedups(page: Page, lines: Sequence[Node]) -> Html | None:
    if not lines:
        return None
    items, rows = [], []
    for i, line in enumerate(lines):
        points = line.get("points").items()
        x = [point.get("concurrency").number() for point in points]
        bands = [point.get("speedup_90").pair() for point in points]
        name = f"{number(line.get('context').maybe())} tokens"
        with_band = len(lines) <= 3
        items.append(Curve(
            name, x, [point.get("speedup").maybe() for point in points],
            [b[0] if b else None for b in bands] if with_band else None,
            [b[1] if b else None for b in bands] if with_band else None, i,
        ))
        rows += [
            [f"{name}, {number(a)}", times(point.get("speedup").maybe()), span(b) or "-",
             number(point.get("step_cost_ratio").maybe(), 3),
             percent(point.get("accepted_share").maybe())]
            for a, b, point in zip(x, bands, points, strict=True)
        ]
    return page.chart(
        "Speedup while concurrency grows", "One curve per context length; above 1 it pays."
        + (" The bands are 90 % intervals." if len(lines) <= 3 else ""),
        curves(items, "concurrency (clients)", "speedup", log_x=True, level=(1.0, "break-even")),
        ["context, clients", "speedup", "90 % interval", "r", "accepted share of drafts"], rows,
    )


_SIDES = (
    ("Inter-token latency", "itl_s", "ms", 1e3, "Time between the outputs of a stream."),
    ("End-to-end latency", "e2el_s", "seconds", 1.0, "From sending a request to its last token."),
    ("Throughput", "output_tok_s", "output tokens per second", 1.0, "Of the whole deployment."),
    ("Memory bandwidth in use", "bandwidth_share", "share of the peak", 1.0,
     "Bytes that must move over what the device could move in that time."),
    ("Compute in use", "compute_share", "share of the peak", 1.0,
     "Work that must be done over what the device could do in that time."),
)


def _compared(page: Page, lines: Sequence[Node]) -> list[Child]:
    """Both sides of the first two context lengths: more curves cannot be told apart."""
    out: list[Child] = []
    for title, key, unit, factor, words in _SIDES:
        items, rows = [], []
        for i, line in enumerate(lines[:2]):
            points = line.get("points").items()
            x = [point.get("concurrency").number() for point in points]
            context = f", {number(line.get('context').maybe())} tokens" if len(lines) > 1 else ""
            for j, (name, side) in enumerate((("with", "speculative"), ("without", "plain"))):
                values = common.scaled([p.at(f"{side}.{key}").maybe() for p in points], factor)
                items.append(Curve(f"{name}{context}", x, values or [], style=2 * i + j))
                rows += [[f"{name}{context}, {number(a)}", number(b)]
                         for a, b in zip(x, values or [], strict=True)]
        if not any(value is not None for item in items for value in item.y):
            continue
        share = key.endswith("share")
        known = [v for item in items for v in item.y if v]
        out.append(page.chart(
            title, words,
            curves(items, "concurrency (clients)", unit, log_x=True, share=share,
                   log_y=not share and bool(known) and max(known) > 30 * min(known)),
            ["side, clients", unit], rows,
        ))
    return out


_AXES = (
    ("k", "k"), ("tp", "tp"), ("weights", "weights"), ("kv_dtype", "KV cache"),
    ("max_num_seqs", "max_num_seqs"), ("max_num_batched_tokens", "max_num_batched_tokens"),
)


def pareto(page: Page, document: Document) -> None:
    """Add the section of a `specsim pareto --json` document."""
    node = document.node
    items, rows = [], []
    clouds = (
        ("all points", "points", 6, "markers"),
        ("frontier with speculation", "frontier_speculative", 0, "lines+markers"),
        ("frontier without", "frontier_plain", 1, "lines+markers"),
    )
    for name, key, style, mode in clouds:
        points = node.get(key).items()
        if not points:
            continue
        items.append(Curve(
            name, [p.get("stream_tok_s").number() for p in points],
            [p.get("gpu_tok_s").number() for p in points], style=style, mode=mode,
            texts=[f"{number(p.get('stream_tok_s').maybe())} tok/s per user, "
                   f"{number(p.get('gpu_tok_s').maybe())} tok/s per GPU: {_settings(p)}"
                   for p in points],
        ))
        if key != "points":
            rows += [[name, _settings(p), number(p.get("stream_tok_s").maybe()),
                      number(p.get("gpu_tok_s").maybe()), seconds(p.get("ttft_s").maybe())]
                     for p in points]
    chart = page.chart(
        "Latency per user against throughput per GPU",
        "Each point is a full deployment; a frontier further out is better. To the right faster "
        "for each user, upwards more from each GPU.",
        curves(items, "tokens per second per user", "output tokens per second per GPU",
               hover="closest"),
        ["frontier", "settings", "tok/s per user", "tok/s per GPU", "TTFT"], rows, left=2,
        size="tall",
    ) if items else None
    tried = f"{number(node.get('feasible').maybe())} of {number(node.get('combinations').maybe())}"
    reasons = [
        [reason, number(count.maybe()), node.get("infeasible_examples").get(reason).text("")]
        for reason, count in node.get("infeasible").members()
    ]
    commands = [
        (_settings(point), point.get("command").text("") or point.at("flags.command").text(""))
        for point in node.get("frontier").items()
    ]
    typed = [tag("div", tag("p", name), tag("pre", tag("code", words)))
             for name, words in commands if words]
    page.section(
        f"Trade-off of latency and throughput: {common.deployment(node)}",
        f"Pareto: {node.get('model').text()}",
        common.source_line(document),
        tag("p", f"{tried} combinations can run.", class_="verdict"),
        chart,
        fold("What cannot run", table(["reason", "points", "example"], reasons, "By reason"))
        if reasons else None,
        fold("What to type for the points of the frontier", typed) if typed else None,
        common.warnings(node),
        common.assumptions(node),
    )


def _settings(point: Node) -> str:
    words = [
        f"{label} {point.get(key).text()}" for key, label in _AXES
        if not point.get(key).missing
    ]
    return ", ".join(words)


_GOALS = ("speedup", "tpot_s", "tpot_s.mean", "output_tok_s", "ttft_s", "ttft_s.p95")
MOST_SWEPT = 5000


def sweep(page: Page, document: Document) -> None:
    """Add the section of a `specsim sweep --json` document."""
    node = document.node
    rows = node.get("rows").items()[:MOST_SWEPT]
    names = list(dict.fromkeys(key for row in rows for key, _ in row.get("params").members()))
    goals = [
        goal for goal in _GOALS
        if any(_numeric(row.get("result"), goal) is not None for row in rows)
    ]
    cells: list[list[Child]] = [
        [*(_cell(row.get("params").get(name)) for name in names),
         *(number(_numeric(row.get("result"), goal)) for goal in goals),
         row.get("error").text("")] for row in rows
    ]
    page.section(
        f"Sweep of {number(node.get('tasks').maybe())} {node.get('run').text('tasks')} runs",
        "Sweep",
        common.source_line(document),
        facts([
            ("Finished", number(node.get("finished").maybe()),
             f"of {number(node.get('tasks').maybe())}"),
            ("Refused", number(node.get("refused").maybe()), "options that cannot run"),
            ("Failed", number(node.get("failed").maybe()), ""),
        ]),
        tag("div", [_swept(page, rows, names, goal) for goal in goals[:4]], class_="grid"),
        fold("All rows", table([*names, *goals, "error"], cells, "Settings and figures",
                               left=len(names))),
        common.warnings(node),
    )


def _numeric(node: Node, path: str) -> float | None:
    value: Any = node.value
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return node.at(path).maybe()


def _cell(node: Node) -> str:
    value = node.value
    return "-" if value is None else str(value) if isinstance(value, bool | list | dict) else (
        node.text()
    )


def _swept(page: Page, rows: Sequence[Node], names: Sequence[str], goal: str) -> Html | None:
    """The figure over the first setting that is a number, a curve per value of the others; bars
    where no setting is one."""
    across = next(
        (name for name in names if len({_numeric(r.get("params"), name) for r in rows}) > 1
         and all(_numeric(r.get("params"), name) is not None for r in rows)), None,
    )
    others = [name for name in names if name != across]
    groups: dict[str, list[Node]] = {}
    for row in rows:
        label = ", ".join(f"{n} {_cell(row.get('params').get(n))}" for n in others) or goal
        groups.setdefault(label, []).append(row)
    if across is None:
        values = [_numeric(found[0].get("result"), goal) for found in groups.values()]
        spec = bars(list(groups)[:40], [(goal, values[:40])], goal)
        data = [[name, number(v)] for name, v in zip(groups, values, strict=True)]
        return page.chart(goal, "One bar per task.", spec, ["task", goal], data)
    items, data = [], []
    for i, (label, found) in enumerate(groups.items()):
        pairs = sorted(
            (x, y) for r in found
            if (x := _numeric(r.get("params"), across)) is not None
            and (y := _numeric(r.get("result"), goal)) is not None
        )
        data += [[label, number(x), number(y)] for x, y in pairs]
        if pairs and i < 8:
            items.append(Curve(label, [x for x, _ in pairs], [y for _, y in pairs], style=i))
    words = "One curve per value of the other settings."
    if len(groups) > 8:
        words += f" The first 8 of {len(groups)}; the table has all."
    return page.chart(
        f"{goal} over {across}", words, curves(items, across, goal),
        ["settings", across, goal], data,
    )
