"""What `specsim pareto` says: the frontier of speed for one user against throughput of a GPU; with
--at, tokens per GPU and their price at one speed for the user."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specsim.errors import SpecSimError
from specsim.planning.flags import ready_flags
from specsim.planning.pareto import ParetoFigures
from specsim.report import deployment as d
from specsim.report.blocks import Block, Charts, Command, Fold, Group, Lines, Notes, Section
from specsim.report.columns import Column, count, curve, figure, fixed, table_of, three, time, word
from specsim.report.doc import Doc
from specsim.report.plots import Panel, Picture, Series, thinned, with_ends
from specsim.report.tables import Table, number, times

if TYPE_CHECKING:
    from specsim.planning.pareto import ParetoPoint
    from specsim.planning.pareto_at import AtSpeed


_SIDES = {"speculative": "with speculation", "plain": "without"}


def at_blocks(doc: Doc) -> list[Block]:
    """A sentence for each speed, the settings, what to type; nothing where none was asked for."""
    found = doc.items("at")
    sides = [item.at(side) for item in found for side in _SIDES if item.at(side).has("point")]
    if not found:
        return []
    money: list[Column] = []
    if any(side.has("cost.per_million_output_tokens") for side in sides):
        money = [("per Mtok", figure("cost.per_million_output_tokens"))]
    table = table_of(sides, [
        ("tok/s/user", fixed("point.stream_tok_s", ".1f")),
        ("tok/s/GPU", fixed("point.gpu_tok_s", ".0f")), *money,
        ("J/token", three("point.joules_per_output_token")),
        ("k", lambda side: side.words("point.k") if side.maybe("point.k") else "plain"),
        ("tp", count("point.tp")), ("weights", word("point.weights")),
        ("cache", word("point.kv_dtype")), ("slots", count("point.max_num_seqs")),
        ("TTFT", time("point.ttft_s")), ("token budget", count("point.max_num_batched_tokens")),
        ("pp", count("point.pp")),
    ], left=0, title="at equal speed for the user: the best setting of each side", detail=2,
        remarks=["slots: max_num_seqs, as many as still give each user the speed"])
    commands = [
        Command(f"  {side.number('point.stream_tok_s'):.1f} tok/s/user, "
                f"{'with' if side.maybe('point.k') else 'without'} speculation"
                f"{d.written_for(side)}:",
                side.text("command"), "\n    ")
        for side in sides if side.has("command")
    ]
    typed: list[Block] = [
        Group([Lines(["what to type at that speed"]), *commands, _remarks(sides)])]
    return [Lines([_sentence(item) for item in found]), table, *(typed if commands else [])]


def _sentence(item: Doc) -> str:
    speed = f"at {number(item.number('stream_tok_s'))} tok/s for each user"
    ratio = item.maybe("ratio")
    if ratio is None:
        reached = [words for side, words in _SIDES.items() if item.at(side).has("point")]
        return f"{speed}: reached {f'only {reached[0]}' if reached else 'by no setting'}"
    ends = [number(end, 3) if end is not None else "any" for end in item.numbers("ratio_90")]
    ours, plain = (item.number(f"{side}.point.gpu_tok_s") for side in _SIDES)
    joules = item.maybe("joules_ratio")
    return (f"{speed} a GPU serves {ours:,.0f} tok/s with speculation, {plain:,.0f} without: "
            f"{times(ratio)}{f' (90%: {ends[0]} to {ends[1]})' if len(ends) == 2 else ''}"
            + (f", at {times(joules)} the joules per token" if joules is not None else ""))


def at_panel(doc: Doc) -> Panel | None:
    """Tokens per GPU with / without at equal speed, where several speeds were asked for."""
    found = [item for item in doc.items("at") if item.has("ratio")]
    return Panel(
        "What speculation gains at equal speed", "tok/s/user", "tok/s/GPU, with / without",
        (curve("ratio", found, "stream_tok_s", "ratio", interval="ratio_90"),),
        levels=((1.0, "break-even"),), log_y=True,
        words="Each side at its own best setting. The band is the 90% interval; it ends where "
              "plain decoding may not reach the speed.",
    ) if len(found) > 1 else None


MAX_ROWS = 24
MAX_COMMANDS = 6
_AXES = {
    "k": "k", "tp": "tp", "pp": "pp", "weights": "weights", "kv_dtype": "cache",
    "max_num_seqs": "max_num_seqs", "max_num_batched_tokens": "token budget",
}


def command_of(point: "ParetoPoint") -> dict[str, object]:
    """The command that starts the point's deployment, or why there is none."""
    try:
        flags = ready_flags(point.system)
        return {"command": flags.command, "written_for": flags.written_for,
                "notes": list(flags.warnings), "no_command": None}
    except SpecSimError as error:
        return {"command": None, "written_for": None, "notes": [], "no_command": str(error)}


