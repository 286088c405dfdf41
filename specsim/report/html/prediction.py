"""Section of a prediction: speedup, TPOT and TTFT over the load with their bands, latency against
throughput, memory, acceptance."""

from specsim.report.html import common
from specsim.report.html.charts import Curve, bars, curves
from specsim.report.html.documents import Document, Node
from specsim.report.html.elements import Child, Html, facts, number, percent, span, tag, times
from specsim.report.html.page import Page
from specsim.report.tables import seconds, size

_MEMORY = (
    ("weight_bytes", "weights"), ("drafter_bytes", "drafter"), ("reserve_bytes", "reserve"),
    ("pool_bytes", "cache pool"),
)


def prediction(page: Page, document: Document) -> None:
    """Add the section of a `specsim predict MODEL --json` document."""
    node = document.node
    points = node.get("points").items()
    if not points:
        raise node.get("points").fail("a list with at least one point")
    page.section(
        f"Prediction: {common.deployment(node)}",
        f"Prediction: {node.get('model').text()}",
        common.source_line(document),
        tag("p", _verdict(node, points), class_="verdict"),
        _facts(node, points),
        _charts(page, node, points),
        common.warnings(node),
        common.assumptions(node),
    )


def load_of(points: list[Node]) -> tuple[str, str, list[float | None]]:
    """(axis title, key, values): clients of a closed loop, requests per second of an open one."""
    is_open = all(point.get("utilisation").maybe() is not None for point in points)
    key = "request_rate" if is_open else "concurrency"
    title = "requests per second" if is_open else "concurrency (clients)"
    return title, key, [point.get(key).number() for point in points]


def load_words(title: str) -> str:
    """An axis title without its unit in brackets."""
    return title.split(" (", maxsplit=1)[0]


def _verdict(node: Node, points: list[Node]) -> str:
    if node.get("method").text("none") == "none":
        return "No speculation: every point is its own baseline."
    _, key, _ = load_of(points)
    first = points[0]
    load = first.get(key).number()
    unit = "requests per second" if key == "request_rate" else (
        "client" if load == 1 else "clients"
    )
    words = f"{times(first.get('speedup').maybe())} the speed at {number(load)} {unit}"
    interval = span(first.at("interval_90.speedup").pair())
    words += f" (90 % interval {interval})" if interval else ""
    limit = node.get("break_even_concurrency").maybe()
    if key == "concurrency":
        if limit is None:
            words += "; speculation pays up to the largest batch"
        elif limit <= 1:
            words += "; speculation never pays"
        else:
            words += f"; speculation stops paying at {number(limit)} clients"
    return words + "."


def _facts(node: Node, points: list[Node]) -> Html:
    first = points[0]
    limit, best = node.get("break_even_concurrency").maybe(), node.get("best_k").maybe()
    length = node.get("acceptance_length").maybe()
    return facts([
        ("Speedup", times(first.get("speedup").maybe()), "at the first load"),
        ("TPOT", seconds(first.get("tpot_s").maybe()),
         f"{seconds(first.get('baseline_tpot_s').maybe())} without"),
        ("TTFT", seconds(first.get("ttft_s").maybe()),
         f"{seconds(first.get('baseline_ttft_s').maybe())} without"),
        ("Step cost ratio r", number(first.get("step_cost_ratio").maybe(), 3),
         "verify step over plain step"),
        None if length is None else ("Tokens per step", number(length, 3), "acceptance length"),
        None if best is None else
        ("Best k", number(best) if best else "none", "at the first load; none: plain decoding"),
        ("Break-even", number(limit) if limit is not None else "not reached", "clients"),
        ("Largest batch", number(node.get("max_concurrency").maybe()), "requests together"),
    ])


def _charts(page: Page, node: Node, points: list[Node]) -> list[Child]:
    title, _, x = load_of(points)
    log = len(x) > 2 and min(v or 0 for v in x) > 0 and max(v or 0 for v in x) > 8 * (x[0] or 1)
    speeds = [p.get("speedup").number() for p in points]
    bands = [p.at("interval_90.speedup").pair() for p in points]
    limit = node.get("break_even_concurrency").maybe()
    inside = limit is not None and title.startswith("conc") and (x[0] or 0) < limit < (x[-1] or 0)
    speed = curves(
        [Curve("speedup", x, speeds, [b[0] if b else None for b in bands],
               [b[1] if b else None for b in bands])],
        title, "speedup", log_x=log, level=(1.0, "break-even"),
        mark=(limit, f"pays below {number(limit)}") if inside and limit is not None else None,
    )
    first = page.chart(
        "Speedup against concurrency" if title.startswith("conc") else "Speedup against the rate",
        "Output tokens per second with speculation over those without. The band is the 90 % "
        "interval from the residuals of public measurements.", speed,
        [title, "speedup", "90 % interval", "r", "bound", "best k"],
        [[number(a), times(b), span(c) or "-", number(p.get("step_cost_ratio").maybe(), 3),
          p.get("bound").text("-"), number(p.get("best_k").maybe())]
         for a, b, c, p in zip(x, speeds, bands, points, strict=True)],
    )
    out: list[Child] = [tag("div", first, _times(page, "TPOT", "tpot_s", title, x, points, log),
                            _pareto(page, node, points, title, x),
                            _times(page, "TTFT", "ttft_s", title, x, points, log),
                            _acceptance(page, node), _memory(page, node), class_="grid")]
    return out


