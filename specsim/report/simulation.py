"""What `specsim simulate` says: both sides, latencies, other figures, gates, and how it went over
time."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specsim.report import deployment as d
from specsim.report.blocks import Charts, Group, Lines, Notes, Section, Verdict
from specsim.report.doc import Doc
from specsim.report.plots import Bars, Panel, Series
from specsim.report.tables import Table, interval, number, times
from specsim.units import counted, seconds, size

if TYPE_CHECKING:
    from specsim.sim.result import SimulationFigures

_TIMES = (
    ("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("ITL, per chunk", "itl_s"),
    ("ITL, per token", "itl_per_token_s"), ("E2E latency", "e2el_s"),
)
_STATISTICS = ("mean", "p50", "p90", "p95", "p99")
_SHARES = ("draft", "verify", "decode", "prefill", "host", "pipeline", "idle")
_FIGURES = (  # label, key, key of the gain
    ("output tok/s", "output_tok_s", "output_tok_s"),
    ("requests/s", "request_rate", ""),
    ("tok/s per stream p50", "stream_tok_s.p50", ""),
    ("tok/s per stream p10", "stream_tok_s.p10", "stream_tok_s_p10"),
    ("tokens per step (AL)", "acceptance_length", ""),
    ("running, mean", "running_mean", ""),
    ("running, max", "running_max", ""),
    ("waiting, max", "waiting_max", ""),
    ("KV usage, max", "kv_usage_max", ""),
    ("preemptions", "preemptions", ""),
    ("cache transfer, mean", "transfer_s.mean", ""),
    ("prefill replicas busy", "pools.prefill.busy", ""),
    ("decode replicas busy", "pools.decode.busy", ""),
    ("prefix hit rate", "prefix_hit_rate", ""),
    ("engine steps", "steps", ""),
    ("power, W", "energy.power_w", ""),
    ("J per output token", "energy.joules_per_output_token", "joules_per_output_token"),
    *((f"time: {name}", f"time_share.{name}", "") for name in _SHARES),
)
# Figures that only some deployments have.
_WHERE_THERE = ("time_share", "transfer_s", "pools", "energy")
_OVER_TIME = (  # title, words, unit, keys, whether it is a share
    ("Requests waiting over time", "Mean number in the engines' queues.", "requests waiting",
     ("waiting",), False),
    ("Requests running over time", "Mean number of requests in a step.", "requests running",
     ("running",), False),
    ("TTFT over time", "Median and 95th percentile of the requests sent in each interval.",
     "TTFT, s", ("ttft_p50_s", "ttft_p95_s"), False),
    ("Cache in use over time", "Share of the blocks held by requests.", "share of the cache",
     ("kv_usage",), True),
    ("Output over time", "Tokens given out per second.", "output tok/s",
     ("output_tok_s",), False),
)


def live(result: "SimulationFigures") -> dict[str, object]:
    """What a live result says beside its JSON: `deployment.live`, memory, whether there is one side
    alone."""
    plan = result.deployment.system.memory
    drafter = f", drafter {size(plan.drafter_bytes)}" if plan.drafter_bytes else ""
    return {
        **d.live(result.deployment.system),
        "pool": f"memory per GPU: weights {size(plan.weight_bytes)}{drafter}, cache pool "
                f"{size(plan.pool_bytes)}",
        "alone": result.comparison.baseline is result.comparison.main,
    }


def simulation_section(doc: Doc) -> Section:
    """Assumptions, latencies, other figures, gates, notes, charts."""
    inputs = doc.at("inputs")
    load = [(f"load: {key}", value.words()) for key, value in inputs.members("load")
            if key != "assumed" and value.has("")]
    partial = ["PARTIAL: interrupted; what follows is what was simulated until then"]
    model = inputs.text("model")
    return Section(f"Simulation: {d.title_of(inputs)}", f"Simulation: {model}", [
        Lines(partial if doc.flag("partial") else []),
        _verdict(doc),
        Lines([
            d.deployed(inputs) + _replicas(inputs), d.drafting(inputs), *_policy(inputs),
            load_line(inputs.at("load")), _window(doc),
        ]),
        _latencies(doc),
        _figures(doc),
        _gates(doc),
        Group([Lines([*pass_lines(doc), *_answers(doc)]), Notes(doc.texts("warnings"))]),
        Charts([*_percentiles(doc), *_over_time(doc), _time_shares(doc)]),
        d.settings(inputs, load),
    ])


def _replicas(inputs: Doc) -> str:
    count, router = inputs.maybe("config.n_replicas") or 1, inputs.text("config.router", "a router")
    if told := d.apart(inputs):
        return f"{told}, behind {router}"
    return f", {count:g} replicas behind {router}" if count > 1 else ""


def _policy(inputs: Doc) -> list[str]:
    text = inputs.text("policy", "")
    return [f"draft lengths by policy: {text}, up to k"] if text else []


def _window(doc: Doc) -> str:
    start, end = doc.pair("window_s") or (0.0, 0.0)
    seed, runs = int(doc.number("seed")), int(doc.number("replications"))
    text = f"measured from {number(start)} s to {number(end)} s of simulated time, seed {seed}"
    return text + (f" to {seed + runs - 1}: medians of {runs} runs" if runs > 1 else "")


def load_line(load: Doc) -> str:
    """A load's description in one line."""
    kind = load.text("kind")
    total = load.maybe("requests")
    requests = counted(total, "request") if total else "requests"
    if kind == "people":
        who = "agent" if load.maybe("behaviour.tool_calls_mean") else "user"
        if streams := load.maybe("streams"):
            pace = f"{counted(streams, 'user')} without pauses"
        else:
            pace = counted(load.number("users"), f"simulated {who}")
        met = ", in steady service (settled)" if load.flag("settled") else ""
        return f"load: {pace} of scenario {load.text('scenario', '-')}{met}"
    if kind == "trace":
        return (
            f"load: {requests} of {load.text('file', '-')} ({load.text('format', '-')}), "
            f"{load.text('pace', '-')}"
        )
    shape = f"{load.words('input_len')} + {load.words('output_len')} tokens"
    if ratio := load.maybe("range_ratio"):
        shape += f" (each +- {ratio:.0%})"
    if shared := load.maybe("shared_prefix"):
        groups = counted(load.number("prefix_groups"), "group")
        shape += f", {shared:g} of them a shared prefix ({groups})"
    if prompts := load.maybe("prompts"):
        shape += f", {counted(prompts, 'prompt')} in turn"
    if kind == "closed":
        clients = load.number("concurrency")
        return f"load: {counted(clients, 'client')} in a closed loop, {requests} of {shape}"
    pace = "all at once"
    if load.at("rate").value != "inf":
        pace = f"{load.number('rate'):g}/s (burstiness {load.at('burstiness').value})"
    return f"load: {requests} of {shape}, {pace}"


