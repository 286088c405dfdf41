"""What `specsim crossover --rates` says: up to which rate of requests speculation pays, and why."""

from collections.abc import Callable, Sequence

from specsim.report.blocks import Block, Lines
from specsim.report.columns import (
    Cell,
    Column,
    InUnit,
    band,
    curve,
    figure,
    fixed,
    pays,
    table_of,
    time,
)
from specsim.report.doc import Doc
from specsim.report.plots import Panel, Series, Style
from specsim.report.tables import Table, number, times
from specsim.report.thresholds import PAYS

_MEASURES = {"tpot": "TPOT", "ttft": "TTFT", "e2el": "E2E", "capacity": "capacity"}
_PARTS = {
    "memory": "memory: fewer requests run",
    "steps": "steps: drafting, verifying",
    "prompts": "prompts: dearer with drafts",
}


def context_words(line: Doc) -> str:
    """'8k' for 8192, the number itself where it is not whole."""
    tokens = int(line.number("context"))
    return f"{tokens // 1024}k" if tokens >= 1024 and tokens % 1024 == 0 else str(tokens)


def both_sides(
    lines: Sequence[tuple[int, Doc]], x: str, key: str, scale: float = 1.0
) -> tuple[Series, ...]:
    """A figure with speculation and without over x, by prompt length. lines: (hue, line)."""
    sides: tuple[tuple[str, Style, str], ...] = (
        ("speculative", "line", " prompts"), ("plain", "dashed", ", plain"))
    return tuple(
        curve(context_words(line) + words, line.items("points"), x, f"{side}.{key}", hue, style,
              scale=scale)
        for hue, line in lines for side, style, words in sides)


def rate_blocks(doc: Doc) -> list[Block]:
    """The answers and the rates, by prompt length."""
    blocks: list[Block] = []
    for line in doc.items("rates"):
        if line.has("error"):
            blocks.append(Lines([f"prompts of {context_words(line)}: {line.text('error')}"]))
        else:
            blocks += [_answers(doc, line), _points(line)]
    return blocks


def _answers(doc: Doc, line: Doc) -> Table:
    top = line.number("plain_capacity")
    with_it = line.number("capacity")
    rows = []
    for item in line.items("crossings"):
        measure, found = item.text("measure"), item.maybe("pays_below")
        because = item.text("because", "")
        ends = [_rate(end, top) for end in item.numbers("pays_below_90")]
        why, moved = "no part alone" if found is not None else "", "-"
        if because:
            why = _PARTS.get(because, because)
            moved = _rate(item.at("without").maybe(because), top)
        rows.append([_MEASURES.get(measure, measure), _rate(found, top),
                     " to ".join(dict.fromkeys(ends)) or "-", why or "-", moved])
    slack = doc.number("ttft_slack")
    return Table(
        ["by", PAYS, "90%", "because of", "without that"], rows,
        units=["", "requests/s", "", "", "requests/s"],
        title=f"prompts of {line.words('context')} tokens: kept up with to {number(with_it, 3)} "
              f"requests/s ({number(line.maybe('running_limit'))} at a time), without speculation "
              f"to {number(top, 3)} ({number(line.maybe('plain_running_limit'))})",
        remarks=[
            f"TTFT pays while the first token comes at most {slack:.0%} later; '>': at all rates "
            "that plain decoding keeps up with",
            "because of: the part of speculation without which it would pay furthest ('without "
            "that': up to there)",
        ],
    )


def _rate(rate: float | None, top: float) -> str:
    if rate is None:
        return f"> {number(top, 3)}"
    return "never" if rate == 0 else number(rate, 3)


def _points(line: Doc) -> Table:
    both: list[Column] = []
    columns: tuple[tuple[str, Callable[[str], Cell | InUnit]], ...] = (
        ("TPOT", lambda side: time(f"{side}.tpot_s")),
        ("TTFT", lambda side: time(f"{side}.ttft_s")),
        ("runs", lambda side: fixed(f"{side}.running", ".0f")),
        ("waits", _waiting),
        ("tok/s", lambda side: fixed(f"{side}.output_tok_s", ".0f")),
    )
    for title, column in columns:
        both += [(title, column("speculative")), ("plain", column("plain"))]
    return table_of(
        line.items("points"), [
            ("rate", lambda p: f"{p.number('rate'):g}/s"), ("gain", figure("tpot_gain", times)),
            *both, ("90%", band("tpot_gain_90")),
            ("pays", lambda p: pays(p, "tpot_gain_90")), ("r", fixed("step_cost_ratio", ".2f")),
            ("E2E", time("speculative.e2el_s")), ("plain", time("plain.e2el_s")),
        ],
        remarks=["gain: of TPOT; runs, waits: mean requests; 'grows' where the server "
                 "does not keep up; 'plain': without speculation"],
        detail=5,
    )


def _waiting(side: str) -> Cell:
    def write(point: Doc) -> str:
        found = point.at(side)
        return f"{found.number('waiting'):.1f}" if found.flag("sustained") else "grows"
    return write


# --- charts -------------------------------------------------------------------------------


def rate_panels(doc: Doc) -> list[Panel]:
    """TTFT, TPOT, requests that wait, tokens served over the rate."""
    lines = [(hue, line) for hue, line in enumerate(doc.items("rates")) if line.items("points")]

    def pair(title: str, unit: str, key: str, scale: float = 1.0, log: bool = True) -> Panel:
        return Panel(title, "requests/s", unit, both_sides(lines, "rate", key, scale), log_y=log,
                     from_zero=not log,
                     words="With speculation and without; a curve ends where the queue grows.")

    if not lines:
        return []
    gains = tuple(
        curve(f"{context_words(line)} prompts", line.items("points"), "rate", "tpot_gain", hue,
              interval="tpot_gain_90") for hue, line in lines)
    return [
        Panel("What speculation gains", "requests/s", "TPOT, without / with", gains,
              levels=((1.0, "break-even"),), words="Above 1 speculation pays, while both keep up."),
        pair("Time to first token, queue included", "TTFT, ms", "ttft_s", 1e3),
        pair("Time per output token (TPOT)", "TPOT, ms", "tpot_s", 1e3),
        pair("Tokens served", "tok/s", "output_tok_s", log=False),
    ]
