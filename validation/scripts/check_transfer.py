"""What kernel tables measured on one device are worth on others.

Most profiles inherit the tables fitted on the H200, some with a few parameters fitted on the
device itself (fit_other_gpus.py). Here both price kernels measured on nine devices
(validation/data/other_gpus); the error per device and kernel family, over the shapes that no fit
saw, goes to validation/reports/transfer.json and transfer.md:

    python validation/scripts/check_transfer.py
"""

from collections import defaultdict
from dataclasses import replace
from statistics import median

from common import REPORTS, table, write_json, write_text
from kernels.other_gpus import Measured, measured
from kernels.tables import held_out

from specsim.hardware import HardwareProfile, load_profile


def errors(profile: HardwareProfile, points: list[Measured], **how: str) -> list[float]:
    """predicted / measured - 1 of every point."""
    return [
        point.price(profile, **point.row.kwargs, **how).seconds / point.row.seconds - 1
        for point in points
    ]


def score(signed: list[float]) -> dict[str, float]:
    """Median and p90 of the size, median with sign (above 0: predicted too slow)."""
    sizes = sorted(map(abs, signed))
    return {
        "median_abs_error": round(median(sizes), 4),
        "p90_abs_error": round(sizes[int(0.9 * (len(sizes) - 1))], 4),
        "bias": round(median(signed), 4),
    }


def compare() -> dict[str, dict[str, object]]:
    """'family/profile' -> scores of the profile, of the pure H200 tables, of the datasheet."""
    h200 = load_profile("h200-sxm").kernels
    groups: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for point in measured():
        if held_out(point.row.group):
            groups[point.family, point.profile].append(point)
    result: dict[str, dict[str, object]] = {}
    for (family, name), points in sorted(groups.items()):
        profile = load_profile(name)
        result[f"{family}/{name}"] = {
            "n": len(points),
            "profile": score(errors(profile, points)),
            "h200_tables": score(errors(replace(profile, kernels=h200), points)),
            "datasheet": score(errors(profile, points, fidelity="datasheet")),
        }
    return result


def percent(scores: object) -> str:
    assert isinstance(scores, dict)
    return " / ".join(
        f"{100 * scores[c]:.0f}" for c in ("median_abs_error", "p90_abs_error")
    ) + f" ({100 * scores['bias']:+.0f})"


def cells(key: str, scores: dict[str, object]) -> list[str]:
    """One row of the table."""
    family, _, name = key.rpartition("/")
    shown = [percent(scores[side]) for side in ("profile", "h200_tables", "datasheet")]
    return [family, name, str(scores["n"]), *shown]


def main() -> None:
    result = compare()
    write_json(REPORTS / "transfer.json", result)
    lines = [
        "# Kernel tables on devices other than the H200",
        "",
        "Written by `python validation/scripts/check_transfer.py`. Errors of single kernel times",
        "in percent: median / 90th percentile of the size (median with sign; above 0 is predicted",
        "slower than measured), over shapes that no fit saw. *Profile*: as shipped. *H200 tables*:",
        "with every parameter inherited. *Datasheet*: plain roofline without efficiencies.",
        "Whether a device's own fit was kept at all was decided on these same shapes.",
        "",
        *table(
            ("kernels", "device", "n", "profile", "H200 tables", "datasheet"),
            [cells(key, scores) for key, scores in result.items()], left=True,
        ),
    ]
    write_text(REPORTS / "transfer.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
