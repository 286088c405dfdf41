"""Fits what a GPU draws to measured power of kernels, and writes the table `power` of the profiles.

    P / limit = busy + stream x bytes per second / peak + multiply x FLOP/s / peak,   at most 1

while a kernel runs, `idle` of the limit while none does (`specsim/latency/power.py`). Data:
B200 kernels with the power that their benchmark read beside their time (data/power). Rules, set
before the fit: full attention and balanced experts, bytes and FLOP as in specsim (every operand
once), rates by the measured time; kernels of at least 0.5 ms (decode attention, which has few that
long: 0.1 ms), since the power meter averages over more than that. Readings of shorter ones are
mostly their neighbours'. The fit is of least |ln(predicted / measured)|, in which each family and
dtype weighs the same. `idle` is the least reading of all, on which the three files agree within
0.4%.

spread: root mean square, over families left out whole, of their median error; pair_spread: the
same of the medians of cells of like kernels within a family and dtype, once its own median is
taken off, times sqrt(2): what the ratio of two loads is off. On other devices the shares are
assumed, and `spread` is the root mean square of what the one public source of another device is off
(the H100, `power_elsewhere.py`), where that is more. A minute:

    python validation/scripts/fit_power.py
"""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
from common import DATA, PROFILES, read_csv, write_text
from power_elsewhere import h100
from scipy.optimize import minimize

from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile

DATA_FILE = DATA / "power" / "b200_kernels.csv.gz"
SOURCE = f"aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0), validation/data/power/{DATA_FILE.name}"
HEAD = "# --- power, fitted (validation/scripts/fit_power.py) ---"
IDLE_W = 244.7  # least reading of the experts' file; 244.9 and 245.5 in those of attention
DTYPES = {"bfloat16": ("bf16", 2), "fp8": ("fp8", 1), "fp8_block": ("fp8", 1)}
STARTS = ((0.4, 0.6, 1.0), (0.3, 1.0, 2.0), (0.5, 0.3, 0.5), (0.5, 0.5, 3.0))


class Reading(NamedTuple):
    """One kernel. stream, multiply: rates as shares of the peaks; power: share of the limit."""

    family: str
    dtype: str
    stream: float
    multiply: float
    power: float

    @property
    def kind(self) -> str:
        return f"{self.family}, {self.dtype}"


def readings(profile: HardwareProfile) -> list[Reading]:
    assert profile.power_w is not None
    found = []
    for row in read_csv(DATA_FILE):
        flops, moved = work(row)
        # Attention multiplies in 16 bits whatever its cache is kept in.
        experts = row["family"] == "experts"
        peak = profile.flops[DTYPES[row["dtype"]][0] if experts else "bf16"]
        seconds = float(row["latency_us"]) * 1e-6
        stream, multiply = moved / seconds / profile.mem_bytes_per_s, flops / seconds / peak
        if stream <= 1 and multiply <= 1:  # beyond: from a cache, or skipped work
            power = float(row["power_w"]) / profile.power_w
            found.append(Reading(row["family"], row["dtype"], stream, multiply, power))
    return found


def work(row: dict[str, str]) -> tuple[float, float]:
    """(FLOP, bytes) of a kernel, every operand once."""
    n = {key: int(value) for key, value in row.items() if value.isdigit()}
    size = DTYPES[row["dtype"]][1]
    if row["family"] == "experts":
        rows = n["num_tokens"] * n["topk"]
        expert = 3 * n["hidden_size"] * n["inter_size"] / n["moe_tp_size"]
        chosen = min(n["num_experts"], rows) / n["moe_ep_size"]
        return (
            2 * rows / n["moe_ep_size"] * expert,
            chosen * expert * size + 4 * n["num_tokens"] * n["hidden_size"],
        )
    heads, kv_heads, width = n["num_heads"], n["num_key_value_heads"], n["head_dim"]
    batch = n["batch_size"]
    if row["family"] == "attention decode":
        keys = batch * (n["step"] + 1)
        return 4.0 * keys * heads * width, 2.0 * keys * kv_heads * width * size
    pairs = batch * n["isl"] ** 2 / 2
    return 4.0 * pairs * heads * width, 4.0 * batch * n["isl"] * (heads + kv_heads) * width


