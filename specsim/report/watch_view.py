"""What `specsim watch` shows: one line per scrape, or a small screen that is drawn over.

Takes the plain dicts of `specsim watch --json`.
"""

from collections.abc import Mapping, Sequence

from specsim.report.doc import Doc
from specsim.report.tables import bar
from specsim.report.thresholds import PAYS
from specsim.units import rounded, seconds

_TICKS = "▁▂▃▄▅▆▇█"
HISTORY = 60  # scrapes in the small curves
_EVENTS = {"stopped_paying": "STOPPED PAYING: ", "pays_again": "PAYS AGAIN: ", "back": "back: "}
Seen = Mapping[str, object]


def watch_line(item: Seen, clock: str) -> str:
    """One observation on one line."""
    seen = Doc(item)
    measured, state = seen.at("measured"), seen.text("state")
    if state in ("unreachable", "restarted"):
        return f"{clock}  {seen.text('message')}"
    parts = [
        clock, f"running {_figure(measured, 'running')}", f"waiting {_figure(measured, 'waiting')}",
        f"KV {_share(measured, 'kv_cache_usage')}",
    ]
    if state != "idle":
        parts.append(f"tokens/step {_figure(measured, 'tokens_per_step')}")
        rates = [f"{rate.number():.2f}" for rate in measured.items("per_position")]
        parts += [f"[{' '.join(rates)}]"] if rates else []
        if measured.maybe("step_s"):
            step = f"step {seconds(measured.maybe('step_s'))}"
            if seen.has("predicted"):
                step += f" (predicted {seconds(seen.maybe('predicted.itl_s'))})"
            parts.append(step)
    parts.append(_EVENTS.get(seen.text("event", ""), "") + seen.text("message"))
    return "  ".join(parts)


def watch_screen(history: Sequence[Seen], url: str, clock: str) -> str:
    """The latest observation in full, with small curves of the last ones."""
    past = [Doc(item) for item in history[-HISTORY:]]
    seen = past[-1]
    measured, predicted = seen.at("measured"), seen.at("predicted")
    name = " ".join(filter(None, (measured.text("engine", ""), measured.text("model", ""))))
    lines = [f"{url}  {name}  {clock}".rstrip(), ""]
    if seen.text("state") == "unreachable":
        return "\n".join([*lines, f"  {seen.text('message')}", "  trying again ..."])
    for label, key, shown in (
        ("running", "running", _figure), ("waiting", "waiting", _figure),
        ("KV cache", "kv_cache_usage", _share), ("output tok/s", "output_tok_s", _figure),
        ("tokens/step", "tokens_per_step", _figure),
    ):
        lines.append(_row(label, shown(measured, key), _curve(past, key)))
    if measured.maybe("acceptance_length"):
        share = measured.maybe("draft_share")
        note = "" if share is None else f"{share:.0%} of the steps with a draft"
        lines.append(_row("acceptance", _figure(measured, "acceptance_length"), note))
    for i, rate in enumerate(measured.items("per_position")):
        lines.append(_row(f"  draft {i + 1}", f"{rate.number():.2f}", bar(rate.number())))
    note = ""
    if predicted.has(""):
        error = seen.maybe("step_error")
        note = f"predicted {seconds(predicted.maybe('itl_s'))}"
        note += "" if error is None else f" ({error:+.0%})"
        note += f", plain {seconds(predicted.maybe('plain_step_s'))}"
    lines += [_row("step", seconds(measured.maybe("step_s")), note), "",
              f"  {seen.text('message')}"]
    if predicted.maybe("break_even"):
        lines.append(f"  {PAYS} about {predicted.words('break_even')} running")
    return "\n".join(lines)


def _row(name: str, value: str, note: str) -> str:
    return f"  {name:<14}{value:>10}  {note}".rstrip()


def _figure(measured: Doc, key: str) -> str:
    value = measured.maybe(key)
    if value is None:
        return "-"
    return rounded(value)


def _share(measured: Doc, key: str) -> str:
    value = measured.maybe(key)
    return "-" if value is None else f"{value:.0%}"


def _curve(past: Sequence[Doc], key: str) -> str:
    values = [seen.maybe(f"measured.{key}") for seen in past]
    top = max((value for value in values if value is not None), default=0)
    if len(values) < 2 or not top:
        return ""
    return "".join(
        " " if value is None else _TICKS[min(7, int(value / top * 7.999))] for value in values
    )
