"""What `specsim predict` says of a model: as text, and as a section of a page; with
--from-measured, what a measurement of another system says of the one that is asked about."""

from collections.abc import Sequence

from specsim.report import deployment as d
from specsim.report.blocks import Block, Charts, Facts, Group, Lines, Notes, Section
from specsim.report.columns import (
    Cell,
    Column,
    band,
    curve,
    figure,
    fixed,
    pays,
    table_of,
    three,
    time,
    time_band,
    waiting,
    waits,
    word,
)
from specsim.report.deployment import engine_of, gpus_of
from specsim.report.doc import Doc
from specsim.report.plots import Bars, Panel, Series, Value, with_ends
from specsim.report.tables import Table, number, times
from specsim.report.thresholds import PAYS, below
from specsim.report.verdict import verdict_block
from specsim.units import seconds, size

NAMES = {"tpot_s": "TPOT", "ttft_s": "TTFT", "output_tok_s": "tok/s", "speedup": "speedup"}


def carried_blocks(doc: Doc) -> list[Block]:
    """Lines and the table; none where nothing was measured."""
    found = doc.at("from_measured")
    if not found.has("figures"):
        return []
    changes = ", ".join(f"{name} {value.words()}" for name, value in found.members("changes"))
    files = [name.replace("\\", "/").rpartition("/")[2] for name in found.texts("files")]
    rows = found.items("figures")
    several = len({(row.number("input_len"), row.number("output_len")) for row in rows}) > 1
    lengths: list[Column] = [
        ("tokens", lambda row: f"{row.words('input_len')}+{row.words('output_len')}")]
    return [
        Lines([
            f"From a measurement of {found.text('model')} on {gpus_of(found)} x "
            f"{found.text('gpu')}, {engine_of(found)} ({', '.join(files)}), with {changes}:",
        ]),
        table_of(rows, [
            ("clients", lambda row: f"{row.number('concurrency'):.3g}"), ("", _name),
            *(lengths if several else ()),
            ("measured", _by_metric("measured")), ("there", _by_metric("predicted_there")),
            ("here", _by_metric("predicted")), ("carried", _by_metric("value")),
            ("90%", _band), ("moved", fixed("moved", "+.0%")),
        ], left=2, remarks=[
            "there, here: predicted for what was measured, and for what is asked about",
            "carried: here, moved by what the prediction missed the measurement by, as far as",
            "  public pairs of measurements bear out; 90%: where nine of ten such values lie",
        ]),
        Lines(["The prediction alone:"]),
    ]


def _by_metric(key: str) -> Cell:
    return lambda row: _figure(row.text("metric"), row.number(key))


def _name(row: Doc) -> str:
    name = NAMES.get(row.text("metric"), row.text("metric"))
    return name if row.text("side") != "plain" else f"plain {name}"


def _band(row: Doc) -> str:
    """Both ends, in one unit where they have one."""
    low, high = (_figure(row.text("metric"), end).split() for end in row.pair("interval_90") or ())
    return f"{low[0] if low[1:] == high[1:] else ' '.join(low)}-{' '.join(high)}"


def _figure(metric: str, value: float) -> str:
    if metric.endswith("tok_s"):
        return number(value)
    return times(value) if metric == "speedup" else seconds(value)


def prediction_section(doc: Doc) -> Section:
    """Header with every assumption, one line per load, the answers below, charts."""
    if not doc.items("points"):
        raise doc.at("points").fail("a list with at least one point")
    model = doc.text("model")
    return Section(f"Prediction: {d.title_of(doc)}", f"Prediction: {model}", [
        *carried_blocks(doc),
        verdict_block(doc),
        Lines([
            d.deployed(doc) + d.apart(doc), d.drafting(doc),
            f"requests of {doc.words('input_len')} + {doc.words('output_len')} tokens"
            f"{doc.text('live.workload', '')}; fidelity: {doc.text('fidelity', '-')}",
        ]),
        facts_of(doc),
        points_table(doc),
        intervals_table(doc),
        energy_table(doc),
        Group([Lines(answers(doc)), Notes(doc.texts("warnings"))]),
        Charts([
            speedup_panel(doc), times_panel(doc, "TPOT", "Time per output token after the first."),
            _trade_panel(doc),
            times_panel(doc, "TTFT", "Mean time to the first token, waiting included."),
            energy_panel(doc),
            _acceptance_bars(doc), _memory_bars(doc),
        ]),
        d.settings(doc),
    ])


