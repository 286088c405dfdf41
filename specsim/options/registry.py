"""The models of all commands and of all Python functions, by name."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module

from specsim.options.declare import OptionSet

# Modules of this package.
FAMILIES = ("prediction", "analytic", "serving", "listing", "measured", "local")


@cache
def command_models() -> dict[str, type[OptionSet]]:
    """'predict', 'validate live', ... -> what stands on its command line."""
    return {item.NAME: item for name, item in _named() if name.endswith("Command")}


@cache
def function_models() -> dict[str, type[OptionSet]]:
    """'predict', 'validate_live', ... -> what `specsim.predict`, ... take."""
    return {
        item.NAME.replace(" ", "_"): item for name, item in _named() if name.endswith("Options")
    }


def _named() -> Iterator[tuple[str, type[OptionSet]]]:
    for family in FAMILIES:
        for name, item in vars(import_module(f"specsim.options.{family}")).items():
            if isinstance(item, type) and issubclass(item, OptionSet) and item.NAME:
                yield name, item
