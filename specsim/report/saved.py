"""Results read back from their files: one JSON document of `specsim ... --json` each, read with
limits and told apart by its kind."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specsim.errors import FormatError, closest
from specsim.files import bytes_of
from specsim.report.doc import Doc
from specsim.report.tables import visible

MAX_BYTES = 32_000_000


@dataclass(frozen=True, slots=True)
class SavedResult:
    """A result file."""

    kind: str
    doc: Doc


def read_text(path: str, text: str | bytes | None = None) -> str:
    """The text of a file (or of what was read from standard input), with limits."""
    name, hint = visible(path, 200), "a result of specsim --json is smaller"
    if text is None:
        text = bytes_of(Path(path), MAX_BYTES, hint)
    if len(text) > MAX_BYTES:
        raise FormatError(f"{name} is larger than {MAX_BYTES / 1e6:.0f} MB; {hint}")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise FormatError(f"{name} is not UTF-8 text (byte {error.start})") from None
    return text


def parse(name: str, text: str, kinds: Sequence[str]) -> SavedResult:
    """The document in a text. FormatError where it is no JSON or of no known kind."""
    name = visible(name, 200)
    if not text.strip():
        raise FormatError(f"{name} is empty; give a result of specsim ... --json")
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise FormatError(f"{name} is nested too deeply for a result") from None
    except ValueError as error:
        raise FormatError(f"{name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise FormatError(f"{name} holds no object; give a result of specsim ... --json")
    kind = value.get("kind")
    if kind not in kinds:
        known = ", ".join(kinds)
        if kind is None:
            raise FormatError(f"{name} has no kind that is known; a report shows {known}")
        hint = closest(str(kind), kinds)
        raise FormatError(f"{name}: kind is {str(kind)[:60]!r}; {hint}a report shows {known}")
    return SavedResult(str(kind), Doc(value, name))


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")
