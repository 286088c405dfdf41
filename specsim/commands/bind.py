"""Commands of the command line, made from their options.

    @command(PredictOptions, "specsim predict qwen3-8b --gpu h100-sxm")
    def predict(options: PredictOptions) -> None:
        '''What `--help` says, before the options and the examples.'''

The function gets one object with the options, checked; which of them were given is in it. A command
ends with `Ended(code)` where its exit code is not 0. Its help has options below headings, or one
list of few; further spellings, such as vLLM's and SGLang's own, stand at the end of what an option
means: beside each other they would fill the line.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import typer
from typer.core import TyperCommand

from specsim.commands.lazy import WIDTH, write_list
from specsim.errors import UsageError
from specsim.files import check_writable
from specsim.options.declare import SECTIONS, Declared, OptionSet, declared
from specsim.options.groups import PlotFileOptions

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
    if record is None:
        return None
    kind = re.sub(r"<list\[(\w+)\]>", lambda match: f"<{match[1].lower()}>...", record[0])
    return kind.replace("... <", " <"), record[1]


O = TypeVar("O", bound=OptionSet)  # noqa: E741

# A default of specsim.toml decides the result as much as a typed option.
_TYPED, _OF_FILE = ("COMMANDLINE", "ENVIRONMENT"), "DEFAULT_MAP"
INTERRUPTED = 130


class Ended(typer.Exit):
    """The end of a command with another exit code than 0."""


@dataclass(frozen=True)
class BoundCommand(Generic[O]):
    """A command: the model of its options, what it does with them, and examples of use."""

    options: type[O]
    body: Callable[[O], None]
    examples: tuple[str, ...] = ()

    def parsed(self) -> typer.core.TyperCommand:
        """What parses its command line and then calls it."""

        def call(**values: object) -> None:
            context: typer.Context = values.pop("context")  # type: ignore[assignment]
            source = {name: _source(context, name) for name in values}
            given = {name: values[name] for name in values if source[name]}
            of_file = frozenset(name for name in given if source[name] == _OF_FILE)
            options = self.options.of_values(given, of_file)
            if isinstance(options, PlotFileOptions):
                _check_drawing(options)
            self.body(options)

        call.__doc__ = self.body.__doc__
        call.options = self.options  # type: ignore[attr-defined]
        call.__signature__ = _signature(self.options)  # type: ignore[attr-defined]
        shown = {"known": declared(self.options), "examples": self.examples}
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(
            name=self.options.NAME.rpartition(" ")[2], context_settings=WIDTH,
            cls=type("ShownCommand", (HelpCommand,), shown),
        )(call)
        made: typer.core.TyperCommand = typer.main.get_command(app)  # type: ignore[assignment]
        return made


def _check_drawing(options: PlotFileOptions) -> None:
    """Refuses a --plot that cannot be drawn or written, before anything is computed."""
    from specsim.report.plots_file import check_plot

    check_plot(options.plot)
    check_writable(options.plot, "--plot")


def command(
    options: type[O], *examples: str
) -> Callable[[Callable[[O], None]], BoundCommand[O]]:
    """Makes the command of `options` of the function below. examples: command lines that its help
    ends with."""
    return partial(BoundCommand, options, examples=examples)


def _source(context: typer.Context, name: str) -> str:
    """Where a value is from; '' for what is built in. (typer does not export the enumeration.)"""
    source = context.get_parameter_source(name)
    named = source.name if source is not None else ""
    return named if named in (*_TYPED, _OF_FILE) else ""


def _signature(options: type[OptionSet]) -> inspect.Signature:
    """The parameters that typer makes options of."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("context", keyword, annotation=typer.Context)]
    for name, item in declared(options).items():
        default = inspect.Parameter.empty if item.required else item.default
        parameters.append(
            inspect.Parameter(name, keyword, annotation=_hint(item), default=default)
        )
    return inspect.Signature(parameters)


def _hint(item: Declared) -> object:
    """The type of an option with what typer needs to know."""
    option = item.option
    extra: Mapping[str, object] = {
        "help": option.help, "metavar": option.metavar, "parser": option.parser
    }
    kind: object = list[item.kind] if item.several else item.kind  # type: ignore[name-defined]
    if item.optional:
        kind = kind | None  # type: ignore[operator]
    if option.argument:
        return Annotated[kind, typer.Argument(**extra)]  # type: ignore[arg-type]
    return Annotated[kind, typer.Option(*item.spellings, **extra)]  # type: ignore[arg-type]
