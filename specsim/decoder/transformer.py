"""One transformer class for Llama, Qwen2/2.5, Qwen3 and Qwen3-MoE.

    plan   = model.plan(rows, start, Q, cache)
    hidden = model.forward(ids [B, Q], plan)   # [B * Q, H], before the final norm
    logits = model.logits(hidden_rows)                # [rows, vocab]

Plain objects instead of nn.Module: a layer is a dozen calls, and at batch 1 on a CPU their
overhead is part of the step. A `PassPlan` (positions, rotary angles, where keys are stored, the
mask) is built once per pass and shared by all layers. Layers can be run in part, which is how the
early-exit drafter uses the target's own first layers.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specsim.decoder.attention import AttentionBackend, BatchRows, KVCache, PassPlan
from specsim.decoder.config import ModelConfig
from specsim.decoder.kernels import ops_for
from specsim.decoder.kv_cache import BlockTable
from specsim.decoder.layers import ExpertLayer, GateUp, Linear, RMSNorm, linear_factory, rope_table
from specsim.decoder.weights import LayerWeights, WeightSource
from specsim.errors import CapacityError


@dataclass(slots=True)
class Layer:
    norm1: RMSNorm
    qkv: Linear
    qk_norm: RMSNorm | None  # weight [heads + kv_heads, D]
    o: Linear
    norm2: RMSNorm
    gate_up: GateUp | None
    down: Linear | None
    moe: ExpertLayer | None


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How a model runs.

    linear: 'auto' | 'plain' | 'packed' (see `layers`). max_positions: None for the config's.
    static: no host sync anywhere in the pass (needed by CUDA graphs); None: on CUDA. use_triton:
    None: on CUDA. native: numba's kernels between the products, on the CPU (see `native`).
    """

    dtype: torch.dtype = torch.bfloat16
    device: torch.device | str = "cpu"
    linear: str = "auto"
    max_positions: int | None = None
    static: bool | None = None
    use_triton: bool | None = None
    native: bool = False


