"""The verdict of a result, first in its text, on its page and in a notebook."""

from specsim.methods.registry import is_plain
from specsim.report.blocks import Block, Command, Lines, Verdict
from specsim.report.deployment import written_for
from specsim.report.doc import Doc
from specsim.report.tables import number, span, times
from specsim.report.thresholds import PAYS, QUEUEING

_LEADS = {"off": "to type, without speculation{}:", "unknown": "to measure it, serve this{}:"}


def verdict_block(doc: Doc, about: str = "", *, notes: bool = True) -> Verdict | None:
    """Decision, how sure, memory, command of a result that has a verdict. about: which of several
    runs it is for; notes: and what to know about the command."""
    found = doc.at("verdict")
    if not found.has(""):
        return None
    blocks: list[Block] = [Lines(lines(found), "verdict")]
    if found.has("command"):
        lead = _LEADS.get(found.text("decision"), "to type{}:").format(written_for(found))
        blocks.append(Command(lead, found.text("command")))
        if notes:
            blocks.append(Lines([f"  note: {text}" for text in found.texts("notes")]))
    if found.text("decision") == "unknown" and found.has("method"):
        measured = f"specsim diagnose --url http://localhost:8000 {doc.text('model')}"
        lead = "and, while it" if found.has("command") else "to measure it, while a server with it"
        blocks.append(Command(f"{lead} answers your requests:", measured))
    return Verdict(blocks, about)


def lines(found: Doc) -> list[str]:
    """A verdict in two sentences, and one about memory where speculation costs some."""
    return [text for text in (_decision(found), _sureness(found), _memory(found)) if text]


def _decision(found: Doc) -> str:
    decision, unit = found.text("decision"), found.text("unit")
    at = load_words(found.number("load"), unit)
    if decision == "unknown":
        return _unknown(found, at)
    if decision == "none":
        return f"NO CHOICE meets the limits at {at}"
    choice = _choice(found)
    gain = times(found.maybe("gain"))
    if found.has("gain_90"):
        gain += f" (90%: {span(found.pair('gain_90'))})"
    if found.has("carried"):
        carried = f"{load_words(found.number('carried'), unit)} instead of "
        return (f"{decision.upper()}: with {choice} a server carries {carried}"
                f"{number(found.number('plain_carried'))}, {gain}")
    text = f"ON: {choice}, {gain} at {at}" if decision == "on" else (
        f"OFF at {at}: {choice} gives {gain}")
    return text + _limit(found) + _others(found)


def _unknown(found: Doc, at: str) -> str:
    needed = found.maybe("needed_tokens_per_step")
    if not found.has("method"):
        return "NOT KNOWN whether speculation pays: there is nothing to judge it by"
    choice = _choice(found)
    if needed is None:
        return f"NOT KNOWN: {choice} does not pay at {at}, were every draft accepted"
    rest = [
        f"{more:.2f} at {load_words(item.number('load'), found.text('unit'))}"
        for item in found.items("loads")[1:]
        if (more := item.maybe("needed_tokens_per_step")) is not None
    ]
    text = f"NOT KNOWN: turn on {choice} if a step yields more than {needed:.2f} tokens at {at}"
    return ", ".join([text, *rest])


def _choice(found: Doc) -> str:
    method = found.text("method", "none")
    k = found.maybe("k")
    return "speculation" if is_plain(method) else f"{method} k = {k}" if k else method


def _limit(found: Doc) -> str:
    """Up to which load."""
    below, top, unit = found.maybe("pays_below"), found.maybe("looked_to"), found.text("unit")
    on, load = found.text("decision") == "on", found.number("load")
    if below is None:
        seen = on and top is not None and load <= top
        return f"; pays at any load up to {load_words(top, unit)}" if seen and top else ""
    if on and load >= below:
        return f"; it loses at some loads from {load_words(below, unit)} on"
    if unit != "requests/s" and below == 1:
        return "; not even one client gains"
    return f"; {PAYS} {load_words(below, unit)}"


def _others(found: Doc) -> str:
    """The other loads asked for, where the answer is another one there."""
    first, *rest = found.items("loads") or [found]
    unit, parts = found.text("unit"), []
    for item in rest:
        kept = all(item.at(key).value == first.at(key).value for key in ("decision", "method", "k"))
        if kept:
            continue
        said = _choice(item) if item.text("decision") == "on" else item.text("decision")
        gain = f" ({times(item.maybe('gain'))})" if item.has("gain") else ""
        parts.append(f"at {load_words(item.number('load'), unit)} {said}{gain}")
    return "".join(f"; {part}" for part in parts)


def _sureness(found: Doc) -> str:
    certainty, share = found.text("certainty"), found.maybe("winning_share")
    decision, parts = found.text("decision"), []
    side = "above" if decision == "on" else "below"
    if decision in ("on", "off"):
        if share is None:
            parts.append("no interval of the gain is known" if not found.has("gain_90") else
                         "the choice was not made by throughput alone")
        elif share >= 1:
            parts.append(f"all of the interval lies {side} 1{_less_sure(found)}")
        else:
            parts.append(f"{share:.0%} of the interval lies {side} 1")
    tokens, why = found.maybe("tokens_per_step"), found.text("rests_on", "")
    known = [] if tokens is None else [f"{tokens:.2f} tokens per step"]
    parts += [", ".join([*known, *([why] if why else [])])] if found.has("gain") else [*known, why]
    parts = [part for part in parts if part]
    return f"{certainty}: {'; '.join(parts)}" if parts else ""


def _less_sure(found: Doc) -> str:
    """From which of the other loads asked for the interval holds 1, though the decision stays."""
    decision, rest = found.text("decision"), found.items("loads")[1:]
    holds = [
        item.text("decision") == decision and (band := item.pair("gain_90")) is not None
        and band[0] <= 1 <= band[1] for item in rest
    ]
    if True not in holds:
        return ""
    first = holds.index(True)
    at = load_words(rest[first].number("load"), found.text("unit"))
    onward = len(holds) - first > 1 and all(holds[first:])
    return f", but not from {at} on" if onward else f", but not at {at}"


def _memory(found: Doc) -> str:
    cost = found.at("memory")
    if not cost.has(""):
        return ""
    taken, ours = int(cost.number("drafter_kv_tokens")), int(cost.number("queueing_from"))
    plain = int(cost.number("plain_queueing_from"))
    if not taken and ours == plain:
        return ""
    unit = "clients" if found.text("unit") == "clients" else "requests at a time"
    where = f"{QUEUEING} {ours:,} {unit}" + (
        ", with and without" if ours == plain else f" instead of {plain:,}")
    return f"memory: speculation takes {taken:,} KV tokens; {where}"


def load_words(value: float, unit: str) -> str:
    """'1 client', '64 clients', '2.5 requests/s'."""
    if value == 1 and unit.endswith("s") and "/" not in unit:
        unit = unit.removesuffix("s") if unit != "running requests" else "running request"
    return f"{number(value, 3) if value != int(value) else f'{int(value):,}'} {unit}"
