"""What `specsim tune` says: the best choice at each load, why, and what to type; with --by, draft
lengths over batch and context."""

from collections.abc import Sequence
from itertools import zip_longest

from specsim.jsonable import json_text
from specsim.planning.server_words import ADAPTIVE_FILE
from specsim.planning.tune import WORTH_A_TABLE
from specsim.report import deployment as d
from specsim.report.blocks import Block, Charts, Command, Group, Lines, Notes, Section
from specsim.report.columns import band, curve, figure, fixed, queued, table_of, time
from specsim.report.crossovers import context_words
from specsim.report.doc import Doc
from specsim.report.plots import Heatmap, Panel, Picture
from specsim.report.run_plans import plan_blocks
from specsim.report.tables import Table, percent, times
from specsim.report.verdict import verdict_block

_MARKS = {"yes": "+", "no": "-", "unsure": "?"}
_REASONS = 3  # printed, of cells where nothing runs


def map_blocks(found: Doc, dynamic: Doc) -> list[Block | None]:
    """The cells, what tables gain, what an idle drafter costs, and the picture."""
    return [_table(found), Lines(_gains(found, dynamic)), Charts([_picture(found)])]


def _by_context(found: Doc) -> list[list[Doc]]:
    """Cells by context."""
    rows: dict[float, list[Doc]] = {}
    for cell in found.items("cells"):
        rows.setdefault(cell.number("context"), []).append(cell)
    return list(rows.values())


def _waits(cell: Doc) -> bool:
    return cell.number("running") < cell.number("concurrency") - 0.5


def _cell(cell: Doc) -> str:
    if cell.text("reason", ""):
        return "full  "
    mark = _MARKS.get(cell.text("pays"), " ")
    return f"{cell.words('k')} {times(cell.maybe('speedup'))}{mark}{'*' if _waits(cell) else ' '}"


def _table(found: Doc) -> Table:
    grid = _by_context(found)
    cells = found.items("cells")
    remarks = ["draft length, 0: off; speedup over off of the best length: + pays, - does not, "
               "? unsure (1 lies within its 90% interval)"]
    if any(_waits(cell) and not cell.text("reason", "") for cell in cells):
        remarks.append("* requests wait: with some draft length fewer run than there are clients")
    reasons = dict.fromkeys(cell.text("reason") for cell in cells if cell.text("reason", ""))
    remarks += [f"full: {reason}" for reason in list(reasons)[:_REASONS]]
    return Table(
        ["prompt", *(cell.words("concurrency") + "   " for cell in grid[0])],
        [[context_words(row[0]), *map(_cell, row)] for row in grid],
        title=f"{found.text('method')}: draft length by clients (columns) and prompt tokens, "
              f"{found.words('output_len')} tokens out",
        remarks=remarks,
    )


def _gains(found: Doc, dynamic: Doc) -> list[str]:
    """What tables gain over one length, and what staying on at k = 0 costs."""
    constant, cost = found.maybe("constant_k"), found.pair("off_cost")
    if constant is None or cost is None:
        return []
    against = f"k = {constant:.0f}" if constant else "speculation off"
    lines = [f"best single draft length where no request waits: {against}"]
    several = len(_by_context(found)) > 1
    tables = [("by_batch_and_context", "by batch and context")] if several else []
    for key, name in (*tables, ("by_batch", "by batch")):
        if found.has(f"gains.{key}"):
            mean, most = (found.number(f"gains.{key}.{part}") for part in ("mean", "most"))
            lines.append(f"a table {name}: {mean:+.1%} over it on average, {most:+.1%} at most")
    rows = [row.numbers() for row in dynamic.items("num_speculative_tokens_per_batch_size")]
    if rows:
        lines.append(
            f"table by batch, made for {found.number('table_context'):,.0f} tokens in the cache: "
            + lengths_by_batch(rows))
        lost = [f"{percent(row.number('most'))} at {context_words(row)}"
                for row in found.items("given_away")]
        if several and lost:
            lines.append(f"  it gives away, at most, by prompt: {', '.join(lost)}")
    costs = " to ".join(dict.fromkeys(f"{share:.0%}" for share in cost))
    return [*lines, f"staying on at k = 0 costs {costs} over off (the drafter fills its cache, the "
                    "engine keeps its speculation state)"]


