"""The text that `specsim capacity` prints."""

from collections.abc import Sequence

from specsim.planning.capacity_demand import Replicas
from specsim.planning.capacity_result import Capacity, Point, Side
from specsim.planning.cost import Cost
from specsim.report.tables import seconds, table


def capacity_text(result: Capacity) -> str:
    """System, capacity of each side, its limit, where to run, seats, replicas, cost, notes."""
    blocks = [_head(result), _loads(result), _answers(result)]
    if result.replicas is not None:
        blocks.append(_replicas(result.replicas, result))
    if result.flags is not None:
        blocks.append(
            f"what to type for max_num_seqs {result.advised_seats}: {result.flags.command}"
        )
    said = list(result.flags.warnings) if result.flags else [result.no_flags]
    notes = [f"note: {text}" for text in [*said, *result.warnings]]
    blocks.append("\n".join(notes))
    return "\n\n".join(block for block in blocks if block)


def _head(result: Capacity) -> str:
    system = result.study.system
    setup = system.setup
    lines = []
    if result.partial:
        lines += ["PARTIAL: interrupted; what follows is what was found until then", ""]
    lines.append(
        f"{system.spec.name} ({system.spec.weights} weights, {system.kv_dtype} cache) on "
        f"{system.parallel.gpus} x {system.profile.title or system.profile.name}, "
        f"{system.engine.title or system.engine.name}, max_num_seqs {result.main.seats}"
    )
    if system.speculative and system.acceptance is not None:
        length = system.acceptance.expected_tokens(setup.k)
        lines.append(
            f"{setup.method}, k = {setup.k}: acceptance length {length:.2f} "
            f"({system.acceptance.source})"
        )
    else:
        lines.append("no speculation")
    load = result.study.shape.to_dict()
    if load["kind"] == "people":
        lines.append(f"load: people of scenario {load['scenario']}")
    else:
        lines.append(
            f"load: requests of {load['input_len']} + {load['output_len']} tokens at a rate"
        )
    gates = ", ".join(f"{name} {limit:g}" for name, limit in result.study.slo.items())
    lines.append(
        f"objectives: {gates}; runs of {load['duration_s']:g} s, the first {load['warmup_s']:g} s "
        f"not measured; {result.runs} runs"
    )
    lines.append("a load passes when its median replication does")
    return "\n".join(lines)


def _sides(result: Capacity) -> list[tuple[str, Side]]:
    sides = [("with" if result.study.system.speculative else "plain", result.main)]
    if result.baseline is not None:
        sides.append(("without", result.baseline))
    if result.with_seats is not None:
        sides.append((f"with, {result.with_seats.seats} seats", result.with_seats))
    return sides


def _loads(result: Capacity) -> str:
    rows = []
    for name, side in _sides(result):
        for i, trial in enumerate(side.bracket.trials):
            found = trial.verdict
            rows.append(
                ["" if i else name, f"{trial.load:g}", f"{found.passes} of {found.runs}",
                 found.word, found.worst]
            )
    unit = result.study.shape.unit
    return table(["speculation", unit, "runs that pass", "", "worst gate"], rows)


def _answers(result: Capacity) -> str:
    unit = result.study.shape.unit
    lines = []
    for name, side in _sides(result):
        prefix = "" if name == "plain" else f"{name} speculation: " if "," not in name else (
            f"{name}: "
        )
        lines.append(prefix + _capacity(side, unit))
        if side.ladder is not None:
            lines.append(f"  on the ladder of stages: {side.ladder:g} {unit}")
        if side.limit is not None:
            limit = side.limit
            cause = f" ({limit.cause})" if limit.cause != limit.name else ""
            lines.append(
                f"  what stops more: {limit.name}{cause}, gate {limit.gate} at {limit.amount:g} "
                f"{unit}: " + "; ".join(limit.evidence)
            )
        if side.relieved is not None:
            lines.append(
                f"  the same load with twice the seats: {_point(side.relieved)}: "
                f"{side.relieved.verdict.word}"
            )
        if side.operating is not None:
            point = side.operating
            lines.append(
                f"  run at {result.wishes.share:.0%}: {point.amount:g} {unit}: {_point(point)}"
            )
        if side.cost is not None:
            lines += [f"  {text}" for text in _cost(side.cost)]
    if result.gain is not None:
        lines.append(f"speculation carries {result.gain:.2f} times the load")
    seats = result.seats
    if seats is not None and seats.seats:
        by = "the cache holds no more" if seats.held_by == "cache" else "more falls below it"
        lines.append(
            f"max_num_seqs for {seats.floor_tok_s:g} tok/s per stream (p10) with all seats taken: "
            f"{seats.seats} ({by})"
        )
        tried = ", ".join(
            f"{trial.seats}: {trial.stream_tok_s_p10:.3g}" for trial in seats.trials
        )
        lines.append(f"  p10 tok/s by max_num_seqs: {tried}")
    return "\n".join(lines)


def _capacity(side: Side, unit: str) -> str:
    bracket = side.bracket
    if bracket.capacity <= 0:
        return f"no load tried meets the objectives (least: {bracket.trials[0].load:g} {unit})"
    text = f"{bracket.capacity:g} {unit}"
    if bracket.fails is not None:
        text += f" ({bracket.fails:g} fails)"
    close = [t.load for t in bracket.trials if not t.verdict.sure]
    if close:
        sure_fail = bracket.sure_fail
        upper = f"{sure_fail:g}" if sure_fail is not None else "?"
        text += f"; too close to call between {side.sure_pass:g} and {upper}"
    return text


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _point(point: Point) -> str:
    found = point.figures
    return (
        f"TTFT p95 {seconds(found['ttft_s.p95'])}, streams p50 {_rate(found['stream_tok_s.p50'])} "
        f"p10 {_rate(found['stream_tok_s.p10'])} tok/s, {_rate(found['output_tok_s'])} tok/s in "
        f"all, {_rate(found['running_mean'])} running, cache {found['kv_usage_max'] or 0:.0%}"
    )


def _cost(cost: Cost) -> Sequence[str]:
    lines = []
    if cost.per_million_tokens is not None:
        lines.append(
            f"cost: {cost.per_million_tokens:.3g} per million output tokens at this point"
        )
    if cost.joules_per_token_at_most is not None:
        lines.append(
            f"energy: at most {cost.joules_per_token_at_most:.3g} J per output token (board power "
            f"limit {cost.power_w:g} W: {cost.power_source or 'assumed'})"
        )
    return lines


def _replicas(found: Replicas, result: Capacity) -> str:
    unit = found.demand.unit
    gpus = result.study.system.parallel.gpus
    lines = [
        f"demand: {found.demand.peak:g} {unit} at most ({found.demand.source})",
        f"  replicas at {found.share:.0%} of {found.capacity:g}: {found.count} "
        f"(at least {found.least} with nothing to spare)",
        f"  with one to spare (N - 1): {found.with_spare} replicas, "
        f"{found.with_spare * gpus} GPUs",
    ]
    again = result.reseated_replicas
    if again is not None and result.with_seats is not None:
        lines.append(
            f"  with max_num_seqs {result.with_seats.seats} ({again.capacity:g} each): "
            f"{again.count} replicas, {again.with_spare} with one to spare"
        )
    if found.mean_needed is not None:
        lines.append(
            f"  if replicas followed the demand: {found.mean_needed:.2f} on average over "
            f"{len(found.demand.amounts)} times"
        )
    return "\n".join(lines)
