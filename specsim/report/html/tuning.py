"""Section of `specsim tune`: the best draft length per load, candidates, the marginal rule, the
table by batch size, what is uncertain, flags to type."""

from specsim.report.html import common
from specsim.report.html.charts import Curve, curves
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

MOST_CURVES = 12


def tune(page: Page, document: Document) -> None:
    """Add the section of a `specsim tune --json` document."""
    node = document.node
    answers = node.get("answers").items()
    page.section(
        f"Tuning: {node.get('model').text()} on {node.get('gpu').text('-')}",
        f"Tuning: {node.get('model').text()}",
        common.source_line(document),
        tag("p", f"Best choice by {node.get('objective').text('throughput')} at each load.",
            class_="verdict"),
        facts([_tile(answer) for answer in answers[:8]]),
        tag("div", _candidates(page, node), _dynamic(page, node), class_="grid"),
        [_answer(answer) for answer in answers],
        _skipped(node),
        common.warnings(node),
        common.assumptions(node, *_methods(node)),
    )


def load_label(node: Node) -> str:
    rate = node.get("rate").maybe()
    if rate is not None:
        return f"{number(rate)}/s"
    clients = node.get("concurrency").maybe()
    return f"{number(clients)} client{'' if clients == 1 else 's'}"


def choice(node: Node, key: str = "method") -> str:
    """'mtp, k = 3' or 'no speculation'."""
    k = node.get("k").maybe()
    if not k:
        return "no speculation"
    return f"{node.get(key).text('-')}, k = {number(k)}"


def _tile(answer: Node) -> tuple[str, str, str]:
    best = answer.get("best")
    if best.missing:
        return load_label(answer), "nothing fits", ""
    return load_label(answer), choice(best), f"{times(best.get('speedup').maybe())} the speed"


def _candidates(page: Page, node: Node) -> Html | None:
    """Speedup over the draft length, a curve per method and load."""
    groups: dict[tuple[str, str], list[Node]] = {}
    rows: list[list[Child]] = []
    for item in node.get("candidates").items():
        k = item.get("k").maybe()
        method = item.get("method").text("-")
        feasible = item.get("feasible").flag()
        rows.append([
            load_label(item), choice(item), times(item.get("speedup").maybe()),
            span(item.get("speedup_90").pair()) or "-", seconds(item.get("tpot_s").maybe()),
            number(item.get("output_tok_s").maybe()),
            number(item.get("tokens_per_step").maybe(), 3),
            "yes" if feasible else item.get("reason").text("no"),
        ])
        if k and feasible:
            groups.setdefault((method, load_label(item)), []).append(item)
    if not groups:
        return None
    items = []
    for i, ((method, load), members) in enumerate(list(groups.items())[:MOST_CURVES]):
        found = sorted(members, key=lambda item: item.get("k").number())
        bands = [item.get("speedup_90").pair() for item in found]
        items.append(Curve(
            f"{method}, {load}", [item.get("k").number() for item in found],
            [item.get("speedup").maybe() for item in found],
            [b[0] if b else None for b in bands] if len(groups) <= 3 else None,
            [b[1] if b else None for b in bands] if len(groups) <= 3 else None, i,
        ))
    words = "Output tokens per second over those of plain decoding, by draft length."
    if len(groups) > MOST_CURVES:
        words += f" The first {MOST_CURVES} of {len(groups)} curves; the table has all."
    return page.chart(
        "Speedup by draft length", words,
        curves(items, "draft tokens per step (k)", "speedup", level=(1.0, "plain decoding")),
        ["load", "choice", "speedup", "90 % interval", "TPOT", "output tok/s", "tokens per step",
         "feasible"], rows, left=2,
    )


