"""Kernel parameters assumed for a device without measured tables, from
`catalog/assumed_kernels.toml`."""

from functools import cache

from specsim.data import data_table


@cache
def assumed() -> dict[str, dict[str, float]]:
    """Parameters by kernel."""
    found: dict[str, dict[str, float]] = {}
    for name, table in data_table("catalog", "assumed_kernels.toml").items():
        own = {key: value for key, value in table.items() if key != "like"}
        found[name] = {**found.get(table.get("like", ""), {}), **own}
    return found
