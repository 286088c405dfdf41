"""Time of kernels that only stream memory: elementwise work and sampling."""

from specsim.ops.shapes import Elementwise, Sample
from specsim.roofline.device import CALIBRATED, Device, Pricing, params
from specsim.roofline.kernels import prices
from specsim.roofline.result import KernelTime, datasheet_time, kernel_time


@prices(Elementwise)
def elementwise(device: Device, shape: Elementwise, how: Pricing = CALIBRATED) -> KernelTime:
    """One kernel that only reads and writes."""
    nbytes = shape.moved_bytes
    if how.datasheet:
        return datasheet_time(nbytes / device.mem_bytes_per_s, 0.0)
    table = params(device, "elementwise", how.engine)
    return kernel_time(
        nbytes / (device.mem_bytes_per_s * table["mem_frac"]), 0.0, table["floor_s"], 1.0,
        table["p_floor"],
    )


@prices(Sample)
def sample(device: Device, shape: Sample, how: Pricing = CALIBRATED) -> KernelTime:
    """Choosing a token from each row."""
    rows, vocab, passes = shape
    table = params(device, "sample", how.engine)
    moved = rows * vocab * 4.0 * (passes or table["passes"])
    if how.datasheet:
        return datasheet_time(moved / device.mem_bytes_per_s, 0.0)
    return kernel_time(
        moved / (device.mem_bytes_per_s * table["mem_frac"]), 0.0, table["floor_s"], 1.0, 1.0
    )
