"""Part F: one layer's routed experts, from one token to hundreds.

Random tokens and a random router: each token's experts are drawn nearly independently, so the
number of distinct experts follows E (1 - (1 - k/E)^tokens). values.distinct_experts counts them.
"""

from functools import partial

import torch
import torch.nn.functional as F

from specsim.calibrate.records import Measurement
from specsim.measure.models import MeasuredModel
from specsim.measure.session import JobCost, MeasureJob, MeasurePoint, Session, measured
from specsim.units import DTYPE_BYTES


def jobs(model: MeasuredModel, tokens: tuple[int, ...], dtype: str) -> list[MeasureJob]:
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
        out.append(MeasureJob("F", (point,), work, (model.name,), partial(_run, point)))
    return out


def _run(point: MeasurePoint, session: Session) -> list[Measurement]:
    model = session.model_of(point)
    x = session.normal(int(point.shape["tokens"]), model.config.hidden_size)
    layers = [layer.moe for layer in model.layers if layer.moe is not None]
    timed = session.time([partial(layer, x) for layer in layers])
    chosen = [torch.topk(F.linear(x, layer.router), layer.top_k, dim=-1) for layer in layers]
    counts = [len(set(top.indices.flatten().tolist())) for top in chosen]
    return [measured(point, timed, distinct_experts=sum(counts) / len(counts))]
