"""The points of single kernels (parts A to D and F): what each part measures, and how.

Part E, whole steps, and G, prompts, are in `steps`, H in `serving`.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

from specsim.calibrate.records import Measurement
from specsim.decoder.attention import BatchRows, PagedAttention, SlotAttention
from specsim.decoder.config import ModelConfig
from specsim.decoder.drafters.base import NoDraft, Proposal
from specsim.decoder.kernels import verify_attention
from specsim.decoder.kv_cache import BlockTable
from specsim.decoder.layers import Linear, linear_factory
from specsim.decoder.sampling import SamplingMode
from specsim.decoder.state import SlotState
from specsim.decoder.step import Step
from specsim.decoder.transformer import Transformer
from specsim.measure.models import MeasuredModel
from specsim.measure.session import (
    JobCost,
    MeasureJob,
    MeasurePoint,
    Session,
    measured,
    reader,
    refill,
)
from specsim.units import DTYPE_BYTES


def ceiling_jobs(
    stream_bytes: tuple[int, ...], cube: int, nodes: int, dtype: str
) -> list[MeasureJob]:
    """Part A, what the device can do at best: reading and copying memory, a large square product,
    and the gap between kernels that do nothing. stream_bytes: working sets of the memory sweep;
    cube: side of the product."""
    out = []
    for size in stream_bytes:
        for op in ("read", "copy"):
            moved = size if op == "read" else 2 * size
            point = MeasurePoint("stream", {"bytes": size, "op": op})
            work = JobCost(bytes=moved, setup_bytes=4 * size)
            out.append(MeasureJob("A", (point,), work, (), partial(_stream, point)))
    point = MeasurePoint("gemm_peak", {"m": cube, "n": cube, "k": cube, "dtype": dtype})
    work = JobCost(bytes=6 * cube**2, flops=2 * cube**3, setup_bytes=16 * cube**2)
    out.append(MeasureJob("A", (point,), work, (), partial(_cube, point)))
    point = MeasurePoint("launch", {"nodes": nodes})
    out.append(MeasureJob("A", (point,), JobCost(calls=nodes), (), partial(_launch, point)))
    return out


def _stream(point: MeasurePoint, session: Session) -> list[Measurement]:
    size, op = int(point.shape["bytes"]), str(point.shape["op"])
    session.release_probe()  # its buffer is as large as this one
    data = session.normal(size // 4, dtype=torch.float32)
    call = reader(data) if op == "read" else partial(torch.empty_like(data).copy_, data)
    timed = session.time([call])
    moved = size if op == "read" else 2 * size
    rate = moved / timed.timing.min_s
    if op == "read":
        session.bytes_per_s = rate  # of the largest working set so far: sizes rise
    return [measured(point, timed, bytes_per_s=rate)]


def _cube(point: MeasurePoint, session: Session) -> list[Measurement]:
    side = int(point.shape["m"])
    a, b = session.normal(side, side), session.normal(side, side)
    out = torch.empty_like(a)
    call = partial(torch.mm, a, b, out=out)
    timed = session.time([call])
    session.flop_per_s = 2 * side**3 / timed.timing.min_s
    return [measured(point, timed, flop_per_s=session.flop_per_s)]


def _launch(point: MeasurePoint, session: Session) -> list[Measurement]:
    """One sample is the whole chain; each kernel depends on the one before."""
    nodes = int(point.shape["nodes"])
    cell = torch.zeros(1, device=session.device)

    def chain() -> None:
        for _ in range(nodes):
            cell.add_(1.0)

    timed = session.time([chain])
    per_node = timed.timing.min_s / nodes
    session.call_s = max(per_node, session.call_s / 10)
    return [measured(point, timed, node_s=per_node)]


def matrices(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """(n, k) of each product by name; lm_head last."""
    c = config
    return {
        "qkv": (c.qkv_width, c.hidden_size),
        "o": (c.hidden_size, c.num_heads * c.head_dim),
        "gate_up": (2 * c.intermediate_size, c.hidden_size),
        "down": (c.hidden_size, c.intermediate_size),
        "lm_head": (c.vocab_size, c.hidden_size),
    }


def product_jobs(model: MeasuredModel, rows: tuple[int, ...], dtype: str) -> list[MeasureJob]:
    """Part B: the matrix products of a layer as the decoder calls them, one job per number of rows.

    A job runs the products of all layers in the order of a step and times each: every matrix is
    then as cold as it is in a step, where the other layers' weights have passed through the caches
    since its last use. (On a GPU each matrix is timed over the layers in a graph of its own; the
    matrices are larger than the cache there.) 'gate_up' is with the gate's activation, 'lm_head'
    without the conversion to fp32 logits."""
    shapes = matrices(model.config)
    layers = model.config.num_layers
    out = []
    for m in rows:
        points = tuple(
            MeasurePoint("gemm", {"model": model.name, "matrix": name, "m": m, "n": n, "k": k,
                           "dtype": dtype})
            for name, (n, k) in shapes.items()
        )
        sizes = [n * k * (1 if name == "lm_head" else layers) for name, (n, k) in shapes.items()]
        weights = float(sum(sizes))
        work = JobCost(bytes=weights * DTYPE_BYTES[dtype], flops=2 * weights * m,
                    calls=4 * layers + 1)
        out.append(MeasureJob("B", points, work, (model.name,), partial(_products, points)))
    return out


def _products(points: tuple[MeasurePoint, ...], session: Session) -> list[Measurement]:
    model = session.model_of(points[0])
    inputs = {str(p.shape["matrix"]): session.normal(int(p.shape["m"]), int(p.shape["k"]))
              for p in points}
    calls: list[tuple[str, Callable[[], object]]] = []
    for layer in model.layers:
        assert layer.gate_up is not None and layer.down is not None
        for matrix, product in (("qkv", layer.qkv), ("o", layer.o), ("gate_up", layer.gate_up),
                                ("down", layer.down)):
            calls.append((matrix, partial(product, inputs[matrix])))
    calls.append(("lm_head", partial(_head(model), inputs["lm_head"])))
    timed = session.timer.sweep(calls, session.limits)
    return [measured(point, timed[str(point.shape["matrix"])]) for point in points]


def _head(model: Transformer) -> Linear:
    """The head's product alone; its weights in their own layout, as the model holds them."""
    linear: Linear = linear_factory(model.linear, model.device, model.dtype)(model.head_weight)
    return linear


