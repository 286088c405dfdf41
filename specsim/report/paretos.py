"""The text and the plots of `specsim pareto`."""

from collections.abc import Sequence
from typing import Any

from specsim.errors import SpecSimError
from specsim.planning.flags import ready_flags
from specsim.planning.pareto import Pareto, ParetoPoint, sides
from specsim.report.plots import Panel, Picture, Series
from specsim.report.tables import seconds, table

MAX_ROWS = 24
MAX_COMMANDS = 6
HUES = {"speculative": 0, "plain": 1}
WORDS = {"speculative": "with speculation", "plain": "without"}


def command_of(point: ParetoPoint) -> tuple[str | None, str | None]:
    """(command that starts the point's deployment, why there is none)."""
    try:
        return ready_flags(point.system).command, None
    except SpecSimError as error:
        return None, str(error)


def point_dict(point: ParetoPoint) -> dict[str, Any]:
    """A point of a frontier for JSON, with what to type."""
    command, why = command_of(point)
    return {**point.to_dict(), "command": command, "no_command": why}


def pareto_json(result: Pareto, every_point: bool = False) -> dict[str, Any]:
    """JSON-ready. every_point: also what the frontiers do not hold."""
    out = Pareto.to_dict(result)  # a subclass may add this very text to its own
    out["frontier"] = [point_dict(p) for p in result.frontier]
    out["frontier_speculative"] = [p.to_dict() for p in result.speculative]
    out["frontier_plain"] = [p.to_dict() for p in result.plain]
    if every_point:
        out["points"] = [p.to_dict() for p in result.points]
    return out


def pareto_rows(result: Pareto) -> list[dict[str, Any]]:
    """One flat row per feasible point for CSV, with which frontiers hold it."""
    both, with_it = set(map(id, result.frontier)), set(map(id, result.speculative))
    without = set(map(id, result.plain))
    return [
        {
            **p.to_dict(),
            "on_frontier": id(p) in both,
            "on_frontier_of_side": id(p) in with_it or id(p) in without,
        }
        for p in result.points
    ]


def pareto_text(result: Pareto) -> str:
    """Assumptions, the frontier of all, what to type, what cannot run."""
    blocks = [_head(result), _frontier(result), _gain(result), _commands(result),
              _infeasible(result)]
    blocks.append("\n".join(f"note: {text}" for text in result.warnings))
    return "\n\n".join(block for block in blocks if block)


def _head(result: Pareto) -> str:
    base = result.base
    setup = base.setup
    lines = [
        f"{base.spec.name} on {base.profile.title or base.profile.name}, "
        f"{base.engine.title or base.engine.name}; requests of {result.workload.input_len} + "
        f"{result.workload.output_len} tokens"
    ]
    if base.speculative and base.acceptance is not None:
        drafter = f", drafter {setup.drafter.name}" if setup.drafter else ""
        lines.append(f"{setup.method}{drafter} ({base.acceptance.source})")
    else:
        lines.append("no speculation")
    axes = result.axes
    lines.append(
        f"k {_list(axes.k)}; tp {_list(axes.tp)}; weights {_list(axes.weights)}; cache "
        f"{_list(axes.kv_dtype)}; max_num_seqs {_list(axes.max_num_seqs)}; token budget "
        f"{_list(axes.max_num_batched_tokens)}"
    )
    lines.append(
        f"{len(result.points)} of {axes.count} combinations can run, each taken full: "
        "max_num_seqs clients in a closed loop"
    )
    return "\n".join(lines)


def _list(values: Sequence[object]) -> str:
    return ",".join(map(str, values))


def thinned(points: Sequence[ParetoPoint], most: int) -> list[ParetoPoint]:
    """At most `most` of them, evenly spaced, ends included."""
    if len(points) <= most:
        return list(points)
    return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]


def _frontier(result: Pareto) -> str:
    shown = thinned(result.frontier, MAX_ROWS)
    rows = [
        [
            f"{p.stream_tok_s:.1f}", f"{p.gpu_tok_s:.0f}", str(p.k) if p.k else "plain", str(p.tp),
            p.weights, p.kv_dtype, str(p.max_num_seqs), str(p.max_num_batched_tokens),
            seconds(p.tpot_s), seconds(p.ttft_s),
        ]
        for p in shown
    ]
    left = len(result.frontier) - len(shown)
    text = "the frontier, from the fastest for one user to the highest throughput"
    if left:
        text += f" ({len(shown)} of {len(result.frontier)} points; --json has all)"
    headers = ["tok/s/user", "tok/s/GPU", "k", "tp", "weights", "cache", "max_num_seqs",
               "token budget", "TPOT", "TTFT"]
    return text + "\n" + table(headers, rows, left=0)


def _gain(result: Pareto) -> str:
    """What speculation moves, at both ends."""
    if not (result.speculative and result.plain):
        return ""
    fast, slow = result.speculative[0].stream_tok_s, result.plain[0].stream_tok_s
    most, least = result.speculative[-1].gpu_tok_s, result.plain[-1].gpu_tok_s
    held = sum(1 for p in result.frontier if p.k)
    return (
        f"with speculation one user gets up to {fast:.0f} tok/s instead of {slow:.0f}, and a GPU "
        f"up to {most:.0f} tok/s instead of {least:.0f}; {held} of the {len(result.frontier)} "
        "points on the frontier speculate"
    )


def _commands(result: Pareto) -> str:
    lines = ["what to type"]
    for p in thinned(result.frontier, MAX_COMMANDS):
        command, why = command_of(p)
        lines.append(f"  {p.stream_tok_s:.0f} tok/s/user, {p.gpu_tok_s:.0f} tok/s/GPU:")
        lines.append(f"    {command or 'no command: ' + (why or '')}")
    return "\n".join(lines)


def _infeasible(result: Pareto) -> str:
    if not result.infeasible:
        return ""
    lines = ["cannot run"]
    for reason, count in result.infeasible.items():
        example = result.examples.get(reason)
        lines.append(f"  {count:>6}  {reason}" + (f" (e.g. {example[:120]})" if example else ""))
    return "\n".join(lines)


def pareto_panel(result: Pareto, clouds: bool = True) -> Panel:
    """Both frontiers, and everything else faintly behind them."""
    series = []
    lines = {"speculative": result.speculative, "plain": result.plain}
    for name, points in sides(result.points):
        hue = HUES[name]
        if clouds:
            series.append(Series(
                f"all {WORDS[name]}", [p.stream_tok_s for p in points],
                [p.gpu_tok_s for p in points], hue, "points", faint=True, keyed=False,
            ))
        front = lines[name]
        series.append(Series(
            WORDS[name], [p.stream_tok_s for p in front], [p.gpu_tok_s for p in front], hue,
            "line" if name == "speculative" else "dashed",
        ))
    return Panel(
        "Speed for one user against throughput of a GPU", "tokens/s for one user",
        "output tokens/s per GPU", tuple(series), log_x=True, log_y=True,
    )


def pareto_picture(result: Pareto) -> Picture:
    base = result.base
    axes = result.axes
    title = f"{base.spec.name} on {base.profile.name}, {base.engine.name} {base.engine.version}"
    note = (
        f"{result.workload.input_len} + {result.workload.output_len} tokens; k {_list(axes.k)}; tp "
        f"{_list(axes.tp)}; weights {_list(axes.weights)}; cache {_list(axes.kv_dtype)}; each "
        "point full: max_num_seqs clients"
    )
    return Picture(title, (pareto_panel(result),), (note,))
