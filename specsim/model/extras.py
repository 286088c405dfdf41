"""What a layer has beside its token mixer and feed-forward part: work on the residual stream.

An extra is a frozen dataclass below `Extra` that counts its own parameters. Its operations are
registered in `specsim.ops.extras.EXTRAS`. Widths are in elements, `hidden` is the layer's width.
"""

from dataclasses import dataclass
from typing import ClassVar

from specsim.model.part import BF16, Part, PartCount, WeightFormat, bytes_of


@dataclass(frozen=True, slots=True)
class Extra(Part):
    """What every extra answers. Engines keep one as it is in 16 bits unless it has a format."""

    @property
    def weight(self) -> WeightFormat:
        return BF16

    def in_format(self, fmt: WeightFormat) -> "Extra":
        return self

    def count(self, hidden: int) -> PartCount:
        """Parameters in one layer."""
        raise NotImplementedError

    def parameters(self, hidden: int, active: bool = False) -> int:
        return self.count(hidden).total

    def weight_bytes(self, hidden: int, active: bool = False) -> float:
        return bytes_of(self.count(hidden), self.weight)


@dataclass(frozen=True, slots=True)
class PerLayerInput(Extra):
    """A token's own row for this layer, `width` wide, let in through a gate (Gemma-3n, Gemma-4
    E2B and E4B): h -> width, times the row, width -> h, and a norm. The rows are those of a table
    of the model (`ModelSpec.tables`)."""

    tag: ClassVar[str] = "per_layer_input"

    width: int

    def count(self, hidden: int) -> PartCount:
        return PartCount(2 * hidden * self.width, hidden)


@dataclass(frozen=True, slots=True)
class AttentionResidual(Extra):
    """The input of mixer and feed-forward part as a learned mean, token by token, of the outputs
    of blocks of layers and of the running sum (Kimi-K3, Inkling-2).

    blocks: outputs that are read besides the sum, the mean over these layers and both points.
    vectors: learned ones, h long: a query for each point, in Kimi-K3 also a norm."""

    tag: ClassVar[str] = "attention_residual"

    blocks: float
    vectors: int = 4

    def count(self, hidden: int) -> PartCount:
        return PartCount(plain=self.vectors * hidden)


@dataclass(frozen=True, slots=True)
class NormGates(Extra):
    """Gates of low rank behind `norms` norms of the layer's width (GigaChat-3.5): h -> rank -> h,
    a sigmoid, times the norm's output. more: of norms of other widths, the sum of the widths."""

    tag: ClassVar[str] = "norm_gates"

    norms: int
    rank: int
    more: int = 0

    def count(self, hidden: int) -> PartCount:
        return PartCount(plain=2 * self.rank * (self.norms * hidden + self.more))
