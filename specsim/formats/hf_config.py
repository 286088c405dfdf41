"""Hugging Face config.json -> ModelSpec.

    read_model(path)              a config.json, or a folder with it (and hf_quant_config.json)
    model_from_config(config)     an already parsed object

Files are untrusted: at most 10 MB, plain JSON, every field checked; nothing is executed.
An architecture that is not known is refused by name, and so is a field of a size that its reader
does not read (`hf_unread`). Of vision towers only the memory matters: text requests never run
them. Units: widths in elements.
"""

import difflib
from pathlib import Path

from specsim.data import data_table
from specsim.errors import FormatError, ModelConfigError, shown
from specsim.formats import (  # noqa: F401
    hf_delta,
    hf_dense,
    hf_family,
    hf_hybrid,
    hf_mamba,
    hf_mla,
    hf_moe,
    hf_mosaic,
    hf_sparse,
)
from specsim.formats.hf_object import read_json
from specsim.formats.hf_plan import READERS, ModelPlan, assemble
from specsim.formats.hf_quant import quantisation
from specsim.formats.hf_shape import HfConfig, QuantConfig, TextConfig
from specsim.formats.hf_unread import refuse_unread
from specsim.formats.hf_vision import vision_parameters
from specsim.methods.base import METHODS
from specsim.model.spec import ModelSpec

_KNOWN = data_table("catalog", "architectures.toml")
# A wrapper with a vision tower is read through its text_config; its type -> that of the text part.
WRAPPERS: dict[str, str] = _KNOWN["wrappers"]
UNMODELLED: dict[str, str] = _KNOWN["unmodelled"]
_DRAFTER_MARKS = (
    "speculators_model_type",
    "backbone_hidden_size",
    *(field for method in METHODS.values() for field in method.config_fields),
)


def read_model(path: str | Path, name: str = "", *, formats_needed: bool = True) -> ModelSpec:
    """The model a config.json describes; `path` is the file or the folder that holds it.

    Raises FormatError (not a readable JSON object of at most 10 MB) or ModelConfigError
    (an impossible or unknown model). `name` defaults to the folder's or the file's name.
    formats_needed: False lets a quantisation pass that cannot be read, with a note.
    """
    config, quant, default_name = load_config(path)
    return model_from_config(
        config, name or default_name, quant, source=f"file {default_name}",
        formats_needed=formats_needed,
    )


def load_config(path: str | Path) -> tuple[dict[str, object], dict[str, object] | None, str]:
    """(config, hf_quant_config or None, a name) from a file or folder."""
    where = Path(path)
    try:
        is_folder = where.is_dir()
    except (OSError, ValueError):
        is_folder = False
    file = where / "config.json" if is_folder else where
    config = read_json(file)
    quant_file = file.parent / "hf_quant_config.json"
    quant = read_json(quant_file) if file.name == "config.json" and quant_file.is_file() else None
    resolved = file.resolve()
    name = resolved.parent.name if file.name == "config.json" else resolved.stem
    return config, quant, name or "model"


def model_from_config(
    config: dict[str, object], name: str = "model",
    hf_quant_config: dict[str, object] | None = None, *, source: str = "",
    formats_needed: bool = True,
) -> ModelSpec:
    """A parsed config.json as a ModelSpec. Raises ModelConfigError naming field, value, rule."""
    if not isinstance(config, dict):
        raise FormatError(f"{name}: a model config is an object, not a {type(config).__name__}")
    thinker = config.get("thinker_config")  # an omni model's part that reads and writes text
    top = HfConfig.of(thinker if isinstance(thinker, dict) else config, name)
    for mark in _DRAFTER_MARKS:
        if top.has(mark):
            raise ModelConfigError(
                f"{name}: the field {mark} marks a drafter, not a model that can be served alone; "
                "give it as the draft model"
            )
    text, kind = _text_fields(top)
    plan = READERS[kind](text)
    refuse_unread(text)
    _add_vision(top, plan)
    quant = quantisation(_quant_section(top, text), hf_quant_config, name, needed=formats_needed)
    return assemble(plan, name, quant, source)


def _text_fields(top: HfConfig) -> tuple[TextConfig, str]:
    """The text part's fields and its model_type."""
    kind = top.model_type
    raw, where = top.raw, top.where
    if top.text_config is not None:
        raw, where = top.text_config, f"{top.where}.text_config"
        inner_kind = HfConfig.of(raw, where).model_type
        inner_kind = _KNOWN["aliases"].get(inner_kind, inner_kind)
        if kind not in WRAPPERS and inner_kind not in READERS:
            if kind in READERS:  # a text model that holds another one
                what = shown(inner_kind or "(none)")
                raise ModelConfigError(
                    f"{top.where}: text_config has the model_type {what}, which is not known; a "
                    f"{kind} config has its sizes outside it"
                )
            raise unknown_architecture(top)
        tied = top.raw.get("tie_word_embeddings")
        if tied is False or raw.get("tie_word_embeddings") is None:  # one that says so is untied
            raw = {**raw, "tie_word_embeddings": tied}
        kind = inner_kind or WRAPPERS[kind]
    kind = _KNOWN["aliases"].get(kind, kind)
    kind = WRAPPERS.get(kind, kind)
    if kind not in READERS:
        raise unknown_architecture(top)
    spelt = _KNOWN["spellings"].get(_KNOWN["spelt_as"].get(kind, kind), {})
    usual = {spelt.get(name, name): value for name, value in raw.items() if name not in spelt}
    usual |= {  # null is the default of the usual name
        spelt[name]: value for name, value in raw.items() if name in spelt and value is not None
    }
    written = {
        usual_name: name for name, usual_name in spelt.items()
        if name in raw or usual_name not in raw
    }
    return TextConfig.of(usual, where, written), kind


def unknown_architecture(top: HfConfig) -> ModelConfigError:
    """The error for a model_type nobody here can read, with those that are near."""
    kind = top.model_type
    names = top.raw.get("architectures")
    arch = names[0] if isinstance(names, list) and names else ""
    what = shown(kind or arch or "(none)")
    if kind in UNMODELLED:
        return ModelConfigError(f"{top.where}: model_type {what}: not modelled: {UNMODELLED[kind]}")
    near = difflib.get_close_matches(kind, [*READERS, *WRAPPERS], n=2)
    hint = f"; near: {', '.join(near)}" if near else ""
    return ModelConfigError(
        f"{top.where}: model_type {what} is not a known architecture{hint}; if it is built as one "
        "of the families that `specsim models` shows, give a copy of the file with that model_type"
    )


def _quant_section(top: HfConfig, text: TextConfig) -> QuantConfig | None:
    """The quantisation at the top, or inside the text part."""
    for holder in (top, text):
        section = holder.raw.get("quantization_config")
        if section is not None:
            where = f"{holder.where}.quantization_config"
            if not isinstance(section, dict):
                raise holder.fail("quantization_config", "must be an object")
            experts = {"expert_dtype": text.expert_dtype} if text.expert_dtype else {}
            return QuantConfig.of({**section, **experts}, where)
    return None


def _add_vision(top: HfConfig, plan: ModelPlan) -> None:
    if top.vision_config is None:
        return
    where = f"{top.where}.vision_config"
    count = vision_parameters(top.model_type, top.vision_config, where, plan.hidden)
    if count is None:
        plan.notes.append("the vision tower's weights are not counted")
    else:
        plan.vision_params = count
