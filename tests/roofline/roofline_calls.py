"""Kernel functions called with numbers instead of shapes, which keeps the tests' arithmetic on
one line."""

from kernels.recurrent import delta_net_state
from kernels.tables import called

from specsim import roofline
from specsim.ops.shapes import (
    AllGather,
    AllReduce,
    AllToAll,
    AttentionDecode,
    AttentionPrefill,
    Elementwise,
    Experts,
    Gemm,
    LatentDecode,
    LatentPrefill,
    Sample,
    StateDecode,
    StatePrefill,
)


def _gdn_state(*sizes: float, **named: float) -> StateDecode:
    return delta_net_state(*sizes)._replace(**named)  # type: ignore[arg-type]


def _mamba_state(
    seqs: float, q_len: int, heads: float, dim: int, state: int, groups: float, **named: float
) -> StateDecode:
    channels = heads * dim + 2 * groups * state
    return StateDecode(seqs, q_len, heads * dim * state, channels, 6.0, **named)  # type: ignore[arg-type]


def _mamba_prompt(
    tokens: float, heads: float, dim: int, state: int, groups: float, seqs: float = 1
) -> StatePrefill:
    return StatePrefill(tokens, groups, heads, state, dim, seqs)


gemm = called(roofline.gemm, Gemm)
attn_decode = called(roofline.attn_decode, AttentionDecode)
attn_prefill = called(roofline.attn_prefill, AttentionPrefill)
mla_decode = called(roofline.mla_decode, LatentDecode)
mla_prefill = called(roofline.mla_prefill, LatentPrefill)
moe = called(roofline.moe, Experts)
elementwise = called(roofline.elementwise, Elementwise)
sample = called(roofline.sample, Sample)
all_reduce = called(roofline.all_reduce, AllReduce)
all_gather = called(roofline.nccl, AllGather)
all_to_all = called(roofline.nccl, AllToAll)
gdn_decode = called(roofline.state_decode, _gdn_state)
gdn_prefill = called(roofline.state_prefill, StatePrefill)
mamba2_decode = called(roofline.state_decode, _mamba_state)
mamba2_prefill = called(roofline.state_prefill, _mamba_prompt)
