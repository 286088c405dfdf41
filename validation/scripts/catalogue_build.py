"""Keeps the bundled catalogue in step with the readers.

Run as `python validation/scripts/catalogue_build.py` after a reader or an entry has changed.
An entry holds the fields of the public config that the shapes follow from (`config`, and
`hf_quant_config` where the checkpoint has one), its source, and `spec`, which this module
derives from them. It also writes the index. Nothing else writes these files' `spec`; tests
check that both are current.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from specsim.formats.hf_config import model_from_config
from specsim.formats.hf_drafters import drafter_from_config
from specsim.model.catalogue import catalogue_root
from specsim.model.counts import active_parameters, parameters
from specsim.model.drafter_counts import drafter_parameters
from specsim.model.serial import drafter_from_dict, spec_from_dict, to_dict
from specsim.model.spec import Drafter, ModelSpec


class Entry(TypedDict, total=False):
    """A file of `catalog/models` or `catalog/drafters`. max_position, notes: beyond what the config
    says. kind, targets: of a drafter. file: where it lies, not in it."""

    name: str
    hf_id: str
    source: str
    config: dict[str, object]
    hf_quant_config: dict[str, object]
    base: str
    aliases: list[str]
    notes: list[str]
    max_position: int
    kind: str
    targets: list[str]
    spec: dict[str, object]
    file: str


def derive_model(entry: Entry) -> ModelSpec:
    """The ModelSpec of an entry's config."""
    spec = model_from_config(
        entry["config"], entry["name"], entry.get("hf_quant_config"), source=entry["source"]
    )
    notes = (*spec.notes, *entry.get("notes", ()))
    return replace(spec, notes=notes, max_position=entry.get("max_position", spec.max_position))


def derive_drafter(entry: Entry, targets: dict[str, ModelSpec]) -> Drafter:
    """The Drafter of an entry's config; `targets` are the catalogue's models by name."""
    names = entry.get("targets", ())
    target = targets[names[0]] if names else None
    drafter = drafter_from_config(entry["config"], entry["name"], entry.get("kind", ""), target)
    return replace(drafter, source=entry["source"], notes=tuple(entry.get("notes", ())))


def index_lines(
    models: list[Entry], drafters: list[Entry]
) -> dict[str, list[dict[str, object]]]:
    """The index of entries that carry their `spec` and `file`."""
    trained: dict[str, list[str]] = {}
    for entry in drafters:
        for name in entry.get("targets", ()):
            trained.setdefault(name, []).append(entry["name"])
    lines: dict[str, list[dict[str, object]]] = {"models": [], "drafters": []}
    for entry in models:
        spec = spec_from_dict(entry["spec"])
        active = active_parameters(spec)
        line = {
            "name": spec.name,
            "hf_id": entry.get("hf_id", ""),
            "family": spec.family,
            "parameters": parameters(spec).text,
            "active_parameters": active.body + active.head,
            "weights": spec.weights,
            "has_mtp": spec.mtp is not None,
            "base": entry.get("base", ""),
            "drafters": trained.get(spec.name, []) or trained.get(entry.get("base", ""), []),
            "aliases": entry.get("aliases", []),
            "file": entry["file"],
        }
        lines["models"].append({key: value for key, value in line.items() if value})
    for entry in drafters:
        drafter = drafter_from_dict(entry["spec"])
        line = {
            "name": drafter.name,
            "hf_id": entry.get("hf_id", ""),
            "kind": drafter.kind,
            "parameters": drafter_parameters(drafter),
            "active_parameters": drafter_parameters(drafter, active=True),
            "targets": entry.get("targets", []),
            "aliases": entry.get("aliases", []),
            "file": entry["file"],
        }
        lines["drafters"].append({key: value for key, value in line.items() if value})
    return lines


def read_entries(folder: Path) -> list[Entry]:
    """Entries of `catalog/models` or `catalog/drafters`, by file name."""
    entries = []
    for path in sorted(folder.glob("*.json"), key=lambda item: item.name.lower()):
        entry: Entry = json.loads(path.read_text(encoding="utf-8"))
        entry["file"] = f"{folder.name}/{path.name}"
        entries.append(entry)
    return entries


def dump(data: object, width: int = 100, indent: int = 0) -> str:
    """JSON with short containers on one line, so that an entry reads like a table."""
    flat = json.dumps(data, ensure_ascii=False)
    if len(flat) + indent <= width or not isinstance(data, dict | list) or not data:
        return flat
    pad = " " * (indent + 1)
    if isinstance(data, list) and not any(isinstance(item, dict | list) for item in data):
        return _filled(data, width, indent)
    if isinstance(data, list):
        body = [pad + dump(item, width, indent + 1) for item in data]
        return "[\n" + ",\n".join(body) + "\n" + " " * indent + "]"
    body = [f"{pad}{json.dumps(k)}: {dump(item, width, indent + 1)}" for k, item in data.items()]
    return "{\n" + ",\n".join(body) + "\n" + " " * indent + "}"


def _filled(items: list[object], width: int, indent: int) -> str:
    """A list of plain values, as many to a line as fit."""
    pad = " " * (indent + 1)
    lines, line = [], pad
    for position, item in enumerate(items):
        text = json.dumps(item, ensure_ascii=False) + ("," if position < len(items) - 1 else "")
        if line != pad and len(line) + len(text) + 1 > width:
            lines.append(line)
            line = pad
        line += text if line == pad else " " + text
    return "[\n" + "\n".join([*lines, line]) + "\n" + " " * indent + "]"


def rebuild(root: Path) -> int:
    """Re-derive every spec below `root` and write the index; returns the number of entries."""
    models = read_entries(root / "models")
    targets: dict[str, ModelSpec] = {}
    for entry in models:
        targets[entry["name"]] = derive_model(entry)
        entry["spec"] = to_dict(targets[entry["name"]])
    drafters = read_entries(root / "drafters")
    for entry in drafters:
        entry["spec"] = to_dict(derive_drafter(entry, targets))
    for entry in [*models, *drafters]:
        content = {name: value for name, value in entry.items() if name != "file"}
        (root / entry["file"]).write_text(dump(content) + "\n", encoding="utf-8")
    index = index_lines(models, drafters)
    lines = [f' "{kind}": [\n  ' + ",\n  ".join(map(_line, index[kind])) + "\n ]" for kind in index]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (root / "index.json").write_text(text, encoding="utf-8")
    return len(models) + len(drafters)


def _line(entry: dict[str, object]) -> str:
    return json.dumps(entry, ensure_ascii=False)


if __name__ == "__main__":
    rebuild(catalogue_root())
