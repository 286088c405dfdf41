"""Fit of latent attention decode: `mla_decode` from TensorRT-LLM's kernel table (heads after
tensor parallelism, latent 512 + 64). vLLM's table times whole modules and is not fitted."""

from kernels.fitting import Fit
from kernels.gemm import DEVICE, SOURCE
from kernels.tables import Row, called, wide

from specsim import roofline
from specsim.ops.shapes import LatentDecode

mla_decode = called(roofline.mla_decode, LatentDecode)

FILE = "mla_decode_trtllm_1.3.0rc20.csv.gz"
DTYPES = {"bfloat16": "bf16", "fp8": "fp8"}
FREE = {
    "floor_s": (12e-6, 4e-6, 30e-6),
    "cold_s": (5e-6, 0.0, 12e-6),
    "mem_frac": (0.93, 0.3, 0.97),
    "peak_frac": (0.7, 0.2, 0.97),
    "tile_s": (8e-6, 0.0, 60e-6),
    "split_s": (2e-6, 0.0, 10e-6),
    "p": (4.0, 1.0, 12.0),
    "l2_frac": (1.0, 0.3, 1.5),
}


def rows() -> list[Row]:
    found = []
    for labels, step, us in wide(FILE):
        heads = int(labels["num_heads"])
        kv_fmt = DTYPES[labels["kv_cache_dtype"]]
        kwargs = {
            "seqs": int(labels["batch_size"]), "q_len": 1, "heads": heads, "kv_lora_rank": 512,
            "rope_dim": 64, "ctx": step, "fmt": kv_fmt, "rotated_copies": 1,
        }
        found.append(Row(f"{heads} heads, {kv_fmt}", kwargs, us * 1e-6))
    return found


def fits() -> list[Fit]:
    return [
        Fit("mla_decode", SOURCE + FILE, f"{DEVICE}, trtllm 1.3.0rc20", mla_decode, rows(), FREE,
            {}, None)
    ]
