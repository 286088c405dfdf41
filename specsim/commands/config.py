"""`specsim config`: which defaults specsim.toml sets, and where."""

import sys
from typing import Annotated, Any

import typer

from specsim.commands import options as o

CommandName = Annotated[
    list[str] | None,
    typer.Argument(metavar="[COMMAND]", help="Only this command's options, all of them."),
]


def register(app: typer.Typer) -> None:
    app.command(name="config")(config)


def config(
    context: typer.Context, command: CommandName = None, json_out: o.JsonOut = False
) -> None:
    """Show the defaults that specsim.toml sets, and where each comes from."""
    from specsim.commands.config_file import FILE_NAME, VARIABLE, find_file, read_file
    from specsim.report.tables import printable, table, to_json

    root: Any = context.find_root().command
    path = find_file()
    found = read_file(path, root) if path is not None else None
    rows = _rows(root, found, " ".join(command or ()))
    if json_out:
        text = to_json({"kind": "config", "file": str(path) if path else None, "options": rows})
    elif not rows:
        text = (
            f"no {FILE_NAME} here or above, and {VARIABLE} names none: built-in defaults"
            if path is None
            else f"{path} sets nothing"
        )
    else:
        groups: dict[tuple[str, ...], list[str]] = {}
        for row in rows:
            key = (row["option"], _shown(row["value"]), row["from"])
            groups.setdefault(key, []).append(row["command"])
        body = table(
            ["option", "value", "from", "commands"],
            [[*key, ", ".join(names)] for key, names in groups.items()],
            left=4,
        )
        text = f"{path or 'no ' + FILE_NAME}\n\n{body}"
    sys.stdout.write((text if json_out else printable(text)) + "\n")


def _rows(root: Any, found: Any, command: str) -> list[dict[str, Any]]:
    """Every default of the file; with a command, all of its options with what holds for each."""
    from difflib import get_close_matches

    from specsim.commands.config_file import options_of, walk
    from specsim.errors import UsageError

    commands = dict(walk(root))
    named = {(d.command, d.name): d for d in found.defaults} if found is not None else {}
    if not command:
        return [
            {"option": d.flag, "value": d.value, "from": f"[{d.section}]", "command": d.command}
            for d in named.values()
        ]
    if command not in commands:
        near = get_close_matches(command, commands, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else "see `specsim --help`"
        raise UsageError(f"{o.shown(command)} is no command; {hint}")
    rows = []
    for name, option in options_of(commands[command]).items():
        default = named.get((command, name))
        rows.append(
            {
                "option": option.flag,
                "value": default.value if default else _plain(option.default),
                "from": f"[{default.section}]" if default else "built in",
                "command": command,
            }
        )
    return rows


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | list) else None


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value is None else str(value)
