"""Values of options: how lists in text are read, how errors show what was given.

Where the command line takes text with commas ("1,8,64"), Python callers may give one number or
several; both are read here.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path

from specsim.errors import UsageError

Numbers = str | float | Sequence[float]  # text with commas, one number, several
Words = str | Sequence[str]
TextPath = str | Path  # arrives as text
FilePath = Path | str  # arrives as a Path
FilePaths = Sequence[FilePath] | FilePath

MAX_VALUES = 1000  # of one comma separated list
MAX_SHOWN = 60  # characters of a bad value that an error repeats
MAX_CONTEXT = 10_000_000  # tokens
MAX_DURATION_S = 1e6  # of what runs or watches on this machine
_MAX_SPEEDS = 16
SPEEDS_TOK_S = (0.01, 100_000.0)  # of one stream
_SPEED = re.compile(r"\s*([0-9.eE+-]+)\s*(tok/s|ms|s|)\s*")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def shown(text: str) -> str:
    """A value as an error shows it: quoted, cut to a readable length."""
    return repr(text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "...")


def shown_value(value: object) -> str:
    """Any value as an error shows it."""
    return shown(value) if isinstance(value, str) else shown(repr(value))[1:-1]


def names_code(policy: str) -> bool:
    """Whether a policy of speculation is a class in a Python file of the user's own."""
    return ".py" in policy.partition(",")[0]


def refuse_code(name: str, value: object, where: str) -> None:
    """Files that others may have written run no Python files. UsageError."""
    items = value if isinstance(value, list) else [value]
    if name == "policy" and any(names_code(str(item)) for item in items):
        raise UsageError(
            f"{where} {name} is {shown_value(value)}, a file of Python; such a policy is run only "
            "where it is typed: --policy FILE.py:CLASS"
        )


def as_text(given: Numbers | Words) -> str:
    """A list as the command line has it, with commas."""
    if isinstance(given, str):
        return given
    items = given if isinstance(given, Sequence) else (given,)
    return ",".join(item if isinstance(item, str) else f"{item:.17g}" for item in items)


def parse_names(given: Words, flag: str) -> list[str]:
    """Names separated by commas, each once; UsageError for an empty one."""
    text = as_text(given)
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise UsageError(f"{flag} is {shown(text)}; it must be names separated by commas")
    return list(dict.fromkeys(names))


def named_path(text: str) -> Path:
    """A path to read; UsageError for an empty one, which would be the current folder."""
    if not text.strip():
        raise UsageError(f"{text!r} names no file; name one, or . for this folder")
    return Path(text)


def paths_of(given: FilePaths | None) -> list[Path]:
    """The paths of an option that may be given several times."""
    if given is None:
        return []
    return [Path(path) for path in ([given] if isinstance(given, str | Path) else given)]


def parse_numbers(
    given: Numbers, name: str, *, whole: bool = True, or_word: str = ""
) -> list[float]:
    """A comma separated list of numbers; UsageError with the value and the rule. or_word: what the
    option takes in their place."""
    parts = as_text(given).split(",")
    if len(parts) > MAX_VALUES:
        raise UsageError(f"{name} has {len(parts)} values; give at most {MAX_VALUES}")
    values: list[float] = []
    for part in parts:
        try:
            value = float(part)
        except ValueError:
            rule = "numbers separated by commas" + (or_word and f", or {or_word}")
            raise UsageError(f"{name} has {shown(part.strip())}; it must be {rule}") from None
        if not math.isfinite(value) or (whole and value != int(value)):
            rule = "whole numbers" if whole else "finite numbers"
            raise UsageError(f"{name} has {shown(part.strip())}; it must be {rule}")
        values.append(value)
    return values


def parse_concurrency(
    given: Numbers | None, default: tuple[int, ...] = (1, 4, 16, 64)
) -> list[int]:
    """Clients of closed loops: whole numbers, in rising order."""
    if given is None:
        return list(default)
    values = parse_numbers(given, "--concurrency")
    for value in values:
        if not 1 <= value <= 1_000_000:
            raise UsageError(f"--concurrency has {value:.15g}; it must be from 1 to 1000000")
    return sorted({int(value) for value in values})


def parse_rates(given: Numbers, name: str = "--rate") -> list[float]:
    """Requests per second of the open loop: positive numbers, in rising order."""
    values = parse_numbers(given, name, whole=False, or_word="auto" if name == "--rates" else "")
    for value in values:
        if value <= 0:
            raise UsageError(f"{name} has {value:g}; it must be above 0 requests per second")
    return sorted(set(values))


def parse_speeds(given: Words | float) -> list[float]:
    """'50tok/s,20ms' as tokens per second of one stream; UsageError with the value and the rule."""
    found = []
    parts = as_text(given).split(",")
    if len(parts) > _MAX_SPEEDS:
        raise UsageError(f"--at has {len(parts)} speeds; give at most {_MAX_SPEEDS}")
    for part in parts:
        match = _SPEED.fullmatch(part)
        try:
            value = float(match[1]) if match else math.nan
        except ValueError:
            value = math.nan
        unit = match[2] if match else ""
        if unit in ("ms", "s"):
            value = {"ms": 1e3, "s": 1.0}[unit] / value if value else math.inf
        if not SPEEDS_TOK_S[0] <= value <= SPEEDS_TOK_S[1]:
            raise UsageError(
                f"--at has {shown(part.strip())}; it must be a speed of one stream from 0.01 to "
                "100000 tok/s, such as 50tok/s, or a time per token such as 20ms"
            )
        found.append(value)
    return sorted(set(found))


def profile_folder(given: TextPath | None) -> str | None:
    """The folder of --profiles; an empty name would silently mean the current folder."""
    if given is not None and not str(given).strip():
        raise UsageError("--profiles is empty; name a folder that holds .toml files")
    return None if given is None else str(given)


def parse_duration(text: str, name: str) -> float:
    """Seconds of '90', '90s', '10m' or '1.5h'; UsageError with the value and the rule."""
    word = text.strip().lower()
    number, unit = (word[:-1], word[-1:]) if word[-1:] in _UNITS else (word, "s")
    try:
        value = float(number) * _UNITS[unit]
    except ValueError:
        value = -1.0
    if not 0.0 < value <= MAX_DURATION_S:
        raise UsageError(
            f"{name} is {shown(text)}; it must be a time above 0 such as 600s, 10m or 1h"
        )
    return value


def parse_contexts(given: Numbers) -> list[int]:
    """'1k,8k,32k' as tokens; UsageError with the value and the rule."""
    found = []
    for part in as_text(given).split(","):
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
