"""--command: a server's command line in place of the options it stands for.

What the command sets becomes the option of the same meaning. An option given beside it that says
something else is refused, as everywhere; a MODEL beside it says which model its path or name is.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from specsim.errors import UsageError
from specsim.formats.server_command import parse_command
from specsim.formats.server_flags import ServerCommand
from specsim.formats.speculative_config import parse_speculative_config
from specsim.latency.engine import asked_version, find_engine
from specsim.methods.registry import method_name
from specsim.model.catalogue import has_model, key, served_name
from specsim.options.declare import OptionSet, declared
from specsim.options.groups import ModelArgument, ServerCommandOptions
from specsim.options.values import shown

MAX_LISTED = 12  # flags that one note names

O = TypeVar("O", bound=OptionSet)  # noqa: E741


def expand_command(options: O) -> tuple[O, list[str]]:
    """The options with those of --command filled in, and what the user should know about it.

    A limit on the length of requests becomes --max-model-len where there is one."""
    if not isinstance(options, ServerCommandOptions) or options.command is None:
        return options, []
    found = parse_command(options.command)
    model = (options.model if isinstance(options, ModelArgument) else None) or found.model
    if not model:
        raise UsageError(
            "--command names no model; name it as MODEL in front of it: specsim predict qwen3-8b "
            "--command '...'"
        )
    if model is found.model:
        _check_names(found.model)
    notes: list[str] = []
    out = options.but(model=model, command=None, **_changes(options, found, notes))
    return out, [*notes, *_notes(found, out)]


def _check_names(model: str) -> None:
    """A model that means something only where the server runs: a variable, a path of its own."""
    if model.startswith("$"):
        what = f"the variable {model[:60]}, which it does not set"
    elif model.startswith(("/", "~", "./", "../")) and not Path(model).expanduser().exists():
        if has_model(model):
            return
        what = f"{model[:200]!r}, which is not here"
    else:
        return
    raise UsageError(
        f"--command has as model {what}; name the model as MODEL in front of it (`specsim models` "
        "lists names), or give its config.json there"
    )


def _changes(
    options: OptionSet, found: ServerCommand, notes: list[str]
) -> dict[str, object]:
    """What the command sets that the options do not say yet. UsageError for an option that was
    typed and says something else, were it the built-in value."""
    known = declared(type(options))
    values = dict(found.values)
    if "max_model_len" in known and found.max_model_len is not None:
        values["max_model_len"] = found.max_model_len
    changes: dict[str, object] = {}
    for name, value in values.items():
        given = getattr(options, name)
        typed = name in options.typed and given is not None
        if given == value:
            continue
        if name == "speculative_config" and given is None:
            changes |= _without_repeats(options, str(value))
        if name == "engine" and typed and same_engine(str(given), found.engine):
            changes[name] = engine_of_both(str(given), str(value), notes)
        elif given == known[name].default and not typed:
            changes[name] = value
        else:
            raise UsageError(
                f"{known[name].flag} {shown(str(given))} contradicts --command, which says "
                f"{shown(str(value))}; change one of them"
            )
    return changes


def _without_repeats(options: OptionSet, config: str) -> dict[str, object]:
    """What the JSON of a command says too and is typed once more goes out: it says the same.
    UsageError for what it says otherwise."""
    told, out = parse_speculative_config(config), dict[str, object]()
    told_values = {"method": told.method, "k": told.k, "draft": told.model}
    alike: dict[str, Callable[[str], object]] = {
        "method": method_name, "k": int, "draft": lambda name: key(served_name(name)),
    }
    for name, value in told_values.items():
        given = getattr(options, name, None)
        if given is None or value is None:
            continue
        if alike[name](str(given)) != alike[name](str(value)):
            raise UsageError(
                f"--{name} {shown(str(given))} contradicts --command, which says "
                f"{shown(str(value))}; change one of them"
            )
        out[name] = None
    return out


def same_engine(asked: str, name: str) -> bool:
    """Whether --engine names the engine of a command, whatever its version."""
    return find_engine(asked).name == name


def engine_of_both(asked: str, told: str, notes: list[str]) -> str:
    """The engine of --engine and of a command or server, one of its kind: the version that the user
    says, else the one told. notes: gets that two versions are said."""
    ours, theirs = asked_version(asked), asked_version(told)
    if asked.lower().endswith(".toml") or ours is not None:
        if theirs is not None and theirs != ours:
            notes.append(f"--engine {shown(asked)} is taken, though the server is of version "
                         f"{theirs}")
        return asked
    return told if theirs is not None else asked


def _notes(found: ServerCommand, options: OptionSet) -> list[str]:
    notes = [f"--command: {text}" for text in found.notes]
    speculative = any(getattr(options, name) for name in ("speculative_config", "method", "draft"))
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
