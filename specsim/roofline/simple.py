"""Time of kernels that only stream memory: elementwise work and sampling."""

from specsim.roofline.device import Device, params
from specsim.roofline.result import KernelTime, datasheet_time, kernel_time


def elementwise(
    device: Device, nbytes: float, *, fidelity: str = "calibrated", engine: str = ""
) -> KernelTime:
    """One kernel that reads and writes nbytes in total."""
    if fidelity == "datasheet":
        return datasheet_time(nbytes / device.mem_bytes_per_s, 0.0)
    table = params(device, "elementwise", engine)
    return kernel_time(
        nbytes / (device.mem_bytes_per_s * table["mem_frac"]), 0.0, table["floor_s"], 1.0,
        table["p_floor"],
    )


def sample(
    device: Device,
    rows: float,
    vocab: int,
    *,
    passes: float = 0.0,
    fidelity: str = "calibrated",
    engine: str = "",
) -> KernelTime:
    """Choosing a token from each row of fp32 logits; passes: how often the logits are read or
    written (0: the table's)."""
    table = params(device, "sample", engine)
    moved = rows * vocab * 4.0 * (passes or table["passes"])
    if fidelity == "datasheet":
        return datasheet_time(moved / device.mem_bytes_per_s, 0.0)
    return kernel_time(
        moved / (device.mem_bytes_per_s * table["mem_frac"]), 0.0, table["floor_s"], 1.0, 1.0
    )
