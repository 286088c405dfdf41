"""What `specsim crossover` says: up to which load speculation is cheap, and pays."""

from specsim.report import deployment as d
from specsim.report.blocks import Charts, Lines, Notes, Section
from specsim.report.columns import (
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
from specsim.report.crossover_rates import both_sides, rate_blocks, rate_panels
from specsim.report.crossover_rates import context_words as _context
from specsim.report.doc import Doc
from specsim.report.plots import Panel, Picture, Series
from specsim.report.tables import Table, times
from specsim.report.thresholds import CHEAP, MEANING, MEMORY_BOUND, PAYS, below
from specsim.report.verdict import verdict_block


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
            rows.append([_context(line), *["-"] * 6])
            continue
        rows.append([
            _context(line),
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
            *(f"{_context(line)}: {line.text('error')}"
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
            f"Share of the device's peaks in use, {_context(first)} prompts", "clients",
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
    return curve(f"{_context(line)} prompts", line.items("points"), "concurrency", key, hue)
