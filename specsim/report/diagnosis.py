"""A diagnosis as text. Takes the plain dicts of `specsim diagnose --json`."""

import textwrap
from collections.abc import Sequence
from typing import Any

from specsim.report.tables import seconds, size

WIDTH = 100
_MARKS = {"problem": "PROBLEM", "good": "GOOD", "notice": "NOTE"}
_BY = {"steps": "counted per engine step", "streams": "from the time streams decoded",
       "in flight": "requests in flight", "gauge": "the server's gauge",
       "clients": "clients of the closed loop"}


def diagnosis_text(document: dict[str, Any]) -> str:
    """Every diagnosis of the document, one after the other."""
    parts = [one_text(item) for item in document["diagnoses"]]
    skipped = [f"skipped {item['file']}: {item['reason']}" for item in document["skipped"]]
    notes = [f"note: {text}" for text in document["warnings"]]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else []),
                        *(["\n".join(skipped)] if skipped else [])])


def one_text(item: dict[str, Any]) -> str:
    """One run: what was measured, the findings, what is missing."""
    measured = item["measured"]
    lines = [f"{item['source']}: {measured.get('format', 'measured')}"]
    lines += _wrapped(measured_line(measured, item["predicted"]), "  ")
    if not item["findings"]:
        lines += ["", "  nothing stands out"]
    for finding in item["findings"]:
        lines.append("")
        lines += _wrapped(f"{_MARKS[finding['level']]}: {finding['verdict']}", "  ", "    ")
        rows = [(fact["what"], amount(fact["value"], fact["unit"]), fact["source"])
                for fact in finding["evidence"]]
        lines += _facts(rows)
        for step in finding["next"]:
            lines += _wrapped(f"-> {step}", "    ", "       ")
    if item["missing"]:
        lines += ["", "  Not judged:"]
        for gap in item["missing"]:
            lines += _wrapped(f"{gap['unjudged']}, for want of {gap['what']}: {gap['how']}",
                              "    ", "      ")
    for text in item["warnings"]:
        lines += _wrapped(f"note: {text}", "  ", "    ")
    return "\n".join(lines)


def measured_line(measured: dict[str, Any], predicted: dict[str, Any] | None) -> str:
    """The state in one sentence."""
    parts = []
    if "running" in measured:
        how = _BY.get(measured.get("running_from", ""), "")
        parts.append(f"{measured['running']:.3g} running" + (f" ({how})" if how else ""))
    if measured.get("waiting"):
        parts.append(f"{measured['waiting']:.3g} waiting")
    if "kv_cache_usage" in measured:
        parts.append(f"KV cache {measured['kv_cache_usage']:.0%}")
    if "tokens_per_step" in measured:
        parts.append(f"{measured['tokens_per_step']:.3g} tokens per step")
    if "acceptance_length" in measured:
        parts.append(f"acceptance length {measured['acceptance_length']:.3g}")
    if "per_position" in measured:
        rates = ", ".join(f"{rate:.2f}" for rate in measured["per_position"])
        parts.append(f"by position {rates}")
    if "step_s" in measured:
        text = f"{seconds(measured['step_s'])} between outputs"
        if predicted is not None:
            text += f" (predicted {seconds(predicted['itl_s'])})"
        parts.append(text)
    if "ttft_s" in measured:
        parts.append(f"TTFT {seconds(measured['ttft_s'])}")
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
    return f"{value:.4g}"


def _facts(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    if not rows:
        return []
    names, values = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
    return [f"      {name:<{names}}  {value:>{values}}  {source}" for name, value, source in rows]


def _wrapped(text: str, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first,
                         subsequent_indent=first if rest is None else rest,
                         break_long_words=False, break_on_hyphens=False) or [first.rstrip()]
