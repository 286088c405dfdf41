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
    """A packaged TOML or JSON file, read once; not to be changed."""
    import json
    import tomllib  # not on the way to --help

    loads = json.loads if name.endswith(".json") else tomllib.loads
    found: dict[str, Any] = loads((data_root(folder) / name).read_text(encoding="utf-8"))
    return found


def data_rows(folder: str, name: str) -> list[dict[str, str]]:
    """The lines of a packaged CSV file by column; lines that begin with # are remarks."""
    import csv

    lines = (data_root(folder) / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))
