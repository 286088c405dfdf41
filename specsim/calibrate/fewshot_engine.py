"""An engine profile as TOML, the form that `--engine my-engine.toml` reads back."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from specsim.files import write_whole
from specsim.latency.engine import EngineProfile, Overheads


def engine_toml(engine: EngineProfile, comment: str = "") -> str:
    """The whole profile; what equals the default of its field is left out."""
    default = EngineProfile("", "")
    lines = [f"# {text}" for text in comment.splitlines()]
    lines += ["", "[engine]"]
    for item in fields(EngineProfile):
        if item.name in ("overheads", "sources"):
            continue
        value = getattr(engine, item.name)
        if item.name in ("name", "version") or value != getattr(default, item.name):
            lines.append(f"{item.name} = {_value(value)}")
    lines += ["", "[overheads]"]
    for item in fields(Overheads):
        value = getattr(engine.overheads, item.name)
        if value:
            lines.append(f"{item.name} = {_value(float(value))}")
    lines += ["", "[sources]"]
    lines += [f"{json.dumps(key)} = {_value(text)}" for key, text in engine.sources.items()]
    return "\n".join(lines).lstrip("\n") + "\n"


def write_engine(engine: EngineProfile, path: Path, comment: str = "") -> None:
    """Writes the profile whole or not at all; FormatError where it cannot be written."""
    write_whole(path, engine_toml(engine, comment))


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        # A TOML float needs a point or an exponent.
        text = f"{value:.6g}"
        return text if any(mark in text for mark in ".en") else f"{text}.0"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return "{ " + ", ".join(f"{json.dumps(str(k))} = {_value(v)}" for k, v in value.items()) + " }"
