"""The bundled models and drafters, found by the names people type.

`catalog/index.json` lists them; one file each in `catalog/models` and `catalog/drafters`
holds the shapes. Finding a model reads the index and one file.

Names: the organisation before a slash, case, '_' and ' ' do not matter. Endings that do not
change the shapes (-Instruct, -it, -Chat, -hf, -Thinking, dates, ...) are dropped when the
full name is not listed. An ending that names a weight format (-FP8, -AWQ, -NVFP4, ...) on a
model that is listed without it gives that model in the format by the usual rules, with a
note in the spec that says so.
"""

import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypedDict

from specsim.data import data_root, data_table
from specsim.errors import ModelConfigError, UsageError
from specsim.model.part import BF16
from specsim.model.serial import drafter_from_dict, spec_from_dict
from specsim.model.spec import Drafter, ModelSpec
from specsim.model.weights import FORMATS, quantized, reformat_layers, weight_format

_NEUTRAL = re.compile(
    r"-(instruct|it|chat|hf|base|pt|bf16|fp16|think|thinking|preview|qat|\d{4}|\d{6}|1m)$"
)
_FORMAT_ENDING = re.compile(
    r"-(fp8|fp8-dynamic|fp8-block|fp8-kv|nvfp4|fp4|mxfp4|awq|awq-int4|awq4|awq-4bit|gptq|gptq-int4"
    r"|gptq-int8|int4|int8|(?:quantized\.)?w(?:4a16|8a8|8a16))$"
)
_FORMAT_OF_ENDING = {
    "fp8-dynamic": "fp8",
    "gptq-int8": "int8_w8a16",
    "w8a8": "int8",
    "w8a16": "int8_w8a16",
    "awq-int4": "int4",
    "gptq-int4": "int4",
    "awq": "int4",
    "awq4": "int4",
    "awq-4bit": "int4",
    "gptq": "int4",
    "w4a16": "int4",
    "fp4": "nvfp4",
    "fp8-block": "fp8_block",
}
# Publishers whose own -FP8 checkpoints have one scale per 128 x 128 block.
_BLOCK_FP8_FAMILIES = ("qwen", "deepseek", "minimax")
_VENDORS = re.compile(r"^(meta|nvidia)-(?=llama|nemotron|codellama)")


class IndexLine(TypedDict, total=False):
    """A line of the index as it stands in the file; what is empty is left out."""

    name: str
    hf_id: str
    kind: str
    family: str
    parameters: int
    active_parameters: int
    weights: str
    has_mtp: bool
    base: str
    drafters: list[str]
    targets: list[str]
    aliases: list[str]
    file: str


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One line of the index. Parameters are counts; `active` per token without the input table."""

    name: str
    kind: str  # 'model' or the drafter's kind
    family: str
    parameters: int
    active_parameters: int
    weights: str
    has_mtp: bool
    base: str  # the model this is a quantised form of, '' for none
    drafters: tuple[str, ...]  # catalogued drafters trained for it
    targets: tuple[str, ...]  # drafters: the models it fits, the one it was trained for first
    aliases: tuple[str, ...]
    file: str
    hf_id: str = ""  # repository on Hugging Face, '' where no source states it


@dataclass(frozen=True, slots=True)
class _Index:
    models: tuple[CatalogueEntry, ...]
    drafters: tuple[CatalogueEntry, ...]
    model_keys: dict[str, CatalogueEntry]
    drafter_keys: dict[str, CatalogueEntry]


def list_models() -> tuple[CatalogueEntry, ...]:
    """All bundled models, in the index's order; reads the index alone."""
    return _index().models


def list_drafters() -> tuple[CatalogueEntry, ...]:
    """All bundled drafters that are not whole models."""
    return _index().drafters


def find_model(name: str) -> ModelSpec:
    """The model called `name`. Raises ModelConfigError with near matches when there is none."""
    entry, ending = _lookup(name, _index().model_keys)
    if entry is None:
        raise _unknown(name, "model", _index().model_keys)
    spec = _load_model(entry.file)
    if ending == "fp8" and spec.family.startswith(_BLOCK_FP8_FAMILIES):
        ending = "fp8_block"
    if ending == "fp8-dynamic":  # not a publisher's static checkpoint of the same format
        return quantized(spec, "fp8")
    if ending == "fp8-kv":  # AMD's, with scales of the cache
        return replace(quantized(spec, "fp8"), default_kv_dtype="fp8")
    if ending == "mxfp4" and spec.weights != "mxfp4":  # AMD's, by Quark
        return quantized(spec, "mxfp4_w4a4")
    return variant(spec, ending) if ending else spec


