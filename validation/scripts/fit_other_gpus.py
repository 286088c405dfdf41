"""Fits what differs most between devices, on the few kernels measured on each.

The shape of a kernel's time (tiles, waves, splitting) is inherited from the H200's tables. What a
device changes are its launch floors and the fractions of its peaks that kernels reach: those are
fitted here per device and family on validation/data/other_gpus, whole shapes held out, and written
as partial overrides below the marker line of the device's profile. A fit that does not improve the
held-out median by a tenth is dropped: then the inherited values stand. Run after
validation/scripts/fit_h200_kernels.py, from the top of the repository:

    python -m validation.fit_other_gpus
"""

from collections import defaultdict

import numpy as np
from common import PROFILES, write_text
from kernels.fitting import Fit, Score, predict, rounded, run, score, with_table
from kernels.other_gpus import SOURCE, Measured, measured
from kernels.tables import held_out
from scipy.optimize import least_squares

from specsim.hardware.profile import HardwareProfile, KernelTable
from specsim.hardware.store import load_profile
from specsim.roofline.device import gemm_table
from specsim.roofline.moe import moe_table

MARKER = "# --- kernel parameters fitted on this device (validation/scripts/fit_other_gpus.py) ---"

# Free parameters: (lowest, highest). Fractions stay below 1: above, a cache would be at work that
# an engine does not have.
FREE: dict[str, dict[str, tuple[float, float]]] = {
    "gemm": {
        "floor_s": (0.3e-6, 30e-6), "mem_frac": (0.3, 0.97), "peak_frac": (0.2, 0.97),
        "k_step_s": (0.05e-9, 8e-9), "act_traffic": (0.3, 4.0),
    },
    "attn_decode": {
        "floor_s": (2e-6, 200e-6), "cold_s": (0.0, 20e-6), "mem_frac": (0.2, 0.97),
        "wide_power": (0.0, 2.0), "tile_s": (0.1e-6, 60e-6), "tile_power": (0.0, 3.0),
        "sm_frac": (0.05, 1.5), "l2_frac": (0.1, 1.5), "p": (1.0, 6.0),
    },
    "attn_prefill": {
        "floor_s": (2e-6, 200e-6), "mem_frac": (0.1, 0.97), "peak_frac": (0.1, 0.95),
        "wide_frac": (0.1, 0.95), "chain_gain": (0.3, 4.0), "tile_s": (0.0, 10e-6),
    },
    "mla_decode": {
        "floor_s": (2e-6, 60e-6), "cold_s": (0.0, 20e-6), "mem_frac": (0.1, 0.97),
        "peak_frac": (0.05, 0.97), "tile_s": (0.0, 60e-6), "split_s": (0.0, 20e-6),
    },
    "gdn_decode": {
        "floor_s": (1e-6, 40e-6), "mem_frac": (0.2, 0.97), "conv_frac": (0.05, 0.97),
    },
    "moe": {
        "floor_s": (5e-6, 400e-6), "mem_frac": (0.1, 0.97), "peak_frac": (0.05, 0.97),
        "tile_s": (0.0, 30e-6), "sort_s": (0.0, 8e-6), "p": (1.0, 10.0), "act_frac": (0.05, 1.0),
    },
}
# Of experts, what tells one kernel from another rather than one device: not fitted on Hopper, where
# engines run those that were measured on the H200.
KERNEL = ("sort_s", "p", "act_frac")
SUMS = ("all_reduce", "all_reduce.nccl")
# Weight-only experts were measured on two shapes of each data-centre Blackwell: fitted on both of
# the B200, held out on its siblings, which take the table.
UNPACKED = {"moe.weight_only": "moe.int4", "moe.mxfp4": "moe.mxfp4"}  # table: measured format
SIBLINGS = {"b200": ("b300", "gb200", "gb300")}
# Tables taken from another device than the rest: {profile: {table: donor}}. PCIe cards whose
# sibling has NVLink, or peer-to-peer transfers that they lack (GeForce); one architecture's fused
# kernels; NCCL in a rack, where 4 GPUs were measured, from the box with 8; weight-only kernels
# (Marlin), which are alike on all devices before and beside the data-centre lines of Hopper and
# Blackwell (one instruction set, mma.sync); 16-bit experts of data-centre Blackwell, where both
# engines run TensorRT-LLM's, which vLLM's table of the H200 meets within 6% and SGLang's does not.
DONORS = {
    "h100-pcie": dict.fromkeys(SUMS, "rtx-pro-6000"),
    "a100-pcie-80gb": dict.fromkeys(SUMS, "l40s"),
    "a30": dict.fromkeys(SUMS, "l40s"),
    "rtx-5090": dict.fromkeys(SUMS, "l40s"),
    "b200": {"all_reduce.fused": "gb300", "moe.bf16": "h200-sxm"},
    "b300": {
        "all_reduce.fused": "gb300", "moe.bf16": "h200-sxm", **dict.fromkeys(UNPACKED, "b200"),
    },
    "gb200": {
        "all_reduce.fused": "gb300", "all_reduce.nccl": "b200", "moe.bf16": "h200-sxm",
        **dict.fromkeys(UNPACKED, "b200"),
    },
    "gb300": {
        "all_reduce.nccl": "b300", "moe.bf16": "h200-sxm", **dict.fromkeys(UNPACKED, "b200"),
    },
    "l40s": {"moe.weight_only": "a100-80gb"},
    "rtx-pro-6000": {"moe.weight_only": "a100-80gb"},
}
# Marlin's dense products were measured nowhere: as on the H200, the 16-bit product of the device
# with the arithmetic share of the measured Marlin experts, and the H200's time to unpack a weight.
MARLIN = {
    **dict.fromkeys(("a100-80gb", "l40s", "rtx-pro-6000"), "a100-80gb"),
    **dict.fromkeys(("b200", *SIBLINGS["b200"]), "b200"),
}
MIN_SHAPES = 6
WORTHWHILE = 0.9  # a fit must bring the held-out median error below this share of the inherited


