"""Sections of `specsim fleet` (which endpoints, how many replicas) and `specsim matrix` (models x
GPUs)."""

from collections.abc import Sequence

from specsim.report.html import common
from specsim.report.html.charts import bars, heatmap
from specsim.report.html.documents import Document, Node
from specsim.report.html.elements import (
    Child,
    Html,
    bullets,
    facts,
    fold,
    number,
    pairs,
    table,
    tag,
    times,
)
from specsim.report.html.page import Page
from specsim.report.tables import seconds


def fleet(page: Page, document: Document) -> None:
    """Add the section of a `specsim fleet --json` document."""
    node = document.node
    endpoints = node.get("endpoints").items()
    fits = node.get("fits").flag()
    misfits = [
        f"{item.get('name').text('-')} on {item.get('gpu').text('-')}: "
        f"{item.get('reason').text('-')}" for item in node.get("does_not_fit").items()
    ]
    pool = node.get("gpus").items()
    page.section(
        f"Fleet: {node.get('name').text('a pool of GPUs')}", "Fleet",
        common.source_line(document),
        tag("p", tag("span", "Everything fits." if fits else "It does not fit.",
                     class_="good" if fits else "bad"),
            f" Capacities by {node.get('method').text('formulas')}.", class_="verdict"),
        facts([
            *((f"{item.get('gpu').text('-')} needed", number(item.get("needed").maybe()),
               f"of {number(item.get('present').maybe())}; "
               f"{number(item.get('needed_without_n_minus_1').maybe())} without a spare")
              for item in pool),
            None if node.get("price_per_hour").missing else
            ("Price per hour", number(node.get("price_per_hour").maybe()), "all GPUs in use"),
        ]),
        bullets(misfits),
        tag("div", _loads(page, endpoints), class_="grid"),
        _endpoints(endpoints),
        [_endpoint(item) for item in endpoints],
        common.warnings(node),
    )


def _loads(page: Page, endpoints: Sequence[Node]) -> Html | None:
    """Load of a replica in use, over what it can carry; one unit per endpoint, so shares."""
    names, normal, failed, rows = [], [], [], []
    for item in endpoints:
        most = item.get("capacity_per_replica").maybe()
        each = item.get("load_per_replica").maybe()
        left = item.get("load_per_replica_after_a_failure").maybe()
        if not most:
            continue
        names.append(item.get("name").text("-"))
        normal.append(None if each is None else each / most)
        failed.append(None if left is None else left / most)
        unit = item.get("unit").text("")
        rows.append([names[-1], number(each), number(left), f"{number(most)} {unit}"])
    if not names:
        return None
    return page.chart(
        "Load of each replica", "As a share of what a replica carries within the service levels, "
        "and with one replica less.",
        bars(names, [("all replicas", normal), ("after a failure", failed)], "share of capacity",
             share=True),
        ["endpoint", "load per replica", "after a failure", "capacity of a replica"], rows,
    )


def _endpoints(endpoints: Sequence[Node]) -> Html:
    rows: list[list[Child]] = []
    for item in endpoints:
        short = item.get("short").maybe() or 0
        survives = item.get("survives_a_failure").flag()
        rows.append([
            item.get("name").text("-"), item.get("model").text("-"), item.get("gpu").text("-"),
            f"{item.get('method').text('-')}, k = {number(item.get('k').maybe())}",
            number(item.get("tp").maybe()), number(item.get("max_num_seqs").maybe()),
            f"{number(item.get('replicas').maybe())} of "
            f"{number(item.get('replicas_wanted').maybe())}",
            number(item.get("gpus").maybe()),
            f"{number(item.get('demand').maybe())} {item.get('unit').text('')}",
            number(item.get("carries").maybe()), number(short) if short > 0 else "-",
            "yes" if survives else "no",
        ])
    return table(
        ["endpoint", "model", "gpu", "speculation", "tp", "max_num_seqs", "replicas", "GPUs",
         "demand", "carries", "short by", "survives a failure"], rows, "Endpoints", left=4,
    )


