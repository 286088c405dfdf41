"""Part C: one layer's attention of q_len new tokens per row over a cache of a given length.

What a step runs between the qkv product and the output product is timed as one: norm of q and k
where the model has it, rotary embedding, writing keys and values, attention. On the CPU that is one
small compiled kernel, or torch's attention for large ones; on a GPU the Triton kernels through the
block table. Layers of one cache take turns, so that keys and values come from where a step finds
them. Preparing the pass (mask, addresses), once for all layers, is not counted.
"""

from functools import partial

import torch

from specsim.calibrate.records import Measurement
from specsim.decoder.attention import BatchRows, PagedAttention, SlotAttention
from specsim.decoder.config import ModelConfig
from specsim.decoder.kernels import verify_attention
from specsim.decoder.kv_cache import BlockTable
from specsim.measure.models import MeasuredModel
from specsim.measure.session import JobCost, MeasureJob, MeasurePoint, Session, measured, refill
from specsim.units import DTYPE_BYTES

_CACHE_BYTES = {"cpu": 1 << 29, "cuda": 20 << 30}  # most of a point's cache
PAGE = 64  # tokens of a page on a GPU


def jobs(
    model: MeasuredModel, shapes: tuple[tuple[int, int, int], ...], dtype: str, device: str
) -> list[MeasureJob]:
    """shapes: (seqs, q_len, ctx). Left out: what the model has no positions or the device no memory
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
        run = partial(_run, point, layers)
        out.append(MeasureJob("C", (point,), work, (model.name,), run))
    return out


def _layer_bytes(c: ModelConfig, seqs: int, tokens: int, dtype: str) -> float:
    return 2.0 * seqs * tokens * c.num_kv_heads * c.head_dim * DTYPE_BYTES[dtype]


def _layers(c: ModelConfig, layer_bytes: float, device: str) -> int:
    """Layers whose cache is allocated: all, or what fits."""
    return max(1, min(c.num_layers, int(_CACHE_BYTES[device] // layer_bytes)))


def _run(point: MeasurePoint, layers: int, session: Session) -> list[Measurement]:
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
