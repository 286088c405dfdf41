"""What the parts of a layer have in common: a tag, a weight format, and how they are counted.

Parameters are split in two kinds because quantised checkpoints do so: *matrices* take the part's
weight format, *plain* weights (norms, routers, gates, convolutions, biases) stay in 2-byte
floats. `hidden` is the width of the layer throughout.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

PLAIN_BYTES = 2.0  # bytes of a weight that no checkpoint format quantises


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How the weights of one part are stored and multiplied.

    name: 'bf16', 'fp8', 'fp8_block', 'nvfp4', 'mxfp4', 'int4', ...
    bytes_per_weight: with block scales (nvfp4 0.5625, mxfp4 0.53125, fp8_block 1 + 4/16384).
    compute: dtype of the multiplication ('bf16', 'fp8', 'fp4'); a weight-only format
        (W4A16) multiplies in 'bf16'.
    """

    name: str
    bytes_per_weight: float
    compute: str


BF16 = WeightFormat("bf16", 2.0, "bf16")


@dataclass(frozen=True, slots=True)
class PartCount:
    """Parameters of one part: `matrices` in the part's weight format, `plain` in 2 bytes."""

    matrices: int = 0
    plain: int = 0

    @property
    def total(self) -> int:
        return self.matrices + self.plain


@dataclass(frozen=True, slots=True)
class Part:
    """A token mixer or a feed-forward part. Subclasses are frozen dataclasses with a `tag`, by
    which the catalogue's files name them, and a field `weight`."""

    tag: ClassVar[str] = ""
    by_tag: ClassVar[dict[str, type["Part"]]] = {}

    def __init_subclass__(cls) -> None:
        super(Part, cls).__init_subclass__()
        if "tag" in vars(cls):
            Part.by_tag[cls.tag] = cls

    @property
    def weight(self) -> WeightFormat:
        """The format of its matrices."""
        raise NotImplementedError

    def in_format(self, fmt: WeightFormat) -> Self:
        """The same with every quantisable matrix in `fmt`."""
        return replace(self, weight=fmt)  # type: ignore[call-arg]

    def parameters(self, hidden: int, active: bool = False) -> int:
        """All parameters, or with `active` those that one token passes through."""
        raise NotImplementedError

    def weight_bytes(self, hidden: int, active: bool = False) -> float:
        """Bytes of the same."""
        raise NotImplementedError


def bytes_of(count: PartCount, weight: WeightFormat) -> float:
    return count.matrices * weight.bytes_per_weight + count.plain * PLAIN_BYTES
