"""ModelSpec and Drafter as plain JSON objects and back: the catalogue's own format.

Fields at their default are left out. A weight format is its name in `weights.FORMATS`, or an
object where the checkpoint's scales make it another one. Parts carry their class in `type`.
"""

from dataclasses import MISSING, fields
from typing import Any

from specsim.errors import ModelConfigError
from specsim.model.spec import (
    Attention,
    DeltaNet,
    DenseMLP,
    Drafter,
    LatentAttention,
    LayerGroup,
    Mamba2,
    ModelSpec,
    MoE,
    WeightFormat,
)
from specsim.model.weights import FORMATS

_PARTS: dict[str, type] = {
    "attention": Attention,
    "latent_attention": LatentAttention,
    "delta_net": DeltaNet,
    "mamba2": Mamba2,
    "mlp": DenseMLP,
    "moe": MoE,
}
_TAGS = {part: tag for tag, part in _PARTS.items()}
_FORMAT_KEYS = frozenset(
    {"weight", "shared_weight", "o_weight", "embed_weight", "head_weight", "fc_weight"}
)


def to_dict(value: ModelSpec | Drafter) -> dict[str, Any]:
    """A JSON-ready object."""
    return _object(value)


def spec_from_dict(data: dict[str, Any]) -> ModelSpec:
    """Inverse of `to_dict`. Raises ModelConfigError on a key or value that does not belong."""
    spec: ModelSpec = _build(ModelSpec, data)
    return spec


def drafter_from_dict(data: dict[str, Any]) -> Drafter:
    """Inverse of `to_dict` for a drafter."""
    drafter: Drafter = _build(Drafter, data)
    return drafter


def _object(value: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    tag = _TAGS.get(type(value))
    if tag:
        result["type"] = tag
    for item in fields(value):
        content = getattr(value, item.name)
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        if content != default:
            result[item.name] = _plain(content)
    return result


def _plain(value: Any) -> Any:
    if isinstance(value, WeightFormat):
        name = next((key for key, fmt in FORMATS.items() if fmt == value), None)
        return name or {
            "name": value.name,
            "bytes_per_weight": value.bytes_per_weight,
            "compute": value.compute,
        }
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return _object(value)
    return value


def _build(kind: type, data: Any) -> Any:
    if not isinstance(data, dict):
        raise ModelConfigError(f"a {kind.__name__} must be an object, not {data!r:.60}")
    values: dict[str, Any] = {}
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]
    for key, content in data.items():
        if key == "type" and kind in _TAGS:
            continue
        if key not in known:
            raise ModelConfigError(f"{kind.__name__} has no field {key!r:.60}")
        values[key] = _value(key, content)
    try:
        return kind(**values)
    except TypeError as error:  # a required field is missing
        raise ModelConfigError(f"{kind.__name__}: {error}") from None


def _value(key: str, content: Any) -> Any:
    if content is None:
        return None
    if key in _FORMAT_KEYS:
        return _weight_format(content)
    if key == "layers":
        return tuple(_build(LayerGroup, item) for item in content)
    if key in ("mixer", "ffn"):
        if isinstance(content, list):
            return tuple(_part(item) for item in content)
        return _part(content)
    if key == "mtp":
        return _build(Drafter, content)
    if isinstance(content, list):
        return tuple(tuple(item) if isinstance(item, list) else item for item in content)
    return content


def _part(content: Any) -> Any:
    tag = content.get("type") if isinstance(content, dict) else None
    if tag not in _PARTS:
        raise ModelConfigError(f"part type {tag!r:.60} must be one of {', '.join(_PARTS)}")
    return _build(_PARTS[tag], content)


def _weight_format(content: Any) -> WeightFormat:
    if isinstance(content, dict):
        fmt: WeightFormat = _build(WeightFormat, content)
        return fmt
    if content not in FORMATS:
        raise ModelConfigError(f"weight format {content!r:.60} must be one of {', '.join(FORMATS)}")
    return FORMATS[content]
