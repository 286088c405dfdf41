"""A model or drafter as a user names it: a catalogue name, a config.json, or its folder."""

from pathlib import Path

from specsim.errors import FormatError, ModelConfigError
from specsim.formats.hf_config import read_model
from specsim.formats.hf_drafters import read_drafter
from specsim.model.catalogue import find_model
from specsim.model.spec import Drafter, ModelSpec


def load_model(text: str) -> ModelSpec:
    """The model named `text`. A path (a name ending in .json, or an existing folder or file) is
    read as a Hugging Face config; anything else is looked up in the catalogue.

    Raises ModelConfigError or FormatError with the way out."""
    path = _path(text, "model")
    return find_model(text) if path is None else read_model(path)


def load_drafter(text: str, target: ModelSpec) -> Drafter | None:
    """The drafter a config.json or its folder describes, or None when `text` is a name, to be
    looked up in the catalogue. `target` supplies the sizes that some drafter files leave out."""
    path = _path(text, "drafter")
    return None if path is None else read_drafter(path, target=target)


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
    if is_folder or text.endswith(".json"):
        return path
    if is_file:
        raise FormatError(
            f"{text}: a {what} is read from a config.json (or its folder), not from this file"
        )
    return None
