"""The text and the plots of `specsim crossover`."""

from specsim.planning.crossover import Crossover, Curve
from specsim.report.plots import Panel, Picture, Series
from specsim.report.tables import interval, seconds, table


def crossover_text(result: Crossover) -> str:
    """Assumptions, answers by context length, then one table per context length."""
    blocks = [_head(result), _answers(result)]
    blocks += [_points(curve) for curve in result.curves if curve.points]
    blocks.append("\n".join(f"note: {text}" for text in result.warnings))
    return "\n\n".join(block for block in blocks if block)


def _head(result: Crossover) -> str:
    system = result.system
    setup = system.setup
    drafter = f", drafter {setup.drafter.name}" if setup.drafter else ""
    assert system.acceptance is not None
    return "\n".join([
        f"{system.spec.name} ({system.spec.weights} weights, {system.kv_dtype} cache) on "
        f"{system.parallel.gpus} x {system.profile.title or system.profile.name}, "
        f"{system.engine.title or system.engine.name}",
        f"{setup.method}, k = {setup.k}{drafter}: acceptance length "
        f"{result.acceptance_length:.2f} ({system.acceptance.source})",
        f"closed loops of 1, 2, ... clients, {result.workload.output_len} output tokens, with and "
        "without speculation",
    ])


def _answers(result: Crossover) -> str:
    rows = []
    for curve in result.curves:
        if curve.error:
            rows.append([context_word(curve.context), *["-"] * 6])
            continue
        rows.append([
            context_word(curve.context),
            _until(curve.cheap_until, curve.max_concurrency),
            _until(curve.ridge, curve.max_concurrency),
            _until(curve.break_even, curve.max_concurrency),
            _band(curve),
            f"{curve.points[0].speedup:.2f}x",
            f"{curve.points[-1].speedup:.2f}x at {curve.points[-1].concurrency}",
        ])
    lines = [table(
        ["prompt", "cheap below", "memory-bound below", "pays below", "90 %", "at 1", "at the end"],
        rows,
    )]
    lines.append(
        f"cheap: a step costs at most {result.cheap_share:.0%} more than a plain one; "
        "memory-bound: the verify step streams longer than it multiplies; '> n': not reached at "
        "the largest batch, n"
    )
    for curve in result.curves:
        if curve.error:
            lines.append(f"{context_word(curve.context)}: {curve.error}")
    return "\n".join(lines)


def context_word(tokens: int) -> str:
    """'8k' for 8192, the number itself where it is not whole."""
    return f"{tokens // 1024}k" if tokens >= 1024 and tokens % 1024 == 0 else str(tokens)


def _until(concurrency: int | None, top: int) -> str:
    """'never' for 1: it is lost from the first client on."""
    if concurrency == 1:
        return "never"
    return f"> {top}" if concurrency is None else str(concurrency)


def _band(curve: Curve) -> str:
    if curve.break_even_90 is None:
        return "-"
    low, high = (_until(c, curve.max_concurrency) for c in curve.break_even_90)
    return low if low == high else f"{low} to {high}"


def _points(curve: Curve) -> str:
    rows = []
    for p in curve.points:
        a, b = p.speculative, p.plain
        rows.append([
            str(p.concurrency), f"{p.speedup:.2f}x", interval(p.speedup_90),
            f"{p.step_cost_ratio:.2f}", seconds(a.itl_s), seconds(b.itl_s), seconds(a.tpot_s),
            seconds(a.e2el_s), seconds(b.e2el_s), f"{a.output_tok_s:.0f}", f"{b.output_tok_s:.0f}",
            f"{a.served.bandwidth:.0%}/{a.served.compute:.0%}",
            f"{b.served.bandwidth:.0%}/{b.served.compute:.0%}",
        ])
    rate = curve.points[0].accepted_share
    title = (
        f"prompts of {curve.context} tokens ({rate:.0%} of the drafted tokens accepted; 'plain': "
        "without speculation; in use: of bandwidth/of arithmetic)"
    )
    headers = ["clients", "speedup", "90 %", "r", "ITL", "plain", "TPOT", "E2E", "plain", "tok/s",
               "plain", "in use", "plain"]
    return title + "\n" + table(headers, rows)


# --- plots --------------------------------------------------------------------------------


def speedup_panel(result: Crossover) -> Panel:
    """Speedup over concurrency, one line per context length."""
    series = [
        Series(
            f"{context_word(curve.context)} prompts",
            [p.concurrency for p in curve.points],
            [p.speedup for p in curve.points],
            hue,
        )
        for hue, curve in enumerate(result.curves) if curve.points
    ]
    return Panel(
        "What speculation gains", "clients", "throughput with / without", tuple(series),
        log_x=True, levels=((1.0, "break-even"),),
    )


def crossover_picture(result: Crossover) -> Picture:
    """Six panels: gain, cost of a step, throughput, ITL, E2E latency, share of the peaks."""
    system = result.system
    panels = (
        speedup_panel(result),
        _cost_panel(result),
        _pair_panel(result, "Throughput", "output tokens/s", "output_tok_s", 1.0),
        _pair_panel(result, "Time between steps of a stream (ITL)", "ms", "itl_s", 1e3),
        _pair_panel(result, "End-to-end latency", "s", "e2el_s", 1.0),
        _use_panel(result),
    )
    title = (
        f"{system.spec.name} on {system.parallel.gpus} x {system.profile.name}: "
        f"{system.setup.method}, k = {system.setup.k}, acceptance length "
        f"{result.acceptance_length:.2f}"
    )
    note = "solid: with speculation, dashed: without; a closed loop in its steady state"
    return Picture(title, panels, (note,))


def _cost_panel(result: Crossover) -> Panel:
    series = []
    for hue, curve in enumerate(result.curves):
        if curve.points:
            x = [p.concurrency for p in curve.points]
            name = context_word(curve.context)
            series.append(Series(f"{name} prompts", x, [p.step_cost_ratio for p in curve.points],
                                 hue))
    return Panel(
        "What a step costs", "clients", "r = step with / without, same batch", tuple(series),
        log_x=True,
        levels=((result.acceptance_length, "tokens per step: above it a step loses"),
                (1 + result.cheap_share, "cheap below")),
    )


def _pair_panel(
    result: Crossover, title: str, unit: str, name: str, scale: float
) -> Panel:
    series = []
    for hue, curve in enumerate(result.curves):
        if not curve.points:
            continue
        x = [p.concurrency for p in curve.points]
        word = context_word(curve.context)
        with_it = [getattr(p.speculative, name) * scale for p in curve.points]
        without = [getattr(p.plain, name) * scale for p in curve.points]
        series.append(Series(f"{word} prompts", x, with_it, hue))
        series.append(Series(f"{word}, plain", x, without, hue, "dashed"))
    return Panel(title, "clients", unit, tuple(series), log_x=True, log_y=True)


def _use_panel(result: Crossover) -> Panel:
    """Of the first context that is served: four lines are enough for one panel."""
    curve = next(curve for curve in result.curves if curve.points)
    x = [p.concurrency for p in curve.points]
    series = []
    for hue, (word, name) in enumerate((("bandwidth", "bandwidth"), ("arithmetic", "compute"))):
        with_it = [100 * getattr(p.speculative.served, name) for p in curve.points]
        without = [100 * getattr(p.plain.served, name) for p in curve.points]
        series.append(Series(word, x, with_it, hue))
        series.append(Series(f"{word}, plain", x, without, hue, "dashed"))
    return Panel(
        f"Share of the device's peaks in use, {context_word(curve.context)} prompts", "clients",
        "%", tuple(series), log_x=True, from_zero=True,
    )
