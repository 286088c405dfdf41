"""What `specsim explain` says: each step as what its time goes to."""

from collections.abc import Sequence

from specsim.report import deployment as d
from specsim.report.blocks import Block, Charts, Group, Lines, Notes, Section
from specsim.report.doc import Doc
from specsim.report.plots import Bars, Value, Waterfall
from specsim.report.tables import Table, bar, in_unit, number, one_unit, percent
from specsim.units import BYTES, FLOPS, TIME, counted, seconds, size, work

MOST_STEPS = 16  # on a page
MOST_PARTS = 14  # bars of a waterfall before the small ones are put together
PIPELINE = "pipeline transfers and bubbles"
_ORDER = {"draft": 0, "target": 1, "sample": 2}


def explained_steps(doc: Doc) -> Section:
    """Every step op by op, for a terminal; notes follow the last one."""
    steps = [block for step in doc.items("steps") for block in _blocks(step)]
    notes = Notes(doc.texts("warnings"))
    return Section("", "", [*steps[:-1], Group([steps[-1], notes])])


def explanation_section(doc: Doc) -> Section:
    """All blocks; a page shows the first MOST_STEPS steps."""
    every = doc.items("steps")
    if not every:
        raise doc.at("steps").fail("a list with at least one step")
    steps = every[:MOST_STEPS]
    cut = [f"The first {MOST_STEPS} of {len(every)} steps."] if len(every) > len(steps) else []
    longest = max(step.number("total_s") for step in steps)
    unit = ("ms", 1e3) if longest >= 1e-3 else ("us", 1e6)
    title = f"Where a step's time goes: {d.title_of(doc)}"
    return Section(title, f"Step: {doc.text('model')}", [
        Lines(cut),
        Charts([*(_waterfall(step, longest, *unit) for step in steps), _bounds(steps, *unit)]),
        Notes(doc.texts("warnings")), d.settings(doc),
    ])


def _blocks(step: Doc) -> list[Block]:
    return [Lines([f"{_name(step)} of context: {_summary(step)}"]), _table(step)]


def _name(step: Doc) -> str:
    context = number(step.number("context_tokens"))
    return f"{step.text('step')}, {step.words('running')} x {context} tokens"


def _summary(step: Doc) -> str:
    rows = step.number("rows")
    parts = ", ".join(f"{name} {seconds(step.maybe(key))}" for name, key in (
        ("target", "target_s"), ("sampling", "sample_s"), ("draft", "draft_s"), ("host", "host_s"),
        ("pipeline", "pipeline_s")) if name != "pipeline" or step.maybe(key))
    return (
        f"{seconds(step.number('total_s'))} ({parts}); {size(step.number('bytes'))}, "
        f"{work(step.number('flops'))}, {step.text('bound')}-bound, "
        f"{counted(rows, 'token')} per pass"
        + (f", {step.number('power_w'):.0f} W per GPU" if step.maybe("power_w") else "")
        + ("" if step.flag("cuda_graph") else ", outside CUDA graphs")
    )


def _table(step: Doc) -> Table:
    """Time, share, bytes, FLOP and what each op waits for; equal ops share a line."""
    merged: dict[str, list[Doc]] = {}
    for op in step.items("ops"):
        merged.setdefault(op.text("op"), []).append(op)
    entries = []
    for name, ops in merged.items():
        calls = sum(op.number("count") for op in ops)
        spent, moved, flops = (
            sum(op.number(key) for op in ops) for key in ("seconds", "bytes", "flops")
        )
        longest = max(ops, key=lambda op: op.number("seconds"))
        label = name if calls == 1 else f"{name} x{calls:g}"
        entries.append((label, spent, moved, flops, longest.text("bound")))
    total, host, piped = step.number("total_s"), step.number("host_s"), _piped(step)
    rest = total - host - piped - sum(entry[1] for entry in entries)
    for label, spent, least in (
        ("gaps between kernels", rest, 1e-9), ("host", host, 0.0), (PIPELINE, piped, 0.0),
    ):
        if spent > least:
            entries.append((label, spent, 0.0, 0.0, "latency"))
    units = [one_unit(values, scale) for values, scale in zip(
        list(zip(*entries, strict=True))[1:4], (TIME, BYTES, FLOPS), strict=True)]
    rows = []
    for label, spent, moved, flops, bound in entries:
        share = spent / total if total else 0.0
        time, read, work = (in_unit(value or None, factor) for value, (_, factor) in zip(
            (spent, moved, flops), units, strict=True))
        rows.append([label, time, percent(share), read, work, bound, bar(share, 16)])
    names = [unit for unit, _ in units]
    return Table(["op", "time", "share", "bytes", "work", "bound", ""], rows,
                 units=["", names[0], "", names[1], names[2], "", ""], detail=1)


# --- charts -------------------------------------------------------------------------------


def _waterfall(step: Doc, longest: float, unit: str, scale: float) -> Waterfall:
    """longest: seconds of the longest step, which the axis of every step has room for."""
    name = _name(step)
    parts = [(part, spent * scale) for part, spent in _parts(step)]
    return Waterfall(name[:1].upper() + name[1:], _summary(step) + ".", parts,
                     f"time in the step, {unit}", _table(step), longest * scale)


def _parts(step: Doc) -> list[tuple[str, float]]:
    """(name, seconds) in the order of the step: drafts, target, sampling, gaps, host."""
    sums: dict[tuple[str, str], float] = {}
    for op in sorted(step.items("ops"), key=lambda op: _ORDER.get(op.text("phase", "-"), 1)):
        key = (op.text("phase", "-"), op.text("op"))  # equal kinds of calls share a bar
        sums[key] = sums.get(key, 0.0) + op.number("seconds")
    kept = sorted(sums, key=lambda key: -sums[key])[:MOST_PARTS]
    parts = [(_labelled(*key), spent) for key, spent in sums.items() if key in kept]
    rest = sum(spent for key, spent in sums.items() if key not in kept)
    total, host, piped = step.number("total_s"), step.number("host_s"), _piped(step)
    gaps = total - host - piped - sum(sums.values())
    parts += [("smaller operations", rest)] if rest > 0 else []
    parts += [("gaps between kernels", gaps)] if gaps > 1e-3 * total else []
    return [*parts, *((name, s) for name, s in (("host", host), (PIPELINE, piped)) if s > 0)]


def _piped(step: Doc) -> float:
    """Seconds of transfers and bubbles between pipeline stages, where there are any."""
    return step.maybe("pipeline_s") or 0.0


def _labelled(phase: str, name: str) -> str:
    return name if phase == "target" or name.startswith(f"{phase}.") else f"{phase}: {name}"


def _bounds(steps: Sequence[Doc], unit: str, scale: float) -> Bars:
    """Memory, compute and latency side by side, for all steps."""
    memory, compute = (
        [scale * (step.maybe(key) or 0.0) for step in steps] for key in ("memory_s", "compute_s")
    )
    latency: list[Value] = [
        max(0.0, scale * step.number("total_s") - m - c)
        for step, m, c in zip(steps, memory, compute, strict=True)
    ]
    return Bars(
        "What bounds the steps",
        "Memory-bound, compute-bound and latency-bound time; latency: kernel floors, gaps, host.",
        [_name(step) for step in steps],
        [("memory", memory), ("compute", compute), ("latency", latency)],
        f"time of the step, {unit}", stacked=True, horizontal=True,
    )
