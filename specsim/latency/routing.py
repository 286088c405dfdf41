"""How served traffic chooses experts: by kind of router, or as measured on the very model.

Independent uniform choice is an upper bound for the experts that a step touches. How far below it
traffic stays differs between kinds of routers more than within one. The numbers stand in
`catalog/routing.toml`, which validation/scripts/fit_routing.py makes from captures of routers.
"""

import math
import re
from dataclasses import replace
from functools import cache

from specsim.data import data_table
from specsim.errors import UsageError
from specsim.model.catalogue import key
from specsim.model.feedforward import MoE
from specsim.model.spec import ModelSpec
from specsim.ops.work import UNIFORM, Routing

KINDS = ("softmax", "gated-shared", "sigmoid", "relu2", "coarse")
EVENED = "eplb"
COARSE_EXPERTS = 16  # so few are copies or large blocks, whatever chooses among them
FINE_EXPERTS = 128  # mixtures with a gated shared expert were trained from scratch from here on


def kind_of_router(part: MoE) -> str:
    """The kind of router of a mixture, one of KINDS, told by the shapes of its parts.

    softmax: no shared expert (Qwen3, OLMoE, gpt-oss, Gemma 4). gated-shared: beside an expert
    under a gate of its own (Qwen3-Next, 3.5 and 3.6). sigmoid: balanced by a correction bias
    instead of a loss, also within groups (DeepSeek-V3, Kimi, GLM, MiniMax, Hy3, Ling). relu2:
    experts of two matrices (Nemotron-H). coarse: few experts, ones copied from a dense network,
    or a balanced softmax beside an ungated expert (Mixtral, Llama 4, Qwen2-MoE, DeepSeek-V2).
    """
    if not part.gated:
        return "relu2"
    if part.n_experts <= COARSE_EXPERTS:
        return "coarse"
    if part.shared_gate:
        return "gated-shared" if part.n_experts >= FINE_EXPERTS else "coarse"
    if part.router_bias and not part.expert_bias:  # gpt-oss has biases everywhere
        return "sigmoid"
    return "coarse" if part.shared_intermediate else "softmax"


def router_kind(spec: ModelSpec) -> str:
    """The kind of a model's routers, '' where nothing is routed."""
    parts = (part for group in spec.layers for part in group.branches)
    return next((kind_of_router(part) for part in parts if isinstance(part, MoE)), "")


def routing_of(spec: ModelSpec) -> Routing:
    """How natural text chooses among the experts of a model: as measured on it, else as routers
    of its kind do."""
    kinds, models = _measured()
    name = key(spec.name)
    for model, found in models.items():
        if name == model or name.startswith(f"{model}-"):
            return found
    return kinds.get(router_kind(spec), UNIFORM)


@cache
def _measured() -> tuple[dict[str, Routing], dict[str, Routing]]:
    """Routing by kind of router and by model, of which the longest name comes first."""
    raw = data_table("catalog", "routing.toml")
    kinds = {kind: Routing(v["beta"], v["shape"]) for kind, v in raw["kind"].items()}
    models = {key(name): Routing(v["beta"], v["shape"]) for name, v in raw["model"].items()}
    return kinds, dict(sorted(models.items(), key=lambda item: -len(item[0])))


def parse_routing(text: str, spec: ModelSpec | None = None) -> Routing:
    """'uniform', a kind of router, 'eplb' (the model's own, evened out over GPUs) or BETA,SHAPE
    such as 0.75,1.2 -> Routing. UsageError for all else."""
    word = text.strip().lower()
    if word == EVENED and spec is not None:
        return replace(routing_of(spec), evened=True)
    if word == "uniform":
        return UNIFORM
    if word in KINDS:
        return _measured()[0][word]
    rule = (
        f"--routing is {text[:60]!r}; it must be uniform, {', '.join(KINDS)}, {EVENED}, or "
        "BETA,SHAPE with beta from 0 (neighbours choose alike) to 1 and shape above 0 (inf: all "
        "experts equally popular), such as 0.75,1.2"
    )
    parts = re.split(r"\s*,\s*", word)
    if len(parts) != 2:
        raise UsageError(rule)
    try:
        beta, shape = map(float, parts)
    except ValueError:
        raise UsageError(rule) from None
    if not 0 <= beta <= 1 or not shape >= 0.01 or math.isnan(shape):
        raise UsageError(rule)
    return Routing(beta, shape)
