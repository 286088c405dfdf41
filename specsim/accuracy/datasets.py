"""Mean prompt and output lengths of the data sets that published measurements were made on.

Tokens, rounded: from the data sets' own statistics with Llama-3-like tokenizers, and from the
output limits of the benchmark scripts. They set the context at which a step is priced and the
share of prefill; at batch 1 to 8 a factor of two in either moves a step by a few percent.
Rows that state isl and osl use those.
"""

# name fragment (lower case) -> (input tokens, output tokens); the first match wins
DATASET_LENGTHS: tuple[tuple[str, tuple[int, int]], ...] = (
    ("mt-bench", (110, 400)),
    ("mtbench", (110, 400)),
    ("mt_bench", (110, 400)),
    ("gsm8k", (100, 200)),
    ("humaneval", (160, 250)),
    ("math500", (110, 600)),
    ("math_reasoning", (110, 400)),
    ("livecodebench", (500, 800)),
    ("gpqa", (250, 800)),
    ("financeqa", (700, 400)),
    ("sharegpt", (220, 300)),
    ("cnn", (900, 130)),
    ("instructcoder", (250, 300)),
    ("alpaca", (60, 250)),
    ("spec-bench", (300, 300)),
    ("aime", (150, 8000)),
    ("speed-bench coding", (400, 1500)),
    ("speed-bench", (400, 800)),
    ("magpie", (300, 500)),
    ("translation", (100, 100)),
    ("code prompt", (200, 800)),
    ("single prompt", (100, 400)),
    ("swe-bench", (8000, 500)),
)
DEFAULT_LENGTHS = (256, 256)


def dataset_lengths(name: str) -> tuple[int, int]:
    """(input, output) tokens of a data set by name; a short chat when it is not known."""
    key = name.lower()
    for fragment, lengths in DATASET_LENGTHS:
        if fragment in key:
            return lengths
    return DEFAULT_LENGTHS
