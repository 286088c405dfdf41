"""What is sent: texts with their wanted output lengths.

A file has one JSON object per line, as `vllm bench serve --dataset-name custom` reads it:
{"prompt": text, "output_tokens": n}; `turns` (Spec-Bench, MT-bench: the first turn is taken) and
`question` (GSM8K) are understood too. Prompts of random token ids are what `vllm bench serve
--dataset-name random` sends: consecutive ids, which no drafter can guess as it guesses text.
"""

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specsim.data import data_table
from specsim.errors import FormatError, UsageError
from specsim.files import file_text

MAX_FILE_BYTES = 200_000_000
MAX_PROMPTS = 1_000_000
MAX_OUTPUT_TOKENS = 10_000_000
DEFAULT_OUTPUT_TOKENS = 256  # of `vllm bench serve` with files
_TEXT_FIELDS = ("prompt", "question", "text")

WARM_UP = "Count from one to twenty in words, separated by commas."


@dataclass(frozen=True, slots=True)
class Prompt:
    """content: a text, or token ids. output_tokens: the most that is asked for."""

    content: str | tuple[int, ...]
    output_tokens: int


def read_prompts(
    path: Path, output_tokens: int | None = None, limit: int = MAX_PROMPTS, *, plain: bool = False
) -> list[Prompt]:
    """Prompts of a JSON lines file. output_tokens replaces what the lines say. plain: lines of text
    are prompts too, token ids are none.

    FormatError with the line's number for what cannot be read."""
    text = file_text(path, MAX_FILE_BYTES)
    prompts: list[Prompt] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if len(prompts) >= limit:
            break
        if plain and not line.lstrip().startswith("{"):
            prompts.append(Prompt(line.strip(), output_tokens or DEFAULT_OUTPUT_TOKENS))
            continue
        prompts.append(_prompt(line, f"{path} line {number}", output_tokens))
        if plain and not isinstance(prompts[-1].content, str):
            raise FormatError(f"{path} line {number} has no prompt; give one with text")
    if not prompts:
        raise FormatError(f"{path} holds no prompt; write one JSON object per line")
    return prompts


def _prompt(line: str, where: str, output_tokens: int | None) -> Prompt:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where} is not valid JSON: {str(error)[:80]}") from None
    if not isinstance(raw, dict):
        raise FormatError(f"{where} must be a JSON object with a prompt")
    content = _content(raw, where)
    tokens = raw.get("output_tokens", raw.get("max_tokens", DEFAULT_OUTPUT_TOKENS))
    if output_tokens is not None:
        tokens = output_tokens
    if isinstance(tokens, bool) or not isinstance(tokens, int):
        raise FormatError(f"{where}: output_tokens is {str(tokens)[:40]}; it must be whole")
    if not 1 <= tokens <= MAX_OUTPUT_TOKENS:
        raise FormatError(
            f"{where}: output_tokens is {tokens}; it must be from 1 to {MAX_OUTPUT_TOKENS}"
        )
    return Prompt(content, tokens)


def _content(raw: Mapping[str, object], where: str) -> str | tuple[int, ...]:
    turns = raw.get("turns")
    if isinstance(turns, list) and turns:
        raw = {"prompt": turns[0]}
    for name in _TEXT_FIELDS:
        value = raw.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value and all(
            isinstance(i, int) and not isinstance(i, bool) and 0 <= i < 1 << 31 for i in value
        ):
            return tuple(value)
    raise FormatError(
        f"{where} has no prompt: a text (or token ids) is expected under prompt, turns or question"
    )


def builtin_prompts(output_tokens: int | None = None) -> list[Prompt]:
    """A few everyday texts of our own, for a first look at a server."""
    texts = data_table("catalog", "prompts.toml")["first_look"]
    return [Prompt(text, output_tokens or 128) for text in texts]


def random_prompts(
    lengths: Sequence[tuple[int, int]], vocab: int, seed: int = 0
) -> list[Prompt]:
    """Token ids of the given (prompt, output) lengths: consecutive ids from a random start."""
    if vocab < 2:
        raise UsageError(f"the vocabulary has {vocab} tokens; random prompts need 2 or more")
    generator = random.Random(seed)
    prompts = []
    for i, (length, output) in enumerate(lengths):
        start = generator.randrange(vocab)
        ids = tuple((start + i + j) % vocab for j in range(max(1, length)))
        prompts.append(Prompt(ids, max(1, output)))
    return prompts


def take(prompts: Sequence[Prompt], count: int, start: int = 0) -> list[Prompt]:
    """`count` prompts from place `start` on; from the beginning again where they end."""
    cycle = itertools.islice(itertools.cycle(prompts), start % len(prompts), None)
    return list(itertools.islice(cycle, count))