def _picture(found: Doc) -> Heatmap:
    grid = _by_context(found)
    return Heatmap(
        f"Draft length and speedup, {found.text('method')}",
        "In each cell: draft length (0: off) and speedup of the best one. + pays, - does not, "
        "? unsure, * requests wait. Colours part at 1.",
        [cell.words("concurrency") for cell in grid[0]], [context_words(row[0]) for row in grid],
        [[cell.maybe("speedup") for cell in row] for row in grid],
        [[_cell(cell).strip() for cell in row] for row in grid],
        middle=1.0, x_label="clients", y_label="prompt tokens",
    )


def lengths_by_batch(rows: Sequence[Sequence[float | None]]) -> str:
    """'1: 4, 2-8: 3' of (first, last, draft length)."""
    return ", ".join(f"{first if first == last else f'{first}-{last}'}: {k}"
                     for first, last, k in rows)


MOST_ROWS = 40  # candidates printed for one load
MOST_CURVES = 12
_EXTRAPOLATED = "* acceptance beyond the measured positions, extrapolated"


def tuning_section(doc: Doc) -> Section:
    """All blocks of the answer."""
    gpus = f" x{d.gpus_of(doc)}" if d.gpus_of(doc) > 1 else ""
    answers, candidates = doc.items("answers"), doc.items("candidates")
    count = -(-len(candidates) // max(1, len(answers)))  # each load has the same choices
    by_load = [candidates[i * count : (i + 1) * count] for i in range(len(answers))]
    model, gpu = doc.text("model"), doc.text("gpu", "-")
    sources = [(f"acceptance, {item.text('method')}", item.text("acceptance.source"))
               for item in doc.items("methods") if item.has("acceptance")]
    plan = plan_blocks(doc.at("plan"))
    decided = bool(doc.items("plan.measured"))  # by runs, so that what was predicted is no answer
    return Section(f"Tuning: {model} on {gpu}", f"Tuning: {model}", [
        *(plan if decided else [verdict_block(doc)]),
        Lines([
            f"{model} ({doc.text('weights', '-')}) on {gpu}{gpus}, {d.engine_of(doc)}, "
            f"{doc.text('workload', '-')}: {doc.words('input_len')} in, {doc.words('output_len')} "
            f"out, objective {doc.text('objective', '-')}"
        ]),
        *([Lines(["as predicted, without these runs:"])] if decided else plan),
        *(map_blocks(doc.at("map"), doc.at("dynamic")) if doc.has("map")
          else _choices(doc, answers, by_load)),
        None if decided else Group(
            _flags([] if doc.has("map") else answers, doc.at("dynamic"),
                   doc.text("verdict.command", ""))),
        Group([Lines(_skipped(doc)), Notes(doc.texts("warnings"))]),
        d.settings(doc, sources),
    ])


def _choices(
    doc: Doc, answers: Sequence[Doc], by_load: Sequence[Sequence[Doc]]
) -> list[Block | None]:
    """What was compared at each load, and why the best is the best."""
    alone, table = len(answers) == 1, doc.at("dynamic")
    return [
        _summary(answers),
        _candidates(by_load[0]) if alone else _grid(answers, by_load),
        Charts([_speedups(answers, by_load), _by_batch(table)]),
        *(Lines([_margins(answer)]) for answer in answers if answer.items("marginal")),
        *(_robust(answer.at("robust")) for answer in answers[:1] if answer.has("robust")),
        Lines(_dynamic(table)),
    ]


def tuning_picture(doc: Doc) -> Picture:
    """The charts of a page as one figure."""
    section = tuning_section(doc)
    charts = [item for block in section.present() if isinstance(block, Charts)
              for item in block.items if isinstance(item, Panel | Heatmap)]
    return Picture(section.title, tuple(charts), tuple(item.words for item in charts))


def _label(answer: Doc) -> str:
    """A load as columns name it: '64' clients or '2.5/s'."""
    rate = answer.maybe("rate")
    return answer.words("concurrency") if rate is None else f"{rate:g}/s"


def name_of(choice: Doc) -> str:
    """'plain' or 'mtp k=3'."""
    tree = f" tree {','.join(map(str, choice.numbers('tree')))}" if choice.has("tree") else ""
    return f"{choice.text('method')} k={choice.words('k')}{tree}" if choice.maybe("k") else "plain"


def _marked(choice: Doc) -> str:
    return name_of(choice) + ("*" if choice.flag("extrapolated") else "")


def _summary(answers: Sequence[Doc]) -> Table:
    unit = "rate" if answers and answers[0].has("rate") else "clients"
    return table_of(answers, [
        (unit, _label), ("best", lambda a: name_of(a.at("best")) if a.has("best") else "none"),
        ("speedup", figure("best.speedup", times)), ("90%", band("best.speedup_90")),
        ("tokens/step", fixed("best.tokens_per_step", ".2f")),
        ("TPOT", time("best.tpot_s")), ("TTFT", time("best.ttft_s")),
        ("tok/s/user", fixed("best.stream_tok_s", ".0f")),
        ("tok/s", fixed("best.output_tok_s", ".0f")),
    ], left=2)


def _candidates(candidates: Sequence[Doc]) -> Table:
    beyond = any(c.flag("extrapolated") for c in candidates)
    return table_of(candidates[:MOST_ROWS], [
        ("choice", _marked), ("tokens/step", fixed("tokens_per_step", ".2f")),
        ("speedup", figure("speedup", lambda value: times(value or None))),
        ("90%", band("speedup_90")), ("TPOT", time("tpot_s")),
        ("tok/s", fixed("output_tok_s", ".0f")),
        ("r", lambda c: f"{c.number('step_cost_ratio'):.2f}" if c.text("bound", "") else "-"),
        ("limits", _limits),
    ], remarks=[_EXTRAPOLATED] if beyond else [])


def _limits(choice: Doc) -> str:
    """What a choice breaks; else how many clients run, where others wait."""
    clients, running = choice.maybe("concurrency"), choice.maybe("running")
    wait = clients is not None and running is not None and queued(clients, running)
    return choice.text("reason", "")[:60] or (f"ok, {running:,.0f} run" if wait else "ok")


def _grid(answers: Sequence[Doc], by_load: Sequence[Sequence[Doc]]) -> Table:
    """Speed-up of every choice at every load."""
    best = [name_of(a.at("best")) if a.has("best") else "" for a in answers]
    rows = []
    for found in zip_longest(*(choices[:MOST_ROWS] for choices in by_load)):
        cells = []
        for choice, name in zip(found, best, strict=True):
            if choice is None or not choice.flag("feasible"):
                cells.append("no ")
            else:
                mark = "<" if name_of(choice) == name else " "
                cells.append(times(choice.number("speedup")) + mark)
        rows.append([_marked(next(c for c in found if c is not None)), *cells])
    remark = "< best; no: does not meet the limits"
    if any(c.flag("extrapolated") for choices in by_load[:1] for c in choices):
        remark += f"; {_EXTRAPOLATED}"
    return Table(["speedup at", *map(_label, answers)], rows, remarks=[remark])


def _margins(answer: Doc) -> str:
    parts = [
        f"{m.words('k')}>{m.words('next_k')} {m.number('gain'):+.0%}/{m.number('cost'):+.0%}"
        + (" pays" if m.flag("pays") else "")
        for m in answer.items("marginal")
    ]
    return (
        f"one more draft at {_label(answer)} (tokens gained/step time added): " + ", ".join(parts)
    )


def _robust(found: Doc) -> Table:
    scenarios = [(s.text("name"), s.number("weight")) for s in found.items("scenarios")]
    names = [f"{name} ({weight:.0%})" for name, weight in scenarios]
    rows = [
        [name_of(c), *map(times, [*c.numbers("speedups"), *[None] * len(names)][: len(names)]),
         times(c.maybe("expected")), percent(c.maybe("worst_regret"))]
        for c in found.items("choices")
    ]
    mean, regret = found.at("expected_value"), found.at("minimax_regret")
    return Table(
        ["choice", *names, "expected", "worst regret"], rows,
        remarks=[f"best on average: {name_of(mean)} ({times(mean.maybe('expected'))}); least "
                 f"worst regret: {name_of(regret)} ({percent(regret.maybe('worst_regret'))})"],
    )


def _dynamic(found: Doc) -> list[str]:
    """Draft length by batch size."""
    rows = [row.numbers() for row in found.items("num_speculative_tokens_per_batch_size")]
    tax = [point.number("tax") for point in found.items("points")]
    if not tax:
        return []
    fixed_k = found.number("fixed_k")
    text = "draft length by batch size: " + lengths_by_batch(rows)
    if len(rows) > 1:
        compared = f"k={fixed_k}" if fixed_k else "plain decoding"
        text += f" (up to {found.number('gain'):.0%} over {compared} throughout)"
    return [
        text,
        f"staying on at k = 0 would cost {min(tax):.0%} to {max(tax):.0%} of a plain step "
        "(the drafter fills its cache, the engine keeps its speculation state)",
    ]


def _flags(answers: Sequence[Doc], dynamic: Doc, shown: str) -> list[Block]:
    """What to type, once for all loads of one command. shown: the verdict's, which stands alone
    where it is for all loads."""
    blocks: list[Block] = []
    commands: dict[str, list[Doc]] = {}
    for answer in answers:
        if answer.has("flags"):
            commands.setdefault(answer.text("flags.command"), []).append(answer)
            continue
        text = f"no flags at {_label(answer)}: {answer.text('no_flags', '')}"
        nearest = answer.at("nearest")
        if nearest.has(""):
            text += f"; nearest: {name_of(nearest)}, {nearest.text('reason', '')}"
        blocks.append(Lines([text]))
    told: set[str] = set()
    for command, found in commands.items():
        where = "" if len(answers) == 1 else f" at {', '.join(map(_label, found))}"
        notes = found[-1].texts("flags.warnings")
        told |= {*notes}
        if len(found) == len(answers) and command == shown:
            continue
        blocks += [
            Command(f"to type{where}{d.written_for(found[-1].at('flags'))}:", command),
            _remarks(notes)]
    if dynamic.has("flags") and dynamic.number("gain") >= WORTH_A_TABLE:
        notes = [text for text in dynamic.texts("flags.warnings") if text not in told]
        lead = f"for a load that moves, the table{d.written_for(dynamic.at('flags'))}:"
        blocks += [Command(lead, dynamic.text("flags.command")), _remarks(notes)]
        if ADAPTIVE_FILE in dynamic.texts("flags.args"):
            tiers = dynamic.at("speculative_adaptive_config").value
            blocks.append(Command(f"{ADAPTIVE_FILE}:", json_text(tiers)))
    return blocks


def _remarks(notes: Sequence[str]) -> Lines:
    return Lines([f"  note: {text}" for text in notes])


def _skipped(doc: Doc) -> list[str]:
    names = ", ".join(item.text("method") for item in doc.items("skipped"))
    return [f"not looked at (no drafter, or no measured acceptance): {names}; --json says "
            "why, --methods and --acceptance-length bring one in"] if names else []


# --- charts -------------------------------------------------------------------------------


def _speedups(answers: Sequence[Doc], by_load: Sequence[Sequence[Doc]]) -> Panel | None:
    """Speedup over the draft length, a curve per method and load."""
    groups: dict[str, list[Doc]] = {}
    for answer, choices in zip(answers, by_load, strict=True):
        for c in choices:
            if c.maybe("k") and c.flag("feasible"):
                groups.setdefault(f"{c.text('method')}, {_label(answer)}", []).append(c)
    words = "Output tokens per second over those of plain decoding, by draft length."
    if len(groups) > MOST_CURVES:
        words += f" The first {MOST_CURVES} of {len(groups)} curves."
    banded = "speedup_90" if len(groups) <= 3 else ""
    series = [
        curve(name, sorted(members, key=lambda c: c.number("k")), "k", "speedup", hue,
              interval=banded)
        for hue, (name, members) in enumerate(list(groups.items())[:MOST_CURVES])
    ]
    return Panel(
        "Speedup by draft length", "draft tokens per step (k)", "speedup over plain decoding",
        tuple(series), levels=((1.0, "plain decoding"),), words=words,
    ) if series else None


def _by_batch(found: Doc) -> Panel | None:
    points = found.items("points")
    names = {"output_tok_s": "table by batch size", "plain_tok_s": "speculation off",
             "fixed_tok_s": f"always k = {found.words('fixed_k')}"}
    return Panel(
        "Draft length by batch size", "sequences in the batch", "tok/s",
        tuple(curve(name, points, "seqs", key, hue)
              for hue, (key, name) in enumerate(names.items())),
        log_x=len(points) > 2, log_y=True,
        words="Tokens per second where the engine changes its draft length with the batch.",
    ) if points else None