def _remarks(points: Sequence[Doc]) -> Lines:
    """What to know about the commands, each thing once."""
    notes = dict.fromkeys(text for p in points for text in p.texts("notes"))
    return Lines([f"  note: {text}" for text in notes])


def pareto_json(result: ParetoFigures, every_point: bool = False) -> dict[str, object]:
    """JSON-ready. every_point: also what the frontiers do not hold."""
    found = _json(result, [{**p.to_dict(), **command_of(p)} for p in result.frontier])
    return {**found, **({"points": [p.to_dict() for p in result.points]} if every_point else {})}


def _json(result: ParetoFigures, frontier: Sequence[dict[str, object]]) -> dict[str, object]:
    return {
        **ParetoFigures.to_dict(result),  # a subclass may add this to its own
        "at": [_at_json(item) for item in result.at],
        "frontier": frontier,
        "frontier_speculative": [p.to_dict() for p in result.speculative],
        "frontier_plain": [p.to_dict() for p in result.plain],
    }


def _at_json(item: "AtSpeed") -> dict[str, object]:
    """With what to type on each side."""
    sides = {name: {**side.to_dict(), **command_of(side.point)}
             for name in ("speculative", "plain") if (side := getattr(item, name)) is not None}
    return {**item.to_dict(), **sides}


def pareto_rows(result: ParetoFigures) -> list[dict[str, object]]:
    """One flat row per feasible point for CSV, with which frontiers hold it."""
    both = set(map(_setting, result.frontier))
    sides = set(map(_setting, (*result.speculative, *result.plain)))
    return [
        {**p.to_dict(), "on_frontier": _setting(p) in both,
         "on_frontier_of_side": _setting(p) in sides}
        for p in result.points
    ]


def _setting(point: "ParetoPoint") -> tuple[object, ...]:
    """What tells a point from the others of its study."""
    return tuple(getattr(point, name) for name in _AXES)


def pareto_blocks(result: ParetoFigures) -> Section:
    """Assumptions, the frontier of all, what to type, what cannot run."""
    base = result.base
    titles = (
        f"{base.spec.name} on {base.profile.title or base.profile.name}, "
        f"{base.engine.described}"
    )
    told = thinned(len(result.frontier), MAX_COMMANDS)  # commands that nobody sees cost
    found = _json(result, [
        {**p.to_dict(), **(command_of(p) if i in told else {})}
        for i, p in enumerate(result.frontier)
    ])
    source = base.acceptance.source if base.acceptance else ""
    return pareto_section(Doc(found), titles, source)


def pareto_section(doc: Doc, titles: str = "", source: str = "") -> Section:
    """All blocks. titles, source: of GPU, engine and acceptance, as a live result has them."""
    title = f"Trade-off of latency and throughput: {d.title_of(doc)}"
    return Section(title, f"Pareto: {doc.text('model')}", [
        Lines(_head(doc, titles, source)), *at_blocks(doc),
        Charts([pareto_panel(doc), *_at_panels(doc)]), _frontier(doc),
        Lines(_gain(doc)), _commands(doc), Lines(_infeasible(doc)),
        Notes(doc.texts("warnings")), _every_command(doc), d.settings(doc),
    ])


def _at_panels(doc: Doc) -> list[Panel]:
    panel = at_panel(doc)
    return [panel] if panel is not None else []


def _head(doc: Doc, titles: str, source: str) -> list[str]:
    named = titles or f"{doc.text('model')} on {doc.text('gpu', '-')}, {d.engine_of(doc)}"
    drafter = f", drafter {doc.text('draft')}" if doc.has("draft") else ""
    method = doc.text("method", "-") + drafter + (f" ({source})" if source else "")
    return [
        f"{named}; requests of {doc.words('input_len')} + {doc.words('output_len')} tokens",
        method if d.speculative(doc) else "no speculation",
        "; ".join(f"{label} {_list(doc, name)}" for name, label in _axes(doc).items()),
        f"{doc.words('feasible')} of {doc.words('combinations')} combinations can run, each taken "
        "full: max_num_seqs clients in a closed loop",
    ]


def _axes(doc: Doc) -> dict[str, str]:
    """Titles of what was varied. Pipeline stages stand there where they were asked for."""
    staged = [value.words() for value in doc.items("axes.pp")] not in ([], ["1"])
    return {name: title for name, title in _AXES.items() if name != "pp" or staged}


def _list(doc: Doc, axis: str) -> str:
    return ",".join(value.words() for value in doc.items(f"axes.{axis}"))