_CACHE_BYTES = {"cpu": 1 << 29, "cuda": 20 << 30}  # most of a point's cache
PAGE = 64  # tokens of a page on a GPU


def attention_jobs(
    model: MeasuredModel, shapes: tuple[tuple[int, int, int], ...], dtype: str, device: str
) -> list[MeasureJob]:
    """Part C: one layer's attention of q_len new tokens per row over a cache of a given length.

    What a step runs between the qkv product and the output product is timed as one: norm of q and k
    where the model has it, rotary embedding, writing keys and values, attention. On the CPU that is
    one small compiled kernel, or torch's attention for large ones; on a GPU the Triton kernels
    through the block table. Layers of one cache take turns, so that keys and values come from where
    a step finds them. Preparing the pass, once for all layers, is not counted.

    shapes: (seqs, q_len, ctx). Left out: what the model has no positions or the device no memory
    for."""
    c = model.config
    out = []
    for seqs, q_len, ctx in shapes:
        layer = _layer_bytes(c, seqs, q_len + ctx, dtype)
        if layer > _CACHE_BYTES[device] or ctx + q_len > c.max_position:
            continue
        point = MeasurePoint("attention", {
            "model": model.name, "seqs": seqs, "q_len": q_len, "ctx": ctx, "heads": c.num_heads,
            "kv_heads": c.num_kv_heads, "head_dim": c.head_dim, "dtype": dtype,
        })
        layers = _layers(c, layer, device)
        flops = 4.0 * seqs * q_len * (ctx + q_len) * c.num_heads * c.head_dim
        work = JobCost(bytes=layers * layer, flops=layers * flops, calls=layers,
                    setup_bytes=2 * layers * layer)
        run = partial(_attention, point, layers)
        out.append(MeasureJob("C", (point,), work, (model.name,), run))
    return out


def _layer_bytes(c: ModelConfig, seqs: int, tokens: int, dtype: str) -> float:
    return 2.0 * seqs * tokens * c.num_kv_heads * c.head_dim * DTYPE_BYTES[dtype]