def predicted(shares: Sequence[float], some: Sequence[Reading]) -> np.ndarray:
    busy, stream, multiply = np.abs(shares)
    rates = np.array([(one.stream, one.multiply) for one in some])
    return np.minimum(1.0, busy + rates @ (stream, multiply))


def errors(shares: Sequence[float], some: Sequence[Reading]) -> np.ndarray:
    """ln(predicted / measured)."""
    return np.log(predicted(shares, some) / np.array([one.power for one in some]))


def fit(some: Sequence[Reading]) -> tuple[float, ...]:
    """busy, stream, multiply."""
    counts: dict[str, int] = defaultdict(int)
    for one in some:
        counts[one.kind] += 1
    weights = np.array([1 / counts[one.kind] for one in some])

    def loss(shares: np.ndarray) -> float:
        return float(np.abs(errors(shares, some)) @ weights)

    found = [minimize(loss, start, method="Nelder-Mead") for start in STARTS]
    best = min(found, key=lambda one: one.fun)
    return tuple(abs(float(value)) for value in best.x)


class Left(NamedTuple):
    """Errors of a family that the fit had not seen, and of one that had."""

    name: str
    count: int
    bias: float
    median: float
    p90: float
    seen: float


def left_out(every: Sequence[Reading], field: str) -> list[Left]:
    """Each value of `field` ('family' or 'kind') left out in turn."""
    whole, found = fit(every), []
    for name in dict.fromkeys(getattr(one, field) for one in every):
        own = [one for one in every if getattr(one, field) == name]
        unseen = errors(fit([one for one in every if getattr(one, field) != name]), own)
        found.append(Left(
            name, len(own), float(np.median(unseen)), float(np.median(np.abs(unseen))),
            float(np.quantile(np.abs(unseen), 0.9)), float(np.median(np.abs(errors(whole, own)))),
        ))
    return found


def pair_spread(every: Sequence[Reading]) -> float:
    """sqrt(2) times the deviation of cells' medians (0.1 of each rate, 10 kernels or more) from
    that of their family and dtype."""
    shares = fit(every)
    deviations = []
    for kind in dict.fromkeys(one.kind for one in every):
        own = [one for one in every if one.kind == kind]
        cells: dict[tuple[int, int], list[float]] = defaultdict(list)
        for one, error in zip(own, errors(shares, own), strict=True):
            cells[int(one.stream * 10), int(one.multiply * 10)].append(float(error))
        medians = [median(cell) for cell in cells.values() if len(cell) >= 10]
        middle = median(medians)
        deviations += [value - middle for value in medians]
    return math.sqrt(2) * root_mean_square(deviations)


def root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(value**2 for value in values) / len(values))


def table(shares: dict[str, float], measured: bool) -> str:
    lines = ['[kernels."power"]', *(f"{name} = {value:.3g}" for name, value in shares.items())]
    lines.append(f'source = "fitted on {SOURCE}"')
    lines.append('measured_on = "NVIDIA B200 SXM 180 GB, vllm 0.22.0"')
    if not measured:
        lines += ["assumed = true", 'inherited_from = "b200"']
    return "\n".join(lines)


def main() -> None:
    profile = load_profile("b200")
    assert profile.power_w is not None
    every = readings(profile)
    busy, stream, multiply = fit(every)
    shares = {
        "idle": IDLE_W / profile.power_w, "busy": busy, "stream": stream, "multiply": multiply,
        "spread": root_mean_square([one.bias for one in left_out(every, "family")]),
        "pair_spread": pair_spread(every),
    }
    print(shares)
    for one in (*left_out(every, "family"), *left_out(every, "kind")):
        print(one)
    write("b200", table(shares, measured=True))
    write("h200-sxm", table(shares, measured=False))  # all others inherit from it
    elsewhere = root_mean_square([one.log_error for one in h100()])
    shares["spread"] = max(shares["spread"], elsewhere)
    write("h200-sxm", table(shares, measured=False))


def write(profile: str, own: str) -> None:
    """The table in the profile's file, in place of the one that stands there."""
    path = PROFILES / f"{profile}.toml"
    text = re.sub(
        rf"{re.escape(HEAD)}\n.*?(?=\n# ---)", "", path.read_text(encoding="utf-8"), flags=re.S
    )
    before, mark, after = text.partition("\n# ---")
    write_text(path, f"{before.rstrip()}\n\n{HEAD}\n\n{own}\n{mark}{after}")


if __name__ == "__main__":
    main()
