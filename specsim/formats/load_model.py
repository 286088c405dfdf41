"""A model or drafter as a user names it: a catalogue name, a config.json, or its folder."""

from pathlib import Path

from specsim.formats.hf_config import read_model
from specsim.model.catalogue import find_model
from specsim.model.spec import ModelSpec


def load_model(text: str) -> ModelSpec:
    """The model named `text`. A path (a file ending in .json, or an existing folder) is read as a
    Hugging Face config; anything else is looked up in the catalogue.

    Raises ModelConfigError or FormatError with the way out."""
    path = Path(text).expanduser()
    if text.endswith(".json") or path.is_dir():
        return read_model(path)
    return find_model(text)
