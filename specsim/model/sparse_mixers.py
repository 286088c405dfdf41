"""Token mixers that choose what they read: compressed sparse attention and sparse grouped heads.

An indexer scores the cached keys with a few narrow heads, and the attention reads the best of
them. Latent attention with an indexer (DeepSeek-V3.2, GLM-5) is `mixers.LatentAttention`.
"""

from dataclasses import dataclass
from typing import ClassVar

from specsim.model.mixers import INDEX_KEY_BYTES_PER_128, Attention, CacheRow, Mixer
from specsim.model.part import BF16, PartCount, WeightFormat

# vLLM and SGLang fp8_ds_mla entry of DeepSeek-V4: 448 e4m3, 64 bf16 rope, 8 scales of one byte.
COMPRESSED_FP8_BYTES = 584


@dataclass(frozen=True, slots=True)
class CompressedAttention(Mixer):
    """DeepSeek-V4: one latent is key and value of all query heads, in two resolutions.

    A layer attends to the last `window` tokens and, with a `ratio`, to entries that each compress
    `ratio` earlier tokens: to the index_topk best of them (CSA, whose compression windows overlap
    and so are 2 x ratio tokens long) or to all (HCA: no indexer). The output projection has
    two steps, the first in `o_groups` groups. The compressors and the weights of the index heads
    stay in 16 bits. Shapes: every tensor of deepseek-ai/DeepSeek-V4-Pro."""

    tag: ClassVar[str] = "compressed_attention"

    n_heads: int
    head_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    window: int
    ratio: int = 0  # tokens to an entry; 0: the window alone
    index_heads: int = 0
    index_head_dim: int = 0
    index_topk: int = 0  # entries a query attends to; 0 = all
    weight: WeightFormat = BF16

    @property
    def label(self) -> str:
        return "csa" if self.index_topk else "hca" if self.ratio else "swa"

    @property
    def index_ratio(self) -> int:
        return self.ratio

    @property
    def overlap(self) -> int:
        """Compression windows that a token is part of."""
        return 2 if self.index_topk else 1

    def compressor_width(self) -> int:
        """Columns of the matrices that make entries and index keys of hidden states: two each,
        of values and of their weights in the mean."""
        return 2 * self.overlap * (self.head_dim + self.index_head_dim) if self.ratio else 0

    def count(self, hidden: int) -> PartCount:
        rank, width = self.q_lora_rank, self.n_heads * self.head_dim
        matrices = hidden * rank + rank * width + hidden * self.head_dim
        matrices += width * self.o_lora_rank + self.o_groups * self.o_lora_rank * hidden
        matrices += rank * self.index_heads * self.index_head_dim
        plain = rank + self.head_dim + self.n_heads  # the two norms; a sink for each head
        if self.ratio:
            # Projections, a learned offset per position of a window, a norm.
            plain += (2 * hidden + self.ratio) * self.compressor_width() // 2
            plain += self.head_dim + self.index_head_dim
        return PartCount(matrices, plain + hidden * self.index_heads)

    def entry_bytes(self, element: float) -> float:
        """Of one token of the window, or one compressed entry."""
        return float(COMPRESSED_FP8_BYTES) if element == 1.0 else self.head_dim * element

    def cache_row(self, element: float) -> CacheRow:
        """Compressors keep the fp32 projections of their open windows, which are counted with the
        tokens of the attention's window."""
        entry = self.entry_bytes(element)
        if not self.ratio:
            return CacheRow(entry, self.window)
        open_tokens = self.overlap * self.ratio * self.compressor_width() * 4.0
        return CacheRow(
            entry + open_tokens / self.window,
            self.window,
            index_size=self.index_head_dim * INDEX_KEY_BYTES_PER_128 / 128 / self.ratio,
            kept_size=entry / self.ratio,
        )

    def heads(self) -> tuple[tuple[str, int], ...]:
        return (("attention heads", self.n_heads), ("output groups", self.o_groups))


@dataclass(frozen=True, slots=True)
class SparseAttention(Attention):
    """Grouped-query attention that reads index_topk tokens of its cache (MiniMax-M3: 16 blocks of
    128 for each KV head, by the best index score in a block).

    Index queries and the one index key of a token are projections of the hidden state with norms
    of their own; the keys are cached in 16 bits."""

    tag: ClassVar[str] = "sparse_attention"

    index_heads: int = 0
    index_head_dim: int = 0
    index_topk: int = 0  # tokens a query attends to
    index_ratio: ClassVar[int] = 1

    @property
    def label(self) -> str:
        return "sparse"

    def count(self, hidden: int) -> PartCount:
        own = super(SparseAttention, self).count(hidden)
        index = hidden * (self.index_heads + 1) * self.index_head_dim
        return PartCount(own.matrices + index, own.plain + 2 * self.index_head_dim)

    def cache_row(self, element: float) -> CacheRow:
        row = super(SparseAttention, self).cache_row(element)
        return row._replace(index_size=2.0 * self.index_head_dim)
