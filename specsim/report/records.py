"""A fit of a hardware profile to records as text: peaks, parameters, errors, what is not seen."""

from collections.abc import Mapping
from typing import Any

from specsim.report.tables import table

SHOWN = 8  # left-out shapes and reasons that the text lists


def records_text(result: Mapping[str, Any]) -> str:
    """The report for people."""
    device = result["device"].get("name", "?")
    lines = [f"Calibrated on {device}, starting from {result['base']}", ""]
    peaks = result["peaks"]
    flops = ", ".join(f"{k} {v / 1e9:.0f} GFLOP/s" for k, v in peaks["flops"].items())
    lines += [f"Peaks: memory {peaks['mem_bytes_per_s'] / 1e9:.1f} GB/s, {flops}", ""]
    lines.append(table(
        ("parameter", "prior", "fitted", "+-", ""),
        [(row["parameter"], _number(row["prior"]), _number(row["value"]),
          f"{100 * row['rel_sd']:.1f} %", "" if row["seen"] else "not seen: prior kept")
         for row in result["parameters"]],
    ))
    lines += ["", "Errors (median, 90th percentile of |predicted / measured - 1|):"]
    rows = [(f"fitted: {kind}", *_errors(found)) for kind, found in result["fitted"].items()]
    outside = result["left_out_shapes"]
    if outside["all"]:
        rows.append(("shapes left out of the fit", *_errors(outside["all"])))
        worst = sorted(
            outside["by_shape"].items(), key=lambda item: -item[1]["median_abs_error"]
        )[:SHOWN]
        rows += [(f"  {name}", *_errors(found)) for name, found in worst]
    rows.append(("whole steps, not fitted", *_errors(result["held_out_steps"])))
    lines.append(table(("points", "number", "median", "p90", "bias"), rows))
    if result["not_seen"]:
        lines += ["", "The data do not see: " + ", ".join(result["not_seen"])]
    for one, other, correlation in result["hardly_told_apart"]:
        lines.append(f"Hardly told apart: {one} and {other} (correlation {correlation:+.2f})")
    for reason, count in result["excluded"].items():
        lines.append(f"Left out: {count} points, {reason}")
    for name in result["truncated_files"]:
        lines.append(f"{name}: the last line was cut short and is left out")
    if result["files"]:
        lines += ["", "Written: " + ", ".join(result["files"])]
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value * 1e6:.4g} us" if value < 2e-3 else f"{value:.4g}"


def _errors(found: Mapping[str, Any] | None) -> tuple[str, str, str, str]:
    if found is None:
        return ("0", "-", "-", "-")
    return (
        str(found["count"]), f"{100 * found['median_abs_error']:.1f} %",
        f"{100 * found['p90_abs_error']:.1f} %", f"{100 * found['bias']:+.1f} %",
    )