def points_table(doc: Doc) -> Table:
    points = doc.items("points")
    is_open = any(p.has("utilisation") for p in points)
    queued = [(p.number("concurrency"), p.number("running")) for p in points if not is_open]
    return table_of(points, [
        ("rate" if is_open else "clients",
         _load if is_open else lambda p: waits(p.number("concurrency"), p.number("running"))),
        ("speedup", figure("speedup", times) if d.speculative(doc) else lambda _: "-"),
        ("TPOT", time("tpot_s")), ("plain", time("baseline_tpot_s")),
        ("TTFT", time("ttft_s")), ("step", time("step_s")),
        ("r", fixed("step_cost_ratio", ".2f")), ("tok/s/user", fixed("stream_tok_s", ".0f")),
        ("tok/s", fixed("output_tok_s", ".0f")), ("bound", word("bound")),
    ], remarks=waiting(queued))


def intervals_table(doc: Doc) -> Table | None:
    """Where nine of ten measurements of such values lie, on both sides."""
    points = doc.items("points")
    columns: list[Column] = [("90%", _load)]
    if d.speculative(doc):
        columns += [("pays", pays), ("speedup", band("interval_90.speedup")),
                    ("r", band("interval_90.step_cost_ratio"))]
    names = {"TPOT": "tpot_s", "plain": "baseline_tpot_s", "TTFT": "ttft_s",
             "plain TTFT": "baseline_ttft_s"}
    columns += [
        (name, time_band(f"interval_90.{key}")) for name, key in names.items()
        if d.speculative(doc) or not key.startswith("baseline")
    ]
    shown = [p for p in points if p.pair("interval_90.tpot_s") or p.pair("interval_90.ttft_s")]
    return table_of(shown, columns) if shown else None


def energy_table(doc: Doc) -> Table | None:
    """Watts of a GPU and joules per output token, with and without speculation."""
    points = [p for p in doc.items("points") if p.has("energy")]
    both = d.speculative(doc)
    columns: list[Column] = [("energy", _load), ("W/GPU", fixed("energy.power_w", ".0f"))]
    if both:
        columns += [("plain W", fixed("baseline_energy.power_w", ".0f"))]
    columns += [
        ("J/token", three("energy.joules_per_output_token")),
        ("90%", band("interval_90.joules_per_output_token", ".3g")),
    ]
    if both:
        columns += [
            ("plain", three("baseline_energy.joules_per_output_token")),
            ("with/plain", fixed("joules_ratio", ".2f")),
            ("90%", band("interval_90.joules_ratio")),
        ]
    columns += [("prompt J", three("energy.prefill_joules_per_request"))]
    if not points:
        return None
    first = points[0].at("energy")
    host = " with their hosts" if first.number("host_joules_per_request") else " alone"
    assumed = ", shares of power assumed from another device" if first.flag("assumed") else ""
    return table_of(points, columns, remarks=[f"boards{host}{assumed}"])


def _load(p: Doc) -> str:
    """A point's load as the first column shows it."""
    if p.has("utilisation"):
        return f"{p.number('request_rate'):g}/s"
    return f"{p.number('concurrency'):.15g}"


def facts_of(doc: Doc) -> Facts:
    first, limit = doc.items("points")[0], doc.maybe("break_even_concurrency")
    looked = doc.maybe("verdict.looked_to") if doc.has("verdict") else None
    load = _load(first)
    if not first.has("utilisation"):
        load += " client" if load == "1" else " clients"
    return Facts([
        ("Speedup", times(first.maybe("speedup")), f"at {load}"),
        ("TPOT", seconds(first.maybe("tpot_s")),
         f"{seconds(first.maybe('baseline_tpot_s'))} plain"),
        ("TTFT", seconds(first.maybe("ttft_s")),
         f"{seconds(first.maybe('baseline_ttft_s'))} plain"),
        (PAYS.capitalize(), below(limit, looked), "clients"),
        ("Run together", number(doc.maybe("max_concurrency")), "such requests at most"),
    ])


