"""Profiles as TOML files: reading with limits, and writing an ordinary profile back.

The standard library reads TOML but does not write it, so the writer here covers exactly what a
profile holds: strings, numbers, flags, lists of strings, and tables one or two deep. Numbers are
written with as few digits as give the same float back.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from specsim.errors import FormatError
from specsim.files import text_of
from specsim.hardware.profile import HardwareProfile, KernelTable
from specsim.hardware.schema import NUMBERS
from specsim.jsonable import json_text

MAX_FILE_BYTES = 1_000_000


def read_document(path: Path) -> dict[str, object]:
    """The parsed tables of a TOML file; FormatError when it is too big or not TOML."""
    return parse_document(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a profile file, at most MAX_FILE_BYTES long."""
    return text_of(
        path, MAX_FILE_BYTES, "give the path of a profile written in TOML",
        f"larger than {MAX_FILE_BYTES} bytes, which no hardware profile is; check the path",
        "save the file as UTF-8",
    )


def parse_document(text: str, origin: str) -> dict[str, object]:
    """Tables of TOML text; FormatError naming the line when it is broken."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason = " ".join(str(error).split())
    except (ValueError, RecursionError, OverflowError) as error:
        # tomllib lets these through for absurd integers, dates and nesting.
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
    raise FormatError(f"{origin}: not valid TOML: {reason}")


def to_document(profile: HardwareProfile) -> dict[str, dict[str, object]]:
    """The nested tables of a file that describes `profile` (inherited tables written out)."""
    doc: dict[str, dict[str, object]] = {"device": {"name": profile.name, "title": profile.title}}
    if profile.aliases:
        doc["device"]["aliases"] = list(profile.aliases)
    for key in ("vendor", "arch", "kind", "mem_note"):
        if getattr(profile, key):
            doc["device"][key] = getattr(profile, key)
    for number in NUMBERS:
        value = getattr(profile, number.field)
        if value is None or (value == 0 and number.table == "link"):
            continue
        doc.setdefault(number.table, {})[number.key] = value
    doc["peak"]["flops"] = dict(profile.flops)
    if profile.link_kind != "none":
        doc["link"]["kind"] = profile.link_kind
    doc["sources"] = {**profile.sources, "assumed": sorted(profile.assumed)}
    if profile.kernels:
        doc["kernels"] = {name: _kernel_document(t) for name, t in profile.kernels.items()}
    return doc


def _kernel_document(table: KernelTable) -> dict[str, object]:
    doc: dict[str, object] = {**table.params, "source": table.source}
    if table.measured_on is not None:
        doc["measured_on"] = table.measured_on
    doc["assumed"] = table.assumed
    if table.inherited_from is not None:
        doc["inherited_from"] = table.inherited_from
    return doc


def to_toml(profile: HardwareProfile) -> str:
    """The profile as the text of a TOML file that reads back to an equal profile.

    Inherited kernel tables are written out in full with their inherited_from mark, so the file
    stands alone.
    """
    lines = ["# Units: bytes, bytes/s, FLOP/s (dense, multiply-add = 2), seconds, W."]
    for label, table in to_document(profile).items():
        _write_table(lines, [label], table)
    return "\n".join(lines) + "\n"


def _write_table(lines: list[str], path: list[str], table: Mapping[str, object]) -> None:
    scalars = {k: v for k, v in table.items() if not isinstance(v, dict)}
    if scalars:
        lines += ["", f"[{'.'.join(map(_key, path))}]"]
        lines += [f"{_key(k)} = {_value(v)}" for k, v in scalars.items()]
    for key, value in table.items():
        if isinstance(value, dict):
            _write_table(lines, [*path, key], value)


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if bare else _string(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, float):
        short = f"{value:.6g}"
        return short if float(short) == value else repr(value)
    return str(value)


def _string(text: str) -> str:
    # JSON's escapes are TOML's, except that TOML also wants DEL escaped.
    return json_text(text, ensure_ascii=False).replace("\x7f", "\\u007f")
