"""Where the packaged data folders are: in the wheel, or at the root of a checkout.

The wheel carries the top-level folders (`catalog`, `hw_profiles`, ...) inside the package;
an editable install or a plain checkout has them beside it. No data is copied or unpacked.
"""

from functools import cache
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent


def data_root(name: str) -> Path:
    """Folder `name` of the packaged data: `specsim/<name>` if present, else `<checkout>/<name>`.

    The path is returned even when neither exists; the caller's own error can then say
    which file it missed.
    """
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


@cache
def data_table(folder: str, name: str) -> dict[str, Any]:
    """A packaged TOML file, read once; not to be changed."""
    import tomllib  # not on the way to --help

    return tomllib.loads((data_root(folder) / name).read_text(encoding="utf-8"))