def table_name(profile: HardwareProfile, family: str) -> str:
    """The table that prices a family on this device (formats may share one)."""
    kind, _, fmt = family.partition(".")
    if family == "gemm.weight_only":
        return f"{family}@trtllm"  # its own kernel, which no other engine runs
    if kind == "gemm":
        return gemm_table(profile, fmt)
    return moe_table(profile, fmt) if kind == "moe" else family


def fit_one(profile: HardwareProfile, family: str, points: list[Measured]) -> str:
    """The override as TOML, empty when the inherited table is as good."""
    name = table_name(profile, family)
    kind = family.partition(".")[0]
    rows = [point.row for point in points]
    inherited = profile.kernel(name.partition("@")[0]).params
    price = points[0].price
    if kind == "all_reduce":
        found = fit_links(profile, points, name)
    else:
        found = fitted_params(profile, name, points)
    test = [row for row in rows if held_out(row.group)]
    before = score(profile, price, test)
    after = score(with_table(profile, name, {**inherited, **found}), price, test)
    kept = after.median < WORTHWHILE * before.median and after.p90 < before.p90
    print(
        f"{profile.name:13} {name:24} {after.n:4} held out: inherited {percent(before)}, "
        f"fitted {percent(after)}{'' if kept else ', dropped'}"
    )
    if not kept:
        return ""
    software = ", ".join(sorted({point.software for point in points}))
    file = {
        "all_reduce": "comm_all_reduce.csv.gz", "all_reduce.nccl": "comm_all_reduce.csv.gz",
        "gemm.weight_only": "gemm_weight_only.csv.gz",
    }.get(family, f"{kind}.csv.gz")
    if "@" in name:  # nothing of that name to inherit the rest from
        found = {**inherited, **found}
    lines = [f'[kernels."{name}"]', *(f"{p} = {v!r}" for p, v in sorted(found.items()))]
    where = f"{SOURCE}{file}"
    if family == "all_reduce.fused":
        where = "validation/data/collectives/published.csv (issues of public projects)"
    lines.append(f'source = "fitted on {where}"')
    lines.append(f'measured_on = "{profile.title}, {software}"')
    return "\n".join(lines)


def fitted_params(
    profile: HardwareProfile, name: str, points: list[Measured]
) -> dict[str, float]:
    """The free parameters of a table, from the inherited ones on."""
    inherited = profile.kernel(name.partition("@")[0]).params
    free = {
        param: (min(max(inherited[param], low), high), low, high)
        for param, (low, high) in FREE[name.partition(".")[0]].items()
        if param in inherited and not (profile.arch == "hopper" and param in KERNEL)
    }
    fixed = {p: v for p, v in inherited.items() if p not in free}
    rows = [point.row for point in points]
    found = run(Fit(name, "", "", points[0].price, rows, free, fixed, max_rows=800), profile)
    return {param: found.params[param] for param in free}


def fit_siblings(device: str, name: str, points: dict[str, list[Measured]]) -> str:
    """As `fit_one`, on all shapes of one device; its siblings are held out."""
    own = points[device]
    found = fitted_params(load_profile(device), name, own)
    for other in SIBLINGS[device]:
        profile, rows = load_profile(other), [point.row for point in points[other]]
        inherited = profile.kernel(name).params
        before = score(profile, own[0].price, rows)
        after = score(with_table(profile, name, {**inherited, **found}), own[0].price, rows)
        print(f"{other:13} {name:24} {after.n:4} held out: {percent(before)} -> {percent(after)}")
        if after.median > WORTHWHILE * before.median:
            return ""
    lines = [f'[kernels."{name}"]', *(f"{p} = {v!r}" for p, v in sorted(found.items()))]
    others = ", ".join(SIBLINGS[device])
    lines.append(f'source = "fitted on {SOURCE}moe.csv.gz, held out on {others}"')
    lines.append(f'measured_on = "{load_profile(device).title}, {own[0].software}"')
    return "\n".join(lines)


