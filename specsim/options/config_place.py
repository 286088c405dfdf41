"""Where specsim.toml is looked for; found, it is read by `config_file`."""

import os
from pathlib import Path

from specsim.errors import UsageError
from specsim.options.values import shown

FILE_NAME = "specsim.toml"
VARIABLE = "SPECSIM_CONFIG"


def find_file() -> Path | None:
    """The file that holds: that of SPECSIM_CONFIG, or the nearest one upwards; None without any."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        if not named.strip():
            return None
        path = Path(named)
        if not path.is_file():
            raise UsageError(f"{VARIABLE} is {shown(named)}, which is no file; correct or unset it")
        return path
    try:
        here = Path.cwd()
    except OSError:  # the directory was removed
        return None
    for folder in (here, *here.parents):
        path = folder / FILE_NAME
        if path.is_file():
            return path
    return None
