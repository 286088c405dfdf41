"""op_time: the kernel model for each kind of op (`specsim.ops.op.OpCost`)."""

from collections.abc import Mapping
from typing import Protocol

from specsim.errors import ProfileError, UsageError
from specsim.roofline.attention import attn_decode, attn_prefill
from specsim.roofline.comm import all_gather, all_reduce, all_to_all
from specsim.roofline.device import Device
from specsim.roofline.gemm import gemm
from specsim.roofline.mla import mla_decode, mla_prefill
from specsim.roofline.moe import moe
from specsim.roofline.recurrent import gdn_decode, gdn_prefill, mamba2_decode, mamba2_prefill
from specsim.roofline.result import KernelTime
from specsim.roofline.simple import elementwise, sample

FIDELITIES = ("calibrated", "datasheet")


class Op(Protocol):
    """What is read of an `OpCost`: its kind decides which dims it carries."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def fmt(self) -> str: ...
    @property
    def dims(self) -> Mapping[str, float]: ...
    @property
    def flops(self) -> float: ...
    @property
    def weight_bytes(self) -> float: ...
    @property
    def state_bytes(self) -> float: ...
    @property
    def act_bytes(self) -> float: ...
    @property
    def bytes(self) -> float: ...


def op_time(
    op: Op, device: Device, fidelity: str = "calibrated", engine: str = ""
) -> KernelTime:
    """Seconds of ONE of the op's `count` identical calls.

    Dims by kind, beyond those of `OpCost`: attn_decode takes kv_read_amplification; attn_decode
    and attn_prefill take shared_launch (1: part of a call whose launch another op pays); moe
    takes uniform (1: evenly popular experts) and routing_shape; 'all_gather' and 'all_to_all'
    are further kinds with the dims of 'all_reduce'. The state bytes of a 'recurrent' decode are
    taken from the op, so that an engine's extra copies are priced.

    UsageError for an unknown fidelity or kind; ProfileError where a kernel table (of a profile
    made by hand) lacks a parameter.
    """
    if fidelity not in FIDELITIES:
        raise UsageError(f"fidelity '{fidelity}' is not known; use one of {', '.join(FIDELITIES)}")
    try:
        return _price(op, device, fidelity, engine)
    except KeyError as error:
        raise ProfileError(
            f"op '{op.name}' of kind '{op.kind}' finds no {error}, neither in its dims nor in the "
            "device's kernel tables; complete the tables or inherit them with "
            '[kernels] inherit = "h200-sxm"'
        ) from None


def _price(op: Op, device: Device, fidelity: str, engine: str) -> KernelTime:
    d = op.dims
    kind = op.kind
    if kind == "gemm":
        return gemm(
            device, d["m"], d["n"], d["k"], op.fmt,
            weight_bytes=op.weight_bytes, fidelity=fidelity, engine=engine,
        )
    if kind in ("attn_decode", "attn_prefill"):
        time = _attention(op, device, fidelity, engine)
        if d.get("shared_launch"):
            return time._replace(seconds=time.seconds - time.floor_s, floor_s=0.0)
        return time
    if kind == "moe":
        return moe(
            device, d["tokens"], d["hidden"], d["inter"], d["top_k"], d["experts"],
            gated=bool(d.get("gated", 1)), fmt=op.fmt,
            local_experts=d.get("local_experts", 0), overlap=d.get("overlap", 0.0),
            distribution=(
                "balanced" if d.get("balanced") else "uniform" if d.get("uniform") else "power_law"
            ),
            routing_shape=d.get("routing_shape", 0.0),
            fidelity=fidelity, engine=engine,
        )
    if kind == "recurrent":
        return _recurrent(op, device, fidelity, engine)
    if kind == "elementwise":
        return elementwise(device, op.bytes, fidelity=fidelity, engine=engine)
    if kind == "all_reduce":
        return all_reduce(
            device, op.act_bytes, int(d["gpus"]), fidelity=fidelity, engine=engine
        )
    if kind == "all_gather":
        return all_gather(device, op.act_bytes, int(d["gpus"]), fidelity=fidelity, engine=engine)
    if kind == "all_to_all":
        return all_to_all(device, op.act_bytes, int(d["gpus"]), fidelity=fidelity, engine=engine)
    if kind == "sample":
        return sample(
            device, d["rows"], int(d["vocab"]), passes=d.get("passes", 0.0), fidelity=fidelity,
            engine=engine,
        )
    raise UsageError(f"op '{op.name}' has kind '{kind}', which no kernel model covers")


def _attention(op: Op, device: Device, fidelity: str, engine: str) -> KernelTime:
    d = op.dims
    heads = d["heads"]
    if op.kind == "attn_decode":
        amplification = d.get("kv_read_amplification", 1.0)
        if d.get("mla"):
            return mla_decode(
                device, d["seqs"], int(d["q_len"]), heads, int(d["kv_lora_rank"]),
                int(d["rope_dim"]), d["ctx"], op.fmt, kv_read_amplification=amplification,
                fidelity=fidelity, engine=engine,
            )
        return attn_decode(
            device, d["seqs"], int(d["q_len"]), heads, d["kv_heads"], int(d["head_dim"]),
            d["ctx"], op.fmt, kv_read_amplification=amplification, fidelity=fidelity,
            engine=engine,
        )
    if d.get("mla"):
        qk, v = int(d["qk_head_dim"]), int(d["v_head_dim"])
        # Sparse attention sees fewer pairs than causal: the op's FLOP say how many.
        pairs = op.flops / (2.0 * heads * (qk + v))
        return mla_prefill(
            device, d["new"], d["cached"], heads, qk, v, d.get("seqs", 1), pairs=pairs,
            fidelity=fidelity, engine=engine,
        )
    return attn_prefill(
        device, d["new"], d["cached"], heads, d["kv_heads"], int(d["head_dim"]),
        int(d.get("window", 0)), op.fmt, d.get("seqs", 1), fidelity=fidelity, engine=engine,
    )


def _recurrent(op: Op, device: Device, fidelity: str, engine: str) -> KernelTime:
    d = op.dims
    conv_kernel = int(d.get("conv_kernel", 4))
    element = d.get("state_bytes_per_elem", 4.0)
    if d.get("prefill"):
        seqs = max(1.0, d.get("seqs", 1))
        each = d["tokens"] / seqs  # the op counts the tokens of all sequences
        if d.get("mamba"):
            return mamba2_prefill(
                device, each, d["n_heads"], int(d["head_dim"]), int(d["state_size"]),
                d["n_groups"], seqs, conv_kernel, fidelity=fidelity, engine=engine,
            )
        return gdn_prefill(
            device, each, d["n_k_heads"], d["n_v_heads"], int(d["dk"]), int(d["dv"]), seqs,
            conv_kernel, fidelity=fidelity, engine=engine,
        )
    traffic = op.state_bytes - d.get("conv_bytes", 0.0)
    if d.get("mamba"):
        return mamba2_decode(
            device, d["seqs"], int(d["q_len"]), d["n_heads"], int(d["head_dim"]),
            int(d["state_size"]), d["n_groups"], conv_kernel, element,
            state_traffic=traffic, fidelity=fidelity, engine=engine,
        )
    return gdn_decode(
        device, d["seqs"], int(d["q_len"]), d["n_k_heads"], d["n_v_heads"], int(d["dk"]),
        int(d["dv"]), conv_kernel, element, state_traffic=traffic, fidelity=fidelity,
        engine=engine,
    )
