"""What `specsim fleet` says: endpoints, what each replica sees, GPUs, what does not fit; of a day
the GPUs by the hour with and without speculation, settings, costs."""

from collections.abc import Sequence
from itertools import groupby

from specsim.report import deployment as d
from specsim.report.blocks import (
    Block,
    Charts,
    Command,
    Fold,
    Group,
    Lines,
    Notes,
    Section,
    Verdict,
)
from specsim.report.capacity import verdict
from specsim.report.columns import count, figure, fixed, table_of, time, word
from specsim.report.doc import Doc
from specsim.report.plots import Bars, Panel, Picture, Series, Value
from specsim.report.tables import Table, interval, number, percent, span
from specsim.units import rounded, seconds


def day_verdict(day: Doc) -> list[str]:
    """GPU-hours with and without speculation, in sentences."""
    saved, pair = day.number("saved_gpu_hours"), day.pair("saved_gpu_hours_interval_90")
    word = "saves" if saved >= 0 else "costs"
    ends = "" if pair is None else f" (90%: {span(pair, '.0f')} saved)"
    lines = [
        f"over a day: {_ends(day, 'gpu_hours')} GPU-hours with speculation, "
        f"{_ends(day, 'gpu_hours_without')} without: it {word} {abs(saved):,.0f}{ends}; "
        f"{number(day.number('gpu_hours_fixed'))} if replicas stayed as at the peak"
    ]
    prices = day.maybe("price"), day.maybe("price_without")
    if prices[0] is not None:
        lines.append(f"price of the day: {number(prices[0])}, without speculation "
                     f"{number(prices[1])}")
    if day.has("energy_j") and day.has("energy_j_without"):
        used = [_ends(day, key, ",.0f", 3.6e6) for key in ("energy_j", "energy_j_without")]
        lines.append(f"energy of the GPUs: {used[0]} kWh, without speculation {used[1]} kWh")
    return lines


def day_blocks(day: Doc) -> list[Block]:
    """The models, the hours of each, what each setting would need, charts."""
    models = day.items("models")
    out: list[Block] = [table_of(models, [
        ("over a day", word("name")),
        ("GPU-hours", lambda m: _ends(m.at("with_speculation"), "gpu_hours")),
        ("without", lambda m: _ends(m.at("without_speculation"), "gpu_hours")),
        ("saved", lambda m: f"{m.number('saved_gpu_hours'):,.0f} "
         f"({span(m.pair('saved_gpu_hours_interval_90'), ',.0f')})"),
        ("in SLO", lambda m: _ends(m.at("with_speculation"), "slo_share", ".0%")),
        ("one lost", lambda m: percent(m.maybe("slo_share_while_lost"), 0)),
    ], remarks=(
        "in SLO: share of the demand that comes while the objectives hold; its interval is that of "
        f"this plan if the prediction is off; one lost: the same at the peak, from the loss of a "
        f"{day.text('lost')} until another serves",
    ))]
    for model in models:
        rows = [_merged(list(rows)) for _, rows in groupby(
            model.items("hours"), lambda h: (h.number("replicas"), h.text("best_setting")))]
        out.append(table_of(rows, [
            (model.text("name"), word("hours")), (model.text("unit"), word("demand")),
            ("replicas", figure("replicas")), ("GPUs", fixed("gpus", ".1f")),
            ("without", fixed("gpus_without", ".1f")), ("best", word("best_setting")),
            ("TPOT", time("tpot_s")), ("without", time("tpot_without_s")),
            ("in SLO", lambda h: percent(h.maybe("slo_share"), 0)),
            ("wait", lambda h: f"{h.number('longest_wait_s'):,.0f} s"),
        ], remarks=_settings(model), detail=1))
        out.append(Fold(f"{model.text('name')}: each setting all day", [table_of(
            model.items("settings"), [
                ("setting", word("setting")), ("capacity", figure("capacity_per_replica")),
                ("GPU-hours", figure("gpu_hours")), ("TPOT", time("tpot_s"))])]))
    return [*out, Charts(day_panels(day))]


