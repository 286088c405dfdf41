"""What a layer has beside its token mixer and feed-forward part: work on the residual stream.

An extra is a frozen dataclass below `Extra` that counts its own parameters. Its operations are
registered in `specsim.ops.extras.EXTRAS`. Widths are in elements, `hidden` is the layer's width.
"""

from dataclasses import dataclass
from typing import ClassVar

from specsim.model.part import BF16, Part, PartCount, WeightFormat, bytes_of

MIXING_BYTES = 4.0  # of a weight of hyper-connections


@dataclass(frozen=True, slots=True)
class Extra(Part):
    """What every extra answers. Engines keep one as it is in 16 bits unless it has a format.

    parts_sum_and_norm: it works between a sum over GPUs and the norm behind, so that no kernel
    does both."""

    parts_sum_and_norm: ClassVar[bool] = False

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
class AltUp(Extra):
    """Streams of the residual of which a layer works on one (Gemma-3n): all are predicted from
    each other before it and corrected by its result behind it, with numbers that a narrow product
    of the active stream gives. Beside the mixer a product of `rank` goes round it (LAuReL)."""

    tag: ClassVar[str] = "altup"
    parts_sum_and_norm: ClassVar[bool] = True

    streams: int
    rank: int

    def count(self, hidden: int) -> PartCount:
        mixing = self.streams**3 + self.streams**2 + hidden * (self.streams + 2)
        return PartCount(2 * hidden * self.rank, mixing + hidden)  # scale, two norms


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
class HyperConnections(Extra):
    """Manifold-constrained hyper-connections (mHC; DeepSeek-V4): several streams of the residual.

    For each of a layer's two parts a matrix gives, from all streams together, the weights with
    which they are read, the part's result is added to them, and they are mixed with each other:
    streams x (2 + streams) numbers, an offset for each and three scales, in fp32."""

    tag: ClassVar[str] = "hyper_connections"
    parts_sum_and_norm: ClassVar[bool] = True

    streams: int

    @property
    def mixes(self) -> int:
        """Numbers that one part needs."""
        return self.streams * (2 + self.streams)

    def count(self, hidden: int) -> PartCount:
        return PartCount(plain=2 * (self.mixes * (self.streams * hidden + 1) + 3))

    def weight_bytes(self, hidden: int, active: bool = False) -> float:
        return self.count(hidden).total * MIXING_BYTES

    def join_parameters(self, hidden: int) -> int:
        """Of the weighed sum of all streams after the last layer."""
        return self.streams * (self.streams * hidden + 1) + 1


@dataclass(frozen=True, slots=True)
class BlockConvolution(Extra):
    """Convolutions over the rows of a block, `taps` long, before and behind mixer and feed-forward
    part (DFlash2). Their kernels are a learned one plus one per row and group of channels, which a
    product of the part's input gives."""

    tag: ClassVar[str] = "block_convolution"

    taps: int
    group: int  # channels that share a row's kernel

    def count(self, hidden: int) -> PartCount:
        both = 2 * self.taps * (hidden // self.group)
        return PartCount(2 * hidden * both, 2 * 2 * self.taps * hidden)


@dataclass(frozen=True, slots=True)
class GatedStreams(Extra):
    """Streams of the residual behind gates of low rank (Qwen3.8-Flash-Next).

    For each of a layer's two parts the normalised streams give, through `rank` columns, a gate for
    every number of theirs; the part takes their gated mean, and its result is added to each with a
    weight of its own. The norm of the streams is the part's only one."""

    tag: ClassVar[str] = "gated_streams"
    parts_sum_and_norm: ClassVar[bool] = True

    streams: int
    rank: int

    def count(self, hidden: int) -> PartCount:
        width = self.streams * hidden
        return PartCount(plain=2 * (self.join_parameters(hidden) + width * self.streams))

    def join_parameters(self, hidden: int) -> int:
        """Of the gated mean after the last layer."""
        return self.streams * hidden * (1 + 2 * self.rank)


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
