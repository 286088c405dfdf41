"""What `specsim fleet` says: endpoints, what each replica sees, GPUs, what does not fit."""


from specsim.report import deployment as d
from specsim.report.blocks import Charts, Command, Fold, Group, Lines, Notes, Section, Verdict
from specsim.report.capacity import verdict
from specsim.report.columns import count, fixed, table_of, word
from specsim.report.doc import Doc
from specsim.report.fleet_day import day_blocks, day_verdict
from specsim.report.plots import Bars, Value
from specsim.report.tables import Table, number
from specsim.units import rounded, seconds


def fleet_section(doc: Doc) -> Section:
    """All blocks."""
    ends, name = doc.items("endpoints"), doc.text("name", "a pool of GPUs")
    commands = [
        Command(f"  {e.text('name')}:", e.text("flags.command", "") or e.text("no_flags", ""), " ")
        for e in ends
    ]
    fits = "everything fits" if doc.flag("fits") else "NOT EVERYTHING FITS"
    return Section(f"Fleet: {name}", "Fleet", [
        Verdict([Lines([
            f"fleet {name}: {fits}; capacities by {doc.text('method')}, replicas run at "
            f"{doc.number('operating_share'):.0%} of theirs",
            *(day_verdict(doc.at("day")) if doc.has("day") else ()),
        ], "verdict")]),
        _endpoints(doc),
        Lines([line for e in ends for line in _seen(e)]),
        Lines(_gpus(doc)),
        *(day_blocks(doc.at("day")) if doc.has("day") else ()),
        Charts([_loads(doc)]),
        Group([Lines(["what to type"]), *commands]),
        Notes(doc.texts("warnings")),
        Fold("Devices of the replicas", [table_of(ends, [
            ("endpoint", word("name")),
            ("devices", lambda e: "; ".join(names.words() for names in e.items("devices")[:40])),
        ], left=2)]),
    ])


def _endpoints(doc: Doc) -> Table:
    return table_of(doc.items("endpoints"), [
        ("endpoint", word("name")), ("GPU", word("gpu")), ("tp", count("gpus_per_replica")),
        ("speculation",
         lambda e: f"{e.text('method')} k={e.words('k')}" if d.speculative(e) else "none"),
        ("max_num_seqs", count("max_num_seqs")),
        ("capacity", lambda e: f"{number(e.number('capacity_per_replica'))} {e.text('unit')}"),
        ("demand", fixed("demand", ".4g", "fills")),
        ("replicas", lambda e: f"{e.words('replicas')} of {e.words('replicas_wanted')}"
         if _missing(e) else e.words("replicas")),
        ("GPUs", count("gpus")), ("carries", fixed("carries", ".4g")),
        ("survives a failure", lambda e: "yes" if e.flag("survives_a_failure") else
         "NO" if e.flag("n_minus_1") else "not asked"),
    ], left=2)


def _missing(e: Doc) -> bool:
    """Whether fewer replicas are placed than wanted."""
    return e.number("replicas") < e.number("replicas_wanted")


def _seen(e: Doc) -> list[str]:
    """What one replica sees, at the demand and with one lost."""
    lines = []
    if e.has("binding_limit"):
        lines.append(
            f"{e.text('name')}: limited by: {e.text('binding_limit.name')} "
            f"({e.text('binding_limit.gate')}); max_num_seqs from {e.text('max_num_seqs_from')}"
        )
    for words, key in (("at the demand", "at_demand"), ("one lost", "after_a_failure")):
        point = e.at(key)
        if point.has(""):
            load = f"{number(point.number('load'))} {e.text('unit')}"
            lines.append(f"  {words}: {_point(point)} per replica of {load}: {verdict(point)}")
    price = e.maybe("cost.per_million_output_tokens")
    return lines + ([] if price is None else [f"  {rounded(price)} per million output tokens"])


def _point(point: Doc) -> str:
    figures = dict(point.members("figures"))
    ttft, stream, rate = (
        figures[name].maybe() if name in figures else None
        for name in ("ttft_s.p95", "stream_tok_s.p10", "output_tok_s")
    )
    return (
        f"TTFT p95 {seconds(ttft)}, streams p10 {'-' if stream is None else f'{rounded(stream)}'} "
        f"tok/s, {'-' if rate is None else f'{number(rate)}'} tok/s"
    )


def _gpus(doc: Doc) -> list[str]:
    lines = []
    empty = dict(doc.members("empty_gpus"))
    for pool in doc.items("gpus"):
        gpu, needed, present = pool.text("gpu"), pool.number("needed"), pool.number("present")
        text = f"{gpu}: {needed} needed, {present} in the pool"
        if needed > present:
            text += (f": {needed - present} SHORT (without N - 1: "
                     f"{pool.words('needed_without_n_minus_1')})")
        elif gpu in empty and empty[gpu].maybe():
            text += f", {empty[gpu].words()} of them not needed"
        lines.append(text)
    for e in doc.items("endpoints"):
        short = e.number("short")
        if short > 0 or _missing(e):
            lines.append(
                f"{e.text('name')}: {e.words('replicas')} of {e.words('replicas_wanted')} replicas "
                f"placed, carries {number(e.number('carries'))} of "
                f"{number(e.maybe('demand') or 0)} {e.text('unit')}: {number(short)} short"
            )
    lines += [f"{m.text('name')} does not fit {m.text('gpu')}: {m.text('reason')}"
              for m in doc.items("does_not_fit")]
    if doc.has("price_per_hour"):
        lines.append(f"price of the GPUs used: {number(doc.number('price_per_hour'))} per hour")
    return lines


def _loads(doc: Doc) -> Bars | None:
    """Load of a replica over what it can carry; units differ by endpoint, so shares."""
    known = [e for e in doc.items("endpoints") if e.maybe("capacity_per_replica")]

    def shares(key: str) -> list[Value]:
        return [None if (load := e.maybe(key)) is None else load / e.number("capacity_per_replica")
                for e in known]

    return Bars(
        "Load of each replica",
        "As a share of what a replica carries within the service levels, and with one replica "
        "less.",
        [e.text("name") for e in known],
        [("all replicas", shares("load_per_replica")),
         ("after a failure", shares("load_per_replica_after_a_failure"))],
        "share of capacity", share=True,
    ) if known else None
