"""What `specsim diagnose` finds: what was measured, the findings with their evidence, what is
missing."""

from specsim.report.blocks import Block, Fold, Group, Lines, Notes, Section, Terms
from specsim.report.doc import Doc
from specsim.report.tables import Table, number
from specsim.report.verdict import verdict_block
from specsim.units import rounded, seconds, size

_MARKS = {"problem": "PROBLEM", "good": "GOOD", "notice": "NOTE"}
_BY = {"steps": "counted per engine step", "streams": "from the time streams decoded",
       "in flight": "requests in flight", "gauge": "the server's gauge",
       "clients": "clients of the closed loop"}


def diagnosis_section(doc: Doc) -> Section:
    """All blocks."""
    skipped = [f"skipped {item.text('file')}: {item.text('reason', '-')}"
               for item in doc.items("skipped")]
    return Section("Diagnosis: what is happening", "Diagnosis", [
        *(block for run in doc.items("diagnoses") for block in _run(run)),
        Notes(doc.texts("warnings")), Lines(skipped),
    ])


def _run(run: Doc) -> list[Block]:
    """One run: what was measured, the findings, what is missing; on a page also the figures."""
    found = verdict_block(run, run.text("source", ""))
    blocks: list[Block] = [found] if found else []
    blocks += [Lines([
        *([""] if found else []),
        f"{run.text('source', '-')}: {run.text('measured.format', 'measured')}",
        f"  {_measured(run)}",
        *([] if run.items("findings") else ["", "  nothing stands out"]),
    ])]
    for finding in run.items("findings"):
        level = finding.text("level", "notice")
        mark = f"{_MARKS.get(level, level)}: {finding.text('verdict', '-')}"
        blocks += [
            Lines(["", f"  {mark}"], "verdict"), *_facts(finding),
            Lines([f"    -> {step}" for step in finding.texts("next")]),
        ]
    gaps = [
        f"    {gap.text('unjudged')}; it needs {gap.text('what')}: {gap.text('how', '-')}"
        for gap in run.items("missing")
    ]
    notes = [f"  note: {text}" for text in run.texts("warnings")]
    figures = [
        Terms(title, [(key, value.words()) for key, value in run.members(side)])
        for title, side in (("Measured", "measured"), ("Predicted", "predicted"))
        if run.members(side)
    ]
    return [
        Group([*blocks, Lines(["", "  Not judged:", *gaps] if gaps else []), Lines(notes)]),
        Fold("The figures behind it", figures),
    ]


def _measured(run: Doc) -> str:
    """The state in one sentence."""
    measured = run.at("measured")
    parts = []
    for key, words in (
        ("running", "{} running"), ("waiting", "{} waiting"),
        ("kv_cache_usage", "KV cache {}"), ("tokens_per_step", "{} tokens per step"),
        ("acceptance_length", "acceptance length {}"),
    ):
        value = measured.maybe(key)
        if value is None or (key == "waiting" and not value):
            continue
        how = _BY.get(measured.text("running_from", ""), "") if key == "running" else ""
        shown = f"{value:.0%}" if key == "kv_cache_usage" else rounded(value)
        parts.append(words.format(shown) + (f" ({how})" if how else ""))
    if measured.has("per_position"):
        rates = ", ".join(f"{rate.number():.2f}" for rate in measured.items("per_position"))
        parts.append(f"by position {rates}")
    if measured.has("step_s"):
        text = f"{seconds(measured.maybe('step_s'))} between outputs"
        if run.has("predicted"):
            text += f" (predicted {seconds(run.maybe('predicted.itl_s'))})"
        parts.append(text)
    if measured.has("ttft_s"):
        parts.append(f"TTFT {seconds(measured.maybe('ttft_s'))}")
    return ", ".join(parts) or "nothing was running"


def amount(value: float, unit: str) -> str:
    """A figure for people."""
    if unit == "s":
        return seconds(value)
    if unit == "share":
        return f"{value:.1%}"
    if unit == "x":
        return f"{value:.2f}x"
    if unit == "bytes":
        return size(value)
    return number(value)


def _facts(finding: Doc) -> list[Block]:
    """The evidence in columns."""
    rows = [(fact.text("what", "-"), amount(fact.number("value"), fact.text("unit", "")),
             fact.text("source", "-")) for fact in finding.items("evidence")]
    return [Table(["evidence", "value", "from"], rows, indent=4)] if rows else []
