"""Cells and names of measurement files -> numbers, lengths, sources, profiles and models, which are
remembered.

Rows name few devices and models many times over, and looking a name up reads and checks files:
without memory that is most of the time of scoring a long file.
"""

import math
import re
from functools import cache, lru_cache

from specsim.data import data_rows, data_table
from specsim.errors import SpecSimError
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile
from specsim.model.catalogue import find_model, variant
from specsim.model.spec import ModelSpec


@lru_cache(maxsize=256)
def profile_of(name: str) -> HardwareProfile | None:
    """The profile of a name, None when there is none."""
    try:
        return load_profile(name)
    except SpecSimError:
        return None


@lru_cache(maxsize=1024)
def model_of(name: str, weights: str = "") -> ModelSpec | None:
    """The model of a name, in other weights where some are named; None when there is none.

    UsageError for weights the model cannot have."""
    try:
        spec = find_model(name)
    except SpecSimError:
        return None
    return variant(spec, weights) if weights else spec


def forget() -> None:
    """Names are looked up anew: profile files may have changed."""
    profile_of.cache_clear()
    model_of.cache_clear()


DEFAULT_LENGTHS = (256, 256)


@cache
def _lengths() -> tuple[tuple[str, tuple[int, int]], ...]:
    """(part of a name, (input tokens, output tokens)), in the order in which they are tried."""
    return tuple((row["name"], (int(row["input_tokens"]), int(row["output_tokens"])))
                 for row in data_rows("catalog", "dataset_lengths.csv"))


def dataset_lengths(name: str) -> tuple[int, int]:
    """Mean (input, output) tokens of a data set by name; a short chat when it is not known. They
    set the context at which a step is priced and the share of prefill; at batch 1 to 8 a factor of
    two in either moves a step by a few percent. From the data sets' own statistics with
    Llama-3-like tokenizers, and from the output limits of the benchmark scripts
    (catalog/dataset_lengths.csv)."""
    key = name.lower()
    return next((lengths for part, lengths in _lengths() if part in key), DEFAULT_LENGTHS)


class SkipRow(Exception):
    """This row is not predicted; the text is the reason it is counted under."""


def number(text: str | None) -> float | None:
    """The first number in a cell, None when there is none."""
    if not text:
        return None
    match = re.search(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", text.replace(",", ""))
    if match is None:
        return None
    value = float(match.group())
    return value if math.isfinite(value) else None


def whole(text: str | None) -> int | None:
    value = number(text)
    return int(value) if value is not None and 1 <= value < 1e9 else None


def measurement(text: str | None) -> float | None:
    """A measured time or rate in the file's unit; None for what no server measures."""
    value = number(text)
    return value if value is not None and 1e-6 < value < 1e9 else None


@lru_cache(maxsize=1)
def _sources() -> dict[str, str]:
    named: dict[str, list[str]] = data_table("catalog", "sources.toml")["sources"]
    return {set_id: source for source, sets in named.items() for set_id in sets}


def source_of(set_id: str) -> str:
    """The source of a set; a set that the table does not name is a source of its own."""
    return _sources().get(set_id, set_id)
