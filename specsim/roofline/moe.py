"""Time of the fused routed experts of a mixture-of-experts layer (gate+up, activation, down).

Memory: the weights of every expert that at least one token chose, read once. How many that is
depends on the number of tokens and on how even the routing is; see `distinct_experts`.
"""

from specsim.errors import UsageError
from specsim.roofline.device import Device, compute_peak, family, params, stored_bytes
from specsim.roofline.result import KernelTime, datasheet_time, kernel_time


def distinct_experts(
    tokens: float, top_k: int, experts: int, distribution: str = "uniform", skew: float = 0.0
) -> float:
    """Expected number of different experts that `tokens` tokens choose.

    'uniform': E (1 - (1 - k/E)^T). 'balanced': min(E, k T), the round-robin of a benchmark.
    'power_law': routing with unequal popularity; `skew` in [0, 1) moves mass to few experts.
    """
    if distribution == "balanced":
        return min(float(experts), top_k * tokens)
    uniform = experts * -_expm1_pow(1.0 - top_k / experts, tokens)
    if distribution == "uniform" or skew <= 0.0:
        return max(uniform, min(float(top_k), float(experts)))
    if distribution != "power_law":
        raise UsageError(
            f"routing distribution '{distribution}' is not known; "
            "use 'uniform', 'power_law' or 'balanced'"
        )
    return max(uniform * (1.0 - skew * (1.0 - uniform / experts)), float(top_k))


def _expm1_pow(base: float, exponent: float) -> float:
    """base^exponent - 1."""
    return float(base**exponent) - 1.0


def moe(
    device: Device,
    tokens: float,
    hidden: int,
    inter: int,
    top_k: int,
    experts: int,
    *,
    gated: bool = True,
    fmt: str = "bf16",
    local_experts: int = 0,
    overlap: float = 0.0,
    distribution: str = "power_law",
    fidelity: str = "calibrated",
    engine: str = "",
) -> KernelTime:
    """Seconds for `tokens` tokens routed to top_k of `experts`, of which `local_experts` are on
    this GPU (0: all) with `inter` columns each (after tensor parallelism).

    overlap in [0, 1]: the share of a token's choices that its sequence neighbour already made
    (0: independent), so that verify tokens wake fewer experts.
    """
    table = params(device, f"moe.{family(device, fmt)}", engine)
    local = local_experts or experts
    effective = 1.0 + (tokens - 1.0) * (1.0 - overlap) if tokens > 1 else tokens
    active = distinct_experts(effective, top_k, experts, distribution, table["skew"])
    active *= local / experts
    matrices = 3.0 if gated else 2.0
    per_expert = matrices * hidden * inter
    stored = active * per_expert * stored_bytes(fmt)
    local_rows = tokens * top_k * local / experts
    act = local_rows * (hidden * 2.0 + inter * matrices) * 2.0
    flops = 2.0 * local_rows * per_expert
    peak = compute_peak(device, fmt)
    if fidelity == "datasheet":
        return datasheet_time((stored + act) / device.mem_bytes_per_s, flops / peak)
    mem_s = (stored + act) / (device.mem_bytes_per_s * table["mem_frac"])
    return kernel_time(
        mem_s, flops / (peak * table["peak_frac"]), table["floor_s"], table["p"], table["p_floor"]
    )
