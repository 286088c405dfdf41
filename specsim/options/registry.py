"""The models of all commands and of all Python functions, by name."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module

from specsim.options.declare import OptionSet

# Modules of this package, and the commands whose options are there: a command's are found without
# the models of all others, each of which takes about a millisecond.
FAMILIES = {
    "prediction": ("predict", "explore"),
    "tuning": ("tune",),
    "analytic": ("explain", "crossover", "pareto", "matrix", "compare"),
    "serving": ("simulate", "policies"),
    "sizing": ("capacity", "fleet", "sweep"),
    "listing": ("models", "gpus", "import", "config", "report"),
    "measured": ("diagnose", "watch", "quick", "calibrate", "validate published", "validate live",
                 "validate bench", "validate records"),
    "local": ("generate", "serve", "measure", "train-head", "validate run"),
}


def command_names() -> list[str]:
    """'predict', 'validate live', ..."""
    return [name for names in FAMILIES.values() for name in names]


def module_of(command: str) -> str:
    """The module of `specsim.commands` with a command: that of its family, or of its own name where
    it runs the decoder, or is a group ('validate')."""
    for family, names in FAMILIES.items():
        if command in names and family != "local":
            return family
    return command.replace("-", "_").replace(" ", "_")


@cache
def command_model(command: str) -> type[OptionSet]:
    """What stands on the command line of a command."""
    family = next(family for family, names in FAMILIES.items() if command in names)
    return next(
        item for name, item in _named(family) if name.endswith("Command") and command == item.NAME
    )


def command_models() -> dict[str, type[OptionSet]]:
    return {name: command_model(name) for name in command_names()}


@cache
def function_models() -> dict[str, type[OptionSet]]:
    """'predict', 'validate_live', ... -> what `specsim.predict`, ... take."""
    return {
        item.NAME.replace(" ", "_"): item
        for family in FAMILIES for name, item in _named(family) if name.endswith("Options")
    }


def _named(family: str) -> Iterator[tuple[str, type[OptionSet]]]:
    for name, item in vars(import_module(f"specsim.options.{family}")).items():
        if isinstance(item, type) and issubclass(item, OptionSet) and item.NAME:
            yield name, item
