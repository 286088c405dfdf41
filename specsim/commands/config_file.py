"""specsim.toml: defaults for the options of all commands.

    [defaults]                 for every command about a server that has the option
    gpu = "h100-sxm"
    engine = "vllm==0.24"

    [predict]                  for one command; of a group: [validate.live]
    concurrency = [1, 8, 64]

The file is looked for in the working directory and in those above it; SPECSIM_CONFIG names another
one, or none when it is empty. The command line beats the file, a command's own section beats
[defaults], and both beat what is built in. Where options exclude each other (--rate and
--concurrency), the one that is typed puts aside the other's default.
"""

import inspect
import os
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from typer.core import TyperGroup

from specsim.api.options import Options, shown
from specsim.errors import FormatError, UsageError

FILE_NAME = "specsim.toml"
VARIABLE = "SPECSIM_CONFIG"
EVERY = "defaults"
MAX_BYTES = 1_000_000
_NOT_SET = {"help", "version"}

_ACCEPTANCE = {"acceptance", "acceptance_conditional", "acceptance_rate", "acceptance_mean",
               "acceptance_length"}
_DRAFTING = {"method", "draft", "k"}
_LOADS = {"concurrency", "rate", "users", "trace", "scenario", "demand"}
_LENGTHS = {"workload", "input_len", "output_len", "cached_share", "range_ratio", "burstiness"}
# A server's command line or a scenario says itself what is served; these stay free.
_FREE = {"fidelity", "profiles", "workload", "input_len", "output_len", "cached_share", "gpu"}
_SERVED = {item.name for item in fields(Options)} - _FREE - _ACCEPTANCE
_SERVED |= {"max_model_len", "prefix_caching", "max_memory"}
# (typed on the command line, defaults that it puts aside)
_ASIDE: tuple[tuple[set[str], set[str]], ...] = (
    (_LOADS, _LOADS),
    ({"command"}, _SERVED),
    ({"scenario"}, _SERVED | _ACCEPTANCE | {"gpu", "slo", "duration", "warmup"}),
    # People and traces bring their lengths; clients of a closed loop do not arrive.
    ({"scenario", "users", "trace"}, _LENGTHS),
    ({"concurrency"}, {"burstiness"}),
    (_ACCEPTANCE, _ACCEPTANCE | {"speculative_config"}),
    # Acceptance belongs to a way of drafting.
    (_DRAFTING, _ACCEPTANCE | {"speculative_config"}),
    ({"speculative_config"}, _DRAFTING | _ACCEPTANCE | {"tree", "methods"}),
    ({"methods"}, _DRAFTING | _ACCEPTANCE | {"speculative_config"}),
    ({"max_memory", "gpu_memory_utilization"}, {"max_memory", "gpu_memory_utilization"}),
    ({"contexts"}, {"input_len"}),
    ({"input_len"}, {"contexts"}),
    ({"mix", "acceptance_range"}, {"mix", "acceptance_range"}),
    ({"stream_floor", "no_stream_floor"}, {"stream_floor", "no_stream_floor"}),
    ({"json_out", "csv_out"}, {"json_out", "csv_out"}),
)
# They run the bundled decoder on this machine: their --model, --draft and --k mean its own.
LOCAL = {"generate", "serve", "measure", "train-head", "validate run"}
_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false",
          list: "a list"}


@dataclass(frozen=True)
class Default:
    """One default of the file. name: of the function's parameter; flag: as it is typed."""

    command: str
    name: str
    flag: str
    value: Any
    section: str


@dataclass(frozen=True)
class ConfigFile:
    path: Path
    defaults: tuple[Default, ...]

    def of(self, command: str) -> dict[str, Any]:
        return {item.name: item.value for item in self.defaults if item.command == command}