def percent(result: Score) -> str:
    return f"{100 * result.median:4.1f} / {100 * result.p90:5.1f}%"


def fit_links(profile: HardwareProfile, points: list[Measured], name: str) -> dict[str, float]:
    """All-reduce parameters. On a PCIe tree the usable share of the link falls with the number of
    GPUs, so the shares at 2 and 8 GPUs are fitted, both above 0, and turned into the table's
    value and slope."""
    rows = [p.row for p in points if not held_out(p.row.group)]
    inherited = profile.kernel(name).params
    measured_log = np.log([row.seconds for row in rows])

    def table(z: np.ndarray) -> dict[str, float]:
        floor, hop, two, eight, one_shot, sync = np.exp(z)
        return {
            "floor_s": rounded(floor), "hop_s": rounded(hop), "link_frac": rounded(two),
            "link_gain": rounded((eight - two) / 2.0), "one_shot_frac": rounded(one_shot),
            "sync_s": rounded(sync),
        }

    def residuals(z: np.ndarray) -> np.ndarray:
        trial = with_table(profile, name, {**inherited, **table(z)})
        return np.log(predict(trial, points[0].price, rows)) - measured_log

    starts = [
        np.log([5e-6, hop, two, eight, one_shot, 5e-6])
        for hop in (1e-7, 2e-6)
        for two, eight, one_shot in ((0.6, 0.8, 0.6), (0.5, 0.1, 0.3), (0.5, 0.1, 0.05))
    ]
    low, high = np.log([1e-7, 1e-9, 0.02, 0.02, 0.005, 1e-8]), np.log([6e-5, 1e-5, 1, 1, 1, 1e-4])
    best = min(
        (
            least_squares(
                residuals, z, bounds=(low, high), loss="soft_l1", f_scale=0.05, diff_step=1e-3
            )
            for z in starts
        ),
        key=lambda result: result.cost,
    )
    return table(best.x)


def donated(table: KernelTable, donor: HardwareProfile) -> str:
    """A table of another device as TOML."""
    lines = [f"# Fitted on {donor.title}.", f'[kernels."{table.name}"]']
    lines += [f"{p} = {v!r}" for p, v in sorted(table.params.items())]
    lines += [f'source = "as on {donor.name}: {table.source}"', "assumed = true"]
    lines += [f'measured_on = "{table.measured_on}"', f'inherited_from = "{donor.name}"']
    return "\n".join(lines)


def marlin_product(profile: HardwareProfile, donor: HardwareProfile) -> str:
    """The weight-only product of a device as TOML."""
    shares = {
        "peak_frac": donor.kernel("moe.weight_only")["peak_frac"],
        "unpack_s": load_profile("h200-sxm").kernel("gemm.weight_only")["unpack_s"],
    }
    params = {**profile.kernel("gemm.bf16").params, **shares}
    lines = ['[kernels."gemm.weight_only"]', *(f"{p} = {v!r}" for p, v in sorted(params.items()))]
    lines.append(
        'source = "assumed: gemm.bf16 with the arithmetic share of the Marlin experts measured on '
        f'{donor.title} and the unpacking time of those on the H200"'
    )
    return "\n".join([*lines, "assumed = true"])


def write(device: str, sections: list[str]) -> None:
    """Replaces what is below the marker line of a device's file."""
    path = PROFILES / f"{device}.toml"
    head = path.read_text().partition(MARKER)[0].rstrip()
    write_text(path, "\n\n".join([head, *([MARKER] if sections else []), *sections]) + "\n")


def main() -> None:
    groups: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for point in measured():
        groups[point.profile, point.family].append(point)
    devices = sorted({profile for profile, _ in groups} | set(DONORS))
    fitted: dict[str, list[str]] = defaultdict(list)
    for device in devices:
        write(device, [])  # inherited tables alone are the starting point
    for (device, family), points in sorted(groups.items()):
        if len({point.row.group for point in points}) >= MIN_SHAPES:
            section = fit_one(load_profile(device), family, points)
            fitted[device] += [section] if section else []
    for device, siblings in SIBLINGS.items():
        for name, family in UNPACKED.items():
            points = {one: groups[one, family] for one in (device, *siblings)}
            section = fit_siblings(device, name, points)
            fitted[device] += [section] if section else []
    for device in devices:
        write(device, fitted[device])
    for device in {**DONORS, **MARLIN}:
        donors = DONORS.get(device, {})
        given = [donated(load_profile(d).kernel(t), load_profile(d)) for t, d in donors.items()]
        if device in MARLIN:
            given.append(marlin_product(load_profile(device), load_profile(MARLIN[device])))
        write(device, fitted[device] + given)


if __name__ == "__main__":
    main()
