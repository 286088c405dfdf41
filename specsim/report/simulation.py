"""The text that `specsim simulate` prints: both sides, line by line."""

import math
from typing import Any

from specsim.report.tables import seconds, size, table
from specsim.sim.compare import Arm
from specsim.sim.result import Simulation

_TIMES = (
    ("TTFT", "ttft_s"),
    ("TPOT", "tpot_s"),
    ("ITL, per chunk", "itl_s"),
    ("ITL, per token", "itl_per_token_s"),
    ("E2E latency", "e2el_s"),
)
_STATISTICS = ("mean", "p50", "p90", "p95", "p99")
_SHARES = ("draft", "verify", "decode", "prefill", "host", "idle")


def simulation_text(result: Simulation) -> str:
    """Assumptions, latencies, other figures, gates, notes."""
    main, other = result.comparison.main, _other(result)
    blocks = [_head(result), _latencies(main, other), _others(result)]
    if main.figures.get("slo"):
        blocks.append(_gates(main, other))
    blocks.append("\n".join(_answers(result)))
    return "\n\n".join(block for block in blocks if block)


def _other(result: Simulation) -> Arm | None:
    """The side without speculation, where it is another one."""
    found = result.comparison
    return None if found.baseline is found.main else found.baseline


def _head(result: Simulation) -> str:
    system = result.deployment.system
    config = result.deployment.config
    setup = system.setup
    count = config.n_replicas
    lines = []
    if result.partial:
        lines += ["PARTIAL: interrupted; what follows is what was simulated until then", ""]
    lines.append(
        f"{system.spec.name} ({system.spec.weights} weights, {system.kv_dtype} cache) on "
        f"{system.parallel.gpus} x {system.profile.title or system.profile.name}, "
        f"{system.engine.title or system.engine.name}"
        + (f", {count} replicas behind {config.router}" if count > 1 else "")
    )
    if system.speculative and system.acceptance is not None:
        drafter = f", drafter {setup.drafter.name}" if setup.drafter else ""
        length = system.acceptance.expected_tokens(setup.k)
        lines.append(
            f"{setup.method}, k = {setup.k}{drafter}: acceptance length {length:.2f} "
            f"({system.acceptance.source})"
        )
    else:
        lines.append("no speculation")
    lines.append(load_line(result.load))
    start, end = result.comparison.main.figures["window_s"]
    runs = len(result.comparison.main.runs)
    text = f"measured from {start:.4g} s to {end:.4g} s of simulated time, seed {result.seed}"
    lines.append(text + (f" to {result.seed + runs - 1}: means of {runs} runs" if runs > 1 else ""))
    return "\n".join(lines)


def load_line(load: dict[str, Any]) -> str:
    """A load's description in one line."""
    kind = load["kind"]
    total = f"{load['requests']} " if load.get("requests") else ""
    if kind == "people":
        pace = f"{load['streams']} streams without pauses" if load.get("streams") else (
            f"{load['users']} simulated people"
        )
        return f"load: {pace} of scenario {load['scenario']}"
    if kind == "trace":
        return f"load: {total}requests of {load['file']} ({load['format']}), {load['pace']}"
    shape = f"{load['input_len']} + {load['output_len']} tokens"
    if load.get("range_ratio"):
        shape += f" (each +- {load['range_ratio']:.0%})"
    if kind == "closed":
        return (
            f"load: {load['concurrency']} clients in a closed loop, {total}requests of {shape}"
        )
    rate = load["rate"]
    pace = "all at once" if rate == "inf" else f"{rate:g}/s (burstiness {load['burstiness']})"
    return f"load: {total}requests of {shape}, {pace}"


def _latencies(main: Arm, other: Arm | None) -> str:
    rows = []
    for label, name in _TIMES:
        for side, arm in (("", main), ("without", other)):
            if arm is None:
                continue
            figures = arm.figures[name]
            cells = [seconds(figures.get(stat)) for stat in _STATISTICS]
            rows.append([label if not side else f"  {side}", *cells])
    return table(["", *_STATISTICS], rows)


