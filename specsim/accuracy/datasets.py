"""Mean prompt and output lengths of the data sets that published measurements were made on.

Tokens, rounded: from the data sets' own statistics with Llama-3-like tokenizers, and from the
output limits of the benchmark scripts. They set the context at which a step is priced and the
share of prefill; at batch 1 to 8 a factor of two in either moves a step by a few percent.
Rows that state isl and osl use those.
They stand in catalog/dataset_lengths.csv.
"""

import csv
from functools import cache

from specsim.data import data_root

DEFAULT_LENGTHS = (256, 256)


@cache
def _lengths() -> tuple[tuple[str, tuple[int, int]], ...]:
    """(part of a name, (input tokens, output tokens)), in the order in which they are tried."""
    text = (data_root("catalog") / "dataset_lengths.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return tuple(
        (row["name"], (int(row["input_tokens"]), int(row["output_tokens"]))) for row in rows
    )


def dataset_lengths(name: str) -> tuple[int, int]:
    """(input, output) tokens of a data set by name; a short chat when it is not known."""
    key = name.lower()
    return next((lengths for part, lengths in _lengths() if part in key), DEFAULT_LENGTHS)
