"""What Marlin's dense products take, from its experts: dense ones were measured nowhere.

Few rows wait for the weights: read at the share of the bandwidth that the device's 16-bit products
reach, and widened by the SMs, each weight taking the same time whatever its bits. That time is
fitted on the H200's experts alone; where the SMs are many for the bandwidth it hardly shows.
A floor of 40 us, of the sorting and of two products, comes off by taking the times of many experts
against those of few.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from kernels.fitting import rounded
from kernels.tables import Row

from specsim.hardware.profile import HardwareProfile
from specsim.roofline.device import stored_bytes

FEW = 8  # rows per expert, as Marlin's smallest tile
BITS = "int4"


def seconds_per_weight(profile: HardwareProfile, rows: Iterable[Row]) -> dict[str, float]:
    """What each further weight of experts whole on one GPU takes, by shape: the slope of the times
    over the weights read, where these outgrow the cache and an expert has few rows."""
    points = defaultdict(list)
    for row in rows:
        on = row.kwargs
        hidden, inter = on["hidden"], on["inter"]
        active = min(on["experts"], on["tokens"] * on["top_k"])
        whole = row.group.split("/")[1] == f"{inter:.0f}"
        alone = on.get("local_experts", on["experts"]) == on["experts"]
        few = on["tokens"] * on["top_k"] <= FEW * active
        weights = 3.0 * hidden * inter * active
        outgrown = weights * stored_bytes(BITS) > 2.0 * profile.l2_bytes
        if on["distribution"] == "balanced" and whole and alone and few and outgrown:
            points[row.group].append((weights, row.seconds))
    found = {}
    for shape, measured in points.items():
        weights, seconds = np.array(sorted(set(measured))).T
        if len(set(weights)) > 2:
            relative = np.stack([1.0 / seconds, weights / seconds], axis=1)
            found[shape] = float(np.linalg.lstsq(relative, np.ones(len(seconds)), rcond=None)[0][1])
    return found


def unpack_s(
    profile: HardwareProfile, rows: Iterable[Row], mem_frac: float, p: float
) -> float:
    """Seconds an SM takes for a weight, of what the bandwidth does not explain."""
    per_weight = statistics.median(seconds_per_weight(profile, rows).values())
    read = stored_bytes(BITS) / (profile.mem_bytes_per_s * mem_frac)
    explained = (read / per_weight) ** p
    return rounded(per_weight * (1.0 - explained) ** (1.0 / p) * profile.sms)
