"""specsim.toml: defaults for the options of all commands (docs/reference/config.md).

The command line beats the file, a command's own section beats [defaults], and both beat what is
built in. Where options exclude each other, the one that is typed puts aside the other's default.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specsim.errors import FormatError, UsageError, closest
from specsim.files import file_text
from specsim.options.declare import Declared, declared
from specsim.options.groups import (
    AcceptanceOptions,
    DeploymentOptions,
    DraftingOptions,
    GpuOptions,
    PricingOptions,
    RequestOptions,
)
from specsim.options.meaning import hint
from specsim.options.registry import command_model, command_names
from specsim.options.serving import SharedPromptsOptions
from specsim.options.values import refuse_code, shown, shown_value

EVERY = "defaults"

_ACCEPTANCE = set(declared(AcceptanceOptions))
_DRAFTING = set(declared(DraftingOptions))
_LOADS = {"concurrency", "rate", "users", "trace", "scenario", "demand"}
_LENGTHS = {
    *declared(RequestOptions), *declared(SharedPromptsOptions), "range_ratio", "burstiness",
}
# A server's command line or a scenario says itself what is served; these stay free.
_FREE = {*declared(PricingOptions), *declared(RequestOptions), *declared(GpuOptions)}
_SERVED = set(declared(DeploymentOptions)) - _FREE - _ACCEPTANCE
_SERVED |= {"max_model_len", "prefix_caching", "max_memory"}
# (typed on the command line, defaults that it puts aside)
_ASIDE: tuple[tuple[set[str], set[str]], ...] = (
    (_LOADS, _LOADS),
    ({"command"}, _SERVED),
    ({"scenario"}, _SERVED | _ACCEPTANCE | {"gpu", "slo", "duration", "warmup"}),
    # People and traces bring their lengths; clients of a closed loop do not arrive.
    ({"scenario", "users", "trace"}, _LENGTHS),
    ({"concurrency"}, {"burstiness", "trace_speed"}),
    ({"rate"}, {"trace_speed"}),
    ({"cached_share"}, set(declared(SharedPromptsOptions))),
    (set(declared(SharedPromptsOptions)), {"cached_share"}),
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
_WORDS = {int: "a whole number", float: "a number", str: "text", Path: "text",
          bool: "true or false", list: "a list"}


# By command, or by group and command: the values of its options.
DefaultMap = dict[str, object]


@dataclass(frozen=True)
class OptionDefault:
    """One default of the file. name: of the function's parameter; flag: as it is typed."""

    command: str
    name: str
    flag: str
    value: object
    section: str


@dataclass(frozen=True)
class ConfigFile:
    path: Path
    defaults: tuple[OptionDefault, ...]

    def of(self, command: str) -> dict[str, object]:
        return {item.name: item.value for item in self.defaults if item.command == command}


def settable(command: str) -> dict[str, Declared]:
    """What a file can set of a command ('predict', 'validate live'), by name. The positional MODEL
    has a default of its own; files to work on have none."""
    return {name: option for name, option in declared(command_model(command)).items()
            if not option.option.argument or name == "model"}


def read_file(path: Path, asked: str = "") -> ConfigFile:
    """The defaults of a file, checked. asked: the command that runs, whose defaults are enough
    where it has them; '' for those of all commands."""
    import tomllib

    text = file_text(path)
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # besides syntax: huge numbers, deep nesting
        raise FormatError(f"{path} is not TOML: {error}") from None
    general = content.pop(EVERY, {})
    own = dict(_sections(content, path))
    found: dict[tuple[str, str], OptionDefault] = {}
    for key, value in _table(general, EVERY, path).items():
        for item in _everywhere(key, value, path, asked):
            found[item.command, item.name] = item
    for section, table in own.items():
        known = settable(section)
        for key, value in table.items():
            option = _look_up(key, known)
            if option is None:
                raise _unknown(key, known, f"{path}: [{section}]", f"specsim {section}")
            fit = _fitting(option, value)
            if fit is None:
                raise _wrong(path, section, key, value, [option])
            item = OptionDefault(section, option.name, option.flag, fit, section)
            found[item.command, item.name] = item
    for item in found.values():
        refuse_code(item.name, item.value, f"{path}:")
    return ConfigFile(path, tuple(sorted(found.values(), key=lambda d: (d.command, d.flag))))


