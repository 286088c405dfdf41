"""Section of a simulation: percentiles, queue, batch and cache over time, shares of time, gates."""

from collections.abc import Callable, Sequence

from specsim.report.html import common
from specsim.report.html.charts import Curve, bars, curves
from specsim.report.html.documents import Document, Node
from specsim.report.html.elements import (
    Child,
    Html,
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

_STATISTICS = ("mean", "p50", "p90", "p95", "p99")
_LATENCIES = (
    ("ttft_s", "TTFT", "Time from sending a request to its first token, waiting included."),
    ("tpot_s", "TPOT", "Time per output token of a request after its first."),
    ("itl_s", "ITL, per chunk", "Gaps between the pieces that a client receives."),
    ("e2el_s", "End-to-end latency", "Time from sending to the last token."),
    ("queue_s", "Queue", "Time from sending to the first scheduled token."),
)
_GAINS = (
    ("output_tok_s", "throughput"), ("tpot_mean", "TPOT, mean"),
    ("stream_tok_s_p10", "slowest tenth of the streams"), ("e2el_mean", "end-to-end, mean"),
    ("ttft_p95", "TTFT, p95"),
)
_SHARES = ("draft", "verify", "decode", "prefill", "host", "idle")


def simulation(page: Page, document: Document) -> None:
    """Add the section of a `specsim simulate --json` document."""
    node = document.node
    inputs = node.get("inputs")
    found = _sides(node)
    page.section(
        f"Simulation: {common.deployment(inputs)}",
        f"Simulation: {inputs.get('model').text()}",
        common.source_line(document),
        tag("p", _verdict(node), class_="verdict"),
        _facts(node, len(found) > 1),
        tag("div", _percentiles(page, found), _over_time(page, node), _shares(page, found),
            class_="grid"),
        _gates(found),
        _gains(node),
        _counts(node, found),
        common.warnings(node),
        common.assumptions(inputs, *_load(inputs)),
    )


def _sides(node: Node) -> list[tuple[str, Node]]:
    """(name, figures): with speculation, and without where that is another run."""
    out = [("with speculation", node)]
    base = node.get("baseline")
    same = node.at("inputs.method").text("none") == "none"
    if same:
        return [("without speculation", node)]
    return out if base.missing else [*out, ("without", base)]


def _verdict(node: Node) -> str:
    faster = node.at("gain.tpot_mean").maybe()
    words = "Interrupted: the figures are partial. " if node.get("partial").flag() else ""
    if node.at("inputs.method").text("none") == "none" or faster is None:
        return words + (
            f"TTFT {seconds(node.at('ttft_s.p95').maybe())} at the 95th percentile, TPOT "
            f"{seconds(node.at('tpot_s.mean').maybe())} on average."
        )
    verb = "pays" if faster > 1 else "does not pay"
    words += f"Speculation {verb} at this load: {times(faster)} as fast per token"
    interval = span(node.at("gain_confidence_95.tpot_mean").pair())
    return words + (f" (95 % interval {interval})." if interval else ".")


def _facts(node: Node, both: bool) -> Html:
    base = node.get("baseline")

    def tile(label: str, path: str, shown: Callable[[float | None], str]) -> tuple[str, str, str]:
        remark = f"{shown(base.at(path).maybe())} without" if both else ""
        return label, shown(node.at(path).maybe()), remark

    length = node.get("acceptance_length").maybe()
    slo = node.get("slo")
    return facts([
        tile("TTFT, p95", "ttft_s.p95", seconds),
        tile("TPOT, mean", "tpot_s.mean", seconds),
        tile("Output tokens per second", "output_tok_s", number),
        tile("Requests per second", "request_rate", number),
        None if length is None else ("Tokens per step", number(length, 3), "acceptance length"),
        tile("Most waiting", "waiting_max", number),
        tile("Cache in use, most", "kv_usage_max", percent),
        None if slo.missing else
        ("Gates", "hold" if slo.get("pass").flag() else "fail", "limits of --slo"),
    ])


def _percentiles(page: Page, found: Sequence[tuple[str, Node]]) -> list[Child]:
    out: list[Child] = []
    for key, label, words in _LATENCIES[:2]:
        groups = [
            (name, [figures.at(f"{key}.{stat}").maybe() for stat in _STATISTICS])
            for name, figures in found
        ]
        known = [v for _, values in groups for v in values if v is not None]
        if not known:
            continue
        unit, factor = ("s", 1.0) if max(known) > 2 else ("ms", 1e3)
        shown = [(name, common.scaled(values, factor) or []) for name, values in groups]
        cut = found[0][1].at(f"{key}.censored").maybe()
        waited = f" {number(cut)} requests never got there and count as far as they waited."
        styles = _styles(found)
        out.append(page.chart(
            f"{label} percentiles", words + (waited if cut else ""),
            bars(_STATISTICS, shown, f"{label}, {unit}", styles=styles),
            ["", *_STATISTICS],
            [[name, *(seconds(figures.at(f"{key}.{stat}").maybe()) for stat in _STATISTICS)]
             for name, figures in found],
        ))
    return out


def _styles(found: Sequence[tuple[str, Node]]) -> list[int]:
    return [0 if name == "with speculation" else 1 for name, _ in found]


def _over_time(page: Page, node: Node) -> list[Child]:
    lines = [
        (name, style, node.get(key))
        for name, style, key in (
            ("with speculation", 0, "timeline"), ("without", 1, "baseline_timeline"),
        )
        if isinstance(node.get(key).value, dict)
    ]
    if node.at("inputs.method").text("none") == "none":
        lines = [("without speculation", 1, line) for _, _, line in lines]
    if not lines:
        return [tag("p", "This file holds no figures over time; it is from an older version.")]
    out: list[Child] = [
        _timeline(page, lines, "Requests waiting over time",
                  "Mean number in the engines' queues.", ("waiting",), "requests", False),
        _timeline(page, lines, "Requests running over time", "Mean number of requests in a step.",
                  ("running",), "requests", False),
        _timeline(page, lines, "TTFT over time",
                  "Median and 95th percentile of the requests sent in each interval.",
                  ("ttft_p50_s", "ttft_p95_s"), "seconds", False),
        _timeline(page, lines, "Cache in use over time", "Share of the blocks held by requests.",
                  ("kv_usage",), "share of the cache", True),
        _timeline(page, lines, "Output over time", "Tokens given out per second.",
                  ("output_tok_s",), "tokens per second", False),
    ]
    return out


def _timeline(
    page: Page, lines: Sequence[tuple[str, int, Node]], title: str, words: str,
    keys: Sequence[str], unit: str, share: bool,
) -> Html:
    found: list[Curve] = []
    rows: list[list[str]] = []
    for name, style, line in lines:
        starts = line.get("t_s").numbers()
        for i, key in enumerate(keys):
            values = line.get(key).numbers()
            if len(values) != len(starts):
                raise line.get(key).fail("a list as long as t_s")
            label = f"{name}, {key.split('_')[1]}" if len(keys) > 1 else name
            found.append(Curve(
                label, starts, values, style=style, mode="lines", step=True,
                dash=("solid", "dot")[i] if len(keys) > 1 else None,
            ))
            kept = range(0, len(starts), max(1, -(-len(starts) // 60)))
            rows += [[f"{label}, {number(starts[j])} s", number(values[j], 3)] for j in kept]
    width = lines[0][2].get("width_s").maybe()
    if width:
        words += f" Intervals of {number(width)} s, first run."
    spec = curves(found, "simulated seconds", unit, share=share)
    return page.chart(title, words, spec, ["side, from", unit], rows)


def _shares(page: Page, found: Sequence[tuple[str, Node]]) -> Html | None:
    rows = [[name, *(percent(figures.at(f"time_share.{part}").maybe() or 0.0)
                     for part in _SHARES)] for name, figures in found]
    groups = [
        (part, [figures.at(f"time_share.{part}").maybe() or 0.0 for _, figures in found])
        for part in _SHARES
    ]
    groups = [(part, values) for part, values in groups if any(values)]
    if not groups:
        return None
    return page.chart(
        "Where the engine's time goes", "Shares of the measured time by what the engine did.",
        bars([name for name, _ in found], groups, "share of the time", stacked=True,
             horizontal=True, share=True),
        ["", *_SHARES], rows, size="low",
    )


def _gates(found: Sequence[tuple[str, Node]]) -> Html | None:
    gates = found[0][1].get("slo")
    if gates.missing:
        return None
    rows = []
    for name, gate in gates.members():
        if not isinstance(gate.value, dict):
            continue
        timed = name.startswith(("ttft", "tpot", "itl", "e2el", "queue"))
        shown = seconds if timed else number
        row: list[Child] = [name, shown(gate.get("limit").maybe())]
        for _, figures in found:
            judged = figures.get("slo").get(name)
            holds = judged.get("pass").flag()
            row += [shown(judged.get("value").maybe()),
                    tag("span", "holds" if holds else "fails", class_="good" if holds else "bad")]
        rows.append(row)
    heads = ["gate", "limit"]
    for name, _ in found:
        heads += [name, ""]
    return table(heads, rows, "Service levels")


def _gains(node: Node) -> Html | None:
    if node.at("inputs.method").text("none") == "none" or node.get("gain").missing:
        return None
    rows = []
    runs = node.get("replications").maybe() or 1
    words = "one run" if runs == 1 else f"{number(runs)} runs"
    for key, label in _GAINS:
        interval = node.at(f"gain_confidence_95.{key}").pair()
        rows.append([label, times(node.at(f"gain.{key}").maybe()), span(interval) or "-"])
    return table(
        ["how many times better with speculation", "gain", "95 % interval"], rows,
        f"Gains over the same load without speculation, {words}, the same requests on both sides",
    )


def _counts(node: Node, found: Sequence[tuple[str, Node]]) -> Html:
    lines = (
        ("requests measured", "requests.measured", number),
        ("finished", "requests.finished", number), ("unfinished", "requests.unfinished", number),
        ("error rate", "error_rate", percent), ("running, mean", "running_mean", number),
        ("waiting, mean", "waiting_mean", number), ("preemptions", "preemptions", number),
        ("prefix hit rate", "prefix_hit_rate", percent), ("engine steps", "steps", number),
        ("tokens per chunk", "tokens_per_chunk", number),
    )
    rows: list[list[Child]] = [
        [label, *(shown(figures.at(path).maybe()) for _, figures in found)]
        for label, path, shown in lines
    ]
    for key, label, _ in _LATENCIES:
        rows.append([
            f"{label}: mean, p50, p95, p99",
            *(", ".join(seconds(figures.at(f"{key}.{s}").maybe())
                        for s in ("mean", "p50", "p95", "p99")) for _, figures in found),
        ])
    return fold(
        "More figures", table(["", *(name for name, _ in found)], rows, "Counts and latencies")
    )


def _load(inputs: Node) -> list[tuple[str, Child]]:
    load = inputs.get("load")
    out: list[tuple[str, Child]] = []
    for key, value in load.members():
        if key == "assumed":
            entries = [(name, text.text("-")) for name, text in value.members()]
            out += [(f"assumed: {name}", text) for name, text in entries]
        elif isinstance(value.value, str | int | float) and not isinstance(value.value, bool):
            out.append((f"load: {key}", value.text()))
    return out
