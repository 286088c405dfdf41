"""The text that `specsim tune` prints."""

from collections.abc import Sequence

from specsim.planning.flags import ServeCommand
from specsim.planning.tune import WORTH_A_TABLE, Answer, Tuning
from specsim.planning.tune_choices import Candidate
from specsim.planning.tune_robust import Robust, RobustChoice
from specsim.planning.tune_sensitivity import Choice
from specsim.report.tables import interval, seconds, table

MOST_ROWS = 40  # candidates printed for one load


def tuning_text(result: Tuning) -> str:
    """The answers first, then why, then what to type."""
    first = result.plain or result.systems[0]
    gpus = f" x{first.parallel.gpus}" if first.parallel.gpus > 1 else ""
    blocks = [
        f"{first.spec.name} ({first.spec.weights}) on {first.profile.name}{gpus}, "
        f"{first.engine.name} {first.engine.version}, {result.workload.name}: "
        f"{result.workload.input_len} in, {result.workload.output_len} out, "
        f"objective {result.objective}",
        _summary(result),
    ]
    if len(result.answers) == 1:
        blocks.append(_candidates(result.answers[0].candidates))
    else:
        blocks.append(_grid(result))
    blocks += [_margins(answer) for answer in result.answers if answer.margins]
    blocks += [_robust(answer.robust) for answer in result.answers[:1] if answer.robust]
    blocks += [text for answer in result.answers if (text := _sensitivity(answer, result))]
    if result.dynamic is not None:
        blocks.append(_dynamic(result))
    blocks.append(_flags(result))
    notes = []
    if result.skipped:
        names = ", ".join(name for name, _ in result.skipped)
        notes.append(f"not looked at (no drafter, or no measured acceptance): {names}; --json says "
                     "why, --methods and --acceptance-length bring one in")
    notes += [f"note: {text}" for text in result.warnings]
    return "\n\n".join([*blocks, *(["\n".join(notes)] if notes else [])])


def _name(choice: Candidate | RobustChoice | Choice) -> str:
    return "plain" if choice.k == 0 else f"{choice.method} k={choice.k}"


def _summary(result: Tuning) -> str:
    rows = []
    for answer in result.answers:
        best = answer.best
        if best is None:
            rows.append([answer.load.label, "none", *["-"] * 7])
            continue
        rows.append(
            [
                answer.load.label, _name(best), f"{best.speedup:.2f}x", interval(best.interval_90),
                f"{best.tokens_per_step:.2f}", seconds(best.tpot_s), seconds(best.ttft_s),
                f"{best.stream_tok_s:.0f}", f"{best.output_tok_s:.0f}",
            ]
        )
    unit = "rate" if result.answers[0].load.rate is not None else "clients"
    return table(
        [unit, "best", "speedup", "90 %", "tokens/step", "TPOT", "TTFT", "tok/s/user", "tok/s"],
        rows, left=2,
    )


def _candidates(candidates: Sequence[Candidate]) -> str:
    rows = [
        [
            _name(c) + ("*" if c.extrapolated else ""),
            f"{c.tokens_per_step:.2f}",
            f"{c.speedup:.2f}x" if c.speedup else "-",
            interval(c.interval_90),
            seconds(c.tpot_s),
            f"{c.output_tok_s:.0f}",
            f"{c.step_cost_ratio:.2f}" if c.bound else "-",
            c.reason[:60] or "ok",
        ]
        for c in candidates[:MOST_ROWS]
    ]
    body = table(
        ["choice", "tokens/step", "speedup", "90 %", "TPOT", "tok/s", "r", "limits"], rows
    )
    beyond = any(c.extrapolated for c in candidates)
    return body + ("\n* acceptance beyond the measured positions, extrapolated" if beyond else "")


def _grid(result: Tuning) -> str:
    """Speed-up of every choice at every load."""
    labels = [answer.load.label for answer in result.answers]
    rows = []
    for i, first in enumerate(result.answers[0].candidates[:MOST_ROWS]):
        cells = []
        for answer in result.answers:
            found = answer.candidates[i]
            mark = "<" if found is answer.best else " "
            cells.append(f"{found.speedup:.2f}x{mark}" if found.feasible else "no ")
        rows.append([_name(first) + ("*" if first.extrapolated else ""), *cells])
    body = table(["speedup at", *labels], rows)
    remarks = "< best; no: does not meet the limits"
    if any(c.extrapolated for c in result.answers[0].candidates):
        remarks += "; * acceptance beyond the measured positions, extrapolated"
    return f"{body}\n{remarks}"


