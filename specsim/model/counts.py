"""Exact parameter counts of a ModelSpec, and the bytes its weights, cache and state take.

Every count is of the whole model, before tensor parallelism, and follows from shapes
alone; the parts of a layer count themselves (`mixers`, `feedforward`), `drafter_counts` has the
sums of drafters. The totals were compared with the sizes the
publishers state and with the reference implementations (tests/model/test_model_counts.py).
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from specsim.errors import UsageError
from specsim.model.drafter_counts import drafter_parameters, drafter_weight_bytes
from specsim.model.layer_counts import KVBytes, kv_of_layers, layer_bytes, layer_parameters
from specsim.model.part import PLAIN_BYTES
from specsim.model.spec import ModelSpec
from specsim.units import DTYPE_BYTES

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class ByPart(Generic[N]):
    """Figures by part. A tied head is counted once, as `embed`."""

    embed: N
    mixer: N
    ffn: N
    norms: N  # layer norms and the final norm
    head: N
    extra: N
    mtp: N
    vision: N

    @property
    def text(self) -> N:
        """The language model alone: without the MTP head and the vision tower."""
        return self.embed + self.mixer + self.ffn + self.norms + self.head + self.extra

    @property
    def total(self) -> N:
        return self.text + self.mtp + self.vision


class Parameters(ByPart[int]):
    """Parameters by part."""

    __slots__ = ()


class WeightBytes(ByPart[float]):
    """Bytes of the stored weights by part."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ActiveParameters:
    """Parameters one token passes through; the two tables apart, as customs differ on them."""

    body: int
    head: int  # the output head; counted here also when it is tied
    embed: int  # the input table, 0 when tied

    @property
    def total(self) -> int:
        return self.body + self.head + self.embed


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Fixed-size recurrent state of one sequence (one slot; engines keep several)."""

    recurrent: float = 0.0
    conv: float = 0.0

    @property
    def total(self) -> float:
        return self.recurrent + self.conv


def parameters(spec: ModelSpec) -> Parameters:
    """Exact parameter counts by part."""
    mixer, ffn, norms = layer_parameters(spec.layers, spec.hidden)
    table = spec.vocab * spec.hidden
    return Parameters(
        embed=table,
        mixer=mixer,
        ffn=ffn,
        norms=norms + spec.final_norm_weights,
        head=0 if spec.tied_embeddings else table,
        extra=spec.outside_layers,
        mtp=drafter_parameters(spec.mtp) if spec.mtp else 0,
        vision=spec.vision_params,
    )


def active_parameters(spec: ModelSpec) -> ActiveParameters:
    """Parameters one token passes through (top_k routed experts of each layer)."""
    mixer, ffn, norms = layer_parameters(spec.layers, spec.hidden, active=True)
    table = spec.vocab * spec.hidden
    return ActiveParameters(
        body=mixer + ffn + norms + spec.final_norm_weights + _matrices(spec),
        head=table,
        embed=0 if spec.tied_embeddings else table,
    )


def weight_bytes(spec: ModelSpec) -> WeightBytes:
    """Bytes of the stored weights by part, each part in its own format."""
    mixer, ffn, norms = layer_bytes(spec.layers, spec.hidden)
    table = spec.vocab * spec.hidden
    return WeightBytes(
        embed=table * spec.embed_weight.bytes_per_weight,
        mixer=mixer,
        ffn=ffn,
        norms=norms + spec.final_norm_weights * PLAIN_BYTES,
        head=0.0 if spec.tied_embeddings else table * spec.head_weight.bytes_per_weight,
        extra=spec.outside_layers * PLAIN_BYTES,
        mtp=drafter_weight_bytes(spec.mtp) if spec.mtp else 0.0,
        vision=spec.vision_params * PLAIN_BYTES,
    )


def _matrices(spec: ModelSpec) -> int:
    return sum(fan_in * fan_out for fan_in, fan_out in spec.extra_matrices)


def head_bytes(spec: ModelSpec) -> float:
    """Bytes of the output head that one pass reads, tied or not."""
    weight = spec.embed_weight if spec.tied_embeddings else spec.head_weight
    return spec.vocab * spec.hidden * weight.bytes_per_weight


def active_weight_bytes(spec: ModelSpec) -> float:
    """Bytes a step with a single token must read: body, top_k experts and the head, no table."""
    mixer, ffn, norms = layer_bytes(spec.layers, spec.hidden, active=True)
    plain = spec.final_norm_weights + _matrices(spec)
    return mixer + ffn + norms + plain * PLAIN_BYTES + head_bytes(spec)


def kv_bytes_per_token(spec: ModelSpec, kv_dtype: str = "auto") -> KVBytes:
    """Cache bytes per token of the target's layers (its MTP head: `drafter_kv_bytes`).

    kv_dtype: 'auto' (the spec's default) or a name of `units.DTYPE_BYTES`.
    """
    return kv_of_layers(spec.layers, kv_dtype_bytes(spec, kv_dtype))


# vLLM's and SGLang's words for it (--kv-cache-dtype).
_CACHE_NAMES = {
    "bfloat16": "bf16", "float16": "bf16", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8",
}


def cache_dtype(name: str) -> str:
    """A cache dtype by its name here."""
    key = name.strip().lower()
    return _CACHE_NAMES.get(key, key)


def kv_dtype_bytes(spec: ModelSpec, kv_dtype: str = "auto") -> float:
    """Bytes of one cached element; 'auto' is the spec's default."""
    name = spec.default_kv_dtype if kv_dtype == "auto" else kv_dtype
    if name not in DTYPE_BYTES:
        known = ", ".join(["auto", *DTYPE_BYTES])
        raise UsageError(f"KV cache dtype {name!r} is not known; use one of {known}")
    return DTYPE_BYTES[name]


def state_bytes(spec: ModelSpec, conv_dtype: str = "bf16") -> StateBytes:
    """Recurrent state of one sequence, one slot. Verification of k drafts needs 1 + k slots."""
    recurrent = conv = 0.0
    conv_element = DTYPE_BYTES[conv_dtype]
    for group in spec.layers:
        state = group.mixer.state() if group.mixer is not None else None
        if state is not None:
            recurrent += group.count * state.elements * DTYPE_BYTES[state.dtype]
            conv += group.count * state.conv_width * (state.conv_kernel - 1) * conv_element
    return StateBytes(recurrent, conv)

