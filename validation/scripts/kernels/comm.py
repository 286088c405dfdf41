"""Fits of collectives: `all_reduce` from comm_custom_allreduce.csv.gz (CUDA-graph rows),
`all_reduce.nccl` and `nccl` (gathers, exchanges) from comm_nccl.csv.gz. Sizes in the tables are
elements of 2 bytes. There are three GPU counts; each is left out in turn."""

from collections.abc import Callable

from kernels.fitting import Fit
from kernels.gemm import DEVICE, SOURCE
from kernels.tables import Row, called, wide

from specsim import roofline
from specsim.ops.shapes import AllGather, AllReduce, AllToAll
from specsim.roofline.device import Device
from specsim.roofline.result import KernelTime

all_reduce = called(roofline.all_reduce, AllReduce)
all_gather = called(roofline.nccl, AllGather)
all_to_all = called(roofline.nccl, AllToAll)

MAX_BYTES = 2**28  # a step moves at most 32k tokens x 8k values
CUSTOM = "comm_custom_allreduce.csv.gz"
NCCL = "comm_nccl.csv.gz"
FREE = {
    "floor_s": (4e-6, 1e-6, 30e-6),
    "hop_s": (0.1e-6, 0.0, 5e-6),
    "link_frac": (0.7, 0.2, 1.0),
    "link_gain": (0.05, 0.0, 0.3),
}
ONE_SHOT = {"one_shot_frac": (0.9, 0.1, 1.0), "sync_s": (4e-6, 0.0, 20e-6)}
OPS: dict[str, Callable[..., KernelTime]] = {
    "all_gather": all_gather, "reduce_scatter": all_gather, "alltoall": all_to_all,
}


def custom_rows(impl: str, engine: str) -> list[Row]:
    found = []
    for labels, elements, us in wide(CUSTOM):
        if labels["impl"] == impl and elements * 2 <= MAX_BYTES:
            gpus = int(labels["num_gpus"])
            kwargs = {"buffer_bytes": elements * 2, "gpus": gpus, "engine": engine}
            found.append(Row(f"{gpus} GPUs", kwargs, us * 1e-6))
    return found


def nccl_rows(ops: tuple[str, ...]) -> list[Row]:
    found = []
    for labels, elements, us in wide(NCCL):
        name = labels["op_name"]
        if labels["nccl"] != "2.29.2" or labels["nccl_dtype"] != "half" or name not in ops:
            continue
        if elements * 2 <= MAX_BYTES:
            gpus = int(labels["num_gpus"])
            kwargs = {"buffer_bytes": elements * 2, "gpus": gpus}
            kwargs |= {"path": "nccl"} if name == "all_reduce" else {"op": name}
            found.append(Row(f"{gpus} GPUs", kwargs, us * 1e-6))
    return found


def nccl(
    device: Device, buffer_bytes: float, gpus: int, op: str, fidelity: str = "calibrated"
) -> KernelTime:
    return OPS[op](device, buffer_bytes, gpus, fidelity=fidelity)


def fits() -> list[Fit]:
    out = [
        Fit(f"all_reduce{suffix}", SOURCE + CUSTOM, f"{DEVICE}, {version}", all_reduce,
            custom_rows(impl, suffix[1:]), {**FREE, **ONE_SHOT}, {}, None,
            note="CUDA-graph rows of at most 256 MiB")
        for suffix, impl, version in (
            ("", "vllm_graph", "vllm 0.24.0"),
            ("@sglang", "sglang_graph", "sglang 0.5.14"),
            ("@trtllm", "trtllm", "trtllm 1.3.0rc20"),
        )
    ]
    return [
        *out,
        Fit("all_reduce.nccl", SOURCE + NCCL, f"{DEVICE}, NCCL 2.29.2", all_reduce,
            nccl_rows(("all_reduce",)), {**FREE, **ONE_SHOT}),
        Fit("nccl", SOURCE + NCCL, f"{DEVICE}, NCCL 2.29.2", nccl, nccl_rows(tuple(OPS)), FREE),
    ]
