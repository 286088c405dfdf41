"""Time of collectives between the GPUs of one node. Bytes are of one GPU's buffer.

All-reduce inside a CUDA graph: small buffers are read from every peer at once (one shot, g - 1
buffers over the link), large ones are reduced in shares and gathered (two shots, 2 (g - 1)/g of
the buffer and one more synchronisation); the engine takes the faster.

Parameters: floor_s, hop_s (per GPU), one_shot_frac and link_frac (shares of the link's peak per
direction), link_gain (link_frac grows by this per doubling beyond 2 GPUs: more links busy),
sync_s (the second shot).
"""

from math import log2

from specsim.ops.shapes import AllGather, AllReduce, AllToAll
from specsim.roofline.device import CALIBRATED, Device, Params, Pricing, params
from specsim.roofline.kernels import prices
from specsim.roofline.result import ZERO, KernelTime, datasheet_time, labelled


@prices(AllReduce)
def all_reduce(device: Device, shape: AllReduce, how: Pricing = CALIBRATED) -> KernelTime:
    """The faster of one shot and two."""
    nbytes, gpus = shape
    if gpus <= 1:
        return ZERO
    link = device.link_bytes_per_s
    two_shot = 2.0 * nbytes * (gpus - 1) / gpus
    if how.datasheet:
        return datasheet_time(two_shot / link, 0.0)
    t = params(device, "all_reduce", how.engine)
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


@prices(AllGather, AllToAll)
def nccl(
    device: Device, shape: AllGather | AllToAll, how: Pricing = CALIBRATED
) -> KernelTime:
    """A gather or an exchange: all but the own share of the buffer moves over the link."""
    nbytes, gpus = shape
    if gpus <= 1:
        return ZERO
    moved = nbytes * (gpus - 1) / max(gpus, 1)
    link = device.link_bytes_per_s
    if how.datasheet:
        return datasheet_time(moved / link, 0.0)
    t = params(device, "nccl", how.engine)
    link_s = moved / (link * _link_frac(t, gpus))
    floor_s = t["floor_s"] + t["hop_s"] * gpus
    return labelled(floor_s + link_s, link_s, 0.0, floor_s)
