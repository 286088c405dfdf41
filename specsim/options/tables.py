"""Options in scenario, fleet and sweep files: keys and values as the command line has them."""

import math
from collections.abc import Mapping, Sequence

from specsim.errors import UsageError
from specsim.options.declare import Declared, OptionSet, declared
from specsim.options.values import refuse_code, shown_value

VALUE_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def file_keys(options: type[OptionSet]) -> dict[str, Declared]:
    """Options by the keys that files have for them."""
    return {item.option.file_key or name: item for name, item in declared(options).items()}


def from_table(
    options: type[OptionSet], table: Mapping[str, object], place: str, most: int | None = None
) -> dict[str, object]:
    """The options that a table of a file sets; its other keys are left to who reads them.

    place: where an error says that it stands. most: of whole numbers. UsageError for a value of
    the wrong kind; ranges are checked where options are."""
    known = file_keys(options)
    found = {}
    for key, value in table.items():
        if key in known and key != "engine":
            found[known[key].name] = from_value(known[key], key, value, place, most)
    return found | engine_of(table, place)


def engine_of(table: Mapping[str, object], place: str) -> dict[str, object]:
    """`engine` and `engine_version` as the one option."""
    engine, version = table.get("engine", "vllm"), table.get("engine_version")
    if not isinstance(engine, str) or not isinstance(version, str | None):
        raise UsageError(
            f"{place} engine and engine_version must be text, such as "
            '"vllm" and "0.25.1"'
        )
    if version is not None:
        return {"engine": f"{engine}=={version}"}
    return {"engine": engine} if "engine" in table else {}


def from_value(
    item: Declared, key: str, value: object, place: str, most: int | None = None
) -> object:
    """A value of a file as the option has it. UsageError."""
    kind = item.kind
    refuse_code(key, value, place)
    if kind is str and Sequence in item.accepted and float in item.accepted:
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(real(x) is not None for x in value):
            return ",".join(repr(x) for x in value)
        raise UsageError(f"{place} {key} is {shown_value(value)}; it must be a list of numbers")
    found = real(value)
    if kind is float and found is not None:
        if not math.isnan(found):
            return found
    elif isinstance(value, kind) and (kind is bool) == isinstance(value, bool) and (
        most is None or not isinstance(value, int) or abs(value) <= most
    ):
        return value
    rule = VALUE_WORDS[kind]
    if kind is int and most is not None:
        rule += f" up to {most:g}" if float(f"{most:g}") == most else f" up to {most}"
    raise UsageError(f"{place} {key} is {shown_value(value)}; it must be {rule}")


def real(value: object) -> float | None:
    """A number of TOML or JSON as a float, infinite beyond its range (one of 400 digits is no
    float); None for everything else, true among it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