def answers(doc: Doc) -> list[str]:
    lines = []
    if d.speculative(doc):
        found = [(p, p.number("best_k")) for p in doc.items("points") if p.has("best_k")]
        lengths = [k for _, k in found]
        remark = " (0: plain decoding wins)" if 0 in lengths else ""
        remark += _beyond(doc, lengths)
        if len(set(lengths)) == 1:
            lines.append(f"best k: {lengths[0]}{remark}")
        elif found:
            pairs = ", ".join(f"{k} at {_load(p)}" for p, k in found)
            lines.append(f"best k: {pairs}{remark}")
    memory = doc.at("memory")
    drafter, state = memory.maybe("drafter_bytes"), memory.maybe("state_bytes_per_seq")
    window = memory.maybe("window_bytes_per_seq")
    lines.append(
        f"memory per GPU: weights {size(memory.number('weight_bytes'))}"
        + (f", drafter {size(drafter)}" if drafter else "")
        + f", cache {size(memory.number('kv_bytes_per_token'))} per token"
        + (f", windows up to {size(window)} per request" if window else "")
        + (f", state {size(state)} per request" if state else "")
        + f"; at most {doc.words('max_concurrency')} such requests run together"
    )
    return lines


def _beyond(doc: Doc, lengths: Sequence[float]) -> str:
    """Says so when a best k rests on positions whose acceptance was not given or measured."""
    # One rate for every position says what longer drafts do; everything else is extrapolated.
    if not doc.has("acceptance") or doc.text("acceptance.kind") == "rate":
        return ""
    known = doc.number("acceptance.measured_positions")
    if max(lengths, default=0) <= known:
        return ""
    return f" (acceptance beyond position {known} is extrapolated)"


# --- charts -------------------------------------------------------------------------------


def axis(doc: Doc) -> tuple[str, str]:
    """(unit of the loads, their key)."""
    if all(p.has("utilisation") for p in doc.items("points")):
        return "requests/s", "request_rate"
    return "clients", "concurrency"


def terminal_panel(doc: Doc) -> Panel:
    """What `--plot` draws: the ends of the interval as dots."""
    return with_ends(speedup_panel(doc))


def speedup_panel(doc: Doc) -> Panel:
    """Speedup over clients or requests per second, with its 90% interval."""
    unit, key = axis(doc)
    points, limit = doc.items("points"), doc.maybe("break_even_concurrency")
    series = curve("speedup", points, key, "speedup", interval="interval_90.speedup")
    ends = points[0].number(key), points[-1].number(key)
    inside = limit is not None and unit == "clients" and ends[0] < limit < ends[1]
    return Panel(
        "What speculation gains", unit, "speedup, with / without", (series,),
        log_x=len(points) > 2, levels=((1.0, "break-even"),),
        words="Output tokens per second with speculation over those without. The band is the 90% "
              "interval from the residuals of public measurements.",
        mark=(limit, f"{PAYS} {limit}") if inside and limit is not None else None,
    )


def side_by_side(docs: Sequence[Doc]) -> Panel | None:
    """Speedups of several predictions in one chart, where their loads are of one kind."""
    axes = {axis(doc) for doc in docs}
    if len(docs) < 2 or len(axes) > 1:
        return None
    unit, key = axes.pop()
    series = [
        curve(f"{doc.text('model')}, {doc.text('gpu', '-')}, {doc.text('method', '-')} k = "
              f"{doc.words('k')}", doc.items("points"), key, "speedup", hue)
        for hue, doc in enumerate(docs)
    ]
    every = [x for item in series for x in item.x if x is not None]
    return Panel(
        "Speedup", unit, "speedup, with / without", tuple(series),
        log_x=len(every) > 2 and 0 < 8 * min(every) < max(every), levels=((1.0, "break-even"),),
        words="Above 1 speculation pays.",
    )


