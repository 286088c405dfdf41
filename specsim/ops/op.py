"""OpCost: one kind of kernel call of a step, in FLOP and bytes, from shapes alone.

FLOP count a multiply-add as 2. Byte fields are what must move if every operand is read
or written once: `weight_bytes` weights, `kv_bytes` cache reads and writes, `state_bytes`
recurrent state, `act_bytes` activations. `dims` are the numbers the kernel model needs
besides (see `Dims` fields by kind); costs are for ONE of `count` identical calls.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OpCost:
    """kind and the dims it carries (all ints unless said):

    'gemm'         m, n, k (rows, output width, input width; per GPU after sharding); fmt = weight format
    'attn_decode'  seqs, q_len, heads, kv_heads, head_dim, ctx (mean cached tokens read per sequence,
                   float, window already applied); fmt = KV dtype; mla: 1 when latent
    'attn_prefill' new, cached, heads, kv_heads, head_dim, window; fmt = KV dtype; mla
    'moe'          tokens, hidden, inter, top_k, experts, gated, local_experts (on this GPU),
                   overlap (float, 0 = independent routing); fmt = expert weight format
    'recurrent'    seqs, q_len, states (state writes per sequence), state_elems, tokens, prefill (0/1),
                   gdn/mamba: 1
    'elementwise'  only bytes count
    'all_reduce'   bytes in act_bytes, gpus
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
