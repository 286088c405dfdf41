"""Who measured a set of published measurements: `catalog/sources.toml`."""

from functools import lru_cache

from specsim.data import data_table


@lru_cache(maxsize=1)
def _sources() -> dict[str, str]:
    named: dict[str, list[str]] = data_table("catalog", "sources.toml")["sources"]
    return {set_id: source for source, sets in named.items() for set_id in sets}


def source_of(set_id: str) -> str:
    """The source of a set; a set that the table does not name is a source of its own."""
    return _sources().get(set_id, set_id)
