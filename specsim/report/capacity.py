"""What `specsim capacity` says: the largest load within the service levels, what ends it, where to
run, max_num_seqs, replicas, cost."""

from specsim.report import deployment as d
from specsim.report.blocks import Charts, Command, Lines, Notes, Section
from specsim.report.doc import Doc
from specsim.report.plots import Panel, Series
from specsim.report.simulation import gated
from specsim.report.tables import Table
from specsim.report.verdict import verdict_block
from specsim.units import counted, rounded, seconds


def capacity_section(doc: Doc) -> Section:
    """Capacity of each side and its limit, the system, request slots, replicas, cost."""
    typed, said = None, [doc.text("no_flags", "")]
    if doc.has("flags") and doc.at("verdict.command").value == doc.text("flags.command"):
        said = []  # the verdict has it
    elif doc.has("flags"):
        lead = (f"what to type for max_num_seqs {doc.words('advised_max_num_seqs')}"
                f"{d.written_for(doc.at('flags'))}:")
        typed, said = Command(lead, doc.text("flags.command"), " "), doc.texts("flags.warnings")
    gates = [(f"SLO {name}", limit.words()) for name, limit in doc.members("slo")]
    return Section(f"Capacity: {d.title_of(doc)}", f"Capacity: {doc.text('model')}", [
        verdict_block(doc),
        Lines(_answers(doc, doc.text("live.share", "a share of it"))),
        Lines(_head(doc)),
        _loads(doc),
        Lines(_replicas(doc)),
        typed,
        Notes([*said, *doc.texts("warnings")]),
        Charts([_trials(doc)]),
        d.settings(doc, [("rule", doc.text("rule", "-")), *gates]),
    ])


def _head(doc: Doc) -> list[str]:
    load = doc.at("load")
    partial = ["PARTIAL: interrupted; what follows is what was found until then", ""]
    offered = f"requests of {load.words('input_len')} + {load.words('output_len')} tokens at a rate"
    if load.text("kind") == "people":
        met = "in steady service (settled)" if load.flag("settled") else "all beginning together"
        offered = f"people of scenario {load.text('scenario', '-')}, {met}"
    gates = ", ".join(f"{name} {limit.number():g}" for name, limit in doc.members("slo"))
    duration, warmup = load.maybe("duration_s") or 0, load.maybe("warmup_s") or 0
    return [
        *(partial if doc.flag("partial") else []),
        f"{d.deployed(doc)}{d.apart(doc)}, max_num_seqs {doc.words('max_num_seqs')}",
        d.drafting(doc),
        f"load: {offered}",
        f"objectives: {gates}; runs of {duration:g} s, the first {warmup:g} s not measured; "
        f"{counted(doc.number('runs'), 'run')}",
        "a load passes when its median replication does"
        + ("; quick: two runs per load, rough" if doc.flag("quick") else ""),
    ]


def _sides(doc: Doc) -> list[tuple[str, Doc]]:
    sides = [("with" if d.speculative(doc) else "plain", doc)]
    if doc.has("baseline"):
        sides.append(("without", doc.at("baseline")))
    if doc.has("with_recommended_max_num_seqs"):
        advised = doc.at("with_recommended_max_num_seqs")
        sides.append((f"with, max_num_seqs {advised.words('max_num_seqs')}", advised))
    return sides


def verdict(found: Doc) -> str:
    """How a load was judged."""
    if not found.flag("sure"):
        return "too close to call"
    return "passes" if found.flag("pass") else "fails"


def _loads(doc: Doc) -> Table:
    rows = [
        ["" if i else name, f"{trial.number('load'):g}",
         f"{trial.words('passes')} of {trial.words('replications')}", _probability(trial),
         verdict(trial), *_worst(trial)]
        for name, side in [*_sides(doc), *_other(doc)]
        for i, trial in enumerate(side.items("trials"))
    ]
    return Table(["speculation", doc.text("unit"), "runs that pass", "probability (95%)", "",
                  "worst SLO", "its median"], rows)


def _probability(trial: Doc) -> str:
    low, high = trial.pair("pass_probability_95") or (0.0, 1.0)
    share = trial.maybe("pass_probability")
    return "-" if share is None else f"{share:.2f} ({low:.2f} to {high:.2f})"


def _worst(trial: Doc) -> tuple[str, str]:
    gate = trial.text("worst_gate", "-")
    return gate, gated(gate, trial.maybe(f"gate_medians.{gate}"))


def _other(doc: Doc) -> list[tuple[str, Doc]]:
    """What carries the other question, where both were asked."""
    other = doc.at("other_question")
    if not other.has(""):
        return []
    return [("with, settled" if other.flag("settled") else "with, as run", other)]


