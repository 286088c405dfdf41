"""The options of a deployment and its load as plain values, and how lists in text are read.

The command line, configuration files and Python callers all end here; what the values say together
is checked in `specsim.api.deployment`.
"""

import math
from dataclasses import dataclass

from specsim.errors import UsageError

MAX_VALUES = 1000  # of one comma separated list
MAX_SHOWN = 60  # characters of a bad value that an error repeats
MAX_CONTEXT = 10_000_000  # tokens


@dataclass
class Options:
    """Raw values of one command line or call."""

    model: str
    gpu: str = "h200-sxm"
    tp: int = 1
    ep: int = 1
    attention_dp: int = 1
    weights: str | None = None
    kv: str | None = None
    engine: str = "vllm"
    method: str | None = None
    draft: str | None = None
    k: int | None = None
    speculative_config: str | None = None
    acceptance: str | None = None
    acceptance_conditional: str | None = None
    acceptance_rate: float | None = None
    acceptance_mean: float | None = None
    acceptance_length: float | None = None
    tree: str | None = None
    draft_share: float = 1.0
    exit_layers: int = 0
    workload: str | None = None
    input_len: int | None = None
    output_len: int | None = None
    cached_share: float = 0.0
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    fidelity: str = "calibrated"
    profiles: str | None = None
    command: str | None = None


def shown(text: str) -> str:
    """A value as an error shows it: quoted, cut to a readable length."""
    return repr(text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "...")


def parse_numbers(text: str, name: str, *, whole: bool = True) -> list[float]:
    """A comma separated list of numbers; UsageError with the value and the rule."""
    parts = text.split(",")
    if len(parts) > MAX_VALUES:
        raise UsageError(f"{name} has {len(parts)} values; give at most {MAX_VALUES}")
    values: list[float] = []
    for part in parts:
        try:
            value = float(part)
        except ValueError:
            raise UsageError(
                f"{name} has {shown(part.strip())}; it must be numbers separated by commas"
            ) from None
        if not math.isfinite(value) or (whole and value != int(value)):
            rule = "whole numbers" if whole else "finite numbers"
            raise UsageError(f"{name} has {shown(part.strip())}; it must be {rule}")
        values.append(value)
    return values


def parse_concurrency(text: str | None, default: tuple[int, ...] = (1, 4, 16, 64)) -> list[int]:
    if text is None:
        return list(default)
    values = parse_numbers(text, "--concurrency")
    for value in values:
        if not 1 <= value <= 1_000_000:
            raise UsageError(f"--concurrency has {value:.15g}; it must be from 1 to 1000000")
    return sorted({int(value) for value in values})


def parse_rates(text: str) -> list[float]:
    """Requests per second of the open loop: positive numbers, in rising order."""
    values = parse_numbers(text, "--rate", whole=False)
    for value in values:
        if value <= 0:
            raise UsageError(f"--rate has {value:g}; it must be above 0 requests per second")
    return sorted(set(values))


def profile_folder(text: str | None) -> str | None:
    """The folder of --profiles; an empty name would silently mean the current folder."""
    if text is not None and not text.strip():
        raise UsageError("--profiles is empty; name a folder that holds .toml files")
    return text


def parse_contexts(text: str) -> list[int]:
    """'1k,8k,32k' as tokens; UsageError with the value and the rule."""
    found = []
    for part in text.split(","):
        word = part.strip().lower()
        number, scale = (word[:-1], 1024) if word.endswith("k") else (word, 1)
        try:
            tokens = float(number) * scale
            whole = tokens == int(tokens)
        except (ValueError, OverflowError):
            tokens, whole = 0.0, False
        if not whole or not 1 <= tokens <= MAX_CONTEXT:
            raise UsageError(
                f"--contexts has {shown(part.strip())}; it must be token counts from 1 to "
                f"{MAX_CONTEXT} such as 512, 8k or 32k, separated by commas"
            )
        found.append(int(tokens))
    return sorted(set(found))