class Transformer:
    """A model on one device. Build it with `models.load_model` or from any WeightSource.

    One engine at a time may run it: native kernels share a scratch buffer.
    """

    def __init__(self, config: ModelConfig, source: WeightSource, how: ModelOptions) -> None:
        self.config, self.dtype, self.linear = config, how.dtype, how.linear
        self.device = torch.device(how.device)
        self.ops = ops_for(self.device, how.dtype, how.use_triton, how.native)
        self._static = self.device.type == "cuda" if how.static is None else how.static
        self._factory = linear_factory(how.linear, self.device, how.dtype)
        self.embed = self._put(source.embed())
        self.layers = [self.make_layer(source.layer(i)) for i in range(config.num_layers)]
        self.norm = RMSNorm(self._put(source.final_norm()), config.rms_norm_eps)
        self.head_weight = self.embed if config.tie_word_embeddings else self._put(source.head())
        self._head = self._factory(self.head_weight)
        self.max_positions = how.max_positions or config.max_position
        self._angles = rope_table(config, self.max_positions, self.device)

    def _put(self, tensor: Tensor) -> Tensor:
        return tensor.to(device=self.device, dtype=self.dtype)

    def make_layer(self, w: LayerWeights) -> Layer:
        c, put = self.config, self._put
        moe = qk_norm = None
        if w.q_norm is not None and w.k_norm is not None:
            per_head = torch.cat((put(w.q_norm).expand(c.num_heads, -1),
                                  put(w.k_norm).expand(c.num_kv_heads, -1)))
            qk_norm = RMSNorm(per_head, c.rms_norm_eps)
        if w.router is not None:
            moe = ExpertLayer(put(w.router), put(w.gate_up), put(w.down), c.num_experts_per_tok,
                      c.norm_topk_prob, grouped=self._static)
        dense = moe is None
        return Layer(
            norm1=RMSNorm(put(w.norm1), c.rms_norm_eps),
            qkv=self._factory(put(w.qkv), None if w.qkv_bias is None else put(w.qkv_bias)),
            qk_norm=qk_norm, o=self._factory(put(w.o)), norm2=RMSNorm(put(w.norm2), c.rms_norm_eps),
            gate_up=GateUp(put(w.gate_up), self._factory, self.ops.silu_mul) if dense else None,
            down=self._factory(put(w.down)) if dense else None, moe=moe,
        )

    def new_cache(
        self, pages: int, table: BlockTable, attention: AttentionBackend, layers: int | None = None
    ) -> KVCache:
        """An empty cache of that many pages for `layers` of this network's layers (default all)."""
        c = self.config
        shape = (layers or c.num_layers, pages, 2, c.num_kv_heads, table.page_size, c.head_dim)
        data = torch.zeros(shape, dtype=self.dtype, device=self.device)
        return KVCache(data, table, attention)

    def cache_beside(self, other: KVCache, layers: int | None = None) -> KVCache:
        """A cache for this network with the pages, table and backend of another one's."""
        return self.new_cache(other.pages, other.table, other.attention, layers)

    def weight_bytes(self) -> int:
        """Bytes of weights that one decode step reads (all experts counted; embedding rows not)."""
        total = self._head.weight_bytes
        for layer in self.layers:
            total += layer.qkv.weight_bytes + layer.o.weight_bytes
            for part in (layer.gate_up, layer.down, layer.moe):
                total += 0 if part is None else part.weight_bytes
        return total

    def plan(
        self, rows: BatchRows, start: Tensor, q_len: int, cache: KVCache, bound: int | None = None
    ) -> PassPlan:
        """Plan a pass over tokens at positions start .. start + q_len - 1 of each row.

        start [B] int64 on the device. bound: host-known upper bound of any row's end position
        (default rows.bound - 1 + q_len, the end of a step whose first token is the pending one).
        """
        end = rows.bound - 1 + q_len if bound is None else bound
        return self._planned(PassPlan(rows, q_len, start, end, cache))

    def prompt_plan(self, slot: int, start: int, count: int, cache: KVCache) -> PassPlan:
        """Plan a pass over one slot's prompt chunk, positions start .. start + count - 1."""
        def one(value: int) -> Tensor:
            return torch.full((1,), value, dtype=torch.int64, device=self.device)

        end = start + count
        rows = BatchRows(one(slot), end, (slot, slot + 1))
        causal = start == 0 and count > 1
        return self._planned(
            PassPlan(rows, count, one(start), end, cache, prompt=True, causal=causal)
        )

    def _planned(self, plan: PassPlan) -> PassPlan:
        if plan.kv_len > self.max_positions:
            raise CapacityError(
                f"position {plan.kv_len} is beyond the {self.max_positions} this model was loaded "
                "for; shorten the request or load it with a larger max_positions"
            )
        plan.kv_len = min(plan.kv_len, plan.cache.table.capacity)
        self.ops.prepare(plan, self._angles, self.config.num_heads)
        return plan

    def forward(self, ids: Tensor, plan: PassPlan, layers: int | None = None) -> Tensor:
        """ids [B, Q] int64 -> residual stream [B * Q, H] after `layers` layers (default all)."""
        return self.run(F.embedding(ids.reshape(-1), self.embed), self.layers[:layers], plan)

    def run(self, x: Tensor, layers: list[Layer], plan: PassPlan) -> Tensor:
        """Put x [T, H] (overwritten) through `layers`, layer i using the cache's layer i."""
        ops, heads = self.ops, self.config.num_heads
        last = len(layers) - 1
        h = ops.rms_norm(x, layers[0].norm1)
        for i, layer in enumerate(layers):
            y = ops.attend(layer.qkv(h), plan, layer.qk_norm, i, heads)
            x, h = ops.project_add_norm(layer.o, y, x, layer.norm2)
            if layer.moe is not None:
                x = x.add_(layer.moe(h))
                if i < last:
                    h = ops.rms_norm(x, layers[i + 1].norm1)
                continue
            assert layer.gate_up is not None and layer.down is not None
            inner = layer.gate_up(h)
            if i < last:
                x, h = ops.project_add_norm(layer.down, inner, x, layers[i + 1].norm1)
            else:
                x = layer.down.add(inner, x)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [rows, H] before the final norm -> fp32 logits [rows, vocab]."""
        return self._head(self.norm(hidden)).float()
