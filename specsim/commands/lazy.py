"""Groups of commands that are loaded when they run.

`specsim --help` and a command must not wait for the modules and options of all the others; so a
group knows of its commands only where they are and what its list shows of them.
"""

import textwrap
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

from typer.core import TyperGroup

# As wide as the terminal is; typer's own limit is 80.
WIDTH = {"max_content_width": 10_000}


def write_list(
    formatter: Any, heading: str, rows: Sequence[tuple[str, str]], column: int
) -> None:
    """Names and what they mean in two columns below a heading; a name longer than `column`
    characters has a line of its own. No word is broken, so that every flag can be copied."""
    with formatter.section(heading):
        indent = " " * formatter.current_indent
        beside = f"{indent}{'':<{column}}  "
        for name, text in rows:
            lines = textwrap.wrap(
                text, formatter.width, initial_indent=beside, subsequent_indent=beside,
                break_on_hyphens=False, break_long_words=False,
            )
            if len(name) > column or not lines:
                formatter.write(f"{indent}{name}\n")
            else:
                lines[0] = f"{indent}{name:<{column}}  {lines[0].lstrip()}"
            formatter.write("".join(f"{line}\n" for line in lines))


class LoadedCommands(dict[str, Any]):
    """The commands of a group by name; each is loaded when it is looked up."""

    def __init__(self, names: list[str], prefix: str) -> None:
        super().__init__(dict.fromkeys(names))
        self._prefix = prefix

    def __getitem__(self, name: str) -> Any:
        command = super().__getitem__(name)
        if command is None:
            command = self[name] = _load(name, self._prefix)
        return command

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 (that would not load it)


@cache
def _load(name: str, prefix: str) -> Any:
    from specsim.commands.bind import BoundCommand
    from specsim.options.registry import module_of

    module = module_of(f"{prefix}{name}")
    found = import_module(f"specsim.commands.{module}")
    if hasattr(found, "GROUP"):
        return found.GROUP
    command: BoundCommand[Any] = next(
        item for item in vars(found).values()
        if isinstance(item, BoundCommand) and f"{prefix}{name}" == item.options.NAME
    )
    return command.parsed()


class LazyGroup(TyperGroup):
    """A group whose commands stand in `lists`: heading, name, first sentence of the help, in the
    order of --help. prefix: of their full names, 'validate ' of `validate live`."""

    lists: ClassVar[dict[str, dict[str, str]]]
    prefix = ""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"context_settings": WIDTH, **settings})
        names = [name for table in self.lists.values() for name in table]
        self.commands = LoadedCommands(names, self.prefix)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        column = max(map(len, self.commands))
        for heading, table in self.lists.items():
            write_list(formatter, heading, list(table.items()), column)


class ConfiguredGroup(LazyGroup):
    """The top of the command line, with the defaults of specsim.toml for every command below."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        rest: list[str] = super().parse_args(ctx, args)
        # Help and completion must work whatever a file says.
        if words and not ctx.resilient_parsing and not {"--help", "--version"} & set(words):
            from specsim.options.config_place import find_file

            found = find_file()
            if found is not None:
                from specsim.options.config_file import default_map, read_file
                from specsim.options.registry import command_names

                named = (" ".join(words[:2]), words[0])
                asked = next((name for name in named if name in command_names()), "")
                ctx.default_map = default_map(read_file(found, asked), words)
        return rest
