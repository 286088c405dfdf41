"""What `specsim watch` shows: one line per scrape, or a small screen that is drawn over.

Takes the plain dicts of `specsim watch --json`.
"""

from collections.abc import Sequence
from typing import Any

from specsim.report.tables import bar, seconds

_TICKS = "▁▂▃▄▅▆▇█"
HISTORY = 60  # scrapes in the small curves


def watch_line(item: dict[str, Any], clock: str) -> str:
    """One observation on one line."""
    measured = item["measured"] or {}
    parts = [clock]
    if item["state"] in ("unreachable", "restarted"):
        return f"{clock}  {item['message']}"
    parts.append(f"running {_figure(measured.get('running'))}")
    parts.append(f"waiting {_figure(measured.get('waiting'))}")
    parts.append(f"KV {_percent(measured.get('kv_cache_usage'))}")
    if item["state"] != "idle":
        parts.append(f"tokens/step {_figure(measured.get('tokens_per_step'))}")
        if measured.get("per_position"):
            parts.append("[" + " ".join(f"{x:.2f}" for x in measured["per_position"]) + "]")
        if measured.get("step_s"):
            step = f"step {seconds(measured['step_s'])}"
            if item["predicted"]:
                step += f" (predicted {seconds(item['predicted']['itl_s'])})"
            parts.append(step)
    head = {"stopped_paying": "STOPPED PAYING: ", "pays_again": "PAYS AGAIN: ",
            "back": "back: "}.get(item["event"] or "", "")
    parts.append(head + item["message"])
    return "  ".join(parts)


def watch_screen(history: Sequence[dict[str, Any]], url: str, clock: str) -> str:
    """The latest observation in full, with small curves of the last ones."""
    item = history[-1]
    measured, predicted = item["measured"] or {}, item["predicted"]
    name = " ".join(x for x in (measured.get("engine"), measured.get("model")) if x)
    lines = [f"{url}  {name}  {clock}".rstrip(), ""]
    if item["state"] == "unreachable":
        return "\n".join([*lines, f"  {item['message']}", "  trying again ..."])
    lines.append(_row("running", _figure(measured.get("running")), _curve(history, "running")))
    lines.append(_row("waiting", _figure(measured.get("waiting")), _curve(history, "waiting")))
    lines.append(_row("KV cache", _percent(measured.get("kv_cache_usage")),
                      _curve(history, "kv_cache_usage")))
    lines.append(_row("output tok/s", _figure(measured.get("output_tok_s")),
                      _curve(history, "output_tok_s")))
    lines.append(_row("tokens/step", _figure(measured.get("tokens_per_step")),
                      _curve(history, "tokens_per_step")))
    if measured.get("acceptance_length"):
        share = measured.get("draft_share")
        text = _figure(measured["acceptance_length"])
        note = f"{share:.0%} of the steps with a draft" if share is not None else ""
        lines.append(_row("acceptance", text, note))
    for i, rate in enumerate(measured.get("per_position", ())):
        lines.append(_row(f"  draft {i + 1}", f"{rate:.2f}", bar(rate)))
    step = seconds(measured.get("step_s"))
    note = ""
    if predicted:
        note = f"predicted {seconds(predicted['itl_s'])}"
        if item["step_error"] is not None:
            note += f" ({item['step_error']:+.0%})"
        note += f", plain {seconds(predicted['plain_step_s'])}"
    lines.append(_row("step", step, note))
    lines += ["", f"  {item['message']}"]
    if predicted and predicted["break_even"]:
        lines.append(f"  stops paying at about {predicted['break_even']} running")
    return "\n".join(lines)


def _row(name: str, value: str, note: str) -> str:
    return f"  {name:<14}{value:>10}  {note}".rstrip()


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _curve(history: Sequence[dict[str, Any]], name: str) -> str:
    values = [(item["measured"] or {}).get(name) for item in history[-HISTORY:]]
    top = max((value for value in values if value is not None), default=0)
    if len(values) < 2 or not top:
        return ""
    return "".join(
        " " if value is None else _TICKS[min(7, int(value / top * 7.999))] for value in values
    )