def has_model(name: str) -> bool:
    """Whether `find_model` would find it."""
    return _lookup(name, _index().model_keys)[0] is not None


def find_drafter(name: str) -> Drafter:
    """A drafter network by name (EAGLE-3, DFlash, ...). For a whole small model as a drafter
    use `drafter_from_spec(find_model(name))`; for an MTP head `find_model(name).mtp`."""
    entry, _ = _lookup(name, _index().drafter_keys)
    if entry is None:
        raise _unknown(name, "drafter", _index().drafter_keys)
    return _load_drafter(entry.file)


def has_drafter(name: str) -> bool:
    return _lookup(name, _index().drafter_keys)[0] is not None


def served_name(name: str) -> str:
    """What a server loads for a model or drafter called `name`: its repository on Hugging Face
    where one is known. A name of another checkpoint, which only shares the shapes of the one
    listed, stays as it is."""
    for keys in (_index().model_keys, _index().drafter_keys):
        entry, _ = _lookup(name, keys)
        if entry is not None and key(name) in (key(entry.name), key(entry.hf_id)):
            return entry.hf_id or entry.name
    return name


def catalogued_drafter(spec: ModelSpec, kind: str) -> Drafter | None:
    """The catalogue's first drafter of a kind that was trained for this model or its base."""
    names = {key(spec.name), *map(key, copies_of(spec))}
    for entry in _index().drafters:
        if entry.kind == kind and names & set(map(key, entry.targets)):
            drafter = _load_drafter(entry.file)
            if drafter.vocab == spec.vocab and (drafter.own_head or drafter.hidden == spec.hidden):
                return with_target_head(drafter, spec)
    return None


@lru_cache(maxsize=64)
def copies_of(spec: ModelSpec) -> tuple[str, ...]:
    """The catalogued models that `spec` may be a copy of, in any weight format: the one of its
    name with its base, else those of its shapes (generations of one model can share them). Of
    these only the ones with its vision tower and longest context, where there are any."""
    entry, _ = _lookup(spec.name, _index().model_keys)
    if entry is not None and _body(_load_model(entry.file)) == _body(spec):
        return (entry.name, entry.base) if entry.base else (entry.name,)
    alike = [
        (entry.base or entry.name, found) for entry in _index().models
        if entry.family == spec.family and _body(found := _load_model(entry.file)) == _body(spec)
    ]
    close = [
        name for name, found in alike
        if (found.vision_params, found.max_position) == (spec.vision_params, spec.max_position)
    ]
    return tuple(dict.fromkeys(close or [name for name, _ in alike]))


def with_target_head(drafter: Drafter, spec: ModelSpec) -> Drafter:
    """A drafter that shares the target's head reads it in the format the target stores it in."""
    if drafter.own_head:
        return drafter
    head = spec.embed_weight if spec.tied_embeddings else spec.head_weight
    return replace(drafter, head_weight=head)


def variant(spec: ModelSpec, weights: str) -> ModelSpec:
    """`spec` in another weight format: the catalogued checkpoint of it where there is one
    (--weights fp8 of Qwen3.6-27B is Qwen3.6-27B-FP8), else by the usual rules."""
    wanted = weight_format(_FORMAT_OF_ENDING.get(weights.lower(), weights))
    label = next(name for name, fmt in FORMATS.items() if fmt == wanted)
    same = {"fp8": ("fp8", "fp8_block"), "fp8_block": ("fp8_block",)}.get(label, (label,))
    if spec.weights in same:
        return spec
    family = {key(spec.name), *map(key, copies_of(spec))}
    for entry in _index().models:
        if entry.weights in same and (key(entry.base) in family or key(entry.name) in family):
            found = _load_model(entry.file)
            if same_shapes(found, spec):  # its cache dtype is no part of the weights' format
                return replace(found, default_kv_dtype=spec.default_kv_dtype)
    return quantized(spec, label)


def same_shapes(one: ModelSpec, other: ModelSpec) -> bool:
    """Whether two models differ in weight formats, context and names alone. A user's own
    config may carry the name of a catalogued model without being it."""
    return _shapes(one) == _shapes(other)