def _layers(c: ModelConfig, layer_bytes: float, device: str) -> int:
    """Layers whose cache is allocated: all, or what fits."""
    return max(1, min(c.num_layers, int(_CACHE_BYTES[device] // layer_bytes)))


def _attention(point: MeasurePoint, layers: int, session: Session) -> list[Measurement]:
    model, device = session.model_of(point), session.device
    seqs, q_len, ctx = (int(point.shape[key]) for key in ("seqs", "q_len", "ctx"))
    cuda = device.type == "cuda"
    tokens = ctx + q_len
    table = BlockTable(seqs + 1, tokens, PAGE if cuda else tokens, device)
    pages = seqs + 1
    if not table.whole_slots:
        pages = 1 + seqs * table.max_pages
        for slot in range(seqs):
            first = 1 + slot * table.max_pages
            table.assign(slot, list(range(first, first + table.max_pages)))
    attention = PagedAttention(verify_attention(True)) if cuda else SlotAttention()
    cache = model.new_cache(pages, table, attention, layers)
    refill(cache.data, session.generator())
    index = torch.arange(seqs, device=device)
    rows = BatchRows(index, ctx + 1, (0, seqs), exact=seqs == 1)
    start = torch.full((seqs,), ctx, dtype=torch.int64, device=device)
    plan = model.plan(rows, start, q_len, cache)
    qkv = session.normal(seqs * q_len, model.config.qkv_width)
    calls = [
        partial(model.ops.attend, qkv, plan, model.layers[layer].qk_norm, layer,
                model.config.num_heads)
        for layer in range(layers)
    ]
    return [measured(point, session.time(calls))]


MODES = {
    "greedy": SamplingMode(),
    "temperature": SamplingMode(greedy=False),
    "top_p": SamplingMode(greedy=False, top_p=True),
}
_PASSES = {"greedy": 1, "temperature": 8, "top_p": 75}  # over the logits, for the estimate


def sampling_jobs(
    model: MeasuredModel, shapes: tuple[tuple[int, int], ...], draft_probs: bool
) -> list[MeasureJob]:
    """Part D: verifying drafts and drawing the next token, from fp32 logits to committed tokens.

    The decoder's own `Step.sample` on rows that are finished, so that every repeat starts from the
    same state: all its work is done, nothing is committed. shapes: (rows, k). draft_probs: also
    with a drafter that gives its distribution."""
    vocab = model.config.vocab_size
    out = []
    for mode in MODES:
        for rows, k in shapes:
            for with_probs in (0, 1) if draft_probs and k and mode != "greedy" else (0,):
                point = MeasurePoint("sample", {"rows": rows, "k": k, "vocab": vocab, "mode": mode,
                                         "draft_probs": with_probs})
                size = 4.0 * rows * (k + 1) * vocab
                work = JobCost(bytes=size * _PASSES[mode], calls=40, setup_bytes=3 * size)
                out.append(MeasureJob("D", (point,), work, (model.name,),
                               partial(_sampling, point, model.name)))
    return out


def _sampling(point: MeasurePoint, name: str, session: Session) -> list[Measurement]:
    model, device = session.model(name), session.device
    rows, k, vocab = (int(point.shape[key]) for key in ("rows", "k", "vocab"))
    state = SlotState.new(rows, k + 4, k, device)
    state.temperature.fill_(0.8)
    state.top_p.fill_(0.95)
    state.seed.copy_(torch.arange(rows + 1, device=device))
    table = BlockTable(rows + 1, 1, 1, device)  # not touched: nothing is attended to
    step = Step(model, NoDraft(), state, model.new_cache(1, table, SlotAttention(), layers=1))
    logits = session.normal(rows, k + 1, vocab, dtype=torch.float32).mul_(3.0)
    probs = None
    if point.shape["draft_probs"]:
        probs = session.normal(rows, k, vocab, dtype=torch.float32).softmax(-1)
    drafts = torch.randint(vocab, (rows, k), device=device, generator=session.generator(1))
    proposal = Proposal(drafts, probs)
    call = partial(step.sample, BatchRows(torch.arange(rows, device=device), 2), proposal, logits,
                   MODES[str(point.shape["mode"])])
    return [measured(point, session.time([call]))]


def expert_jobs(model: MeasuredModel, tokens: tuple[int, ...], dtype: str) -> list[MeasureJob]:
    """Part F: one layer's routed experts, from one token to hundreds.

    Random tokens and a random router: each token's experts are drawn nearly independently, so the
    number of distinct experts follows E (1 - (1 - k/E)^tokens); values.distinct_experts counts
    them."""
    c = model.config
    out = []
    expert = 3.0 * c.hidden_size * c.moe_intermediate_size
    for count in tokens:
        point = MeasurePoint("moe", {
            "model": model.name, "tokens": count, "hidden": c.hidden_size,
            "inter": c.moe_intermediate_size, "experts": c.num_experts,
            "top_k": c.num_experts_per_tok, "dtype": dtype,
        })
        active = c.num_experts * (1 - (1 - c.num_experts_per_tok / c.num_experts) ** count)
        work = JobCost(bytes=c.num_layers * active * expert * DTYPE_BYTES[dtype],
                    flops=2 * c.num_layers * count * c.num_experts_per_tok * expert,
                    calls=c.num_layers * (10 + 4 * active))
        out.append(MeasureJob("F", (point,), work, (model.name,), partial(_experts, point)))
    return out


def _experts(point: MeasurePoint, session: Session) -> list[Measurement]:
    model = session.model_of(point)
    x = session.normal(int(point.shape["tokens"]), model.config.hidden_size)
    layers = [layer.moe for layer in model.layers if layer.moe is not None]
    timed = session.time([partial(layer, x) for layer in layers])
    chosen = [torch.topk(F.linear(x, layer.router), layer.top_k, dim=-1) for layer in layers]
    counts = [len(set(top.indices.flatten().tolist())) for top in chosen]
    return [measured(point, timed, distinct_experts=sum(counts) / len(counts))]