def _endpoint(item: Node) -> Html:
    limit = item.get("binding_limit")
    flags = item.get("flags")
    command = flags.get("command").text("") if isinstance(flags.value, dict) else ""
    places = [", ".join(names.texts()) for names in item.get("devices").items()]
    told: list[tuple[str, Child]] = [("max_num_seqs from", item.get("max_num_seqs_from").text("-"))]
    if not limit.missing:
        told += [("what ends a replica", limit.get("name").text("-")),
                 ("cause", limit.get("cause").text("-"))]
    for key, label in (("at_demand", "at the demand"), ("after_a_failure", "after a failure")):
        point = item.get(key)
        if isinstance(point.value, dict):
            passes = "meets the service levels" if point.get("pass").flag() else "fails them"
            told.append((label, f"{number(point.get('load').maybe())} per replica: {passes}"))
    if places:
        told.append(("devices", "; ".join(places[:40])))
    return fold(
        f"Details of {item.get('name').text('-')}", pairs(told),
        tag("pre", tag("code", command)) if command else None,
    )


def matrix(page: Page, document: Document) -> None:
    """Add the section of a `specsim matrix --json` document."""
    node = document.node
    cells = node.get("cells").items()
    models = list(dict.fromkeys(_model(cell) for cell in cells))
    gpus = list(dict.fromkeys(cell.get("gpu").text("-") for cell in cells))
    point = [(key.replace("_", " "), number(value.maybe()))
             for key, value in node.get("operating_point").members()
             if not value.missing]
    rows: list[list[Child]] = []
    for cell in cells:
        plain, fast = cell.get("plain"), cell.get("speculative")
        marks = "assumed efficiencies" if cell.get("efficiencies_assumed").flag() else ""
        rows.append([
            _model(cell), cell.get("gpu").text("-"),
            number(cell.get("tp").maybe()), number(fast.get("tok_s_per_gpu").maybe()),
            number(plain.get("tok_s_per_gpu").maybe()), times(cell.get("gain").maybe()),
            number(fast.get("users_per_gpu").maybe()), number(plain.get("users_per_gpu").maybe()),
            seconds(fast.get("tpot_s").maybe() or plain.get("tpot_s").maybe()),
            cell.get("reason").text(marks or "-"),
        ])
    page.section(
        "Models by GPU", "Matrix", common.source_line(document),
        tag("div", _map(page, cells, models, gpus, "gain"),
            _map(page, cells, models, gpus, "best"), class_="grid") if cells else None,
        table(["model", "gpu", "tp", "tok/s per GPU with", "without", "gain",
               "users per GPU with", "without", "TPOT", "remark"], rows,
              "At the operating point", left=2),
        common.warnings(node),
        fold("Operating point", pairs(point), opened=True),
    )


def _model(cell: Node) -> str:
    return f"{cell.get('model').text()} ({cell.get('weights').text('-')})"


def _map(
    page: Page, cells: Sequence[Node], models: Sequence[str], gpus: Sequence[str], what: str
) -> Html | None:
    found: dict[tuple[str, str], float | None] = {}
    for cell in cells:
        rates = [cell.at(f"{side}.tok_s_per_gpu").maybe() for side in ("plain", "speculative")]
        known = [rate for rate in rates if rate is not None]
        best = max(known, default=None)
        found[_model(cell), cell.get("gpu").text("-")] = (
            cell.get("gain").maybe() if what == "gain" else best
        )
    values = [[found.get((model, gpu)) for gpu in gpus] for model in models]
    if not any(value is not None for row in values for value in row):
        return None
    shown = times if what == "gain" else number
    texts = [["does not fit" if v is None else shown(v) for v in row] for row in values]
    title, words = (
        ("Gain of speculation", "Tokens per second per GPU with speculation over those without.")
        if what == "gain" else
        ("Tokens per second per GPU", "With or without speculation, whichever is more.")
    )
    return page.chart(
        title, words, heatmap(gpus, models, values, texts, title), ["model", *gpus],
        [[model, *row] for model, row in zip(models, texts, strict=True)],
    )
