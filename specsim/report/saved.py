"""Results read back from their files: one JSON document of `specsim ... --json` each, read with
limits and told apart by its kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specsim.checked import json_value
from specsim.errors import FormatError, closest
from specsim.files import bytes_of, utf8
from specsim.report.doc import Doc
from specsim.report.tables import visible

MAX_BYTES = 32_000_000


@dataclass(frozen=True, slots=True)
class SavedResult:
    """A result file."""

    kind: str
    doc: Doc


def read_text(path: str, raw: bytes | None = None) -> str:
    """The text of a file (raw: of what was read from standard input), with limits."""
    hint = "a result of specsim --json is smaller"
    if raw is None:
        raw = bytes_of(Path(path), MAX_BYTES, hint)
    if len(raw) > MAX_BYTES:
        raise FormatError(f"{path} is larger than {MAX_BYTES / 1e6:.0f} MB; {hint}")
    return utf8(raw, path, "give a result of specsim ... --json")


def parse(name: str, text: str, kinds: Sequence[str]) -> SavedResult:
    """The document in a text. FormatError where it is no JSON or of no known kind."""
    name = visible(name, 200)
    if not text.strip():
        raise FormatError(f"{name} is empty; give a result of specsim ... --json")
    value = json_value(text, name)
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
