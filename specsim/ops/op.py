"""OpCost: one kind of kernel call of a step, in FLOP and bytes, from shapes alone.

FLOP count a multiply-add as 2. Byte fields are what must move if every operand is read
or written once: `weight_bytes` weights, `kv_bytes` cache reads and writes, `state_bytes`
recurrent state, `act_bytes` activations. `dims` are the numbers the kernel model needs
besides; costs are for ONE of `count` identical calls.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OpCost:
    """kind and the dims it carries (numbers per GPU, after sharding):

    'gemm'         m, n, k: rows, output width, input width; fmt = weight format
    'attn_decode'  seqs, q_len, heads, kv_heads, head_dim, window, ctx: mean cached tokens read
                   per sequence with any window applied; fmt = KV dtype; mla 1 with
                   kv_lora_rank, rope_dim
    'attn_prefill' new, cached, heads, kv_heads, head_dim, window; fmt = KV dtype; mla 1 with
                   qk_head_dim, v_head_dim; shared_launch 1: in the call of another op
    'moe'          tokens, hidden, inter, top_k, experts, gated, local_experts, overlap (0 =
                   independent), routing_shape (0 = benchmark's) or uniform 1; fmt = expert
                   weight format
    'recurrent'    seqs, q_len, state_elems per sequence, conv_kernel, state_bytes_per_elem,
                   conv_bytes: part of state_bytes that belongs to the convolution's window;
                   prefill 1 with tokens; gdn 1 with n_k_heads, n_v_heads, dk, dv or mamba 1
                   with n_heads, head_dim, state_size, n_groups
    'elementwise'  bytes only
    'all_reduce'   act_bytes (the tensor's size) over gpus
    'all_gather'   act_bytes (the gathered tensor's size) over gpus
    'sample'       rows, vocab
    """

    name: str
    kind: str
    flops: float = 0.0
    weight_bytes: float = 0.0
    kv_bytes: float = 0.0
    state_bytes: float = 0.0
    act_bytes: float = 0.0
    count: float = 1.0
    fmt: str = "bf16"
    dims: dict[str, float] = field(default_factory=dict)

    @property
    def bytes(self) -> float:
        return self.weight_bytes + self.kv_bytes + self.state_bytes + self.act_bytes
