"""The command line that gives the same result as a call, for results to carry with them."""

import shlex
from collections.abc import Mapping
from typing import Any

from specsim.api.parameters import defaults

# Where a result goes does not change it.
_OUTPUT = ("trace_out", "records", "export", "export_vllm_bench", "export_prometheus")
_FLAGS = {"k": "--num-speculative-tokens"}  # the command line prints its longest spelling


def command_of(name: str, values: Mapping[str, Any]) -> str:
    """`specsim NAME MODEL --option value ...`, quoted for a POSIX shell; values as `filled` has
    them, options in alphabetical order."""
    words = ["specsim", name]
    if values["model"] is not None:
        words.append(values["model"])
    usual = defaults(name)
    for option in sorted(values):
        value = values[option]
        if option == "model" or option in _OUTPUT or value == usual[option]:
            continue
        flag = _FLAGS.get(option, "--" + option.replace("_", "-"))
        if isinstance(value, bool):
            words.append(flag if value else "--no-" + flag.removeprefix("--"))
        else:
            whole = isinstance(value, float) and value.is_integer()
            text = f"{value:.17g}" if whole else str(value)
            # Text that starts like an option would be read as one.
            words += [f"{flag}={text}"] if text.startswith("-") else [flag, text]
    return shlex.join(words)
