"""`specsim config`: which defaults specsim.toml sets, and where."""

from typing import TYPE_CHECKING

from specsim.commands.bind import command
from specsim.commands.output import text_of, write
from specsim.errors import UsageError, closest
from specsim.options.listing import ConfigCommand
from specsim.report.blocks import Lines, Section
from specsim.report.tables import Table, printable

if TYPE_CHECKING:
    from specsim.options.config_file import OptionDefault


@command(
    ConfigCommand,
    "specsim config",
    "specsim config predict",
)
def config(options: ConfigCommand) -> None:
    """Show the defaults of specsim.toml, and where each comes from."""
    from specsim.options.config_file import read_file
    from specsim.options.config_place import FILE_NAME, VARIABLE, find_file

    path = find_file()
    found = read_file(path) if path is not None else None
    rows = _rows(found.defaults if found is not None else (), " ".join(options.command or ()))

    def text() -> str:
        if not rows and path is None:
            return f"no {FILE_NAME} here or above, and {VARIABLE} names none: built-in defaults"
        if not rows:
            return printable(f"{path} sets nothing")
        groups: dict[tuple[str, ...], list[str]] = {}
        for row in rows:
            key = (str(row["option"]), _shown(row["value"]), str(row["from"]))
            groups.setdefault(key, []).append(str(row["command"]))
        return text_of(Section("", "", [
            Lines([f"{path or 'no ' + FILE_NAME}"]),
            Table(["option", "value", "from", "commands"],
                  [[*key, ", ".join(names)] for key, names in groups.items()], left=4),
        ]), options)

    file = str(path) if path else None
    write(options, lambda: {"kind": "config", "file": file, "options": rows}, text)


def _rows(defaults: "tuple[OptionDefault, ...]", command: str) -> list[dict[str, object]]:
    """Every default of the file; with a command, all of its options with what holds for each."""
    from specsim.options.config_file import settable
    from specsim.options.registry import command_names
    from specsim.options.values import shown

    if not command:
        return [
            {"option": d.flag, "value": d.value, "from": f"[{d.section}]", "command": d.command}
            for d in defaults
        ]
    if command not in command_names():
        hint = f"{closest(command, command_names(), 2)}see `specsim --help`"
        raise UsageError(f"{shown(command)} is no command; {hint}")
    named = {d.name: d for d in defaults if d.command == command}
    return [
        {
            "option": option.flag,
            "value": named[name].value if name in named else _plain(option.default),
            "from": f"[{named[name].section}]" if name in named else "built in",
            "command": command,
        }
        for name, option in settable(command).items()
    ]


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | bool | list) else None


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value is None else str(value)
