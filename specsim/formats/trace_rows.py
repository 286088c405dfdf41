"""Lines, rows and values of trace files; a broken one is a FormatError with its number."""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from specsim.errors import FormatError, shown

MAX_TOKENS = 20_000_000
MAX_LINE = 10_000_000  # characters


def trace_lines(path: Path) -> Iterator[str]:
    """Lines of the file, none read further than a line may be long."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        number = 0
        try:
            while text := file.readline(MAX_LINE + 1):
                number += 1
                if len(text) > MAX_LINE:
                    raise FormatError(
                        f"{path.name}: line {number} is longer than {MAX_LINE} characters"
                    )
                yield text
        except UnicodeDecodeError as error:
            raise FormatError(f"{path.name}: line {number + 1}: {error}") from None


def csv_rows(path: Path, needed: set[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    reader = csv.DictReader(trace_lines(path), strict=True)
    try:
        names = {name.strip() for name in reader.fieldnames or ()}
        missing = needed - names
        if missing:
            raise FormatError(
                f"{path.name}: line 1 lacks the column {sorted(missing)[0]!r}; needed are "
                f"{', '.join(sorted(needed))}"
            )
        for row in reader:
            if None in row or None in row.values():
                raise FormatError(
                    f"{path.name}: line {reader.line_num} has another number of columns than line 1"
                )
            yield reader.line_num, {key.strip(): value for key, value in row.items()}
    except csv.Error as error:
        raise FormatError(f"{path.name}: line {reader.line_num + 1}: {error}") from None


def json_rows(path: Path) -> Iterator[tuple[int, Mapping[str, object]]]:
    for line, text in enumerate(trace_lines(path), start=1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{path.name}: line {line} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise FormatError(f"{path.name}: line {line} is not a JSON object")
        yield line, row


def number_of(text: object) -> float:
    """A number, also as text; NaN for anything else."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        return math.nan
    try:
        return float(text)
    except (ValueError, OverflowError):
        return math.nan


def tokens_at(text: object, name: str, path: Path, line: int, low: int = 0) -> int:
    value = number_of(text)
    if not (low <= value <= MAX_TOKENS and value == int(value)):
        raise FormatError(
            f"{path.name}: line {line}: {name} is {text!r}; it must be a whole number of tokens "
            f"from {low} to {MAX_TOKENS}"
        )
    return int(value)


def time_at(text: object, name: str, path: Path, line: int) -> float:
    value = number_of(text)
    if not math.isfinite(value):
        raise FormatError(f"{path.name}: line {line}: {name} is {text!r}; it must be a number")
    return value


def moment_at(text: str, path: Path, line: int) -> tuple[datetime, float]:
    """(whole seconds, the rest) of Azure's times: 100 ns digits, sometimes with a zone, where
    the standard library reads microseconds. UTC."""
    whole, _, fraction = text.removesuffix("+00:00").removesuffix("Z").partition(".")
    try:
        moment = datetime.fromisoformat(whole)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
        return moment, int(fraction) / 10 ** len(fraction) if fraction else 0.0
    except (ValueError, OverflowError):
        raise FormatError(
            f"{path.name}: line {line}: TIMESTAMP is {text!r}; it must look like "
            "2023-11-16 18:17:03.9799600"
        ) from None


def id_at(row: Mapping[str, object], name: str, path: Path, line: int) -> int:
    """-1 (none) where the column is missing or empty."""
    value = row.get(name)
    if value is None or (isinstance(value, str) and not value.strip()):
        return -1
    try:
        number = int(value) if isinstance(value, str | int) and len(str(value)) < 18 else None
    except ValueError:
        number = None
    if number is None or number < -1 or isinstance(value, bool):
        raise FormatError(
            f"{path.name}: line {line}: {name} is {str(value)[:40]!r}; it must be a whole number "
            "from 0, or -1 for none"
        )
    return number


def hash_spans(
    ids: object, prompt: int, block: int, path: Path, line: int
) -> tuple[tuple[int, int], ...]:
    """One piece per hash id; the last one covers what is left of the prompt."""
    if not isinstance(ids, list):
        raise FormatError(f"{path.name}: line {line}: hash_ids is {shown(ids)}; it must be a list")
    spans, left = [], prompt
    for key in ids:
        if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < 1 << 61:
            raise FormatError(
                f"{path.name}: line {line}: hash id {shown(key)} must be a whole number below 2**61"
            )
        if left <= 0:
            break
        spans.append((key, min(block, left)))
        left -= block
    return tuple(spans)


def shared_spans(
    row: Mapping[str, object], prompt: int, path: Path, line: int
) -> tuple[tuple[int, int], ...]:
    """The pieces that the columns prefix, prefix_tokens and prompt describe; keys of prefixes are
    even, those of prompts odd."""
    prefix, own = id_at(row, "prefix", path, line), id_at(row, "prompt", path, line)
    shared = 0
    if prefix >= 0:
        shared = tokens_at(row.get("prefix_tokens"), "prefix_tokens", path, line)
        if shared > prompt:
            raise FormatError(
                f"{path.name}: line {line}: prefix_tokens is {shared}, but the prompt has {prompt}"
            )
    pieces = [(2 * prefix, shared)] if shared else []
    if own >= 0 and prompt > shared:
        pieces.append((2 * own + 1, prompt - shared))
    return tuple(pieces)


class Chains:
    """Conversations by the blocks of their prompts: the next prompt of one begins with all whole
    blocks of the last, whose last one nobody else has sent."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}  # session that sent a block first
        self._ends: set[int] = set()  # last whole blocks of prompts
        self._count = 0

    def session(self, spans: tuple[tuple[int, int], ...], block: int) -> int:
        """The conversation that a prompt with these pieces belongs to, maybe a new one."""
        keys = [key for key, tokens in spans if tokens == block]
        if not keys:
            return -1
        known = next((key for key in reversed(keys) if key in self._first), None)
        if known is not None and known in self._ends:
            session = self._first[known]
        else:
            session, self._count = self._count, self._count + 1
        for key in keys:
            self._first.setdefault(key, session)
        if self._first[keys[-1]] == session:
            self._ends.add(keys[-1])
        return session
