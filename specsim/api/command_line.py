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
    out, found = _filled(options, options.command)
    limit = found.max_model_len
    if limit is not None:
        from specsim.api.deployment import build_workload

        workload = build_workload(out)
        tokens = workload.input_len + workload.output_len
        if tokens > limit:
            raise UsageError(
                f"requests of {workload.input_len} + {workload.output_len} tokens are asked about, "
                f"but the server in --command takes at most {limit}; shorten them with --input-len "
                "and --output-len, or raise its limit"
            )
    return out, _notes(found, out)


def _filled(options: Options, command: str) -> tuple[Options, ServerCommand]:
    """The options with what the command sets, and what it holds besides."""
    found = parse_command(command)
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
    return replace(options, model=model, command=None, **changes), found


def expand_values(values: dict[str, Any]) -> tuple[dict[str, Any], frozenset[str], list[str]]:
    """The same for the raw values of a command with more options of its own: the values, the
    names of those that the command set, the notes."""
    before = {item.name: values[item.name] for item in fields(Options) if item.name in values}
    given = Options(**{**before, "model": before.get("model") or ""})
    if given.command is None:
        return values, frozenset(), []
    options, found = _filled(given, given.command)
    after = {name: getattr(options, name) for name in before}
    changed = frozenset(name for name in before if after[name] != before[name]) - {"command"}
    limit, own = found.max_model_len, values.get("max_model_len")
    if limit is not None and "max_model_len" in values:
        if own not in (None, limit):
            raise UsageError(
                f"--max-model-len '{own}' contradicts --command, which says '{limit}'; change one "
                "of them"
            )
        after["max_model_len"] = limit
        changed |= {"max_model_len"}
    return {**values, **after}, changed, _notes(found, options)


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
