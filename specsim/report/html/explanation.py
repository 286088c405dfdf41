"""Section of an explanation: each step as a waterfall of what its time goes to."""

from specsim.report.html import common
from specsim.report.html.charts import bars, waterfall
from specsim.report.html.documents import Document, Node
from specsim.report.html.elements import Child, Html, number, percent, tag
from specsim.report.html.page import Page
from specsim.report.tables import seconds, size, work

MOST_STEPS = 16
MOST_PARTS = 14  # bars of a waterfall before the small ones are put together
_ORDER = {"draft": 0, "target": 1, "sample": 2}


def explanation(page: Page, document: Document) -> None:
    """Add the section of a `specsim explain --json` document."""
    node = document.node
    steps = node.get("steps").items()
    if not steps:
        raise node.get("steps").fail("a list with at least one step")
    shown = steps[:MOST_STEPS]
    more = len(steps) - len(shown)
    page.section(
        f"Where a step's time goes: {common.deployment(node)}",
        f"Step: {node.get('model').text()}",
        common.source_line(document),
        tag("p", f"The first {MOST_STEPS} of {len(steps)} steps.") if more else None,
        tag("div", [_step(page, step) for step in shown], _bounds(page, shown), class_="grid"),
        common.warnings(node),
        common.assumptions(node),
    )


def _name(step: Node) -> str:
    return (
        f"{step.get('step').text()}, {number(step.get('running').maybe())} x "
        f"{number(step.get('context_tokens').maybe())} tokens"
    )


def _parts(step: Node) -> list[tuple[str, float]]:
    """(name, seconds) in the order of the step: drafts, target, sampling, gaps, host."""
    ops = sorted(
        step.get("ops").items(), key=lambda op: (_ORDER.get(op.get("phase").text("-"), 1))
    )
    sums: dict[tuple[str, str], float] = {}
    for op in ops:  # equal kinds of calls share a bar
        key = (op.get("op").text(), op.get("phase").text("-"))
        sums[key] = sums.get(key, 0.0) + op.get("seconds").number()
    listed = [(name, phase, value) for (name, phase), value in sums.items()]
    kept = sorted(listed, key=lambda item: -item[2])[:MOST_PARTS]
    parts: list[tuple[str, float]] = []
    rest = 0.0
    for item in listed:
        name, phase, value = item
        if item in kept:
            parts.append((_labelled(phase, name), value))
        else:
            rest += value
    if rest > 0:
        parts.append(("smaller operations", rest))
    host = step.get("host_s").maybe() or 0.0
    total = step.get("total_s").number()
    gaps = total - host - sum(value for _, value in parts)
    if gaps > 1e-3 * total:
        parts.append(("gaps between kernels", gaps))
    if host > 0:
        parts.append(("host", host))
    return parts


def _labelled(phase: str, name: str) -> str:
    return name if phase == "target" or name.startswith(f"{phase}.") else f"{phase}: {name}"


def _step(page: Page, step: Node) -> Html:
    parts = _parts(step)
    total = step.get("total_s").number()
    unit, scale = ("ms", 1e3) if total >= 1e-3 else ("us", 1e6)
    rows_of = step.get("rows").maybe()
    rows: list[list[Child]] = [
        [op.get("op").text(), op.get("phase").text("-"), number(op.get("count").maybe()),
         seconds(op.get("seconds").maybe()), percent(op.get("share").maybe()),
         size(op.get("bytes").maybe() or 0), work(op.get("flops").maybe() or 0),
         op.get("bound").text("-")]
        for op in step.get("ops").items()
    ]
    rows.append(["host", "host", "", seconds(step.get("host_s").maybe()),
                 percent((step.get("host_s").maybe() or 0.0) / total if total else None),
                 "", "", ""])
    words = (
        f"{seconds(total)} in all, {step.get('bound').text('-')}-bound: "
        f"{size(step.get('bytes').maybe() or 0)} moved, {work(step.get('flops').maybe() or 0)}, "
        f"{number(rows_of)} row{'' if rows_of == 1 else 's'}"
        + ("" if step.get("cuda_graph").flag() else ", outside CUDA graphs") + "."
    )
    return page.chart(
        _name(step)[:1].upper() + _name(step)[1:], words,
        waterfall([name for name, _ in parts], [value for _, value in parts], unit, scale),
        ["operation", "phase", "calls", "time", "share", "bytes", "work", "bound"], rows,
        left=2, size="tall",
    )


def _bounds(page: Page, steps: list[Node]) -> Html:
    """Memory, compute and latency side by side, for all steps."""
    names, memory, compute, latency = [], [], [], []
    for step in steps:
        total = step.get("total_s").number()
        names.append(_name(step))
        memory.append((step.get("memory_s").maybe() or 0.0) * 1e3)
        compute.append((step.get("compute_s").maybe() or 0.0) * 1e3)
        latency.append(max(0.0, total * 1e3 - memory[-1] - compute[-1]))
    return page.chart(
        "What the steps wait for",
        "Streaming memory, multiplying, and latency: floors of kernels, gaps, host.",
        bars(names, [("memory", memory), ("compute", compute), ("latency", latency)], "ms",
             stacked=True, horizontal=True),
        ["step", "memory", "compute", "latency"],
        [[name, *(seconds(v / 1e3) for v in values)]
         for name, *values in zip(names, memory, compute, latency, strict=True)],
    )
