"""An engine profile as the text of a TOML file, the form that `--engine my-engine.toml` reads back.

What equals its default is left out: of [engine] the default of the field, of [scheduler] and
[server] what the packaged engine of that name and version has.
"""

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from specsim.files import write_whole
from specsim.jsonable import json_text
from specsim.latency.engine import packaged
from specsim.latency.engine_profile import EngineProfile

TABLES = ("overheads", "scheduler", "server", "sources")


def engine_toml(engine: EngineProfile, comment: str = "", *, zeros: bool = False) -> str:
    """The whole profile; it reads back to an equal one. zeros: write overheads of 0 too."""
    default = EngineProfile(engine.name, engine.version)
    usual = packaged(engine.name, engine.version) or default
    lines = [f"# {text}" for text in comment.splitlines()]
    own = [f.name for f in fields(EngineProfile) if f.name not in TABLES]
    lines += ["", "[engine]", f"name = {toml_value(engine.name)}"]
    lines += [f"version = {toml_value(engine.version)}", *_unlike(engine, default, own)]
    lines += ["", "[overheads]"]
    for f in fields(engine.overheads):
        value = getattr(engine.overheads, f.name)
        if value or zeros:
            lines.append(f"{f.name} = {toml_value(float(value))}")
    for table in ("scheduler", "server"):
        mine = getattr(engine, table)
        unlike = _unlike(mine, getattr(usual, table), [f.name for f in fields(mine)])
        lines += ["", f"[{table}]", *unlike] if unlike else []
    lines += ["", "[sources]"]
    lines += [f"{json_text(key)} = {toml_value(text)}" for key, text in engine.sources.items()]
    return "\n".join(lines).lstrip("\n") + "\n"


def write_engine(engine: EngineProfile, path: Path, comment: str = "") -> None:
    """Writes the profile whole or not at all; FormatError where it cannot be written."""
    write_whole(path, engine_toml(engine, comment))


def _unlike(mine: object, other: object, names: Iterable[str]) -> list[str]:
    """Lines of the fields that differ."""
    return [
        f"{name} = {toml_value(getattr(mine, name))}"
        for name in names
        if getattr(mine, name) != getattr(other, name)
    ]


def toml_value(value: object) -> str:
    """A value as TOML writes it; floats to six digits, with a point or an exponent."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(float(f"{value:.6g}"))
    if isinstance(value, str):
        return json_text(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, dict):
        pairs = (f"{json_text(str(k))} = {toml_value(v)}" for k, v in value.items())
        return "{ " + ", ".join(pairs) + " }"
    return str(value)
