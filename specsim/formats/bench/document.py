"""A foreign file read from disk: size limit, decoding, and what kind of text it is.

JSON is parsed by the standard library only; nothing in a file is ever executed. JSON Lines are
told from JSON by a first line that is a complete JSON value followed by more.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from specsim.errors import FormatError
from specsim.files import text_of
from specsim.formats.bench.fields import Foreign, as_mapping, describe, read_as

MAX_FILE_BYTES = 200_000_000
_JSON_START = ("{", "[")
_DATED_LINE = re.compile(r"\[\d{4}-\d\d-\d\d[ T]")  # SGLang's log lines begin like a JSON list
S = TypeVar("S", bound=Foreign)


@dataclass(frozen=True)
class ResultFile:
    """One file. `records` are its JSON values: one of a JSON file, the elements of a JSON array
    (`array`), one per line of JSON Lines; empty when the text is not JSON.
    """

    origin: str
    text: str
    records: tuple[object, ...] = ()
    array: bool = False
    lines: tuple[int, ...] = ()

    @property
    def is_json(self) -> bool:
        return bool(self.records)

    @property
    def first(self) -> Mapping[str, object]:
        """The first record, empty where it is no object: what formats are told by."""
        return as_mapping(self.records[0]) if self.records else {}

    def place(self, position: int) -> str:
        """Where record `position` stands, as the beginning of an error message."""
        if self.lines:
            return f"{self.origin}: line {self.lines[position]}: "
        return f"{self.origin}: [{position}]." if self.array else f"{self.origin}: "

    def objects(self) -> Iterator[tuple[str, Mapping[str, object]]]:
        """All records with their places; FormatError when one is no object."""
        for position, record in enumerate(self.records):
            where = self.place(position)
            if not isinstance(record, Mapping):
                raise FormatError(
                    f"{where}{describe(record)} stands where an object like the other records of "
                    "the file is expected"
                )
            yield where, record

    def read(self, shape: type[S]) -> Iterator[tuple[str, S]]:
        """All records in their declared shape, with their places."""
        for where, record in self.objects():
            yield where, read_as(shape, record, where)


def read_document(path: Path) -> ResultFile:
    """Read and parse one file; FormatError when it is too big, not UTF-8 or broken JSON."""
    return parse_document(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a file of at most MAX_FILE_BYTES; FormatError when it cannot be had."""
    return text_of(
        path, MAX_FILE_BYTES, "give a benchmark's result file or its folder",
        f"larger than {MAX_FILE_BYTES // 10**6} MB, the limit for one file; save the result "
        "without generated texts or per-request details",
        "results are UTF-8 JSON, CSV or text",
    )


def parse_document(text: str, origin: str) -> ResultFile:
    """Sort text into JSON, JSON Lines or other text."""
    stripped = text.strip()
    if not stripped:
        raise FormatError(f"{origin}: the file is empty; a benchmark's result is expected")
    if not stripped.startswith(_JSON_START) or _DATED_LINE.match(stripped):
        return ResultFile(origin, text)
    # split at newlines only: a JSON string may hold other line separators as they are
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) > 1 and _complete(lines[0][1]):
        values = tuple(_parse(line, f"{origin}: line {number}") for number, line in lines)
        return ResultFile(origin, text, values, lines=tuple(number for number, _ in lines))
    value = _parse(stripped, origin)
    if isinstance(value, list):
        if not value:
            raise FormatError(f"{origin}: an empty JSON list; a benchmark's result is expected")
        return ResultFile(origin, text, tuple(value), array=True)
    return ResultFile(origin, text, (value,))


def _complete(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _parse(text: str, origin: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) - 1 or error.msg.startswith("Unterminated string")
        hint = "; the file seems to be cut off" if cut else ""
        raise FormatError(
            f"{origin}: not valid JSON at line {error.lineno}, column {error.colno}: "
            f"{error.msg}{hint}"
        ) from None
    except (ValueError, RecursionError) as error:
        # numbers of thousands of digits, and nesting beyond any benchmark's
        reason = " ".join(str(error).split())[:100]
        raise FormatError(f"{origin}: not JSON of a benchmark: {reason}") from None
