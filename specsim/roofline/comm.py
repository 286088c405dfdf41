"""Time of collectives between the GPUs of one node. Bytes are of one GPU's buffer.

All-reduce inside a CUDA graph: small buffers are read from every peer at once (one shot, g - 1
buffers over the link), large ones are reduced in shares and gathered (two shots, 2 (g - 1)/g of
the buffer and one more synchronisation); the engine takes the faster.

Parameters: floor_s, hop_s (per GPU), one_shot_frac and link_frac (shares of the link's peak per
direction), link_gain (link_frac grows by this per doubling beyond 2 GPUs: more links busy),
sync_s (the second shot).
"""

from math import log2

from specsim.roofline.device import Device, Params, params
from specsim.roofline.result import ZERO, KernelTime, datasheet_time, labelled


def all_reduce(
    device: Device, nbytes: float, gpus: int, *, fidelity: str = "calibrated", engine: str = ""
) -> KernelTime:
    """Sum of a buffer of nbytes over `gpus` GPUs; every GPU ends with the result."""
    if gpus <= 1:
        return ZERO
    link = device.link_bytes_per_s
    two_shot = 2.0 * nbytes * (gpus - 1) / gpus
    if fidelity == "datasheet":
        return datasheet_time(two_shot / link, 0.0)
    t = params(device, "all_reduce", engine)
    one_s = nbytes * (gpus - 1) / (link * t["one_shot_frac"])
    two_s = two_shot / (link * _link_frac(t, gpus))
    floor_s = t["floor_s"] + t["hop_s"] * gpus
    if one_s <= t["sync_s"] + two_s:
        return labelled(floor_s + one_s, one_s, 0.0, floor_s)
    floor_s += t["sync_s"]
    return labelled(floor_s + two_s, two_s, 0.0, floor_s)


def _link_frac(t: Params, gpus: int) -> float:
    # Clamped: the line was fitted on 2 to 8 GPUs, and a slow link's slope is negative.
    return max(0.02, min(1.0, t["link_frac"] + t["link_gain"] * (log2(gpus) - 1.0)))


def _nccl(
    device: Device, moved: float, gpus: int, fidelity: str, engine: str
) -> KernelTime:
    if gpus <= 1:
        return ZERO
    link = device.link_bytes_per_s
    if fidelity == "datasheet":
        return datasheet_time(moved / link, 0.0)
    t = params(device, "nccl", engine)
    link_s = moved / (link * _link_frac(t, gpus))
    floor_s = t["floor_s"] + t["hop_s"] * gpus
    return labelled(floor_s + link_s, link_s, 0.0, floor_s)


def all_gather(
    device: Device, nbytes: float, gpus: int, *, fidelity: str = "calibrated", engine: str = ""
) -> KernelTime:
    """nbytes: the gathered buffer; (g - 1)/g of it arrives over the link."""
    return _nccl(device, nbytes * (gpus - 1) / max(gpus, 1), gpus, fidelity, engine)


def all_to_all(
    device: Device, nbytes: float, gpus: int, *, fidelity: str = "calibrated", engine: str = ""
) -> KernelTime:
    """nbytes: what one GPU sends in total, its own share included."""
    return _nccl(device, nbytes * (gpus - 1) / max(gpus, 1), gpus, fidelity, engine)
