"""Kernel parameters assumed for a device without measured tables, from
`catalog/assumed_kernels.toml`."""

import tomllib
from functools import cache

from specsim.data import data_root


@cache
def assumed() -> dict[str, dict[str, float]]:
    """Parameters by kernel."""
    text = (data_root("catalog") / "assumed_kernels.toml").read_text("utf-8")
    found: dict[str, dict[str, float]] = {}
    for name, table in tomllib.loads(text).items():
        found[name] = {**found.get(table.pop("like", ""), {}), **table}
    return found