def _sides(doc: Doc) -> list[Doc]:
    """The figures with speculation, and without where that is another run."""
    alone = doc.flag("live.alone") or not doc.has("baseline")
    return [doc] if alone else [doc, doc.at("baseline")]


def _latencies(doc: Doc) -> Table:
    rows = [
        ["  without" if i else label,
         *(seconds(side.maybe(f"{key}.{stat}")) for stat in _STATISTICS)]
        for label, key in _TIMES for i, side in enumerate(_sides(doc))
    ]
    return Table(["", *_STATISTICS], rows)


def _figures(doc: Doc) -> Table:
    sides = _sides(doc)
    both = len(sides) > 1
    intervals = doc.at("gain_confidence_95" if both else "confidence_95")
    banded = bool(intervals.members())
    rows = []
    for label, key, gain in _FIGURES:
        values = [side.maybe(key) for side in sides]
        if key.startswith(_WHERE_THERE) and not any(values):
            continue
        cells = [_number(value, key) for value in values]
        if both:
            better = doc.maybe(f"gain.{gain}") if gain else None
            cells.append("" if better is None else times(better))
        if banded:
            named = gain if both else key
            pair = intervals.child(named).pair() if named else None
            ends = "" if pair is None else f"{_number(pair[0], key)} to {_number(pair[1], key)}"
            cells.append(interval(pair) if both and pair else ends)
        rows.append([label, *cells])
    headers = ["with", "without", "gain"] if both else ["value"]
    return Table(["", *headers, *(["95%"] if banded else [])], rows)


def _number(value: float | None, key: str) -> str:
    if value is None or not math.isfinite(value):
        return "-"
    if key.startswith(("time_share", "pools")) or key in ("kv_usage_max", "prefix_hit_rate"):
        return f"{value:.1%}"
    if key == "transfer_s.mean":
        return seconds(value)
    return number(value)


def _gates(doc: Doc) -> Table | None:
    sides = _sides(doc)
    rows = []
    for name, gate in doc.members("slo"):
        if name in ("pass", "verdict"):  # of all gates; the others are gates
            continue
        cells = [name, gated(name, gate.maybe("limit"))]
        for side in sides:
            judged = side.at("slo").child(name)
            word = "ok" if judged.flag("pass") else "FAILS"
            cells.append(f"{gated(name, judged.maybe('value'))} {word}")
        rows.append(cells)
    rows.append(["all", "", *("ok" if side.flag("slo.pass") else "FAILS" for side in sides)])
    headers = ["SLO", "limit", "with", "without"][: 2 + len(sides)]
    return Table(headers, rows) if doc.members("slo") else None


