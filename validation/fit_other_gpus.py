"""Fits what differs most between devices, on the few kernels measured on each.

The shape of a kernel's time (tiles, waves, splitting) is inherited from the H200's tables. What a
device changes are its launch floors and the fractions of its peaks that kernels reach: those are
fitted here per device and family on validation/data/other_gpus, whole shapes held out, and written
as partial overrides below the marker line of the device's profile. A fit that does not improve the
held-out median by a tenth is dropped: then the inherited values stand. Run after
validation/fit_h200_kernels.py, from the top of the repository:

    python -m validation.fit_other_gpus
"""

from collections import defaultdict
from pathlib import Path

from specsim.hardware import HardwareProfile, load_profile
from specsim.roofline.device import family as format_family
from validation.kernels.fitting import Fit, run, score
from validation.kernels.other_gpus import SOURCE, Measured, measured
from validation.kernels.tables import held_out

MARKER = "# --- kernel parameters fitted on this device (validation/fit_other_gpus.py) ---"
PROFILES = Path(__file__).resolve().parents[1] / "hw_profiles"

# Free parameters by family, with the factors below and above the inherited value they may reach.
# Fractions stay below 1: above, a cache would be at work that an engine does not have.
FREE = {
    "gemm": {"floor_s": (0.3, 5.0), "mem_frac": (0.3, 1.2), "peak_frac": (0.3, 1.2)},
    "attn_decode": {"floor_s": (0.2, 5.0), "mem_frac": (0.3, 1.2), "tile_s": (0.2, 5.0)},
    "moe": {"floor_s": (0.2, 5.0), "mem_frac": (0.3, 1.2), "peak_frac": (0.2, 1.5)},
    "all_reduce": {"floor_s": (0.2, 10.0), "hop_s": (0.05, 50.0), "link_frac": (0.02, 1.3)},
}
MIN_SHAPES = 6
WORTHWHILE = 0.9  # a fit must bring the held-out median error below this share of the inherited


def table_name(profile: HardwareProfile, family: str) -> str:
    """The table that prices a family on this device (formats may share one)."""
    kind, _, fmt = family.partition(".")
    return f"{kind}.{format_family(profile, fmt)}" if kind in ("gemm", "moe") else family


def fit_one(profile: HardwareProfile, family: str, points: list[Measured]) -> str:
    """The override as TOML, empty when the inherited table is as good."""
    name = table_name(profile, family)
    base = dict(load_profile("h200-sxm").kernel(name).params)
    kind = family.partition(".")[0]
    free = {
        param: (base[param], base[param] * low, min(base[param] * high, 0.97)
                if param.endswith("_frac") else base[param] * high)
        for param, (low, high) in FREE[kind].items()
    }  # fmt: skip
    rows = [point.row for point in points]
    software = ", ".join(sorted({point.software for point in points}))
    file = {"gemm": "gemm", "attn_decode": "attn_decode", "moe": "moe"}.get(kind, "comm_all_reduce")
    fit = Fit(
        name, f"{SOURCE}{file}.csv.gz", f"{profile.title}, {software}", points[0].price, rows,
        free, {p: v for p, v in base.items() if p not in free}, max_rows=600,
    )  # fmt: skip
    done = run(fit, profile)
    inherited = score(profile, fit.price, [row for row in rows if held_out(row.group)])
    worthwhile = done.held_out_rows.median < WORTHWHILE * inherited.median
    print(
        f"{profile.name:14} {family:18} held out {done.held_out_rows.n:4}: inherited "
        f"{100 * inherited.median:5.1f} / {100 * inherited.p90:5.1f} %, fitted "
        f"{100 * done.held_out_rows.median:5.1f} / {100 * done.held_out_rows.p90:5.1f} %"
        f"{'' if worthwhile else ', dropped'}{', at bound: ' if done.at_bound else ''}"
        f"{' '.join(done.at_bound)}"
    )
    if not worthwhile:
        return ""
    lines = [f'[kernels."{name}"]']
    lines += [f"{param} = {done.params[param]!r}" for param in free]
    lines += [f'source = "fitted on {fit.source}"', f'measured_on = "{fit.measured_on}"']
    return "\n".join(lines) + "\n"


def main() -> None:
    groups: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for point in measured():
        groups[point.profile, point.family].append(point)
    for device in sorted({profile for profile, _ in groups}):
        path = PROFILES / f"{device}.toml"
        head = path.read_text().partition(MARKER)[0].rstrip()
        path.write_text(head + "\n")  # inherited tables alone are the starting point
        profile = load_profile(device)
        sections = [
            fit_one(profile, family, points)
            for (name, family), points in sorted(groups.items())
            if name == device and len({p.row.group for p in points}) >= MIN_SHAPES
        ]
        path.write_text("\n\n".join([head, MARKER, *filter(None, sections)]).rstrip() + "\n")


if __name__ == "__main__":
    main()