def _answers(doc: Doc, share: str) -> list[str]:
    unit = doc.text("unit")
    lines = []
    for name, side in _sides(doc):
        prefix = "" if name == "plain" else f"{name}: " if "," in name else (
            f"{name} speculation: "
        )
        lines.append(prefix + _capacity(side, unit))
        if side.has("ladder_capacity"):
            lines.append(f"  on the ladder of stages: {side.number('ladder_capacity'):g} {unit}")
        limit, relieved = side.at("binding_limit"), side.at("failing_load_with_twice_the_slots")
        if limit.has(""):
            what, cause = limit.text("name"), limit.text("cause")
            lines.append(
                f"  limited by: {cause}{f' ({what})' if cause != what else ''}, SLO "
                f"{limit.text('gate')} at {limit.number('load'):g} {unit}: "
                + "; ".join(limit.texts("evidence"))
            )
        if relieved.has(""):
            lines.append(f"  the same load with twice the max_num_seqs: {_point(relieved)}: "
                         f"{verdict(relieved)}")
        point = side.at("operating_point")
        if point.has(""):
            lines.append(f"  run at {share}: {point.number('load'):g} {unit}: {_point(point)}")
        lines += _cost(side.at("cost"))
    for _, other in _other(doc):
        asked = (
            "settled service (conversations as long as after hours): " if other.flag("settled")
            else "the same as a load test runs it (all begin together): "
        )
        lines.append(asked + _capacity(other, unit))
    if doc.has("gain"):
        lines.append(f"speculation carries {doc.number('gain'):.2f} times the load")
    floor = doc.at("stream_floor")
    if floor.maybe("max_num_seqs"):
        cache = floor.text("held_by") == "cache"
        lines.append(
            f"max_num_seqs for {floor.number('floor_stream_tok_s_p10'):g} tok/s per stream (p10) "
            f"with all request slots taken: {floor.words('max_num_seqs')} "
            f"({'the cache holds no more' if cache else 'more falls below it'})"
        )
        tried = ", ".join(
            f"{trial.words('max_num_seqs')}: {rounded(trial.number('stream_tok_s_p10'))}"
            for trial in floor.items("trials")
        )
        lines.append(f"  p10 tok/s by max_num_seqs: {tried}")
    return lines


def _capacity(side: Doc, unit: str) -> str:
    trials = side.items("trials")
    most = side.number("capacity")
    if most <= 0:
        least = f" (least: {trials[0].number('load'):g} {unit})" if trials else ""
        return f"no load tried meets the objectives{least}"
    text = f"{most:g} {unit}"
    if side.has("smallest_failing"):
        text += f" ({side.number('smallest_failing'):g} fails)"
    if not all(trial.flag("sure") for trial in trials):
        upper = f"{side.number('sure_fail'):g}" if side.has("sure_fail") else "?"
        lower = f"{side.number('sure_pass'):g}" if side.number("sure_pass") else "?"
        text += f"; too close to call between {lower} and {upper}"
    return text


def _point(point: Doc) -> str:
    """What users see at a load."""
    figures = {name: value.maybe() for name, value in point.members("figures")}

    def rate(name: str) -> str:
        value = figures.get(name)
        return "-" if value is None else rounded(value)

    pair = point.at("confidence_95").child("ttft_s.p95").pair()
    ends = f" ({seconds(pair[0])} to {seconds(pair[1])})" if pair else ""
    return (
        f"TTFT p95 {seconds(figures.get('ttft_s.p95'))}{ends}, "
        f"streams p50 {rate('stream_tok_s.p50')} p10 {rate('stream_tok_s.p10')} tok/s, "
        f"{rate('output_tok_s')} tok/s in all, "
        f"{rate('running_mean')} running, cache {figures.get('kv_usage_max') or 0:.0%}"
    )


def _cost(cost: Doc) -> list[str]:
    lines = []
    price, energy, most = (cost.maybe(key) for key in (
        "per_million_output_tokens", "joules_per_output_token", "joules_per_output_token_at_most"
    ))
    if price is not None:
        lines.append(f"  cost: {rounded(price)} per million output tokens at this point")
    if most is not None:
        known = "" if energy is None else f"{rounded(energy)} J, "
        lines.append(
            f"  energy: {known}at most {rounded(most)} J per output token (board power limit "
            f"{cost.number('power_limit_w_per_gpu'):g} W: "
            f"{cost.text('power_source', '') or 'assumed'})"
        )
    return lines


def _replicas(doc: Doc) -> list[str]:
    found = doc.at("demand")
    if not found.has(""):
        return []
    spare = int(found.number("replicas_n_minus_1"))
    lines = [
        f"demand: {found.number('peak'):g} {found.text('unit')} at most ({found.text('source')})",
        f"  replicas at {found.number('operating_share'):.0%} of "
        f"{found.number('capacity_per_replica'):g}: {found.words('replicas')} (at least "
        f"{found.words('least_replicas')} with nothing to spare)",
        f"  with one to spare (N - 1): {counted(spare, 'replica')}, "
        f"{counted(spare * int(doc.maybe('gpus_per_replica') or 1), 'GPU')}",
    ]
    again = doc.at("demand_with_recommended_max_num_seqs")
    if again.has("") and doc.has("with_recommended_max_num_seqs"):
        lines.append(
            f"  with max_num_seqs {doc.words('with_recommended_max_num_seqs.max_num_seqs')} "
            f"({again.number('capacity_per_replica'):g} each): "
            f"{counted(again.number('replicas'), 'replica')}, "
            f"{again.words('replicas_n_minus_1')} with one to spare"
        )
    if found.has("replicas_if_scaled_mean"):
        lines.append(
            f"  if replicas followed the demand: {found.number('replicas_if_scaled_mean'):.2f} on "
            f"average over {counted(found.number('points'), 'time')}"
        )
    return lines


# --- charts -----------------------------------------------------------------------


def _trials(doc: Doc) -> Panel | None:
    """Share of replications that pass, by load."""
    series = []
    for hue, (name, side) in enumerate(_sides(doc)):
        trials = sorted(side.items("trials"), key=lambda trial: trial.number("load"))
        series.append(Series(name, [trial.number("load") for trial in trials], [
            (trial.maybe("passes") or 0) / runs if (runs := trial.maybe("replications")) else None
            for trial in trials
        ], hue))
    return Panel(
        "Loads that were tried", doc.text("unit"), "share of the runs that pass", tuple(series),
        levels=((0.5, "half of the runs"),), share=True,
        words="Share of the replications that meet every SLO.",
    ) if any(item.x for item in series) else None
