"""Time of a dense linear layer y[m, n] = x[m, k] W[k, n].

Bytes: the weights once, activations in and out. FLOP: 2 m n k (a multiply-add is 2).
"""

from specsim.roofline.device import Device, compute_peak, params
from specsim.roofline.result import KernelTime, datasheet_time, kernel_time


def gemm(
    device: Device,
    m: float,
    n: int,
    k: int,
    fmt: str = "bf16",
    *,
    weight_bytes: float = 0.0,
    fidelity: str = "calibrated",
    engine: str = "",
) -> KernelTime:
    """Seconds for m rows through an n x k weight. weight_bytes: total bytes of the stored
    weights where they differ from the format's usual ones."""
    table = params(device, f"gemm.{fmt}", engine)
    stored = weight_bytes or n * k * table["weight_bytes"]
    act = m * k * table["act_bytes"] + m * n * 2.0
    flops = 2.0 * m * n * k
    peak = compute_peak(device, fmt)
    if fidelity == "datasheet":
        return datasheet_time((stored + act) / device.mem_bytes_per_s, flops / peak)
    mem_s = (stored + act) / (device.mem_bytes_per_s * table["mem_frac"])
    return kernel_time(
        mem_s, flops / (peak * table["peak_frac"]), table["floor_s"], table["p"], table["p_floor"]
    )