def default_map(config: ConfigFile, words: Sequence[str]) -> dict[str, DefaultMap]:
    """What the parser takes as defaults, less what `words` put aside."""
    out: dict[str, DefaultMap] = {}
    for command in {item.command for item in config.defaults}:
        values = config.of(command)
        typed = _typed(settable(command), words)
        for those, aside in _ASIDE:
            if those & typed:
                for name in aside - typed:
                    values.pop(name, None)
        group, _, last = command.rpartition(" ")
        place = out.setdefault(group, {}) if group else out
        place[last] = values
    return out


def _typed(options: Mapping[str, Declared], words: Sequence[str]) -> set[str]:
    """Those of a command's options that stand on the command line."""
    heads = {word.partition("=")[0] for word in words}
    return {name for name, option in options.items() if heads & {*option.on, *option.off}}


def _sections(
    content: Mapping[str, object], path: Path, above: str = ""
) -> Iterator[tuple[str, Mapping[str, object]]]:
    commands = command_names()
    groups = {name.rpartition(" ")[0] for name in commands} - {""}
    for key, value in content.items():
        name = f"{above}{key}"
        if name in commands:
            yield name, _table(value, name, path)
        elif name in groups:
            yield from _sections(_table(value, name, path), path, f"{name} ")
        else:
            hint = closest(name, [EVERY, *commands], 2)
            raise UsageError(
                f"{path}: {shown(name)} is no section; {hint}sections are [{EVERY}] and the names "
                "of commands, see `specsim --help`"
            )


def _table(value: object, section: str, path: Path) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return value
    raise UsageError(f"{path}: {section} is {shown(repr(value))}; it must be a section [{section}]")


def _everywhere(
    key: str, value: object, path: Path, asked: str
) -> Iterator[OptionDefault]:
    """A key of [defaults] for every command about a server that has such an option; for the one
    that is asked for alone, where it has."""
    if asked and asked not in LOCAL:
        option = _look_up(key, settable(asked))
        fit = None if option is None else _fitting(option, value)
        if option is not None and fit is not None:
            yield OptionDefault(asked, option.name, option.flag, fit, EVERY)
            return
    places = []
    names: dict[str, Declared] = {}
    for command in command_names():
        if command in LOCAL:
            continue
        known = settable(command)
        names.update(known)
        option = _look_up(key, known)
        if option is not None:
            places.append((command, option))
    if not places:
        raise _unknown(key, names, f"{path}: [{EVERY}]", "any command")
    fitting = [(command, option, _fitting(option, value)) for command, option in places]
    if all(fit is None for _, _, fit in fitting):
        raise _wrong(path, EVERY, key, value, [option for _, option in places])
    for command, option, fit in fitting:
        # One name can mean a list here and a number there (--rate): where it does not fit, it
        # is not meant.
        if fit is not None:
            yield OptionDefault(command, option.name, option.flag, fit, EVERY)


def _look_up(key: str, known: Mapping[str, Declared]) -> Declared | None:
    plain = key.strip().replace("-", "_")
    if plain in known:
        return known[plain]
    flag = "--" + plain.replace("_", "-")
    return next((option for option in known.values() if flag in option.on), None)


def _unknown(key: str, known: Mapping[str, Declared], where: str, whose: str) -> UsageError:
    return UsageError(
        f"{where} {shown(key)} is no option of {whose}; {hint(key, known)}see `specsim COMMAND "
        "--help`"
    )


def _fitting(option: Declared, value: object) -> object:
    """The value as a Python caller's would be read; None where it is of another kind."""
    try:
        found = option.read(value) if value != [] else None
    except UsageError:
        return None
    if isinstance(found, list):
        return [str(item) if isinstance(item, Path) else item for item in found]
    return str(found) if isinstance(found, Path) else found


def _wrong(
    path: Path, section: str, key: str, value: object, options: Sequence[Declared]
) -> UsageError:
    kinds = dict.fromkeys(list if o.several else o.kind for o in options)
    words = " or ".join(_WORDS[kind] for kind in kinds)
    return UsageError(f"{path}: [{section}] {key} is {shown_value(value)}; it must be {words}")
