"""The command line that gives a result again, for results to carry with them.

What only says where the result goes (`--json`, `--csv`, output files) is left out. Options stand in
the order of `--help`, so that the same options give the same text however they were given. What
specsim.toml has set is written out: it decides the result as much as a typed option.
"""

import shlex
from collections.abc import Iterable

from specsim.options.declare import OptionSet, declared


def repeat(options: OptionSet) -> str:
    """`specsim COMMAND ...` with the options that were given, quoted for a POSIX shell."""
    words = ["specsim", *options.NAME.split()]
    places: list[str] = []
    flags: list[str] = []
    for name, option in declared(type(options)).items():
        value: object = getattr(options, name)
        if option.option.output or name not in options.model_fields_set or value is None:
            continue
        if option.option.argument:
            places += [_text(item) for item in _several(value)]
        elif isinstance(value, bool):
            if value or option.off:  # what has no off side is off where it is not given
                flags.append(option.flag if value else max(option.off, key=len))
        else:
            for item in _several(value):
                flags += [option.flag, _text(item)]
    if any(word.startswith("-") for word in places):
        places.insert(0, "--")
        return shlex.join([*words, *flags, *places])
    return shlex.join([*words, *places, *flags])


def _several(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else (value,)


def _text(value: object) -> str:
    """A value as one would type it: whole floats without a point, all digits of others."""
    whole = isinstance(value, float) and repr(value).endswith(".0")
    return f"{value:.17g}" if whole else str(value)
