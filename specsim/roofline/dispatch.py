"""op_time: the kernel model for each kind of OpCost (see `specsim.ops.op`)."""

from specsim.errors import UsageError
from specsim.ops.op import OpCost
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


def op_time(
    op: OpCost, device: Device, fidelity: str = "calibrated", engine: str = ""
) -> KernelTime:
    """Seconds of ONE of the op's `count` identical calls.

    Dims by kind, beyond those of `OpCost`: attn_decode also takes kv_read_amplification;
    a latent one (mla = 1) takes kv_lora_rank and rope_dim, and a latent prefill qk_head_dim
    and v_head_dim. 'recurrent' takes n_k_heads, n_v_heads, dk, dv (gdn = 1) or n_heads,
    head_dim, state_size, n_groups (mamba = 1). 'moe' takes distribution as an OpCost name
    suffix never: routing is 'power_law' unless dims['uniform'] is 1.
    """
    if fidelity not in FIDELITIES:
        raise UsageError(f"fidelity '{fidelity}' is not known; use one of {', '.join(FIDELITIES)}")
    d = op.dims
    kind = op.kind
    if kind == "gemm":
        return gemm(
            device, d["m"], d["n"], d["k"], op.fmt,
            weight_bytes=op.weight_bytes, fidelity=fidelity, engine=engine,
        )
    if kind == "attn_decode":
        amplification = d.get("kv_read_amplification", 1.0)
        if d.get("mla"):
            return mla_decode(
                device, d["seqs"], int(d["q_len"]), int(d["heads"]), int(d["kv_lora_rank"]),
                int(d["rope_dim"]), d["ctx"], op.fmt, kv_read_amplification=amplification,
                fidelity=fidelity, engine=engine,
            )
        return attn_decode(
            device, d["seqs"], int(d["q_len"]), int(d["heads"]), int(d["kv_heads"]),
            int(d["head_dim"]), d["ctx"], op.fmt, kv_read_amplification=amplification,
            fidelity=fidelity, engine=engine,
        )
    if kind == "attn_prefill":
        if d.get("mla"):
            return mla_prefill(
                device, d["new"], d["cached"], int(d["heads"]), int(d["qk_head_dim"]),
                int(d["v_head_dim"]), d.get("seqs", 1), fidelity=fidelity, engine=engine,
            )
        return attn_prefill(
            device, d["new"], d["cached"], int(d["heads"]), int(d["kv_heads"]),
            int(d["head_dim"]), int(d.get("window", 0)), op.fmt, d.get("seqs", 1),
            fidelity=fidelity, engine=engine,
        )
    if kind == "moe":
        return moe(
            device, d["tokens"], int(d["hidden"]), int(d["inter"]), int(d["top_k"]),
            int(d["experts"]), gated=bool(d.get("gated", 1)), fmt=op.fmt,
            local_experts=int(d.get("local_experts", 0)), overlap=d.get("overlap", 0.0),
            distribution="uniform" if d.get("uniform") else "power_law",
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


def _recurrent(op: OpCost, device: Device, fidelity: str, engine: str) -> KernelTime:
    d = op.dims
    conv_kernel = int(d.get("conv_kernel", 4))
    seqs = max(1.0, d.get("seqs", 1))  # of a prefill; its tokens are the total over them
    if d.get("mamba"):
        shape = (int(d["n_heads"]), int(d["head_dim"]), int(d["state_size"]), int(d["n_groups"]))
        if d.get("prefill"):
            return mamba2_prefill(
                device, d["tokens"] / seqs, *shape, seqs, conv_kernel, fidelity=fidelity,
                engine=engine,
            )
        return mamba2_decode(
            device, d["seqs"], int(d["q_len"]), *shape, conv_kernel,
            d.get("state_bytes_per_elem", 4.0), fidelity=fidelity, engine=engine,
        )
    shape = (int(d["n_k_heads"]), int(d["n_v_heads"]), int(d["dk"]), int(d["dv"]))
    if d.get("prefill"):
        return gdn_prefill(
            device, d["tokens"] / seqs, *shape, seqs, conv_kernel, fidelity=fidelity, engine=engine
        )
    return gdn_decode(
        device, d["seqs"], int(d["q_len"]), *shape, conv_kernel,
        d.get("state_bytes_per_elem", 4.0), fidelity=fidelity, engine=engine,
    )
