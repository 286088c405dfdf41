"""The scores of a sparse-attention indexer, by which layers choose what they attend to.

Its query heads share one key per `index_ratio` tokens, so it is a latent attention without values:
2 FLOP for each query, key, head and column; the keys are read once for all queries of a step.
"""

from dataclasses import replace
from typing import Protocol

from specsim.model.mixers import INDEX_KEY_BYTES_PER_128
from specsim.model.part import WeightFormat
from specsim.ops.linear import ACT_BYTES, gemm
from specsim.ops.op import OpCost
from specsim.ops.shapes import Gemm, LatentDecode
from specsim.ops.spread import causal_keys
from specsim.ops.work import Work

SCORED_IN = {"fp8": WeightFormat("fp8", 1.0, "fp8"), "bf16": WeightFormat("bf16", 2.0, "bf16")}


class Indexed(Protocol):
    """A mixer with an indexer. index_ratio: tokens to a key."""

    @property
    def index_heads(self) -> int: ...
    @property
    def index_head_dim(self) -> int: ...
    @property
    def index_ratio(self) -> int: ...


def index_scores(
    a: Indexed, work: Work, count: float, prefix: str, *, heads: float = 0.0, fmt: str = "fp8"
) -> list[OpCost]:
    """Scores of all keys. heads: of this GPU where they are split (0: all on each); fmt: in which
    keys are cached and scored, 'fp8' with a scale each or 'bf16'."""
    heads, dim, ratio = heads or a.index_heads, a.index_head_dim, a.index_ratio
    width = heads * dim
    key_bytes = dim * (INDEX_KEY_BYTES_PER_128 / 128 if fmt == "fp8" else 2.0)
    ops: list[OpCost] = []
    if work.seqs > 0:
        m, held = work.seqs * work.q_len, work.ctx / ratio
        ops.append(
            OpCost(
                f"{prefix}.index_scores",
                LatentDecode(work.seqs, work.q_len, heads, 0, dim, held, fmt),
                flops=2.0 * m * causal_keys(work.ctx, work.q_len) / ratio * width,
                kv_bytes=work.seqs * (work.ctx + 2 * work.q_len) / ratio * key_bytes,
                act_bytes=ACT_BYTES * m * width,
                count=count,
            )
        )
    for new, cached, _, alike in work.chunks(shared=True):
        keys = causal_keys(cached, new) / ratio
        # The keys stand where a product has its weights, and each is read once for all heads.
        product = gemm(f"{prefix}.index_prefill", new, keys, width, SCORED_IN[fmt], count * alike)
        read = (cached + 2 * new) / ratio * key_bytes
        shape = Gemm(new, keys, width, fmt, read)
        ops.append(replace(product, shape=shape, weight_bytes=read))
    return ops
