"""Commands of the command line, made from their options.

    @command(PredictOptions, "specsim predict qwen3-8b --gpu h100-sxm")
    def predict(options: PredictOptions) -> None:
        '''What `--help` says, before the options and the examples.'''

The function gets one object with the options, checked; which of them were given is in it. A command
ends with `Ended(code)` where its exit code is not 0.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Generic, TypeVar

import typer

from specsim.commands.help import HelpCommand
from specsim.commands.layout import WIDTH
from specsim.options.declare import Declared, OptionSet, declared

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
            self.body(self.options.of_values(given, of_file))

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
