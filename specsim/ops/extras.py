"""Operations of what a layer has beside mixer and feed-forward part (`model.extras`).

None is divided over the GPUs of a layer: rows of the residual stream are whole on each of them
(SGLang 0.5.23 gemma4_causal.py, kimi_k3.py and gigachat35.py build them of replicated linears).
"""

from collections.abc import Callable

from specsim.model.extras import (
    MIXING_BYTES,
    AltUp,
    AttentionResidual,
    BlockConvolution,
    Extra,
    GatedStreams,
    HyperConnections,
    NormGates,
    PerLayerInput,
)
from specsim.model.part import BF16, PLAIN_BYTES, WeightFormat
from specsim.ops.linear import ACT_BYTES, elementwise, gemm
from specsim.ops.op import OpCost

# ops(extra, hidden, rows, count, prefix) of `count` layers on the rows of one attention group
ExtraOps = Callable[..., list[OpCost]]


def per_layer_input_ops(
    e: PerLayerInput, hidden: int, rows: float, count: float, prefix: str
) -> list[OpCost]:
    """The gate, the product with the token's row, the way back, and the norm that adds it."""
    name = f"{prefix}layer_input"
    return [
        gemm(f"{name}.gate", rows, e.width, hidden, BF16, count),
        elementwise(f"{name}.act", ACT_BYTES * rows * 3 * e.width, count),
        gemm(f"{name}.out", rows, hidden, e.width, BF16, count),
        elementwise(f"{name}.norm", ACT_BYTES * rows * 3 * hidden, count, hidden * PLAIN_BYTES),
    ]


def altup_ops(e: AltUp, hidden: int, rows: float, count: float, prefix: str) -> list[OpCost]:
    """The numbers of prediction and correction; all streams read and written by both; the way
    round the mixer. The layer's own row of input (`PerLayerInput`) is added to all but one."""
    one, small = ACT_BYTES * rows * hidden, e.count(hidden).plain * PLAIN_BYTES
    return [
        elementwise(f"{prefix}altup_router", one, 2 * count, small / 2),
        elementwise(f"{prefix}altup_predict", 2 * e.streams * one, count),
        elementwise(f"{prefix}altup_correct", (2 * e.streams + 1) * one, count),
        elementwise(f"{prefix}altup_add", 2 * (e.streams - 1) * one, count),
        gemm(f"{prefix}laurel_in", rows, e.rank, hidden, BF16, count),
        gemm(f"{prefix}laurel_out", rows, hidden, e.rank, BF16, count),
        elementwise(f"{prefix}laurel_norm", 3 * one, count),
    ]


def attention_residual_ops(
    e: AttentionResidual, hidden: int, rows: float, count: float, prefix: str
) -> list[OpCost]:
    """Before mixer and feed-forward part one kernel reads the blocks' outputs and the sum and
    writes their mean; the norm behind it is the layer's own."""
    weights = e.count(hidden).plain / 2 * PLAIN_BYTES
    moved = ACT_BYTES * rows * hidden * (e.blocks + 2)
    return [elementwise(f"{prefix}residual_mix", moved, 2 * count, weights)]


def block_convolution_ops(
    e: BlockConvolution, hidden: int, rows: float, count: float, prefix: str
) -> list[OpCost]:
    """For mixer and feed-forward part each: the product that gives the kernels, and two passes
    over the rows."""
    name, kernels = f"{prefix}block_conv", 2 * e.taps * (hidden // e.group)
    moved = ACT_BYTES * rows * (2 * hidden + kernels / 2)
    base = e.taps * hidden * PLAIN_BYTES
    return [
        gemm(f"{name}.kernel", rows, kernels, hidden, BF16, 2 * count),
        elementwise(name, moved, 4 * count, base),
    ]


def norm_gate_ops(
    e: NormGates, hidden: int, rows: float, count: float, prefix: str
) -> list[OpCost]:
    """Two thin products behind each norm."""
    name, calls = f"{prefix}norm_gate", count * e.norms
    ops = [
        gemm(f"{name}.in", rows, e.rank, hidden, BF16, calls),
        gemm(f"{name}.out", rows, hidden, e.rank, BF16, calls),
        elementwise(f"{name}.mul", ACT_BYTES * rows * 3 * hidden, calls),
    ]
    if e.more:
        ops += [
            gemm(f"{name}.in", rows, e.rank, e.more, BF16, count),
            gemm(f"{name}.out", rows, e.more, e.rank, BF16, count),
        ]
    return ops


def hyper_connection_ops(
    e: HyperConnections, hidden: int, rows: float, count: float, prefix: str
) -> list[OpCost]:
    """Around each part: a product of all streams with a narrow fp32 matrix on tensor cores
    (DeepGEMM's `tf32_hc_prenorm_gemm`), and a kernel that adds the result and mixes the streams.
    The kernel that reads them for the part is the layer's norm; its further bytes count here."""
    one = ACT_BYTES * rows * hidden
    mixing = WeightFormat("bf16", MIXING_BYTES, "bf16")  # at about that rate
    vectors = (e.mixes + 3) * MIXING_BYTES  # offsets and scales
    return [
        gemm(f"{prefix}hc_mix", rows, e.mixes, e.streams * hidden, mixing, 2 * count),
        elementwise(f"{prefix}hc_post", (3 * e.streams - 1) * one, 2 * count, vectors),
    ]


def gated_stream_ops(
    e: GatedStreams, hidden: int, rows: float, count: float, prefix: str
) -> list[OpCost]:
    """Around each part: the gates in two products, the weights of the result with the first of
    them. The kernel that writes the mean is the layer's norm; the further bytes of all count here:
    streams normalised (read, written), gated (they and the gates read), added to."""
    one, wide, calls = ACT_BYTES * rows * hidden, e.streams * hidden, 2 * count
    return [
        gemm(f"{prefix}hc_down", rows, e.rank + e.streams, wide, BF16, calls),
        gemm(f"{prefix}hc_up", rows, wide, e.rank, BF16, calls),
        elementwise(f"{prefix}hc_post", (6 * e.streams - 1) * one, calls, wide * PLAIN_BYTES),
    ]


# An extra of another kind (a subclass of `model.extras.Extra`) is entered here.
EXTRAS: dict[type[Extra], ExtraOps] = {
    PerLayerInput: per_layer_input_ops,
    AltUp: altup_ops,
    BlockConvolution: block_convolution_ops,
    AttentionResidual: attention_residual_ops,
    NormGates: norm_gate_ops,
    HyperConnections: hyper_connection_ops,
    GatedStreams: gated_stream_ops,
}
