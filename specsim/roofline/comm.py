"""Time of collectives between the GPUs of one node. Bytes are of one GPU's buffer."""

from specsim.roofline.device import Device, params
from specsim.roofline.result import ZERO, KernelTime, datasheet_time, kernel_time


def _collective(
    device: Device, name: str, moved: float, gpus: int, fidelity: str, engine: str
) -> KernelTime:
    if gpus <= 1:
        return ZERO
    if fidelity == "datasheet":
        return datasheet_time(moved / device.link_bytes_per_s, 0.0)
    table = params(device, name, engine)
    link_s = moved / (device.link_bytes_per_s * table["link_frac"])
    return kernel_time(link_s, 0.0, table["floor_s"] + table["hop_s"] * gpus, 1.0, 1.0)


def all_reduce(
    device: Device, nbytes: float, gpus: int, *, fidelity: str = "calibrated", engine: str = ""
) -> KernelTime:
    """Sum of a buffer over `gpus` GPUs inside a CUDA graph: 2 (g - 1)/g of it on the link."""
    return _collective(
        device, "all_reduce", 2.0 * nbytes * (gpus - 1) / max(gpus, 1), gpus, fidelity, engine
    )


def all_gather(
    device: Device, nbytes: float, gpus: int, *, fidelity: str = "calibrated", engine: str = ""
) -> KernelTime:
    """nbytes: the gathered buffer; (g - 1)/g of it arrives over the link."""
    return _collective(
        device, "nccl", nbytes * (gpus - 1) / max(gpus, 1), gpus, fidelity, engine
    )


def all_to_all(
    device: Device, nbytes: float, gpus: int, *, fidelity: str = "calibrated", engine: str = ""
) -> KernelTime:
    """nbytes: what one GPU sends in total, its own share included."""
    return _collective(
        device, "nccl", nbytes * (gpus - 1) / max(gpus, 1), gpus, fidelity, engine
    )
