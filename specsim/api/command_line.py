"""--command: a server's command line in place of the options it stands for.

What the command sets becomes the option of the same meaning. An option given beside it that says
something else is refused, as everywhere; a MODEL beside it says which model its path or name is.
"""

from dataclasses import fields, replace
from typing import Any

from specsim.api.options import Options, shown
from specsim.errors import UsageError
from specsim.formats.server_command import ServerCommand, parse_command
from specsim.latency.engine import find_engine

MAX_LISTED = 12  # flags that one note names

_DEFAULTS = Options("")
_FLAGS = {"kv": "--kv", "attention_dp": "--attention-dp"}


def expand_command(options: Options) -> tuple[Options, list[str]]:
    """The options with those of --command filled in, and what the user should know about it."""
    if options.command is None:
        return options, []
    found = parse_command(options.command)
    model = options.model or found.model
    if not model:
        raise UsageError("--command names no model; name it behind the command as MODEL")
    changes: dict[str, Any] = {}
    for name, value in found.values.items():
        given = getattr(options, name)
        if given in (getattr(_DEFAULTS, name), value):
            changes[name] = value
        elif name == "engine" and find_engine(given).name == found.engine:
            continue  # the user knows the version
        else:
            flag = _FLAGS.get(name, "--" + name.replace("_", "-"))
            raise UsageError(
                f"{flag} {shown(str(given))} contradicts --command, which says "
                f"{shown(str(value))}; change one of them"
            )
    out = replace(options, model=model, command=None, **changes)
    return out, _notes(found, out)


def expand_values(values: dict[str, Any]) -> tuple[dict[str, Any], frozenset[str], list[str]]:
    """The same for the raw values of a command with more options of its own: the values, the
    names of those that the command set, the notes."""
    before = {item.name: values[item.name] for item in fields(Options) if item.name in values}
    options, notes = expand_command(Options(**{**before, "model": before.get("model") or ""}))
    after = {name: getattr(options, name) for name in before}
    changed = frozenset(name for name in before if after[name] != before[name]) - {"command"}
    return {**values, **after}, changed, notes


def _notes(found: ServerCommand, options: Options) -> list[str]:
    notes = [f"--command: {text}" for text in found.notes]
    speculative = options.speculative_config or options.method or options.draft
    if not speculative:
        notes.append("--command starts no speculation; what it would do is shown beside")
    for what, items in (
        ("set but not modelled", found.not_modelled),
        ("not known, left out", found.unknown),
        ("left out, changes neither cost nor memory", found.ignored),
    ):
        unique = list(dict.fromkeys(items))
        if unique:
            more = f" and {len(unique) - MAX_LISTED} more" if len(unique) > MAX_LISTED else ""
            notes.append(f"--command: {what}: {', '.join(unique[:MAX_LISTED])}{more}")
    return notes