def day_panels(day: Doc) -> list[Panel]:
    """GPUs by the hour, and the demand they follow."""
    models = day.items("models")
    hours = list(range(25))

    def held(values: Sequence[float]) -> list[float | None]:
        return [*values, values[-1]]  # a step lasts until the next hour

    def gpus(key: str) -> list[float | None]:
        rows = [[h.number(key) for h in m.items("hours")] for m in models]
        return held([sum(column) for column in zip(*rows, strict=True)])

    if not models:
        return []
    demand = [(m, [h.number("demand") for h in m.items("hours")]) for m in models]
    return [
        Panel("GPUs in use", "hour", "GPUs", (
            Series("with speculation", hours, gpus("gpus"), 0, "steps"),
            Series("without", hours, gpus("gpus_without"), 1, "steps"),
        ), from_zero=True, words="Means over each hour, all models, replicas that start included."),
        Panel("Demand", "hour", "share of its peak", tuple(
            Series(m.text("name"), hours, held([v / max(1e-12, *values) for v in values]), hue + 2,
                   "steps") for hue, (m, values) in enumerate(demand)
        ), from_zero=True, share=True, words="The most of each hour."),
    ]


def day_picture(doc: Doc) -> Picture:
    """Both panels as one figure."""
    return Picture(f"{doc.text('name')} through a day", tuple(day_panels(doc.at("day"))),
                   tuple(day_verdict(doc.at("day"))[:1]))


def _merged(rows: Sequence[Doc]) -> Doc:
    """Hours in a row with the same replicas and the same best setting as one row."""
    first, last = rows[0], rows[-1]
    demand = [h.number("demand") for h in rows]
    mean = {key: sum(h.number(key) for h in rows) / len(rows)
            for key in ("gpus", "gpus_without", "tpot_s", "tpot_without_s")}
    shares = [(h.number("demand"), h.number("slo_share")) for h in rows if h.has("slo_share")]
    whole = sum(weight for weight, _ in shares)
    return Doc({
        **mean, "best_setting": first.text("best_setting"), "replicas": first.number("replicas"),
        "hours": f"{first.number('hour'):.0f}-{last.number('hour') + 1:.0f} h",
        "demand": "-".join(dict.fromkeys(map(rounded, (min(demand), max(demand))))),
        "longest_wait_s": max(h.number("longest_wait_s") for h in rows),
        "slo_share": sum(w * s for w, s in shares) / whole if whole else None,
    }, first.file, first.path)


def _settings(model: Doc) -> list[str]:
    """How long a start takes, and GPU-hours of the settings that matter, set by the hour."""
    lines = [f"a replica serves {model.number('with_speculation.start_s'):,.0f} s after its start"]
    rows = {row.text("setting"): row for row in model.items("settings")}
    names = ["off", f"k={model.words('k')}", "table", "best of each hour"]
    return lines if len(rows) < 2 else [*lines, "GPU-hours (TPOT) were all set by the hour: " + (
        ", ".join(f"{name} {rows[name].number('gpu_hours'):,.0f} "
                  f"({seconds(rows[name].number('tpot_s'))})" for name in names if name in rows))]


def _ends(doc: Doc, key: str, digits: str = ",.0f", unit: float = 1.0) -> str:
    """A value with its 90 % interval: 121 (108-147)."""
    value, pair = doc.maybe(key), doc.pair(f"{key}_interval_90")
    if value is None:
        return "-"
    ends = "" if pair is None else f" ({interval([end / unit for end in pair], digits)})"
    return f"{value / unit:{digits}}{ends}"


def fleet_section(doc: Doc) -> Section:
    """All blocks."""
    ends, name = doc.items("endpoints"), doc.text("name", "a pool of GPUs")
    commands = [
        Command(f"  {e.text('name')}{d.written_for(e.at('flags'))}:",
                e.text("flags.command", "") or e.text("no_flags", ""), " ")
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
