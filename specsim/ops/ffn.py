"""Feed-forward parts: dense MLP and mixture of experts.

A routed layer reads the weights of every expert that at least one token chose:
`ops.work.Routing.distinct` is their expected number.

Under attention data parallelism each group of GPUs runs router, latent projections, shared
expert and dense layers on its own rows; only routed experts see the rows of all groups.
"""

from dataclasses import replace

from specsim.model.feedforward import DenseMLP, FeedForward, MoE
from specsim.model.part import BF16, PLAIN_BYTES
from specsim.ops.linear import ACT_BYTES, elementwise, gemm
from specsim.ops.op import OpCost
from specsim.ops.shapes import Experts
from specsim.ops.work import UNIFORM, Parallel, Routing, shard


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
    own: float | None = None,
) -> list[OpCost]:
    """Router, routed experts, latent projections and the shared expert of `count` layers.

    `rows` are those of all attention groups, `own` those of one (None: an equal share); `seqs` is
    the number of independent sequences among `rows`, which share fewer experts than the tokens of
    one.
    """
    own = max(1.0, rows / par.attention_dp if own is None else own)
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
    distinct = routing.distinct(f.n_experts, f.top_k, rows, seqs)
    assignments = rows * f.top_k / par.ep
    ops.append(
        OpCost(
            f"{prefix}.experts",
            Experts(
                rows, width, inter, f.top_k, f.n_experts, f.weight.name, f.gated,
                local_experts=f.n_experts / par.ep,
                distribution="uniform" if routing.evened or routing == UNIFORM else "power_law",
                distinct=distinct, bytes_per_weight=f.weight.bytes_per_weight,
                sent=par.attention_dp > 1,
            ),
            flops=2.0 * assignments * matrices * width * inter,
            weight_bytes=distinct * counted.per_expert / par.gpus * f.weight.bytes_per_weight,
            act_bytes=ACT_BYTES * assignments * (2 * width + (matrices + 1) * inter),
            count=count,
        )
    )
    if f.latent_norm:
        moved = ACT_BYTES * own * 2 * f.latent
        ops.append(elementwise(f"{prefix}.latent_norm", moved, count, f.latent * PLAIN_BYTES))
    if f.latent:
        ops.append(gemm(f"{prefix}.latent_out", own, hidden, f.latent, f.shared_weight, count))
    if f.shared_intermediate:
        shared = DenseMLP(f.shared_intermediate, gated=f.gated, weight=f.shared_weight)
        ops += [
            replace(op, beside_experts=own)
            for op in dense_mlp_ops(shared, hidden, own, par.tp, count, f"{prefix}.shared")
        ]
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
    own: float | None = None,
) -> list[OpCost]:
    """Ops of one feed-forward branch; `rows` and `seqs` of all attention groups together, `own`
    rows of one of them (None: an equal share)."""
    if isinstance(part, MoE):
        return moe_ops(part, hidden, rows, par, count, f"{prefix}moe", routing, seqs, own)
    assert isinstance(part, DenseMLP)
    own = max(1.0, rows / par.attention_dp if own is None else own)
    return dense_mlp_ops(part, hidden, own, par.tp, count, f"{prefix}mlp")