def _others(result: Simulation) -> str:
    main, other = result.comparison.main, _other(result)
    lines: list[tuple[str, str, str | None]] = [
        ("output tok/s", "output_tok_s", "output_tok_s"),
        ("requests/s", "request_rate", None),
        ("tok/s per stream p50", "stream_tok_s.p50", None),
        ("tok/s per stream p10", "stream_tok_s.p10", "stream_tok_s_p10"),
        ("tokens per step (AL)", "acceptance_length", None),
        ("running, mean", "running_mean", None),
        ("running, max", "running_max", None),
        ("waiting, max", "waiting_max", None),
        ("KV usage, max", "kv_usage_max", None),
        ("preemptions", "preemptions", None),
        ("prefix hit rate", "prefix_hit_rate", None),
        ("engine steps", "steps", None),
        *((f"time: {name}", f"time_share.{name}", None) for name in _SHARES),
    ]
    gain, intervals = result.comparison.gain, result.comparison.gain_95
    rows = []
    for label, path, ratio in lines:
        values = [_at(arm, path) for arm in (main, other) if arm is not None]
        if path.startswith("time_share") and not any(values):
            continue
        cells = [_number(value, path) for value in values]
        if other is not None:
            times = gain.get(ratio) if ratio else None
            cells.append("" if times is None else f"{times:.2f}x")
            pair = intervals.get(ratio) if ratio else None
            cells.append("" if pair is None else f"{pair[0]:.2f}-{pair[1]:.2f}")
        elif main.confidence_95:
            pair = main.confidence_95.get(path)
            cells.append(
                "" if pair is None else f"{_number(pair[0], path)} to {_number(pair[1], path)}"
            )
        rows.append([label, *cells])
    headers = ["", "with", "without", "gain", "95 %"]
    if other is None:
        headers = ["", "value"] + (["95 %"] if main.confidence_95 else [])
    if not intervals and other is not None:
        headers = headers[:-1]
        rows = [row[:-1] for row in rows]
    return table(headers, rows)


def _at(arm: Arm, path: str) -> float | None:
    value: Any = arm.figures
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, int | float) else None


def _number(value: float | None, path: str) -> str:
    if value is None or not math.isfinite(value):
        return "-"
    if path.startswith("time_share") or path in ("kv_usage_max", "prefix_hit_rate"):
        return f"{value:.1%}"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value)}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _gates(main: Arm, other: Arm | None) -> str:
    rows = []
    sides = [main] + ([other] if other else [])
    for name, gate in main.figures["slo"].items():
        if not isinstance(gate, dict):
            continue
        cells = [name, _gated(name, gate["limit"])]
        for arm in sides:
            judged = arm.figures["slo"][name]
            value = judged["value"]
            cells.append(
                f"{_gated(name, value)} {'ok' if judged['pass'] else 'FAILS'}"
            )
        rows.append(cells)
    rows.append(["all", "", *("ok" if arm.figures["slo"]["pass"] else "FAILS" for arm in sides)])
    return table(["gate", "limit", "with", "without"][: 2 + len(sides)], rows)


def _gated(name: str, value: float | None) -> str:
    """A gate's limit or value: latencies as times, everything else as a number."""
    if value is None:
        return "-"
    timed = name.startswith(("ttft", "tpot", "itl", "e2el", "queue"))
    return seconds(value) if timed else f"{value:.4g}"


def _answers(result: Simulation) -> list[str]:
    lines = []
    gain = result.comparison.gain
    faster = gain.get("tpot_mean")
    if faster is not None and _other(result) is not None:
        verdict = "pays" if faster > 1 else "does not pay"
        lines.append(f"speculation {verdict} at this load: {faster:.2f}x as fast per token")
    plan = result.deployment.system.memory
    drafter = f", drafter {size(plan.drafter_bytes)}" if plan.drafter_bytes else ""
    block = result.deployment.config.rules.block_size
    lines.append(
        f"memory per GPU: weights {size(plan.weight_bytes)}{drafter}, cache pool "
        f"{size(plan.pool_bytes)} ({result.deployment.config.num_kv_blocks} blocks of "
        f"{block} {'token' if block == 1 else 'tokens'})"
    )
    assumed = result.load.get("assumed", {})
    lines += [f"assumed by the scenario: {name}: {text}" for name, text in assumed.items()]
    lines += [f"note: {text}" for text in result.warnings]
    return lines
