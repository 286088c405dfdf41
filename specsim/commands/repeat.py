"""The command line that repeats a result, rebuilt from the options as they were parsed.

What only says where the result goes (`--json`, `--csv`, output files) is left out. Options stand in
the order of `--help`, so that the same options give the same text however they were typed.
"""

import shlex
from typing import Any

# A default of specsim.toml decides the result as much as a typed option.
GIVEN = ("COMMANDLINE", "ENVIRONMENT", "DEFAULT_MAP")
# Where a result goes does not change it.
OUTPUT_OPTIONS = frozenset({
    "json_out", "csv_out", "out", "output", "trace_out", "records", "plot", "export",
    "export_vllm_bench", "export_prometheus", "context", "plot_out", "report", "no_plot",
})


def repeat_command(context: Any) -> str:
    """`specsim COMMAND ...` of a typer context, quoted for a POSIX shell."""
    words = ["specsim", *context.command_path.split()[1:]]
    arguments: list[str] = []
    options: list[str] = []
    for parameter in context.command.params:
        name = parameter.name
        source = context.get_parameter_source(name)
        given = source is not None and source.name in GIVEN
        if name in OUTPUT_OPTIONS or not given:
            continue
        value = context.params.get(name)
        if parameter.param_type_name == "argument":
            arguments += [_text(item) for item in _several(value)]
            continue
        # The longest spelling says most.
        flag = max(parameter.opts, key=len)
        if isinstance(value, bool):
            off = parameter.secondary_opts
            options.append(flag if value or not off else max(off, key=len))
            continue
        for item in _several(value):
            options += [flag, _text(item)]
    if any(word.startswith("-") for word in arguments):
        arguments.insert(0, "--")
        return shlex.join([*words, *options, *arguments])
    return shlex.join([*words, *arguments, *options])


def _several(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _text(value: Any) -> str:
    """A value as one would type it: whole floats without a point, all digits of others."""
    whole = isinstance(value, float) and repr(value).endswith(".0")
    return f"{value:.17g}" if whole else str(value)
