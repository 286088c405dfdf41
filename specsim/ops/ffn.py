"""Feed-forward parts: dense MLP and mixture of experts.

A routed layer reads the weights of every expert that at least one token chose. The expected
number of distinct experts is a property of routing and belongs to the kernel time model; the
bytes given here assume independent uniform routing, E (1 - (1 - k/E)^T) (MoESD, 2505.19645).
"""

from specsim.model.spec import BF16, DenseMLP, FeedForward, MoE
from specsim.ops.linear import ACT_BYTES, elementwise, gemm
from specsim.ops.op import OpCost
from specsim.ops.work import Parallel, Routing, Work, shard


def distinct_experts(experts: float, top_k: float, tokens: float, overlap: float = 0.0) -> float:
    """Expected distinct experts that `tokens` tokens use.

    Independent uniform routing gives E (1 - (1 - k/E)^T). `overlap` in [0, 1] is the share of a
    token's experts that it has in common with its neighbours in the same sequence: the number of
    independent draws falls from T to 1 + (T - 1)(1 - overlap).
    """
    draws = 1 + (tokens - 1) * (1 - overlap) if tokens > 1 else tokens
    untouched: float = (1 - top_k / experts) ** draws
    return experts * (1 - untouched)


def dense_mlp_ops(
    f: DenseMLP, hidden: int, rows: float, tp: int, count: float, prefix: str
) -> list[OpCost]:
    inter = shard(f.intermediate, tp)
    up = 2 if f.gated else 1
    return [
        gemm(f"{prefix}.gate_up" if f.gated else f"{prefix}.up", rows, up * inter, hidden,
             f.weight, count),
        elementwise(f"{prefix}.act", ACT_BYTES * rows * (up + 1) * inter, count),
        gemm(f"{prefix}.down", rows, hidden, inter, f.weight, count),
    ]


def moe_ops(
    f: MoE,
    hidden: int,
    work: Work,
    par: Parallel,
    count: float,
    prefix: str,
    routing: Routing,
    seqs: float,
) -> list[OpCost]:
    """Router, routed experts, latent projections and the shared expert of `count` layers.

    `seqs` is the number of independent sequences among the rows: overlap acts within one.
    """
    rows, tp = work.rows, par.gpus
    width = f.latent or hidden
    ops = [gemm(f"{prefix}.router", rows, f.n_experts, hidden, BF16, count)]
    ops.append(elementwise(f"{prefix}.topk", 4.0 * rows * 2 * f.n_experts, count))
    if f.latent:
        ops.append(gemm(f"{prefix}.latent_in", rows, f.latent, hidden, f.shared_weight, count))
    # EP keeps whole experts; TP slices every expert.
    slices = tp // par.ep
    inter = shard(f.intermediate, slices)
    local = f.n_experts / par.ep
    matrices = 3 if f.gated else 2
    # The tokens of one sequence share experts; different sequences draw on their own.
    draws_overlap = routing.overlap * (1 - seqs / rows) if rows > seqs else 0.0
    hit = distinct_experts(f.n_experts, f.top_k, rows, draws_overlap) / par.ep
    assignments = rows * f.top_k / par.ep
    ops.append(
        OpCost(
            f"{prefix}.experts",
            "moe",
            flops=2.0 * assignments * matrices * width * inter,
            weight_bytes=hit * matrices * width * inter * f.weight.bytes_per_weight,
            act_bytes=ACT_BYTES * assignments * (2 * width + (matrices + 1) * inter),
            count=count,
            fmt=f.weight.name,
            dims={
                "tokens": rows,
                "hidden": width,
                "inter": inter,
                "top_k": f.top_k,
                "experts": f.n_experts,
                "gated": 1 if f.gated else 0,
                "local_experts": local,
                "overlap": draws_overlap,
                "routing_shape": routing.shape,
            },
        )
    )
    if f.latent:
        ops.append(gemm(f"{prefix}.latent_out", rows, hidden, f.latent, f.shared_weight, count))
    if f.shared_intermediate:
        shared = DenseMLP(f.shared_intermediate, gated=f.gated, weight=f.shared_weight)
        ops += dense_mlp_ops(shared, hidden, rows, par.tp if par.attention_dp == 1 else 1, count,
                             f"{prefix}.shared")
        ops.append(elementwise(f"{prefix}.shared_add", ACT_BYTES * rows * 3 * hidden, count))
    return ops


def ffn_ops(
    part: FeedForward,
    hidden: int,
    work: Work,
    par: Parallel,
    count: float,
    prefix: str,
    routing: Routing,
    seqs: float,
) -> list[OpCost]:
    if isinstance(part, MoE):
        return moe_ops(part, hidden, work, par, count, f"{prefix}moe", routing, seqs)
    if par.attention_dp > 1:
        # Dense layers follow the attention groups: each group serves its own rows.
        rows = max(1.0, work.rows / par.attention_dp)
        return dense_mlp_ops(part, hidden, rows, par.tp, count, f"{prefix}mlp")
    return dense_mlp_ops(part, hidden, work.rows, par.tp, count, f"{prefix}mlp")