def _dynamic(page: Page, node: Node) -> Html | None:
    found = node.get("dynamic")
    points = found.get("points").items()
    if not points:
        return None
    x = [point.get("seqs").number() for point in points]
    items = [
        Curve("table by batch size", x, [p.get("output_tok_s").maybe() for p in points]),
        Curve(f"always k = {number(found.get('fixed_k').maybe())}", x,
              [p.get("fixed_tok_s").maybe() for p in points], style=2),
        Curve("speculation off", x, [p.get("plain_tok_s").maybe() for p in points], style=1),
    ]
    return page.chart(
        "Draft length by batch size",
        "Tokens per second where the engine changes its draft length with the batch; most that it "
        f"gains over one fixed length: {percent(found.get('gain').maybe())}.",
        curves(items, "sequences in the batch", "tokens per second", log_x=len(x) > 2,
               log_y=True),
        ["batch", "k", "with the table", "fixed k", "off", "cost of staying on at k = 0"],
        [[number(a), number(p.get("k").maybe()), number(p.get("output_tok_s").maybe()),
          number(p.get("fixed_tok_s").maybe()), number(p.get("plain_tok_s").maybe()),
          percent(p.get("tax").maybe())] for a, p in zip(x, points, strict=True)],
    )


def _answer(answer: Node) -> Html:
    parts: list[Child] = []
    margins = answer.get("marginal").items()
    if margins:
        rows: list[list[Child]] = [
            [f"{number(m.get('k').maybe())} to {number(m.get('next_k').maybe())}",
             percent(m.get("gain").maybe()), percent(m.get("cost").maybe()),
             "pays" if m.get("pays").flag() else "does not pay"] for m in margins
        ]
        parts.append(table(
            ["one more draft", "more tokens per step", "longer step", ""], rows,
            "One more draft pays while it adds a larger share of tokens than of time",
        ))
    parts += [_robust(answer), _sensitivity(answer), _flags(answer)]
    return fold(f"Details at {load_label(answer)}", parts)


def _robust(answer: Node) -> Html | None:
    robust = answer.get("robust")
    choices = robust.get("choices").items()
    if not choices:
        return None
    names = [f"{item.get('name').text()} ({percent(item.get('weight').maybe(), 0)})"
             for item in robust.get("scenarios").items()]
    rows = []
    for item in choices:
        speeds = item.get("speedups").numbers()
        speeds += [None] * (len(names) - len(speeds))
        rows.append([choice(item), *(times(v) for v in speeds[: len(names)]),
                     times(item.get("expected").maybe()),
                     percent(item.get("worst_regret").maybe())])
    return table(
        ["choice", *names, "expected", "worst regret"], rows,
        f"If acceptance is uncertain: least regret {choice(robust.get('minimax_regret'))}, highest "
        f"expected value {choice(robust.get('expected_value'))}",
    )


def _sensitivity(answer: Node) -> Html | None:
    unknowns = answer.at("sensitivity.unknowns").items()
    if not unknowns:
        return None
    rows = [
        [item.get("name").text("-"), item.get("range_text").text("-"),
         choice(item.get("at_low")), choice(item.get("at_high")),
         percent(item.get("loss").maybe()), item.get("measurement").text("-")]
        for item in unknowns
    ]
    return table(
        ["unknown", "range", "choice at the low end", "at the high end",
         "loss of today's choice", "what settles it"], rows,
        f"What would change the answer; decisive: {answer.at('sensitivity.decisive').text('none')}",
        left=6,
    )


def _flags(answer: Node) -> Html | None:
    command = answer.at("flags.command").text("")
    if not command:
        reason = answer.get("no_flags").text("")
        return tag("p", f"No flags: {reason}") if reason else None
    return tag("div", tag("h3", "What to type"), tag("pre", tag("code", command)))


def _skipped(node: Node) -> Html | None:
    found = node.get("skipped").items()
    if not found:
        return None
    rows = [[item.get("method").text("-"), item.get("reason").text("-")] for item in found]
    return fold("Methods that were not looked at", table(["method", "reason"], rows, "", left=2))


def _methods(node: Node) -> list[tuple[str, Child]]:
    out: list[tuple[str, Child]] = []
    for item in node.get("methods").items():
        source = item.at("acceptance.source").text("")
        if source:
            out.append((f"acceptance, {item.get('method').text('-')}", source))
    return out
