"""Measured kernel calls on devices other than the H200, from validation/data/other_gpus.

Yields (profile name, table name, row): the shape as arguments of the roofline function, the
measured seconds, and the shape's group, which is fitted or held out as a whole.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from common import DATA, read_csv
from kernels.attention import attn_decode, attn_prefill
from kernels.comm import all_reduce
from kernels.gemm import ROTATED_COPIES, gemm
from kernels.mla import mla_decode
from kernels.moe import UNGATED, moe
from kernels.recurrent import gdn_decode
from kernels.tables import Row

from specsim.hardware.store import load_profile
from specsim.roofline.comm import TABLES
from specsim.roofline.result import KernelTime

SOURCE = "aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0), validation/data/other_gpus/"
FORMATS = {
    "bfloat16": "bf16",
    "fp8": "fp8",
    "nvfp4": "nvfp4",
    "fp8_block": "fp8_block",
    "int4_wo": "int4",
    "w4a16_mxfp4": "mxfp4",
}
# 8-bit weights on a device without FP8 units are unpacked, whether they are integers or FP8.
WEIGHT_ONLY = {"int8_wo": "fp8", "int4_wo": "int4"}
RACKS = ("gb200", "gb300")  # NCCL was measured on 4 of their GPUs; see DONORS in fit_other_gpus
# On data-centre Blackwell engines run TensorRT-LLM's experts, routing included, for nearly all
# shapes: CUTLASS in 16 bits and calls that route apart are others. With DeepSeek-V3's router, which
# picks 4 of 8 groups, what the benchmark spreads over all experts reads half of them.
OTHER_EXPERTS = ("unquantizedfusedmoe_flashinfer_cutlass", "fp8expertsmodular")
GROUPED = ("7168", "2048", "8", "256")
# Tensor parallelism sends at most a few thousand tokens of a wide model in one call.
MAX_MESSAGE_BYTES = 32 * 2**20


class Measured(NamedTuple):
    """family: 'gemm.fp8', ...; software: what ran."""

    profile: str
    family: str
    software: str
    price: Callable[..., KernelTime]
    row: Row


def read(file: str) -> list[dict[str, str]]:
    return read_csv(DATA / "other_gpus" / file)


def cells(line: dict[str, str]) -> Iterator[tuple[int, float]]:
    """(value of the wide column, seconds) of the filled cells."""
    for column, text in line.items():
        if column.isdigit() and text:
            yield int(column), float(text) * 1e-6


def measured() -> Iterator[Measured]:
    """Every measured kernel call of every device."""
    yield from _gemm("gemm.csv.gz", FORMATS)
    yield from _gemm("gemm_weight_only.csv.gz", WEIGHT_ONLY)
    yield from _attention()
    yield from _prompts()
    yield from _latent()
    yield from _states()
    yield from _experts()
    yield from _all_reduce()
    yield from _fused()


def _gemm(file: str, formats: dict[str, str]) -> Iterator[Measured]:
    for line in read(file):
        fmt, n, k = formats[line["gemm_dtype"]], int(line["n"]), int(line["k"])
        for m, seconds in cells(line):
            shape = {"m": m, "n": n, "k": k, "fmt": fmt, "rotated_copies": ROTATED_COPIES}
            if formats is WEIGHT_ONLY:
                shape["engine"] = "trtllm"
            row = Row(f"{n}x{k}", shape, seconds)
            family = f"gemm.{fmt}" if formats is FORMATS else "gemm.weight_only"
            yield Measured(line["profile"], family, line["software"], gemm, row)


def _attention_sizes(line: dict[str, str]) -> tuple[int, ...]:
    """(heads, kv_heads, head_dim, seqs) of a row."""
    columns = ("num_heads", "num_key_value_heads", "head_dim", "batch_size")
    return tuple(int(line[column]) for column in columns)


def _attention() -> Iterator[Measured]:
    for line in read("attn_decode.csv.gz"):
        fmt = FORMATS[line["kv_cache_dtype"]]
        heads, kv_heads, head_dim, seqs = _attention_sizes(line)
        for kv, seconds in cells(line):
            shape = {
                "seqs": seqs, "q_len": 1, "heads": heads, "kv_heads": kv_heads,
                "head_dim": head_dim, "ctx": kv - 1, "fmt": fmt,
                "rotated_copies": 1,
            }
            row = Row(f"{heads}/{kv_heads}/{head_dim}", shape, seconds)
            yield Measured(
                line["profile"], f"attn_decode.{fmt}", line["software"], attn_decode, row
            )


def _prompts() -> Iterator[Measured]:
    for line in read("attn_prefill.csv.gz"):
        heads, kv_heads, head_dim, seqs = _attention_sizes(line)
        for new, seconds in cells(line):
            shape = {
                "new": new, "cached": 0, "heads": heads, "kv_heads": kv_heads,
                "head_dim": head_dim, "seqs": seqs,
            }
            row = Row(f"{heads}/{kv_heads}/{head_dim}", shape, seconds)
            yield Measured(line["profile"], "attn_prefill", line["software"], attn_prefill, row)


def _latent() -> Iterator[Measured]:
    for line in read("mla_decode.csv.gz"):
        fmt, heads = FORMATS[line["kv_cache_dtype"]], int(line["num_heads"])
        for ctx, seconds in cells(line):
            shape = {
                "seqs": int(line["batch_size"]), "q_len": 1, "heads": heads,
                "kv_lora_rank": 512, "rope_dim": 64, "ctx": ctx, "fmt": fmt, "rotated_copies": 1,
            }
            row = Row(f"{heads} heads, {fmt}", shape, seconds)
            yield Measured(line["profile"], "mla_decode", line["software"], mla_decode, row)


def _states() -> Iterator[Measured]:
    for line in read("gdn_decode.csv.gz"):
        k_heads, v_heads = int(line["num_k_heads"]), int(line["num_v_heads"])
        for seqs, seconds in cells(line):
            shape = {
                "seqs": seqs, "q_len": 1, "n_k_heads": k_heads, "n_v_heads": v_heads, "dk": 128,
                "dv": 128, "rotated_copies": 1,
            }
            row = Row(f"{k_heads}/{v_heads}", shape, seconds)
            yield Measured(line["profile"], "gdn_decode", line["software"], gdn_decode, row)


def _experts() -> Iterator[Measured]:
    for line in read("moe.csv.gz"):
        fmt, kernel = FORMATS[line["moe_dtype"]], line["kernel_source"]
        shape = tuple(line[c] for c in ("hidden_size", "inter_size", "topk", "num_experts"))
        grouped = shape == GROUPED and "trtllm" in kernel
        if grouped or any(name in kernel for name in OTHER_EXPERTS):
            continue
        if fmt == "mxfp4" and "w4a4mxfp4moe_marlin" in kernel:
            fmt = "mxfp4_w4a4"  # of a checkpoint whose activations are narrow too
        hidden, inter, top_k, experts, tp = (
            int(line[c])
            for c in ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size")
        )
        for tokens, seconds in cells(line):
            shape = {
                "tokens": tokens, "hidden": hidden, "inter": inter / tp, "top_k": top_k,
                "experts": experts, "gated": (hidden, inter) not in UNGATED, "fmt": fmt,
                "distribution": line["distribution"].partition("_1")[0], "rotated_copies": 1,
            }
            row = Row(f"{hidden}/{inter}/{top_k}/{experts}", shape, seconds)
            yield Measured(line["profile"], f"moe.{fmt}", line["software"], moe, row)


def _fused() -> Iterator[Measured]:
    """Kernels that sum, add and normalise, on Blackwell (figures published in one issue)."""
    for line in read_csv(DATA / "collectives" / "published.csv"):
        if line["path"] == "fused" and line["profile"] == "gb300":
            size, gpus = int(line["bytes"]), int(line["gpus"])
            shape = {"buffer_bytes": size, "gpus": gpus, "path": "fused"}
            row = Row(f"{gpus}/{size}", shape, float(line["latency_us"]) * 1e-6)
            yield Measured("gb300", TABLES["fused"], line["source"], all_reduce, row)


def _all_reduce() -> Iterator[Measured]:
    for line in read("comm_all_reduce.csv.gz"):
        size, gpus = int(line["message_bytes"]), int(line["gpus"])
        library = line["kernel"] in ("NCCL", "oneCCL")
        # An engine's own kernel runs on two GPUs where they are not fully connected.
        pcie = load_profile(line["profile"]).link_kind.startswith("PCIe")
        if size > MAX_MESSAGE_BYTES or "eager" in line["kernel"]:
            continue
        if (not library and pcie and gpus > 2) or (library and line["profile"] in RACKS):
            continue
        path = "nccl" if library else "custom"
        row = Row(
            f"{gpus}/{size}",
            {"buffer_bytes": size, "gpus": gpus, "path": path},
            float(line["latency_us"]) * 1e-6,
        )
        yield Measured(line["profile"], TABLES[path], line["software"], all_reduce, row)
