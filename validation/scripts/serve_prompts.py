"""Prompts for a code-editing load: functions of Python's own standard library, to be rewritten.

Usage: serve_prompts.py OUT.jsonl [COUNT]. One JSON object per line: prompt,
output_tokens_count (names that guidellm knows). The text comes from the running interpreter (PSF
licence), so it is made and not kept here.
"""

import inspect
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

MODULES = ("statistics", "bisect", "heapq", "textwrap", "shlex", "fnmatch", "calendar",
           "shutil", "ast")
OUTPUT_TOKENS = 64


def functions(shortest: int, longest: int) -> Iterator[tuple[str, str]]:
    """(name, source) of functions of the modules whose source has so many characters."""
    for name in MODULES:
        module = __import__(name)
        for word, thing in sorted(vars(module).items()):
            if not inspect.isfunction(thing) or thing.__module__ != name:
                continue
            source = textwrap.dedent(inspect.getsource(thing))
            if shortest <= len(source) <= longest:
                yield word, source


def evenly(found: Sequence[str], count: int) -> list[str]:
    """So many of them, spread over all."""
    if len(found) < count:
        raise SystemExit(f"only {len(found)} prompts for {count} requests; ask for fewer")
    step = len(found) / count
    return [found[int(i * step)] for i in range(count)]


def prompts(count: int) -> list[dict[str, object]]:
    texts = [
        f"Here is a Python function:\n```python\n{source}```\nThe same function, "
        f"renamed to `{word}_v2` and otherwise unchanged:\n```python\n"
        for word, source in functions(300, 1000)
    ]
    return [
        {"prompt": text, "output_tokens_count": OUTPUT_TOKENS} for text in evenly(texts, count)
    ]


if __name__ == "__main__":
    path, number = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 12
    path.write_text("".join(json.dumps(p) + "\n" for p in prompts(number)))
