"""What `specsim crossover` says: up to which load speculation is cheap, and pays; with --rates, up
to which rate of requests, and why."""

from collections.abc import Callable, Sequence

from specsim.report import deployment as d
from specsim.report.blocks import Block, Charts, Lines, Notes, Section
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
    waiting,
    waits,
)
from specsim.report.doc import Doc
from specsim.report.plots import Panel, Picture, Series, Style
from specsim.report.tables import Table, number, times
from specsim.report.thresholds import CHEAP, MEANING, MEMORY_BOUND, PAYS, below
from specsim.report.verdict import verdict_block

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
            blocks += [_rate_answers(doc, line), _rate_points(line)]
    return blocks


def _rate_answers(doc: Doc, line: Doc) -> Table:
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


def _rate_points(line: Doc) -> Table:
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


def crossover_section(doc: Doc) -> Section:
    """Assumptions, answers by context length, then one table per context length."""
    title = f"Where speculation stops paying: {d.title_of(doc)}"
    rated = doc.items("rates")
    load = "open loops of so many requests per second" if rated else (
        "closed loops of 1, 2, ... clients")
    return Section(title, f"Crossover: {doc.text('model')}", [
        verdict_block(doc),
        Lines([
            d.deployed(doc), d.drafting(doc),
            f"{load}, {doc.words('output_len')} output tokens, with and without speculation",
        ]),
        *(rate_blocks(doc) if rated else [_answers(doc)]), Charts(panels(doc)),
        *(_points(line) for line in doc.items("curves") if line.items("points")),
        Notes(doc.texts("warnings")), d.settings(doc),
    ])


def _answers(doc: Doc) -> Table:
    rows = []
    for line in doc.items("curves"):
        points, most = line.items("points"), line.maybe("max_concurrency")
        if line.has("error") or not points:
            rows.append([context_words(line), *["-"] * 6])
            continue
        rows.append([
            context_words(line),
            *(below(line.maybe(key), most)
              for key in ("cheap_until", "ridge", "break_even_concurrency")),
            _between(line),
            times(points[0].number("speedup")),
            f"{times(points[-1].number('speedup'))} at {points[-1].number('concurrency')}",
        ])
    edges = [name.rsplit(" ", 1) for name in (CHEAP, MEMORY_BOUND, PAYS)]
    return Table(
        ["prompt", *(name for name, _ in edges), "90%", "at 1", "at the end"], rows,
        units=["", *(under for _, under in edges), "", "", ""],
        remarks=[
            f"cheap: {MEANING[CHEAP].format(share=doc.number('cheap_share'))}; memory-bound: "
            f"{MEANING[MEMORY_BOUND]}; '> n': not reached at the largest batch, n",
            *(f"{context_words(line)}: {line.text('error')}"
              for line in doc.items("curves") if line.has("error")),
        ],
    )


def _between(line: Doc) -> str:
    ends = [below(end, line.maybe("max_concurrency")) for end in line.numbers("break_even_90")]
    return " to ".join(dict.fromkeys(ends)) or "-"


def _points(line: Doc) -> Table:
    points = line.items("points")
    rate = points[0].number("accepted_share")
    return table_of(
        points, [
            ("clients", lambda p: waits(*_running(p))), ("speedup", figure("speedup", times)),
            ("90%", band("speedup_90")), ("pays", lambda p: pays(p, "speedup_90")),
            ("r", fixed("step_cost_ratio", ".2f")),
            ("TPOT", time("speculative.tpot_s")), ("E2E", time("speculative.e2el_s")),
            ("plain", time("plain.e2el_s")),
            ("tok/s", fixed("speculative.output_tok_s", ".0f")),
            ("plain", fixed("plain.output_tok_s", ".0f")),
            ("ITL", time("speculative.itl_s")), ("plain", time("plain.itl_s")),
            ("in use", lambda p: _in_use(p.at("speculative"))),
            ("plain", lambda p: _in_use(p.at("plain"))),
        ],
        title=f"prompts of {line.words('context')} tokens ({rate:.0%} of the drafted tokens "
              "accepted; 'plain': without speculation; in use: of bandwidth/of arithmetic)",
        remarks=waiting(map(_running, points)), detail=4,
    )


def _running(point: Doc) -> tuple[float, float]:
    """(clients, those that run at a time)."""
    return point.number("concurrency"), point.number("speculative.running")


def _in_use(side: Doc) -> str:
    return f"{side.number('bandwidth_share'):.0%}/{side.number('compute_share'):.0%}"


# --- charts -------------------------------------------------------------------------------


def crossover_picture(doc: Doc) -> Picture:
    """All panels as one figure."""
    title = (
        f"{doc.text('model')} on {d.gpus_of(doc)} x {doc.text('gpu')}: {doc.text('method')}, "
        f"k = {doc.words('k')}, acceptance length {doc.number('acceptance_length'):.2f}"
    )
    loop = "an open" if doc.items("rates") else "a closed"
    note = f"solid: with speculation, dashed: without; {loop} loop in its steady state"
    return Picture(title, tuple(panels(doc)), (note,))


def panels(doc: Doc) -> list[Panel]:
    """Six panels: gain, cost of a step, throughput, ITL, E2E latency, share of the peaks. Lines
    by context length; none where no length can be served. Over rates: see `rate_panels`."""
    if doc.items("rates"):
        return rate_panels(doc)
    lines = [(hue, line) for hue, line in enumerate(doc.items("curves")) if line.items("points")]

    def pair(title: str, unit: str, key: str, scale: float = 1.0) -> Panel:
        return Panel(title, "clients", unit, both_sides(lines, "concurrency", key, scale),
                     log_x=True, log_y=True, words="With speculation and without.")

    if not lines:
        return []
    first = lines[0][1]
    return [
        Panel(
            "What speculation gains", "clients", "speedup, with / without",
            tuple(_curve(line, hue, "speedup") for hue, line in lines),
            log_x=True, levels=((1.0, "break-even"),),
            words="One curve per length of the prompt; above 1 speculation pays.",
        ),
        Panel(
            "What a step costs", "clients", "r, step with / without",
            tuple(_curve(line, hue, "step_cost_ratio") for hue, line in lines), log_x=True,
            levels=((doc.number("acceptance_length"), "tokens per step: above it a step loses"),
                    (1 + doc.number("cheap_share"), CHEAP)),
            words="A verify step over a plain one.",
        ),
        pair("Throughput", "tok/s", "output_tok_s"),
        pair("Time between steps of a stream (ITL)", "ITL, ms", "itl_s", 1e3),
        pair("End-to-end latency (E2E)", "E2E, s", "e2el_s"),
        # Of the first context that is served: four lines are enough for one panel.
        Panel(
            f"Share of the device's peaks in use, {context_words(first)} prompts", "clients",
            "share of the peak",
            tuple(
                curve(name + plain, first.items("points"), "concurrency", f"{side}.{key}", hue,
                      "dashed" if plain else "line")
                for hue, (name, key) in enumerate(
                    (("bandwidth", "bandwidth_share"), ("arithmetic", "compute_share")))
                for side, plain in (("speculative", ""), ("plain", ", plain"))
            ), log_x=True, from_zero=True, share=True,
            words="Bytes read and written, and FLOP, over what the device could "
                  "do in that time.",
        ),
    ]


def _curve(line: Doc, hue: int, key: str) -> Series:
    return curve(f"{context_words(line)} prompts", line.items("points"), "concurrency", key, hue)
