"""The text that `specsim fleet` prints."""

from specsim.planning.capacity_result import Point
from specsim.planning.fleet_result import Endpoint, Fleet
from specsim.report.tables import seconds, table


def fleet_text(result: Fleet) -> str:
    """Endpoints, what each replica sees, GPUs, what does not fit, commands, notes."""
    how = "formulas" if result.quick else "simulation"
    verdict = "everything fits" if result.fits else "NOT EVERYTHING FITS"
    head = (
        f"fleet {result.name}: {verdict}; capacities by {how}, replicas run at "
        f"{result.operating_share:.0%} of theirs"
    )
    blocks = [head, _endpoints(result)]
    seen = [line for endpoint in result.endpoints for line in _seen(endpoint)]
    blocks.append("\n".join(seen))
    blocks.append("\n".join(_gpus(result)))
    commands = [
        f"{e.sized.name}: {e.flags.command}" if e.flags else f"{e.sized.name}: {e.no_flags}"
        for e in result.endpoints
    ]
    blocks.append("what to type\n" + "\n".join(f"  {text}" for text in commands))
    blocks.append("\n".join(f"note: {text}" for text in result.warnings))
    return "\n\n".join(block for block in blocks if block)


def _endpoints(result: Fleet) -> str:
    rows = []
    for e in result.endpoints:
        setup = e.sized.system.setup
        rows.append(
            [
                e.sized.name,
                e.sized.gpu,
                str(e.sized.gpus),
                f"{setup.method} k={setup.k}" if e.sized.system.speculative else "none",
                str(e.sized.seats),
                f"{e.sized.capacity:.4g} {e.unit}",
                f"{e.demand:.4g}" if e.demand else "fills",
                f"{e.replicas} of {e.wanted}" if e.replicas < e.wanted else str(e.replicas),
                str(e.replicas * e.sized.gpus),
                f"{e.carries:.4g}",
                ("yes" if e.survives else "NO") if e.n_minus_1 else (
                    "yes" if e.survives else "not asked"
                ),
            ]
        )
    return table(
        ["endpoint", "GPU", "tp", "speculation", "max_num_seqs", "capacity", "demand", "replicas",
         "GPUs", "carries", "survives a failure"],
        rows,
        left=2,
    )


def _seen(endpoint: Endpoint) -> list[str]:
    lines = []
    sized = endpoint.sized
    if sized.limit is not None:
        lines.append(f"{sized.name}: what stops a replica: {sized.limit.name} ("
                     f"{sized.limit.gate}); max_num_seqs from {sized.seats_from}")
    for words, point in (("at the demand", endpoint.normal), ("one lost", endpoint.failed)):
        if point is not None:
            lines.append(f"  {words}: {_point(point)} per replica of {point.amount:.4g} "
                         f"{endpoint.unit}: {point.verdict.word}")
    if endpoint.cost is not None and endpoint.cost.per_million_tokens is not None:
        lines.append(f"  {endpoint.cost.per_million_tokens:.3g} per million output tokens")
    return lines


def _point(point: Point) -> str:
    found = point.figures
    stream = found["stream_tok_s.p10"]
    rate = found["output_tok_s"]
    return (
        f"TTFT p95 {seconds(found['ttft_s.p95'])}, streams p10 "
        f"{'-' if stream is None else f'{stream:.3g}'} tok/s, "
        f"{'-' if rate is None else f'{rate:.4g}'} tok/s"
    )


def _gpus(result: Fleet) -> list[str]:
    lines = []
    for found in result.shortages:
        text = f"{found.gpu}: {found.needed} needed, {found.present} in the pool"
        left = result.empty.get(found.gpu, 0)
        if found.needed > found.present:
            text += (
                f": {found.needed - found.present} SHORT (without N - 1: {found.without_spares})"
            )
        elif left:
            text += f", {left} stay empty"
        lines.append(text)
    for e in result.endpoints:
        if e.short > 0 or e.replicas < e.wanted:
            lines.append(
                f"{e.sized.name}: {e.replicas} of {e.wanted} replicas placed, carries "
                f"{e.carries:.4g} of {e.demand:.4g} {e.unit}: {e.short:.4g} short"
            )
    lines += [f"{m.name} does not fit {m.gpu}: {m.reason}" for m in result.misfits]
    if result.price_per_hour is not None:
        lines.append(f"price of the GPUs used: {result.price_per_hour:.4g} per hour")
    return lines