def _times(
    page: Page, name: str, key: str, title: str, x: list[float | None], points: list[Node],
    log: bool,
) -> Html | None:
    found = common.sides(name, x, points, key, f"baseline_{key}")
    if not any(v is not None for curve in found for v in curve.y):
        return None
    known = [v for curve in found for v in curve.y if v]
    tall = bool(known) and max(known) > 30 * min(known)
    words = {
        "TPOT": "Time per output token after the first.",
        "TTFT": "Mean time to the first token, waiting included.",
    }[name]
    bands = [p.at(f"interval_90.{key}").pair() for p in points]
    if any(bands):
        words += " The band is the 90 % interval."
    if any(v is None for curve in found for v in curve.y):
        words += " Points are missing where the queue grows without end."
    return page.chart(
        f"{name} against {load_words(title)}", words,
        curves([common.in_ms(c) for c in found], title, f"{name}, ms", log_x=log, log_y=tall),
        [title, "with", "90 % interval", "without"],
        [[number(a), seconds(found[0].y[i]),
          f"{seconds(b[0])} to {seconds(b[1])}" if (b := bands[i]) else "-",
          seconds(found[1].y[i])] for i, a in enumerate(x)],
    )


def _pareto(
    page: Page, node: Node, points: list[Node], title: str, x: list[float | None]
) -> Html | None:
    if len(points) < 2:
        return None
    count = common.gpus_of(node)
    items, rows = [], []
    for name, style, stream, total in (
        ("with speculation", 0, "stream_tok_s", "output_tok_s"),
        ("without", 1, "baseline_tpot_s", "baseline_output_tok_s"),
    ):
        across, up, texts = [], [], []
        for point, load in zip(points, x, strict=True):
            value = point.get(stream).maybe()
            if stream.endswith("tpot_s"):
                value = 1 / value if value else None
            rate = (point.get(total).maybe() or 0.0) / count
            across.append(value)
            up.append(rate)
            texts.append(f"{name}, {load_words(title)} {number(load)}: {number(value)} tok/s "
                         f"per user, {number(rate)} tok/s per GPU")
            rows.append([f"{name}, {number(load)}", number(value), number(rate)])
        items.append(Curve(name, across, up, style=style, texts=texts))
    return page.chart(
        "Latency against throughput",
        "Each point is a load: to the right faster for each user, upwards more from each GPU. A "
        "curve further out is better.",
        curves(items, "tokens per second per user", "output tokens per second per GPU",
               hover="closest"),
        [f"side, {load_words(title)}", "tok/s per user", "tok/s per GPU"], rows,
    )


def _acceptance(page: Page, node: Node) -> Html | None:
    acceptance = node.get("acceptance")
    if not isinstance(acceptance.value, dict):
        return None
    reach = acceptance.get("unconditional").numbers()
    k = int(node.get("k").maybe() or 0)
    if not reach or not k:
        return None
    reach = reach[: max(k, 1)]
    each = acceptance.get("conditional").numbers()[: len(reach)]
    each += [None] * (len(reach) - len(each))
    names = [f"draft {i + 1}" for i in range(len(reach))]
    return page.chart(
        "Acceptance by position",
        "How likely a draft token is accepted: with all before it (what engines report per "
        f"position), and once all before it were. Source: {acceptance.get('source').text('-')}.",
        bars(names, [("this and all before", reach), ("given all before", each)],
             "probability", share=True),
        ["position", "this and all before", "given all before"],
        [[a, percent(b), percent(c)] for a, b, c in zip(names, reach, each, strict=True)],
    )


def _memory(page: Page, node: Node) -> Html | None:
    memory = node.get("memory")
    if not isinstance(memory.value, dict):
        return None
    parts = [(label, memory.get(key).maybe() or 0.0) for key, label in _MEMORY]
    groups = [(label, [value / 1e9]) for label, value in parts if value > 0]
    if not groups:
        return None
    return page.chart(
        "Memory of one GPU",
        f"Of {size(memory.get('capacity_bytes').maybe() or 0)}; the cache pool holds "
        f"{number(memory.get('kv_tokens').maybe())} tokens. The reserve is assumed.",
        bars(["memory"], groups, "GB", stacked=True, horizontal=True),
        ["part", "size"], [[label, size(value)] for label, value in parts], size="low",
    )
