"""Trained draft heads that ship with specsim, by the name of their target."""

from pathlib import Path

from specsim.data import data_root
from specsim.errors import UsageError


def shipped_head(model: str) -> Path:
    """The head file that ships for a model, by the model's name. Raises UsageError without one."""
    folder = data_root("catalog") / "heads"
    path = folder / model.lower() / "head.safetensors"
    if not path.is_file():
        have = ", ".join(sorted(p.parent.name for p in folder.glob("*/head.safetensors")))
        raise UsageError(
            f"no trained head ships for {model!r} (there is one for {have or 'no model'}); make "
            "one with `specsim train-head`"
        )
    return path
