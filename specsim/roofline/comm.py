"""Time of collectives between GPUs. Bytes are of one GPU's buffer.

An all-reduce inside a CUDA graph runs in one of two ways, the faster of which is taken:

    custom, fused   one shot: every peer's buffer is read, g - 1 buffers over the link
    nccl            a low-latency protocol whose words carry flags: 2 (g - 1)/g of the buffer
    all             two shots: shares are reduced and gathered, 2 (g - 1)/g of the buffer at the
                    link's speed and one more synchronisation

Which kernel it is, the engine decides (`latency.collectives`): not always the fastest. A fused
kernel adds the residual and normalises besides.

Parameters: floor_s, hop_s (per GPU), one_shot_frac and link_frac (shares of the link's peak per
direction), link_gain (link_frac grows by this per doubling beyond 2 GPUs: more links busy; below 0
it falls to what twice this leaves for 8 GPUs), sync_s (the second shot). Between nodes every GPU
moves its share through a network card of its own: `network` with floor_s and bytes_per_s.

Cards and links work at the same time, so that the slower of them counts. NCCL moves a buffer in
slices, of which one is on the network while another is reduced in the node (Hu et al. 2025,
2507.04786); DeepEP forwards what has come in over the links while more comes in (its README names
the network as the bottleneck of exchanges between nodes), and rows of decoding go straight from GPU
to GPU, over the links only within the node. Latencies add up.
"""

from math import log2

from specsim.ops.shapes import AllGather, AllReduce, AllToAll, ExpertExchange
from specsim.roofline.device import CALIBRATED, Device, Params, Pricing, params
from specsim.roofline.kernels import prices
from specsim.roofline.result import ZERO, KernelTime, datasheet_time, labelled

TABLES = {"custom": "all_reduce", "fused": "all_reduce.fused", "nccl": "all_reduce.nccl"}


@prices(AllReduce)
def all_reduce(device: Device, shape: AllReduce, how: Pricing = CALIBRATED) -> KernelTime:
    """The sum by the kernel of the shape's path; by the library where it spans nodes."""
    nbytes, gpus, path, nodes = shape
    if gpus <= 1:
        return ZERO
    link = device.link_bytes_per_s
    if how.datasheet:
        return datasheet_time(2.0 * nbytes * (gpus - 1) / gpus / link, 0.0)
    inside = max(2, gpus // nodes)
    library = path == "nccl" or nodes > 1
    t = params(device, TABLES["nccl" if library else path], how.engine)
    two_shot = 2.0 * nbytes * (inside - 1) / inside
    one_s = (two_shot if library else nbytes * (inside - 1)) / (link * t["one_shot_frac"])
    two_s = two_shot / (link * _link_frac(t, inside))
    floor_s = t["floor_s"] + t["hop_s"] * inside
    if one_s > t["sync_s"] + two_s:
        floor_s, one_s = floor_s + t["sync_s"], two_s
    out_s, out_floor_s = _network(device, 2.0 * nbytes / inside, nodes)
    moved_s, floor_s = max(one_s, out_s), floor_s + out_floor_s
    return labelled(floor_s + moved_s, moved_s, 0.0, floor_s)


@prices(ExpertExchange)
def expert_exchange(
    device: Device, shape: ExpertExchange, how: Pricing = CALIBRATED
) -> KernelTime:
    """Within a node: as a sum of the rows of all groups."""
    return all_reduce(device, AllReduce(shape.gathered_bytes, shape.gpus), how)


def _link_frac(t: Params, gpus: int) -> float:
    # Clamped: fitted on 2 to 8 GPUs. Cards that contend for a host's slots lose the same share with
    # every doubling, down to the line's value at 8 GPUs; more links add up.
    two, gain, doublings = t["link_frac"], t["link_gain"], log2(min(gpus, 8)) - 1.0
    if gain < 0.0:
        eight = max(0.02, two + 2.0 * gain)
        return max(0.02, two * float((eight / two) ** (doublings / 2.0)))
    return min(1.0, two + gain * doublings)


def _network(device: Device, nbytes: float, nodes: int) -> tuple[float, float]:
    """(seconds, latency besides) for what one GPU sends of `nbytes` to other nodes."""
    if nodes <= 1:
        return 0.0, 0.0
    t = params(device, "network")
    return nbytes * (nodes - 1) / nodes / t["bytes_per_s"], t["floor_s"]


@prices(AllGather, AllToAll)
def nccl(
    device: Device, shape: AllGather | AllToAll, how: Pricing = CALIBRATED
) -> KernelTime:
    """A gather or an exchange: all but the own share of the buffer moves. What a gather brings into
    a node is shared by the cards of its GPUs; what an exchange hands on in a node (crossing below
    1) takes the links whole, else what stays in the node."""
    nbytes, gpus, nodes = shape[:3]
    if gpus <= 1:
        return ZERO
    moved = nbytes * (gpus - 1) / gpus
    link = device.link_bytes_per_s
    if how.datasheet:
        return datasheet_time(moved / link, 0.0)
    t, inside = params(device, "nccl", how.engine), max(2, gpus // nodes)
    sums = params(device, TABLES["nccl"], how.engine)
    # Cards that contend for a host's slots do so in every collective of the library.
    shared = sums if device.link_kind.startswith("PCIe") else t
    if isinstance(shape, AllGather):
        crossing = nbytes / inside
    else:
        crossing = nbytes * shape.crossing
        if nodes > 1 and shape.crossing == 1.0:
            moved = nbytes * (gpus / nodes - 1) / gpus
    link_s = moved / (link * _link_frac(shared, inside))
    out_s, out_floor_s = _network(device, crossing, nodes)
    floor_s, moved_s = t["floor_s"] + t["hop_s"] * inside + out_floor_s, max(link_s, out_s)
    return labelled(floor_s + moved_s, moved_s, 0.0, floor_s)
