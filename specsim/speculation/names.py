"""Names of models, methods and data sets in the form in which the catalogue joins them."""

import re

from specsim.methods.registry import known_method

# Words of a checkpoint's name that leave the acceptance as it is: tuning for chat (every serving
# checkpoint has it) and number formats. "qat" is not among them: quantisation-aware training moves
# the model away from its drafter (measured: 0.64 against 0.92 at position 1).
_DROPPED = re.compile(
    r"^(instruct|it|chat|hf|gguf|fp8|bf16|fp16|int4|int8|fp4|nvfp4|mxfp4|awq\d?|gptq|w\d+a\d+"
    r"|[248]bit|a\d+(\.\d+)?b|dynamic|quantized)$"
)
_GGUF = re.compile(r"[\s-](ud-)?i?q\d_\w+|\s\(.*\)$")


def normalise_model(name: str) -> str:
    """A model's name without organisation, chat tuning, number format and active parameters.

    >>> normalise_model("Qwen/Qwen3.5-122B-A10B-FP8")
    'qwen3.5-122b'
    """
    text = _GGUF.sub("", name.strip().lower().rsplit("/", 1)[-1]).replace("_", "-")
    words = [word for word in re.split(r"[\s\-]+", text) if word]
    if len(words) > 1 and words[0] in ("nvidia", "meta"):
        words = words[1:]
    return "-".join(word for word in words if not _DROPPED.match(word))


def normalise_method(name: str) -> str:
    """A method's name as the catalogue writes it: with underscores; unknown ones stay."""
    return (known_method(name) or name.strip().lower()).replace("-", "_")


# Spellings and subsets of one data set, by the beginning of its name.
_ONE_SET = (
    (r"redhatai-speculator-benchmarks-(question|mt-bench).*", "mt-bench"),
    (r"redhatai-speculator-benchmarks-(?=[a-z-]*nine).*", "nine-subsets"),
    (r"redhatai-speculator-benchmarks-", ""),
    (r"speed-bench(-qualitative)?-(overall|average)", "speed-bench"),
    (r"speed-bench-qualitative-", "speed-bench-"),
    (r"question-mt-bench|mtbench|mt-bench-(first-turn|\d+-prompts)", "mt-bench"),
    (r"(gsm8k|humaneval|math-reasoning|aime|arena-hard|aa-lcr|beam|speed-bench-coding)-?\d*[a-z]?"
     r"(-(v[\d.]+|\d+|\d+-prompts|first-\d+|output-\d+|95k-token-prompts|type-prompts"
     r"|[a-z]+-instruction.*))?$", r"\1"),
    (r"math-500", "math500"),
    (r"cnn-dm", "cnn-dailymail"),
)


def normalise_dataset(name: str) -> str:
    """A data set's name in lower case with dashes, the spellings and subsets of one set united.

    >>> normalise_dataset("GSM8K (128 prompts)")
    'gsm8k'
    """
    text = re.sub(r"[^a-z0-9.]+", "-", name.strip().lower()).strip("-")
    for pattern, one in _ONE_SET:
        text = re.sub(f"^(?:{pattern})", one, text)
    return text
