"""What `--help` of a command prints: its options below headings, then examples.

A command with few options has one list of them. Further spellings of an option, such as vLLM's and
SGLang's own, stand at the end of what it means: beside each other they would fill the line.
"""

from collections.abc import Mapping
from copy import copy
from typing import Any, ClassVar

from typer.core import TyperCommand

from specsim.commands.layout import write_list
from specsim.errors import UsageError
from specsim.options.declare import SECTIONS, Declared

FEW = 12  # options that are read in one list
COLUMN = 26  # characters of the names


class HelpCommand(TyperCommand):
    """A command whose help has headings. known: its options by name."""

    known: ClassVar[Mapping[str, Declared]] = {}
    examples: ClassVar[tuple[str, ...]] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer does it, once no option stands where another one's value should."""
        self._refuse_bare(ctx, args)
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def _refuse_bare(self, ctx: Any, args: list[str]) -> None:
        names = {word for param in self.get_params(ctx) for word in param.opts}
        valued = {word: item for item in self.known.values() if item.kind is not bool
                  for word in item.on}
        for word, value in zip(args, [*args[1:], "--"], strict=False):
            if word == "--":
                return
            if word in valued and (value == "--" or value in names):
                raise UsageError(
                    f"{word} needs a value: {valued[word].option.help.rstrip('.')}; "
                    f"see `{ctx.command_path} --help`"
                )

    def format_options(self, ctx: Any, formatter: Any) -> None:
        lists: dict[str, list[tuple[str, str]]] = {}
        few = len(self.known) <= FEW
        items = {param: self.known.get(param.name or "") for param in self.get_params(ctx)}
        # One list has the order of the headings that it does without.
        for param, item in sorted(items.items(), key=lambda pair: _place(pair[1]) if few else 0):
            record = _record(param, item, ctx)
            if record is None:
                continue
            if item is None:  # --help itself
                section = "Options" if few else SECTIONS[-1]
            elif item.option.argument:
                section = "Arguments"
            else:
                section = "Options" if few else item.section
            lists.setdefault(section, []).append(record)
        for section in ("Arguments", "Options", *SECTIONS):
            if section in lists:
                write_list(formatter, section, lists[section], COLUMN)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Examples as they are typed, each on a line of its own."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def _place(item: Declared | None) -> int:
    """Of an option in a list without headings; --help itself stands last."""
    if item is None:
        return len(SECTIONS)
    return SECTIONS.index(item.section) if item.section else 0


def _record(param: Any, item: Declared | None, ctx: Any) -> tuple[str, str] | None:
    """Name and meaning of one option."""
    if item is not None and item.option.also:
        further = [word for text in item.option.also for word in text.split("/")]
        param = copy(param)
        param.opts = [word for word in param.opts if word not in further]
        param.secondary_opts = [word for word in param.secondary_opts if word not in further]
        param.help = f"{param.help} Also {', '.join(further)}."
    record: tuple[str, str] | None = param.get_help_record(ctx)
    return record
