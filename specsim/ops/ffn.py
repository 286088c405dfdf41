"""Feed-forward parts: dense MLP and mixture of experts.

A routed layer reads the weights of every expert that at least one token chose. `distinct_experts`
is their expected number; the kernel time model uses the same formula.

Under attention data parallelism each group of GPUs runs router, latent projections, shared
expert and dense layers on its own rows; only routed experts see the rows of all groups.
"""

import math

from specsim.model.spec import BF16, PLAIN_BYTES, DenseMLP, FeedForward, MoE
from specsim.ops.linear import ACT_BYTES, elementwise, gemm
from specsim.ops.op import OpCost
from specsim.ops.shapes import Experts
from specsim.ops.work import Parallel, Routing, shard


def distinct_experts(
    experts: float,
    top_k: float,
    tokens: float,
    overlap: float = 0.0,
    shape: float = math.inf,
) -> float:
    """Expected distinct experts that `tokens` tokens use, each choosing top_k of them.

    Independent uniform choice gives E (1 - (1 - k/E)^T) (MoESD, 2505.19645). `overlap` in [0, 1]
    is the share of a token's experts that it has in common with its neighbours in the same
    sequence: the number of independent draws falls from T to 1 + (T - 1)(1 - overlap).
    `shape`: popularity of the experts, gamma distributed with this shape and mean 1; an expert
    with lambda = -T ln(1 - k/E) expected visits is then missed with probability
    (1 + lambda/shape)^-shape. Infinite (or 0): all equally popular.
    """
    if top_k >= experts:
        return experts
    draws = 1 + (tokens - 1) * (1 - overlap) if tokens > 1 else tokens
    if shape <= 0 or math.isinf(shape):
        found: float = experts * (1 - (1 - top_k / experts) ** draws)
    else:
        visits = -draws * math.log(1 - top_k / experts)
        found = experts * (1 - (1 + visits / shape) ** -shape)
    return max(found, min(1.0, tokens) * top_k)  # a whole token never needs fewer than its own


def dense_mlp_ops(
    f: DenseMLP, hidden: int, rows: float, tp: int, count: float, prefix: str
) -> list[OpCost]:
    """The two products of an MLP, with the activation between, on one of `tp` GPUs."""
    inter = shard(f.intermediate, tp)
    up = 2 if f.gated else 1
    small = f.count(hidden).plain * PLAIN_BYTES / tp
    return [
        gemm(f"{prefix}.gate_up" if f.gated else f"{prefix}.up", rows, up * inter, hidden,
             f.weight, count),
        elementwise(f"{prefix}.act", ACT_BYTES * rows * (up + 1) * inter, count, small),
        gemm(f"{prefix}.down", rows, hidden, inter, f.weight, count),
    ]


def moe_ops(
    f: MoE,
    hidden: int,
    rows: float,
    par: Parallel,
    count: float,
    prefix: str,
    routing: Routing,
    seqs: float,
) -> list[OpCost]:
    """Router, routed experts, latent projections and the shared expert of `count` layers.

    `rows` are those of all attention groups; `seqs` is the number of independent sequences among
    them: overlap acts within one.
    """
    own = max(1.0, rows / par.attention_dp)
    counted = f.count(hidden)
    width = f.latent or hidden
    bias = f.n_experts * PLAIN_BYTES if f.router_bias else 0.0
    ops = [gemm(f"{prefix}.router", own, f.n_experts, hidden, BF16, count)]
    ops.append(elementwise(f"{prefix}.topk", 4.0 * own * 2 * f.n_experts, count, bias))
    if f.latent:
        ops.append(gemm(f"{prefix}.latent_in", own, f.latent, hidden, f.shared_weight, count))
    # EP keeps whole experts; TP slices every expert.
    slices = par.gpus // par.ep
    inter = shard(f.intermediate, slices)
    matrices = 3 if f.gated else 2
    # The tokens of one sequence share experts; different sequences draw on their own.
    draws_overlap = routing.overlap * (1 - seqs / rows) if rows > seqs else 0.0
    hit = distinct_experts(f.n_experts, f.top_k, rows, draws_overlap, routing.shape) / par.ep
    assignments = rows * f.top_k / par.ep
    uniform = math.isinf(routing.shape)
    ops.append(
        OpCost(
            f"{prefix}.experts",
            Experts(
                rows, width, inter, f.top_k, f.n_experts, f.weight.name, f.gated,
                local_experts=f.n_experts / par.ep,
                overlap=draws_overlap,
                distribution="uniform" if uniform else "power_law",
                routing_shape=0.0 if uniform else routing.shape,
                hit=hit,
            ),
            flops=2.0 * assignments * matrices * width * inter,
            weight_bytes=hit * counted.per_expert / slices * f.weight.bytes_per_weight,
            act_bytes=ACT_BYTES * assignments * (2 * width + (matrices + 1) * inter),
            count=count,
        )
    )
    if f.latent:
        ops.append(gemm(f"{prefix}.latent_out", own, hidden, f.latent, f.shared_weight, count))
    if f.shared_intermediate:
        shared = DenseMLP(f.shared_intermediate, gated=f.gated, weight=f.shared_weight)
        ops += dense_mlp_ops(shared, hidden, own, par.tp, count, f"{prefix}.shared")
        gate = hidden * PLAIN_BYTES if f.shared_gate else 0.0
        ops.append(
            elementwise(f"{prefix}.shared_add", ACT_BYTES * own * 3 * hidden, count, gate)
        )
    return ops


def ffn_ops(
    part: FeedForward,
    hidden: int,
    rows: float,
    par: Parallel,
    count: float,
    prefix: str,
    routing: Routing,
    seqs: float,
) -> list[OpCost]:
    """Ops of one feed-forward branch; `rows` and `seqs` of all attention groups together."""
    if isinstance(part, MoE):
        return moe_ops(part, hidden, rows, par, count, f"{prefix}moe", routing, seqs)
    assert isinstance(part, DenseMLP)
    own = max(1.0, rows / par.attention_dp)
    return dense_mlp_ops(part, hidden, own, par.tp, count, f"{prefix}mlp")