def times_panel(doc: Doc, name: str, words: str) -> Panel | None:
    """TPOT or TTFT with and without speculation."""
    unit, load = axis(doc)
    points, key = doc.items("points"), f"{name.lower()}_s"
    ours = curve("with speculation", points, load, key, scale=1e3,
                 interval=f"interval_90.{key}")
    others = curve("plain", points, load, f"baseline_{key}", 1, scale=1e3)
    known = [value for value in (*ours.y, *others.y) if value]
    if len(known) < 2 * len(points):
        words += " Points are missing where the queue grows without end."
    return Panel(
        name, unit, f"{name}, ms", (ours, others), log_x=len(points) > 2,
        log_y=max(known) > 30 * min(known), words=words,
    ) if known else None


def energy_panel(doc: Doc) -> Panel | None:
    """Joules per output token with and without speculation."""
    unit, load = axis(doc)
    points, name = doc.items("points"), "joules_per_output_token"
    if len(points) < 2 or not all(p.has("energy") for p in points):
        return None
    series = [
        curve(title, points, load, f"{side}energy.{name}", hue,
              interval=f"interval_90.{side}{name}")
        for hue, (title, side) in enumerate((("with speculation", ""), ("plain", "baseline_")))
    ]
    return Panel(
        "Energy of an output token", unit, "joules per output token", tuple(series),
        log_x=len(points) > 2, log_y=True,
        words="All GPUs of the deployment, prompts included. The bands are 90% intervals; the "
              "ratio of the two curves is surer than either.",
    )


def _trade_panel(doc: Doc) -> Panel | None:
    points, gpus = doc.items("points"), d.all_gpus_of(doc)
    sides = []
    for hue, name in enumerate(("with speculation", "plain")):
        across: list[Value] = []
        up: list[Value] = []
        texts = []
        for p in points:
            tpot = p.maybe("baseline_tpot_s")
            stream = (1 / tpot if tpot else None) if hue else p.maybe("stream_tok_s")
            rate = (p.maybe("baseline_output_tok_s" if hue else "output_tok_s") or 0.0) / gpus
            across.append(stream)
            up.append(rate)
            texts.append(f"at {_load(p)}")
        sides.append(Series(name, across, up, hue, texts=texts))
    return Panel(
        "Latency against throughput", "tok/s/user", "tok/s/GPU", tuple(sides), by_point=True,
        words="Each point is a load: to the right faster for each user, upwards more from each "
              "GPU. A curve further out is better.",
    ) if len(points) > 1 else None


def _acceptance_bars(doc: Doc) -> Bars | None:
    k = int(doc.maybe("k") or 0)
    reach = doc.numbers("acceptance.unconditional")[:k]
    each = doc.numbers("acceptance.conditional")[: len(reach)]
    return Bars(
        "Acceptance by position",
        "How likely a draft token is accepted: with all before it (what engines report per "
        f"position), and once all before it were. Source: {doc.text('acceptance.source', '-')}.",
        [f"draft {i + 1}" for i in range(len(reach))],
        [("this and all before", reach),
         ("given all before", each + [None] * (len(reach) - len(each)))],
        "probability of acceptance", share=True,
    ) if reach else None


def _memory_bars(doc: Doc) -> Bars:
    memory = doc.at("memory")
    parts = [(name, memory.maybe(key) or 0.0) for name, key in (
        ("weights", "weight_bytes"), ("drafter", "drafter_bytes"), ("reserve", "reserve_bytes"),
        ("states", "state_pool_bytes"), ("cache pool", "pool_bytes"))]
    return Bars(
        "Memory of one GPU",
        f"Of {size(memory.maybe('capacity_bytes') or 0)}; the cache pool holds "
        f"{number(memory.maybe('kv_tokens'))} tokens. The reserve is assumed.",
        ["memory"], [(name, [value / 1e9]) for name, value in parts if value > 0],
        "memory of one GPU, GB", stacked=True, horizontal=True, size="low",
    )