def pass_lines(doc: Doc) -> list[str]:
    """How sure it is that the load passes, and whether what was measured is stationary."""
    names = ("with speculation: ", "without: ") if len(_sides(doc)) > 1 else ("",)
    lines = [name + passing(side.at("slo.verdict")) for name, side in zip(names, _sides(doc),
             strict=True) if side.has("slo.verdict")]
    said = doc.text("stationarity.sentence", "")
    return [*lines, *([said] if said else [])]


def passing(verdict: Doc) -> str:
    """'passes with probability 0.88 (95 %: 0.69 to 0.96; 21 of 24 runs)'."""
    low, high = verdict.pair("pass_probability_95") or (0.0, 1.0)
    text = (
        f"passes with probability {verdict.number('pass_probability'):.2f} (95%: {low:.2f} to "
        f"{high:.2f}; {verdict.words('passes')} of {verdict.words('replications')} runs)"
    )
    return text if verdict.flag("sure") else text + ": open, too close to call"


def gated(name: str, value: float | None) -> str:
    """A gate's limit or value: latencies as times, everything else as a number."""
    if value is None:
        return "-"
    timed = name.startswith(("ttft", "tpot", "itl", "e2el", "queue"))
    return seconds(value) if timed else number(value)


def _verdict(doc: Doc) -> Verdict | None:
    """Whether speculation pays at the load that was simulated."""
    faster = doc.maybe("gain.tpot_mean")
    if faster is None or len(_sides(doc)) == 1:
        return None
    pays = "pays" if faster > 1 else "does not pay"
    text = f"speculation {pays} at this load: {faster:.2f}x as fast per token"
    return Verdict([Lines([text], "verdict")])


def _answers(doc: Doc) -> list[str]:
    config, pool = doc.at("inputs.config"), doc.text("live.pool", "cache pool of a GPU")
    block = config.words("rules.block_size")
    line = (
        f"{pool} ({config.words('num_kv_blocks')} blocks of {block} "
        f"{'token' if block == '1' else 'tokens'})"
    )
    return [line, *(f"assumed by the scenario: {name}: {text.text()}"
                    for name, text in doc.members("inputs.load.assumed"))]


# --- charts -------------------------------------------------------------------------------


def _named(doc: Doc) -> list[tuple[str, int, Doc]]:
    """(name, hue, figures) of the sides there are."""
    if not d.speculative(doc.at("inputs")):
        return [("without speculation", 1, doc)]
    names = ("with speculation", "without")
    return [(names[i], i, side) for i, side in enumerate(_sides(doc))]


def _percentiles(doc: Doc) -> list[Bars]:
    out = []
    sides = _named(doc)
    for key, label, words in (
        ("ttft_s", "TTFT", "Time from sending a request to its first token, waiting included."),
        ("tpot_s", "TPOT", "Time per output token of a request after its first."),
    ):
        values = [[side.maybe(f"{key}.{stat}") for stat in _STATISTICS] for _, _, side in sides]
        most = max((v for line in values for v in line if v is not None), default=0.0)
        unit, factor = ("s", 1.0) if most > 2 else ("ms", 1e3)
        cut = doc.maybe(f"{key}.censored")
        waited = f" {counted(cut or 0, 'request')} never got there: counted as far as waited."
        groups = [
            (name, [None if v is None else v * factor for v in line])
            for (name, _, _), line in zip(sides, values, strict=True)
        ]
        if most:
            out.append(Bars(
                f"{label} percentiles", words + (waited if cut else ""), _STATISTICS, groups,
                f"{label}, {unit}", hues=[hue for _, hue, _ in sides],
            ))
    return out


def _over_time(doc: Doc) -> list[Panel]:
    names = [name for name, _, _ in _named(doc)]
    keys = zip(names, ("timeline", "baseline_timeline"), strict=False)
    lines = [(name, doc.at(key)) for name, key in keys if doc.has(key)]
    return [
        Panel(title, "simulated time, s", unit, tuple(_series(lines, keys)), share=share,
              words=f"{words} Intervals of {lines[0][1].number('width_s'):g} s, first run.")
        for title, words, unit, keys, share in _OVER_TIME if lines
    ]


def _series(lines: Sequence[tuple[str, Doc]], keys: Sequence[str]) -> list[Series]:
    return [
        Series(f"{name}, {key.split('_')[1]}" if len(keys) > 1 else name, line.numbers("t_s"),
               line.numbers(key), hue + 2 * i, "steps")
        for hue, (name, line) in enumerate(lines) for i, key in enumerate(keys)
    ]


def _time_shares(doc: Doc) -> Bars | None:
    sides = _named(doc)
    groups = [(part, [side.maybe(f"time_share.{part}") or 0.0 for _, _, side in sides])
              for part in _SHARES]
    groups = [(part, values) for part, values in groups if any(values)]
    return Bars(
        "Where the engine's time goes", "Shares of the measured time by what the engine did.",
        [name for name, _, _ in sides], groups, "share of the time", stacked=True,
        horizontal=True, share=True, size="low",
    ) if groups else None