def _frontier(doc: Doc) -> Table:
    frontier = doc.items("frontier")
    shown = [frontier[i] for i in thinned(len(frontier), MAX_ROWS)]
    title = "the frontier, from the fastest for one user to the highest throughput"
    if len(shown) < len(frontier):
        title += f" ({len(shown)} of {len(frontier)} points; --json has all)"
    stages = [("pp", count("pp"))] if "pp" in _axes(doc) else []
    return table_of(shown, [
        ("tok/s/user", fixed("stream_tok_s", ".1f")), ("tok/s/GPU", fixed("gpu_tok_s", ".0f")),
        ("k", lambda p: p.words("k") if p.maybe("k") else "plain"), ("tp", count("tp")),
        *stages, ("weights", word("weights")), ("cache", word("kv_dtype")),
        ("max_num_seqs", count("max_num_seqs")), ("token budget", count("max_num_batched_tokens")),
        ("TPOT", time("tpot_s")), ("TTFT", time("ttft_s")),
        ("J/token", three("joules_per_output_token")),
    ], left=0, title=title)


def _gain(doc: Doc) -> list[str]:
    """What speculation moves, at both ends."""
    ours, plain = doc.items("frontier_speculative"), doc.items("frontier_plain")
    if not (ours and plain):
        return []
    fast, slow = ours[0].number("stream_tok_s"), plain[0].number("stream_tok_s")
    most, least = ours[-1].number("gpu_tok_s"), plain[-1].number("gpu_tok_s")
    frontier = doc.items("frontier")
    held = sum(1 for p in frontier if p.maybe("k"))
    return [
        f"with speculation one user gets up to {fast:,.0f} tok/s instead of {slow:,.0f}, and a GPU "
        f"up to {most:,.0f} tok/s instead of {least:,.0f}; {held} of the {len(frontier)} points on "
        "the frontier speculate"
    ]


def _commands(doc: Doc) -> Group:
    """What to type, for some points of the frontier."""
    frontier = doc.items("frontier")
    shown = [frontier[i] for i in thinned(len(frontier), MAX_COMMANDS)]
    commands = [
        Command(
            f"  {p.number('stream_tok_s'):,.0f} tok/s/user, "
            f"{p.number('gpu_tok_s'):,.0f} tok/s/GPU{d.written_for(p)}:",
            p.text("command", "") or f"no command: {p.text('no_command', '')}", "\n    ",
        ) for p in shown
    ]
    return Group([Lines(["what to type"]), *commands, _remarks(shown)])


def _infeasible(doc: Doc) -> list[str]:
    examples = dict(doc.members("infeasible_examples"))
    lines = []
    for reason, many in doc.members("infeasible"):
        example = examples[reason].text() if reason in examples else ""
        lines.append(f"  {many.words():>6}  {reason}"
                     + (f" (e.g. {example[:120]})" if example else ""))
    return ["cannot run", *lines] if lines else []


def _every_command(doc: Doc) -> Fold | None:
    """Of a page: the commands of the whole frontier."""
    points = [p for p in doc.items("frontier") if p.has("command")]
    return Fold("What to type for every point of the frontier", [
        table_of(points, [("settings", _settings), ("command", word("command"))], left=2)
    ]) if len(points) > MAX_COMMANDS else None


def _settings(p: Doc) -> str:
    return ", ".join(f"{label} {p.words(key)}" for key, label in _AXES.items())


# --- charts -------------------------------------------------------------------------------


def terminal_panel(result: ParetoFigures) -> Panel:
    """What the terminal draws: the frontiers alone."""
    return pareto_panel(Doc(_json(result, [])))


def pareto_panel(doc: Doc) -> Panel:
    """Both frontiers, and everything else, if there is more, faintly behind them."""
    series = []
    for hue, (name, key) in enumerate((
        ("with speculation", "frontier_speculative"), ("without", "frontier_plain"),
    )):
        cloud = [p for p in doc.items("points") if bool(p.maybe("k")) is (hue == 0)]
        for label, points, faint in ((f"all {name}", cloud, True), (name, doc.items(key), False)):
            if points:
                series.append(Series(
                    label, [p.number("stream_tok_s") for p in points],
                    [p.number("gpu_tok_s") for p in points], hue,
                    "points" if faint else "dashed" if hue else "line", faint, not faint,
                    texts=[_settings(p) for p in points],
                ))
    return Panel(
        "Speed for one user against throughput of a GPU", "tok/s/user", "tok/s/GPU",
        tuple(series), log_x=True, log_y=True, by_point=True, size="tall",
        words="Each point is a full deployment; a frontier further out is better. To the right "
              "faster for each user, upwards more from each GPU.",
    )


def pareto_picture(result: ParetoFigures) -> Picture:
    """The panel with everything that was tried."""
    base, doc = result.base, Doc(pareto_json(result, every_point=True))
    title = f"{base.spec.name} on {base.profile.name}, {base.engine.name} {base.engine.version}"
    limits = ("max_num_seqs", "max_num_batched_tokens")
    varied = [f"{label} {_list(doc, name)}" for name, label in _axes(doc).items()
              if name not in limits]
    note = (
        f"{result.workload.input_len} + {result.workload.output_len} tokens; {'; '.join(varied)}; "
        "each point full: max_num_seqs clients"
    )
    return Picture(title, (pareto_panel(doc), *map(with_ends, _at_panels(doc))), (note,))