class ConfiguredGroup(TyperGroup):
    """The top of the command line, with the defaults of the file for every command below."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        rest: list[str] = super().parse_args(ctx, args)
        # Help and completion must work whatever a file says.
        if words and not ctx.resilient_parsing and not {"--help", "--version"} & set(words):
            found = find_file()
            if found is not None:
                ctx.default_map = default_map(read_file(found, self), self, words)
        return rest


def find_file() -> Path | None:
    """The file that holds: that of SPECSIM_CONFIG, or the nearest one upwards; None without any."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        if not named.strip():
            return None
        path = Path(named)
        if not path.is_file():
            raise UsageError(f"{VARIABLE} is {shown(named)}, which is no file; correct or unset it")
        return path
    try:
        here = Path.cwd()
    except OSError:  # the directory was removed
        return None
    for folder in (here, *here.parents):
        path = folder / FILE_NAME
        if path.is_file():
            return path
    return None


def read_file(path: Path, root: Any) -> ConfigFile:
    """The defaults of a file, checked against the commands of `root`."""
    import tomllib

    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise FormatError(f"{path} is larger than {MAX_BYTES / 1e6:g} MB; it holds defaults")
        content = tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise FormatError(f"{path} is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:  # besides syntax: huge numbers, deep nesting
        raise FormatError(f"{path} is not TOML: {error}") from None
    commands = dict(walk(root))
    general = content.pop(EVERY, {})
    own = dict(_sections(content, commands, path))
    found: dict[tuple[str, str], Default] = {}
    for key, value in _table(general, EVERY, path).items():
        for item in _everywhere(key, value, commands, path):
            found[item.command, item.name] = item
    for section, table in own.items():
        known = options_of(commands[section])
        for key, value in table.items():
            option = _named(key, known, f"{path}: [{section}]", f"specsim {section}")
            fit = _fitting(option, value)
            if fit is None:
                raise _wrong(path, section, key, value, [option])
            item = Default(section, option.name, option.flag, fit, section)
            found[item.command, item.name] = item
    return ConfigFile(path, tuple(sorted(found.values(), key=lambda d: (d.command, d.flag))))


def default_map(config: ConfigFile, root: Any, words: Sequence[str]) -> dict[str, Any]:
    """What the parser takes as defaults, less what `words` put aside."""
    out: dict[str, Any] = {}
    commands = dict(walk(root))
    for command in {item.command for item in config.defaults}:
        values = config.of(command)
        typed = _typed(commands[command], words)
        for those, aside in _ASIDE:
            if those & typed:
                for name in aside - typed:
                    values.pop(name, None)
        place = out
        *groups, last = command.split()
        for group in groups:
            place = place.setdefault(group, {})
        place.setdefault(last, {}).update(values)
    return out


def walk(root: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """('predict', command), ('validate live', command), ... of a group of commands."""
    for name, command in root.commands.items():
        if hasattr(command, "commands"):
            yield from walk(command, f"{above}{name} ")
        else:
            yield f"{above}{name}", command


@dataclass(frozen=True)
class Option:
    """One parameter of a command. kind: the class of its values; several: a list of them."""

    name: str
    flag: str
    flags: tuple[str, ...]
    kind: type
    several: bool
    default: Any


@cache
def options_of(command: Any) -> dict[str, Option]:
    """What a file can set for a command, by parameter name. Do not change the dict."""
    function = inspect.unwrap(command.callback)
    hints = get_type_hints(function)
    found = {}
    for parameter in command.params:
        name = parameter.name
        if name in _NOT_SET or name not in hints:
            continue
        kind, several = _kind(hints[name])
        # The positional MODEL has a default of its own; files to work on have none.
        typed = parameter.param_type_name == "option"
        if not typed and name != "model":
            continue
        flags = (*parameter.opts, *parameter.secondary_opts) if typed else ()
        flag = max(parameter.opts, key=len) if typed else name.upper()
        found[name] = Option(name, flag, flags, kind, several, parameter.default)
    return found


def _kind(hint: Any) -> tuple[type, bool]:
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    first = next(part for part in parts if part is not type(None))
    if get_origin(first) is list:
        return _kind(get_args(first)[0])[0], True
    return (str if issubclass(first, Path) else first), False


def _typed(command: Any, words: Sequence[str]) -> set[str]:
    """Options of `command` that stand on the command line."""
    heads = {word.partition("=")[0] for word in words}
    return {name for name, option in options_of(command).items() if heads & set(option.flags)}


def _sections(
    content: Mapping[str, Any], commands: Mapping[str, Any], path: Path, above: str = ""
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    groups = {name.rpartition(" ")[0] for name in commands} - {""}
    for key, value in content.items():
        name = f"{above}{key}"
        if name in commands:
            yield name, _table(value, name, path)
        elif name in groups:
            yield from _sections(_table(value, name, path), commands, path, f"{name} ")
        else:
            near = get_close_matches(name, [EVERY, *commands], n=2)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise UsageError(
                f"{path}: {shown(name)} is no section; {hint}sections are [{EVERY}] and the names "
                "of commands, see `specsim --help`"
            )


def _table(value: Any, section: str, path: Path) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise UsageError(f"{path}: {section} is {shown(repr(value))}; it must be a section [{section}]")


def _everywhere(
    key: str, value: Any, commands: Mapping[str, Any], path: Path
) -> Iterator[Default]:
    """A key of [defaults] for every command about a server that has such an option."""
    places = []
    names: dict[str, None] = {}
    for command, parsed in commands.items():
        if command in LOCAL:
            continue
        known = options_of(parsed)
        names.update(dict.fromkeys(known))
        option = _look_up(key, known)
        if option is not None:
            places.append((command, option))
    if not places:
        _named(key, names, f"{path}: [{EVERY}]", "any command")
    fitting = [(command, option, _fitting(option, value)) for command, option in places]
    if all(fit is None for _, _, fit in fitting):
        raise _wrong(path, EVERY, key, value, [option for _, option in places])
    for command, option, fit in fitting:
        # One name can mean a list here and a number there (--rate): where it does not fit, it
        # is not meant.
        if fit is not None:
            yield Default(command, option.name, option.flag, fit, EVERY)


def _look_up(key: str, known: Mapping[str, Option]) -> Option | None:
    plain = key.strip().replace("-", "_")
    if plain in known:
        return known[plain]
    flag = "--" + plain.replace("_", "-")
    return next((option for option in known.values() if flag in option.flags), None)


def _named(key: str, known: Mapping[str, Any], where: str, whose: str) -> Option:
    found = _look_up(key, known) if all(isinstance(o, Option) for o in known.values()) else None
    if found is not None:
        return found
    near = get_close_matches(key.replace("-", "_"), known, n=2)
    hint = f"did you mean {' or '.join(near)}?" if near else "see `specsim COMMAND --help`"
    raise UsageError(f"{where} {shown(key)} is no option of {whose}; {hint}")


def _fitting(option: Option, value: Any) -> Any:
    """The value as the option takes it; None where it is of another kind."""
    if option.several:
        items = value if isinstance(value, list) else [value]
        fits = [_single(option.kind, item) for item in items]
        return None if None in fits or not fits else fits
    if isinstance(value, list) and option.kind is str:
        # Lists of the command line are text with commas.
        fits = [_single(str, item) for item in value]
        return None if None in fits or not fits else ",".join(fits)
    return _single(option.kind, value)


def _single(kind: type, value: Any) -> Any:
    if isinstance(value, bool) or kind is bool:
        return value if isinstance(value, bool) and kind is bool else None
    if isinstance(value, int | float):
        if kind is str:
            return f"{value:.17g}"
        whole = isinstance(value, int)
        return kind(value) if whole or kind is float else None
    return value if isinstance(value, str) and kind is str else None


def _wrong(
    path: Path, section: str, key: str, value: Any, options: Sequence[Option]
) -> UsageError:
    kinds = dict.fromkeys(list if o.several else o.kind for o in options)
    words = " or ".join(_WORDS[kind] for kind in kinds)
    shown_value = shown(value) if isinstance(value, str) else shown(repr(value))[1:-1]
    return UsageError(f"{path}: [{section}] {key} is {shown_value}; it must be {words}")


def from_file(context: Any) -> frozenset[str]:
    """Options of the running command that have their value from the file."""
    found = ((p.name, context.get_parameter_source(p.name)) for p in context.command.params)
    return frozenset(n for n, source in found if source and source.name == "DEFAULT_MAP")