def _margins(answer: Answer) -> str:
    parts = [
        f"{m.k}>{m.next_k} {m.gain:+.0%}/{m.cost:+.0%}{' pays' if m.pays else ''}"
        for m in answer.margins
    ]
    return (
        f"one more draft at {answer.load.label} (tokens gained/step time added): "
        + ", ".join(parts)
    )


def _robust(found: Robust) -> str:
    names = [f"{name} ({weight:.0%})" for name, weight, _ in found.scenarios]
    rows = [
        [_name(c), *(f"{value:.2f}x" for value in c.speedups), f"{c.expected:.2f}x",
         f"{c.worst_regret:.1%}"]
        for c in found.choices
    ]
    body = table(["choice", *names, "expected", "worst regret"], rows)
    return (
        f"{body}\nbest on average: {_name(found.by_expected)} ({found.by_expected.expected:.2f}x); "
        f"least worst regret: {_name(found.by_regret)} ({found.by_regret.worst_regret:.1%})"
    )


def _sensitivity(answer: Answer, result: Tuning) -> str:
    found = answer.sensitivity
    if found is None or not found.unknowns:
        return ""
    decisive = found.decisive
    head = f"at {answer.load.label} "
    if decisive is None:
        head += "no unknown within its range costs the choice 1 %"
    else:
        head += (
            f"the unknown that matters most is {decisive.name} ({decisive.range_text}): at worst "
            f"the choice loses {decisive.loss:.0%}\nto settle it: {decisive.measurement}"
        )
    if len(result.answers) > 1:
        return head  # asked for alone, a load shows the table and the commands
    rows = [
        [u.name, u.range_text, _name(u.at_low), _name(u.at_high), f"{u.loss:.1%}"]
        for u in found.unknowns
    ]
    body = table(["unknown", "range", "best at low", "best at high", "loss"], rows, left=2)
    how = ""
    if decisive is not None:
        how = "\n" + "\n".join(f"  {line}" for line in decisive.commands)
    return f"{head}{how}\n\n{body}"


def _dynamic(result: Tuning) -> str:
    found = result.dynamic
    if found is None:
        return ""
    ranges = ", ".join(f"{first}-{last}: {k}" for first, last, k in found.rows)
    tax = [point.tax for point in found.points]
    compared = f"k={found.fixed_k}" if found.fixed_k else "plain decoding"
    text = f"draft length by batch size: {ranges}"
    if len(found.rows) > 1:
        text += f" (up to {found.gain:.0%} over {compared} throughout)"
    return (
        f"{text}\nstaying on at k = 0 would cost {min(tax):.0%} to {max(tax):.0%} of a plain step "
        "(the drafter keeps its cache, the engine its books)"
    )


def _flags(result: Tuning) -> str:
    lines: list[str] = []
    seen: dict[str, list[str]] = {}
    kept: dict[str, ServeCommand] = {}
    for answer in result.answers:
        if answer.flags is None:
            text = f"no flags at {answer.load.label}: {answer.no_flags}"
            if answer.nearest is not None:
                text += f"; nearest: {_name(answer.nearest)}, {answer.nearest.reason}"
            lines.append(text)
            continue
        seen.setdefault(answer.flags.command, []).append(answer.load.label)
        kept[answer.flags.command] = answer.flags
    for command, labels in seen.items():
        where = "" if len(result.answers) == 1 else f" at {', '.join(labels)}"
        lines += [f"to type{where}:", f"  {command}"]
        lines += [f"  note: {text}" for text in kept[command].warnings]
    flags, found = result.dynamic_flags, result.dynamic
    if flags is not None and found is not None and found.gain >= WORTH_A_TABLE:
        lines += ["for a load that moves, the table:", f"  {flags.command}"]
        lines += [f"  note: {text}" for text in flags.warnings
                  if text not in {t for f in kept.values() for t in f.warnings}]
    return "\n".join(lines)
