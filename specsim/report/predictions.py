"""The text that `specsim predict` and `specsim explain` print."""

from specsim.analytic.predict import Point, Prediction
from specsim.latency.breakdown import OpTime, StepLatency
from specsim.report.tables import bar, interval, seconds, size, table, work


def prediction_text(result: Prediction) -> str:
    """Header with every assumption, one line per load, and the answers below."""
    system = result.system
    setup = system.setup
    head = [
        f"{system.spec.name} ({system.spec.weights} weights, {system.kv_dtype} cache) on "
        f"{system.parallel.gpus} x {system.profile.title or system.profile.name}, "
        f"{system.engine.title or system.engine.name}",
    ]
    if system.speculative and system.acceptance is not None:
        drafter = f", drafter {setup.drafter.name}" if setup.drafter else ""
        head.append(
            f"{setup.method}, k = {setup.k}{drafter}: acceptance length "
            f"{result.acceptance_length:.2f} ({system.acceptance.source})"
        )
    else:
        head.append("no speculation")
    head.append(
        f"requests of {result.workload.input_len} + {result.workload.output_len} tokens "
        f"({result.workload.name}); fidelity: {system.fidelity}"
    )
    rows = []
    for p in result.points:
        load = _load(p)
        rows.append(
            [
                load,
                f"{p.speedup:.2f}x" if system.speculative else "-",
                interval(p.interval_90["speedup"]),
                seconds(p.tpot_s),
                seconds(p.baseline_tpot_s),
                seconds(p.ttft_s),
                seconds(p.step_s),
                f"{p.step_cost_ratio:.2f}",
                f"{p.stream_tok_s:.0f}",
                f"{p.output_tok_s:.0f}",
                p.bound,
            ]
        )
    unit = "rate" if any(p.utilisation is not None for p in result.points) else "clients"
    body = table(
        [unit, "speedup", "90 %", "TPOT", "plain", "TTFT", "step", "r", "tok/s/user", "tok/s",
         "bound"],
        rows,
    )
    return "\n".join([*head, "", body, "", *_answers(result), *_notes(result)])


def _answers(result: Prediction) -> list[str]:
    lines = []
    if result.system.speculative:
        if result.break_even_concurrency is None:
            text = f"pays up to the largest batch ({result.max_concurrency} requests)"
        elif result.break_even_concurrency == 1:
            text = "does not pay, not even for one client"
        else:
            text = f"stops paying at {result.break_even_concurrency} clients"
            if result.break_even_concurrency > result.max_concurrency:
                text += f" (it runs {result.max_concurrency} at a time, plain decoding more)"
        lines.append(f"speculation {text}")
        found = [(p, p.best_k) for p in result.points if p.best_k is not None]
        lengths = [k for _, k in found]
        remark = _plain_wins(lengths) + _beyond(result, lengths)
        if len(set(lengths)) == 1:
            lines.append(f"best k: {lengths[0]}{remark}")
        elif found:
            pairs = ", ".join(f"{k} at {_load(p)}" for p, k in found)
            lines.append(f"best k: {pairs}{remark}")
    plan = result.system.memory
    drafter = f", drafter {size(plan.drafter_bytes)}" if plan.drafter_bytes else ""
    state = ""
    if plan.state_bytes_per_seq:
        state = f", state {size(plan.state_bytes_per_seq)} per request"
    lines.append(
        f"memory per GPU: weights {size(plan.weight_bytes)}{drafter}, cache "
        f"{size(plan.kv_bytes_per_token)} per token{state}; at most {result.max_concurrency} "
        "such requests run together"
    )
    return lines


def _load(p: Point) -> str:
    """A point's load as the first column shows it."""
    return f"{p.request_rate:g}/s" if p.utilisation is not None else f"{p.concurrency:.15g}"


def _plain_wins(lengths: list[int]) -> str:
    return " (0: plain decoding wins)" if 0 in lengths else ""


def _beyond(result: Prediction, lengths: list[int]) -> str:
    """Says so when a best k rests on positions whose acceptance was not given or measured."""
    accepted = result.system.acceptance
    # One rate for every position says what longer drafts do; everything else is extrapolated.
    if accepted is None or accepted.kind == "rate":
        return ""
    known = accepted.measured_positions
    if max(lengths, default=0) <= known:
        return ""
    return f" (acceptance beyond position {known} is extrapolated)"


def _notes(result: Prediction) -> list[str]:
    return [f"note: {text}" for text in result.warnings]


def explain_text(title: str, step: StepLatency) -> str:
    """One step, op by op: time, share, bytes, FLOP and what each op waits for."""
    total = step.total_s
    rows = []
    merged: dict[str, list[OpTime]] = {}
    for item in step.ops:
        merged.setdefault(item.op.name, []).append(item)
    entries: list[tuple[str, float, float, float, str]] = []
    for name, items in merged.items():
        count = sum(item.op.count for item in items)
        longest = max(items, key=lambda item: item.seconds)
        entries.append(
            (
                name if count == 1 else f"{name} x{count:g}",
                sum(item.seconds for item in items),
                sum(item.op.bytes * item.op.count for item in items),
                sum(item.op.flops * item.op.count for item in items),
                longest.time.bound,
            )
        )
    kernels = sum(e[1] for e in entries)
    rest = total - step.host_s - kernels
    if rest > 1e-9:
        entries.append(("gaps between kernels", rest, 0.0, 0.0, "latency"))
    if step.host_s > 0:
        entries.append(("host", step.host_s, 0.0, 0.0, "latency"))
    for name, spent, moved, flops, bound in entries:
        share = spent / total if total else 0.0
        rows.append(
            [
                name,
                seconds(spent),
                f"{share:.1%}",
                size(moved) if moved else "-",
                work(flops) if flops else "-",
                bound,
                bar(share).ljust(24),
            ]
        )
    body = table(["op", "time", "share", "bytes", "work", "bound", ""], rows)
    summary = (
        f"{title}: {seconds(total)} (target {seconds(step.target_s)}, sampling "
        f"{seconds(step.sample_s)}, draft {seconds(step.draft_s)}, host {seconds(step.host_s)}); "
        f"{size(step.bytes)}, {work(step.flops)}, {step.bound}-bound, "
        f"{step.rows:g} {'row' if step.rows == 1 else 'rows'}"
        f"{'' if step.graphed else ', outside CUDA graphs'}"
    )
    return f"{summary}\n\n{body}"
