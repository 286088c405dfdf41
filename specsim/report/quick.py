"""What `specsim quick` says: one line per question, each with where its figures are from; the same
as Markdown to share."""

from specsim.report.blocks import Command, Lines, Notes, Section
from specsim.report.deployment import written_for
from specsim.report.doc import Doc
from specsim.report.tables import markdown, number, percent, times, visible
from specsim.report.verdict import lines
from specsim.units import counted, seconds

MOST = 300  # characters of an answer


def quick_section(doc: Doc) -> Section:
    """All blocks."""
    typed = doc.text("to_type", "to measure it")
    return Section("A live server in one word", "Quick look", [
        Lines([f"{question}: {answer}" for question, answer in answers(doc)]),
        Command(f"to type{written_for(doc.at('verdict'))}: {typed}",
                doc.text("verdict.command"))
        if doc.has("verdict.command") else None,
        Notes(doc.texts("warnings")),
    ])


def quick_markdown(doc: Doc) -> str:
    """The same for a chat or an issue."""
    out = [f"- **{question}**: {markdown(answer)}" for question, answer in answers(doc)]
    if doc.has("verdict.command"):
        words = doc.text("verdict.command").replace("```", "")
        version = markdown(written_for(doc.at("verdict")))
        out += ["", f"To type{version}: {markdown(doc.text('to_type', 'to measure it'))}", "",
                "```sh", words, "```"]
    out += ["", *(f"- note: {markdown(text)}" for text in doc.texts("warnings"))]
    made = doc.text("command").replace("`", "")
    return "\n".join(["# Speculative decoding at a live server", "", *out, "", f"By `{made}`", ""])


def answers(doc: Doc) -> list[tuple[str, str]]:
    """(question, answer), in the order in which one asks."""
    loads = doc.items("loads")
    lead = loads[-1]
    typed = "" if doc.has("verdict.command") else doc.text("to_type", "")
    found = [
        ("server", _server(doc)), ("measured", _drive(doc.at("drive"), loads)),
        ("is it on", _on(lead.at("measured"))),
        ("does it pay", "; ".join(lines(doc.at("verdict")))), ("which k", _which_k(loads)),
        ("at which load it stops", _limit(_about(lead))), ("step time", _fit(lead)),
        ("own traffic", _own(doc.at("own_traffic"))), ("to type", typed),
        ("assumed", "; ".join(map(_assumed, doc.items("assumed")))),
    ]
    return [(question, visible(answer, MOST)) for question, answer in found if answer]


def _server(doc: Doc) -> str:
    server, gpu = doc.at("server"), doc.text("deployment.gpu_from")
    engine = f"{server.text('engine') or 'an unknown engine'} {server.text('version')}".strip()
    where = f", GPU {doc.text('deployment.gpu')} ({gpu})" if gpu else ""
    return f"{server.text('model')}, {engine} (told by {server.text('url')}){where}"


def _drive(drive: Doc, loads: list[Doc]) -> str:
    why, each = drive.text("why"), drive.number("seconds")
    if not loads[-1].has("clients"):
        return f"only watched, for {number(3 * each)} s: {why}"
    clients = ", ".join(load.words("clients") for load in loads)
    sent, failed = (sum(load.number(key) for load in loads) for key in ("requests", "failed"))
    ended = f"; ended early: {drive.text('stopped')}" if drive.text("stopped") else ""
    noun = "client" if clients == "1" else "clients"
    return (f"{clients} {noun} for {number(each)} s each, {counted(sent, 'built-in prompt')}, "
            f"{number(failed)} failed; {why}{ended}")


def _on(here: Doc) -> str:
    rate, drafts = here.maybe("acceptance_rate"), here.maybe("num_drafts")
    tokens = here.maybe("tokens_per_step") or here.maybe("acceptance_length")
    if tokens is None:
        return "cannot be seen: neither counters nor answers tell it"
    if not here.has("acceptance_length") and rate is None and tokens <= 1.05:
        return f"no: {tokens:.2f} tokens per step (measured)"
    k = here.maybe("num_speculative_tokens") or len(here.items("per_position"))
    accepted = "" if rate is None else f", {percent(rate)} of the drafts accepted"
    told = f"the server's counters, {number(drafts)} drafts" if drafts else "seen by the client"
    return f"yes: {f'k = {k}, ' if k else ''}{tokens:.2f} tokens per step{accepted} ({told})"


def _about(load: Doc) -> Doc:
    """The prediction about speculation: as it runs, or as it would."""
    return load.at("would") if load.has("would") else load.at("predicted")


def _which_k(loads: list[Doc]) -> str:
    parts = []
    for load in loads:
        about = _about(load)
        if about.has("best_k"):
            k = int(about.number("best_k"))
            clients = load.maybe("clients")
            where = counted(clients, "client") if clients else "this load"
            what = f"k = {k} ({times(about.maybe('best_speedup'))})" if k else "none"
            parts.append(f"{what} at {where}")
    return f"{', '.join(parts)} (predicted)" if parts else ""


def _limit(about: Doc) -> str:
    """Said here where the verdict does not."""
    if about.has("break_even") or not about.maybe("k"):
        return ""
    return f"not before memory is full, {number(about.number('max_requests'))} requests (predicted)"


def _fit(lead: Doc) -> str:
    measured, expected = lead.maybe("measured.step_s"), lead.maybe("predicted.itl_s")
    if measured is None or expected is None:
        return ""
    text = f"{seconds(measured)} between outputs measured, {seconds(expected)} predicted"
    return text + (f". CAUTION: {lead.text('misfit')}" if lead.has("misfit") else "")


def _own(own: Doc) -> str:
    if not own.has("yield_per_step"):
        return ""
    return (f"{own.number('yield_per_step'):.2f} tokens per step over "
            f"{number(own.number('num_drafts'))} drafts before this (counters since the start)")


def _assumed(item: Doc) -> str:
    what, flag = item.text("what"), item.text("flag")
    if not item.has("value"):
        return f"{what} unknown, so nothing is predicted: name it with {flag}"
    changed = [
        f"{other.text('value')} {'pays' if other.flag('pays') else 'does not pay'}, "
        f"best k = {other.words('best_k')}" for other in item.items("changes")
    ]
    if changed:
        return (f"{what} {item.words('value')}; name yours with {flag}, the answer depends on it "
                f"({'; '.join(changed)})")
    same = "others give the same answer" if item.has("changes") else f"{flag} names another"
    return f"{what} {item.words('value')} ({same})"
