"""ModelSpec and Drafter as plain JSON objects and back: the catalogue's own format.

Fields at their default are left out. A weight format is its name in `weights.FORMATS`, or an
object where the checkpoint's scales make it another one. Parts carry their class in `type`.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, TypeVar

from specsim.errors import ModelConfigError
from specsim.model import sparse_mixers, state_mixers  # noqa: F401  their tags
from specsim.model.part import Part, WeightFormat
from specsim.model.spec import Drafter, LayerGroup, ModelSpec
from specsim.model.weights import FORMATS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)

_FORMAT_KEYS = frozenset(
    {"weight", "shared_weight", "o_weight", "embed_weight", "head_weight", "fc_weight"}
)


def to_dict(value: "DataclassInstance") -> dict[str, object]:
    """A ModelSpec or a Drafter (or a part of one) as a JSON-ready object."""
    result: dict[str, object] = {}
    if isinstance(value, Part):
        result["type"] = value.tag
    for item in fields(value):
        content = getattr(value, item.name)
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        if content != default:
            result[item.name] = _plain(content)
    return result


def _plain(value: object) -> object:
    if isinstance(value, WeightFormat):
        name = next((key for key, fmt in FORMATS.items() if fmt == value), None)
        return name or to_dict(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    return value


def spec_from_dict(data: object) -> ModelSpec:
    """Inverse of `to_dict`. Raises ModelConfigError on a key or value that does not belong."""
    return _build(ModelSpec, data)


def drafter_from_dict(data: object) -> Drafter:
    """Inverse of `to_dict` for a drafter."""
    return _build(Drafter, data)


def _build(kind: "type[T]", data: object) -> "T":
    if not isinstance(data, Mapping):
        raise ModelConfigError(f"a {kind.__name__} must be an object, not {data!r:.60}")
    values: dict[str, object] = {}
    known = kind.__dataclass_fields__
    for key, content in data.items():
        if key == "type" and issubclass(kind, Part):
            continue
        if key not in known:
            raise ModelConfigError(f"{kind.__name__} has no field {key!r:.60}")
        values[key] = _value(key, content)
    try:
        return kind(**values)
    except TypeError as error:  # a required field is missing
        raise ModelConfigError(f"{kind.__name__}: {error}") from None


def _value(key: str, content: object) -> object:
    if content is None:
        return None
    if key in _FORMAT_KEYS:
        return _weight_format(content)
    if key == "mtp":
        return _build(Drafter, content)
    if isinstance(content, list):
        if key == "layers":
            return tuple(_build(LayerGroup, item) for item in content)
        if key in ("ffn", "extras"):
            return tuple(_part(item) for item in content)
        return tuple(tuple(item) if isinstance(item, list) else item for item in content)
    return _part(content) if key in ("mixer", "ffn") else content


def _part(content: object) -> Part:
    tag = content.get("type") if isinstance(content, Mapping) else None
    kind = Part.by_tag.get(tag) if isinstance(tag, str) else None
    if kind is None:
        raise ModelConfigError(f"part type {tag!r:.60} must be one of {', '.join(Part.by_tag)}")
    return _build(kind, content)


def _weight_format(content: object) -> WeightFormat:
    if isinstance(content, Mapping):
        return _build(WeightFormat, content)
    found = FORMATS.get(content) if isinstance(content, str) else None
    if found is None:
        raise ModelConfigError(f"weight format {content!r:.60} must be one of {', '.join(FORMATS)}")
    return found
