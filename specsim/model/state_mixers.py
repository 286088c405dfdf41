"""Further mixers whose state has a fixed size: lightning attention and Mamba-1.

Definitions: transformers 5.24 `modeling_minimax.py` and `modeling_jamba.py` (Apache-2.0). Widths
are in elements. vLLM keeps these states in the model's own dtype unless its server is told
otherwise (0.25.1: mamba_utils.py, `MambaStateDtypeCalculator`; no config of these models changes
it).
"""

from dataclasses import dataclass
from typing import ClassVar

from specsim.model.mixers import Mixer, RecurrentState
from specsim.model.part import BF16, PartCount, WeightFormat


@dataclass(frozen=True, slots=True)
class LightningAttention(Mixer):
    """Linear attention with a fixed decay per head (MiniMax-Text-01, MiniMax-M1): q, k and v, a
    norm of all heads' outputs together and a gate as wide as they."""

    tag: ClassVar[str] = "lightning_attention"

    n_heads: int
    head_dim: int
    state_dtype: str = "bf16"
    weight: WeightFormat = BF16

    @property
    def label(self) -> str:
        return "lightning"

    def count(self, hidden: int) -> PartCount:
        width = self.n_heads * self.head_dim
        return PartCount(5 * hidden * width, width)

    def state(self) -> RecurrentState:
        return RecurrentState(self.n_heads * self.head_dim**2, self.state_dtype, 0, 1)

    def heads(self) -> tuple[tuple[str, int], ...]:
        return (("linear-attention heads", self.n_heads),)


@dataclass(frozen=True, slots=True)
class Mamba1(Mixer):
    """Mamba-1 (Jamba): every channel of `inner` has a state of its own and a step width, which a
    product of low rank gives together with the projections into and out of the state.

    norms: of the three results of that product (Jamba)."""

    tag: ClassVar[str] = "mamba1"

    inner: int
    state_size: int
    rank: int
    conv_kernel: int = 4
    state_dtype: str = "bf16"
    conv_bias: bool = True
    proj_bias: bool = False
    norms: bool = True
    weight: WeightFormat = BF16  # of in and out; the rest stays bf16

    @property
    def label(self) -> str:
        return "mamba"

    @property
    def selection(self) -> int:
        """Width of the product that makes the state space depend on the token."""
        return self.rank + 2 * self.state_size

    def count(self, hidden: int) -> PartCount:
        plain = self.inner * (self.selection + self.rank + 1)  # x_proj, dt_proj with its bias
        plain += self.inner * (self.state_size + 1 + self.conv_kernel + self.conv_bias)  # A, D
        plain += self.selection if self.norms else 0
        plain += 2 * self.inner + hidden if self.proj_bias else 0
        return PartCount(3 * hidden * self.inner, plain)

    def state(self) -> RecurrentState:
        return RecurrentState(
            self.inner * self.state_size, self.state_dtype, self.inner, self.conv_kernel
        )

    def heads(self) -> tuple[tuple[str, int], ...]:
        return (("state-space channels", self.inner),)
