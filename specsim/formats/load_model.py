"""A model or drafter as a user names it: a catalogue name, a config.json or its folder, or a .gguf
file, of which only the header is read.

The readers of files are imported when there is a file to read: most models are named, and the
shapes of configs take longer to make than a prediction.
"""

from dataclasses import replace
from pathlib import Path

from specsim.errors import FormatError, ModelConfigError
from specsim.model.catalogue import find_model, has_drafter, has_model
from specsim.model.drafter_counts import drafter_from_spec
from specsim.model.spec import Drafter, ModelSpec


def load_model(text: str, *, formats_needed: bool = True) -> ModelSpec:
    """The model named `text`. A path (a name ending in .json or .gguf, or an existing folder or
    file) is read as a Hugging Face config or a GGUF header; anything else is looked up in the
    catalogue. formats_needed: False where all weights will be set to another format, so that a
    quantisation that cannot be read is no obstacle.

    Raises ModelConfigError or FormatError with the way out."""
    path = _path(text, "model")
    if path is None:
        return find_model(text)
    from specsim.formats.gguf_header import read_gguf_model
    from specsim.formats.hf_config import read_model

    if _is_gguf(path):
        return read_gguf_model(path)
    return read_model(path, formats_needed=formats_needed)


def load_drafter(text: str, target: ModelSpec) -> Drafter | None:
    """The drafter a config.json or its folder describes, or None when `text` is a name, to be
    looked up in the catalogue. `target` supplies the sizes that some drafter files leave out."""
    path = _path(text, "drafter")
    if path is None:
        return None
    from specsim.formats.gguf_header import read_gguf_model
    from specsim.formats.hf_drafters import read_drafter

    if _is_gguf(path):
        return replace(drafter_from_spec(read_gguf_model(path)), target=target.name)
    return read_drafter(path, target=target)


def _is_gguf(path: Path) -> bool:
    from specsim.formats.gguf_header import looks_like_gguf

    return path.suffix.lower() == ".gguf" or looks_like_gguf(path)


def _hides_a_name(text: str, path: Path) -> bool:
    """Whether a folder or file only happens to be called like a model: results kept by model."""
    if any(mark in text for mark in "/\\~") or not (has_model(text) or has_drafter(text)):
        return False
    return not ((path / "config.json").exists() or _is_gguf(path))


def _path(text: str, what: str) -> Path | None:
    """`text` as a path, or None when it is a name."""
    if not text.strip():
        raise ModelConfigError(
            f"the {what}'s name is empty; give a name from `specsim models`, or a config.json"
        )
    try:
        path = Path(text).expanduser()
        is_folder, is_file = path.is_dir(), path.exists()
    except (OSError, ValueError, RuntimeError):  # too long, a null byte, no such home folder
        return None
    if is_file and _hides_a_name(text, path):
        return None
    if is_folder or text.lower().endswith((".json", ".gguf")) or (is_file and _is_gguf(path)):
        return path
    if is_file:
        raise FormatError(
            f"{text}: a {what} is read from a config.json (or its folder) or a .gguf, not from "
            f"this file; name the folder {str(path.parent)!r} if its config.json lies there, or a "
            "name of `specsim models`"
        )
    return None
