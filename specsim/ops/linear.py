"""Dense matrix products y[m, n] = x[m, k] W[k, n]: FLOPs and bytes from shapes."""

from specsim.model.part import WeightFormat
from specsim.ops.op import OpCost
from specsim.ops.shapes import Elementwise, Gemm

ACT_BYTES = 2.0  # activations travel in bf16 between kernels


def gemm(name: str, m: float, n: float, k: float, fmt: WeightFormat, count: float = 1.0) -> OpCost:
    """One dense product of `m` rows on one GPU; `n`, `k` are the sharded widths.

    FLOP = 2 m n k; weights are read once whatever `m` is; inputs read and outputs written once.
    """
    stored = n * k * fmt.bytes_per_weight
    return OpCost(
        name,
        Gemm(m, n, k, fmt.name, stored),
        flops=2.0 * m * n * k,
        weight_bytes=stored,
        act_bytes=ACT_BYTES * m * (n + k),
        count=count,
    )


def elementwise(
    name: str, num_bytes: float, count: float = 1.0, weight_bytes: float = 0.0
) -> OpCost:
    """A kernel that only moves bytes: norms, rotary, activation, residual, gather.

    weight_bytes: the small vectors it reads besides (norms, biases, convolutions, gates)."""
    return OpCost(
        name, Elementwise(weight_bytes + num_bytes), weight_bytes=weight_bytes,
        act_bytes=num_bytes, count=count,
    )