@lru_cache(maxsize=256)
def shapes_key(spec: ModelSpec) -> int:
    """A number that models of the same shapes share, in this process."""
    return hash(_shapes(spec))


def _shapes(spec: ModelSpec) -> tuple[object, ...]:
    return *_body(spec), spec.mtp is None


def _body(spec: ModelSpec) -> tuple[object, ...]:
    layers = frozenset(reformat_layers(spec.layers, BF16))
    return layers, spec.hidden, spec.vocab, spec.tied_embeddings


# --- names --------------------------------------------------------------------------------


def key(name: str) -> str:
    """The form in which names are compared."""
    text = name.strip().lower().rstrip("/").rsplit("/", 1)[-1]
    text = re.sub(r"[\s_:]+", "-", text)
    text = re.sub(r"^(llama|gemma)(?=\d)", r"\1-", text)  # llama3.1:8b
    return _VENDORS.sub("", text)


def _forms(name: str) -> Iterator[tuple[str, str]]:
    """(key, weight-format ending taken off) from the full name to the shortest form."""
    text, ending = key(name), ""
    while True:
        yield text, ending
        neutral = _NEUTRAL.search(text)
        found = _FORMAT_ENDING.search(text)
        if found and not ending:
            text, ending = text[: found.start()], found.group(1).removeprefix("quantized.")
        elif neutral:
            text = text[: neutral.start()]
        else:
            return


def _lookup(name: str, keys: dict[str, CatalogueEntry]) -> tuple[CatalogueEntry | None, str]:
    if len(name) > 200:
        return None, ""
    for form, ending in _forms(name):
        if form in keys:
            return keys[form], ending
        if ending and f"{form}-{ending}" in keys:  # X-Instruct-FP8 is X-FP8
            return keys[f"{form}-{ending}"], ""
    return None, ""


def _unknown(name: str, what: str, keys: dict[str, CatalogueEntry]) -> ModelConfigError:
    shown = name if len(name) <= 80 else name[:77] + "..."
    known = data_table("catalog", "architectures.toml")
    for start, why in known["not_listed"].items():
        if what == "model" and re.match(start, key(name)):
            return ModelConfigError(
                f"model {shown!r} is not in the catalogue: {known['unmodelled'].get(why, why)}"
            )
    near = difflib.get_close_matches(key(shown), list(keys), n=6, cutoff=0.5)
    names = list(dict.fromkeys(keys[match].name for match in near))[:3]
    hint = f"; near: {', '.join(names)}" if names else ""
    listing = "`specsim models --drafters`" if what == "drafter" else "`specsim models`"
    return ModelConfigError(
        f"{what} {shown!r} is not in the catalogue{hint}; {listing} lists all, and a "
        "config.json or its folder is read as well"
    )


# --- files --------------------------------------------------------------------------------


def catalogue_root() -> Path:
    return data_root("catalog")


@cache
def _index() -> _Index:
    data = _read(catalogue_root() / "index.json")
    models = tuple(_entry(item) for item in data["models"])
    drafters = tuple(_entry(item) for item in data["drafters"])
    return _Index(models, drafters, _keys(models), _keys(drafters))


def _entry(item: IndexLine) -> CatalogueEntry:
    return CatalogueEntry(
        name=item["name"],
        kind=item.get("kind", "model"),
        family=item.get("family", ""),
        parameters=item["parameters"],
        active_parameters=item.get("active_parameters", 0),
        weights=item.get("weights", "bf16"),
        has_mtp=item.get("has_mtp", False),
        base=item.get("base", ""),
        drafters=tuple(item.get("drafters", ())),
        targets=tuple(item.get("targets", ())),
        aliases=tuple(item.get("aliases", ())),
        file=item["file"],
        hf_id=item.get("hf_id", ""),
    )


def _keys(entries: tuple[CatalogueEntry, ...]) -> dict[str, CatalogueEntry]:
    keys: dict[str, CatalogueEntry] = {}
    for entry in entries:
        for alias in entry.aliases:
            keys.setdefault(key(alias), entry)
    for entry in entries:  # a proper name wins over another entry's alias
        keys[key(entry.name)] = entry
    return keys


@cache
def _load_model(file: str) -> ModelSpec:
    return spec_from_dict(_read(catalogue_root() / file)["spec"])


@cache
def _load_drafter(file: str) -> Drafter:
    return drafter_from_dict(_read(catalogue_root() / file)["spec"])


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"the packaged file {path.name} cannot be read ({error})") from None
