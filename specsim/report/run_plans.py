"""What `specsim tune --plan` and `--from` say: what to choose now, which runs would settle it."""

from collections.abc import Sequence

from specsim.report.blocks import Block, Charts, Command, Group, Lines, Notes, Verdict
from specsim.report.columns import count, figure, fixed, table_of, word
from specsim.report.deployment import written_for
from specsim.report.doc import Doc
from specsim.report.plots import Panel, Series
from specsim.report.tables import Table, number, percent

MOST_UNKNOWNS = 5
WORTH_NAMING = 0.0005  # regret


def plan_blocks(plan: Doc) -> list[Block]:
    """All blocks of a plan; none where there is none. What measured runs decide is a verdict."""
    if not plan.has("decisions"):
        return []
    runs, measured, decisions = (plan.items(key) for key in ("runs", "measured", "decisions"))
    head = Lines(_verdict(plan, runs, measured), "verdict" if measured else "plain")
    told: list[Block] = [_measured(measured, plan)] if measured else []
    next_: list[Block] = [_runs(plan, runs), Group(_next(runs, plan))] if runs else []
    return [
        Verdict([head, *_chosen(decisions, plan)]) if measured else head,
        *told, _decisions(decisions), *next_, _unknowns(plan.items("unknowns")),
        Charts([_picture(plan, runs)]), Notes(plan.texts("notes")),
    ]


def _chosen(decisions: Sequence[Doc], plan: Doc) -> list[Block]:
    """What to type for what is chosen, once for all loads of one choice."""
    version = written_for(plan)
    found: dict[str, list[str]] = {}
    for decision in decisions:
        command = decision.text("command", "")
        if command:
            found.setdefault(command, []).append(decision.words("concurrency"))
    if len(found) == 1:
        return [Command(f"to type{version}:", command) for command in found]
    return [Command(f"to type at {', '.join(loads)} clients{version}:", command)
            for command, loads in found.items()]


def _verdict(plan: Doc, runs: Sequence[Doc], measured: Sequence[Doc]) -> list[str]:
    regret, limit = percent(plan.number("regret")), percent(plan.number("settled_at"))
    after = "after these runs" if measured else "before any run"
    choices = ", ".join(
        f"{d.text('name')} at {d.words('concurrency')} ({percent(d.number('probability'), 0)})"
        for d in plan.items("decisions"))
    gives = f"choosing {choices} gives away {regret} of the best speed on average"
    if plan.flag("settled"):
        return [f"SETTLED {after}: {gives} (limit {limit})"]
    text = f"NOT SETTLED {after}: {gives}"
    if not runs:
        return [f"{text}; no run is left to make (--runs allows more, where choices are left)"]
    left = percent(runs[-1].number("regret"))
    many = "1 run leaves" if len(runs) == 1 else f"{len(runs)} runs leave"
    return [f"{text}; {many} {left}. Next: {runs[0].text('name')}"]


def _measured(measured: Sequence[Doc], plan: Doc) -> Table:
    tpot = plan.text("objective", "") == "tpot"
    return table_of(measured, [
        ("measured", word("name")), ("clients", count("concurrency")),
        ("TPOT ms" if tpot else "tok/s",
         lambda m: number(m.number("speed") * (1e3 if tpot else 1.0))),
        ("over expected", fixed("off", "+.0%")),
        ("acceptance length", fixed("acceptance_length", ".2f")),
    ])


def _decisions(decisions: Sequence[Doc]) -> Table:
    return table_of(decisions, [
        ("clients", count("concurrency")), ("choose", word("name")),
        ("is best", figure("probability", lambda v: percent(v, 0))),
        ("expected regret", figure("regret", percent)), ("rival", word("rival", "-")),
        ("settled", lambda d: "yes" if d.flag("settled") else "no"),
    ], left=2, remarks=["choose: the least to lose while acceptance and costs are unsure, which "
                        "need not be what is predicted to be fastest"])


def _runs(plan: Doc, runs: Sequence[Doc]) -> Table:
    before = [plan.number("regret"), *(run.number("regret") for run in runs)]
    rows = [
        [str(i), run.text("name"), percent(before[i - 1]), percent(before[i]),
         ", ".join(run.texts("settles")) or "this choice alone"]
        for i, run in enumerate(runs, 1)
    ]
    return Table(["run", "setting", "regret before", "after", "tells of"], rows, left=2)


def _next(runs: Sequence[Doc], plan: Doc) -> list[Block]:
    first = runs[0]
    if not first.has("command"):
        return [Lines([f"no command for {first.text('name')}: {first.text('no_command', '')}"])]
    return [
        Command(f"the next run, {first.text('name')}{written_for(plan)}:",
                first.text("command")),
        Lines(["drive it with your own prompts at the loads above; --script FILE writes all runs, "
               "--from RESULTS reads what they gave"]),
    ]


def _unknowns(unknowns: Sequence[Doc]) -> Table:
    shown = [u for u in unknowns if u.number("worth") >= WORTH_NAMING] or unknowns[:1]
    return table_of(shown[:MOST_UNKNOWNS], [
        ("not known", word("name")), ("worth", figure("worth", percent)),
        ("left", figure("left", lambda v: percent(v, 0))),
    ], remarks=["worth: regret that knowing it alone would save; left: of its standard deviation"])


def _picture(plan: Doc, runs: Sequence[Doc]) -> Panel | None:
    """Expected regret after each run of the plan."""
    if not runs:
        return None
    done = len({m.text("name") for m in plan.items("measured")})
    regrets = [plan.number("regret"), *(run.number("regret") for run in runs)]
    at = [float(done + i) for i in range(len(regrets))]
    texts = ["now", *(f"after {run.text('name')}" for run in runs)]
    return Panel(
        "Regret after each run", "runs made", "expected regret",
        (Series("expected regret", at, regrets, texts=texts),),
        levels=((plan.number("settled_at"), "settled"),), from_zero=True, share=True,
        words="Share of the best speed that the choice gives away on average, after each run: "
              + ", ".join(run.text("name") for run in runs) + ".",
    )
