"""Flags of `vllm serve` and SGLang's server that say how steps are launched: up to which batch CUDA
graphs are captured, and whether a step is planned while the one before it runs.

Read in the sources of vLLM 0.12.0 and 0.25.1 (engine/arg_utils.py, config/compilation.py) and
SGLang 0.5.23 (server_args.py), both Apache-2.0.
"""

import json
import re

from specsim.errors import UsageError
from specsim.formats.server_flags import CommandValues, ParsedFlags, those_set, whole

_COMPILATION = ("compilation-config", "cc")


def launch_values(flags: ParsedFlags) -> CommandValues:
    """`cuda_graph_max` and `async_scheduling` as the flags set them; what else stands in vLLM's
    compilation JSON goes to `not_modelled`. UsageError for a size that is no number."""
    read = flags.read
    graphs = whole(read, "graphs", "the largest batch of a CUDA graph as")
    text = read.get("graph sizes", "")
    sizes = _numbers(text)
    if text and (not sizes or not re.fullmatch(r"[\d\s,\[\]]+", text)):
        raise UsageError(
            f"--command has {text[:40]!r} as batches of CUDA graphs; write whole numbers: 1 2 4 8"
        )
    largest = _of_compilation(flags)
    if sizes:
        largest = max(sizes)
    if graphs is not None:
        largest = graphs
    if "no graphs" in read:
        largest = 0
    ahead = None
    if "async" in read or read.get("spec v2", "0").lower() in ("1", "true", "yes", "y"):
        ahead = "on"
    if "no async" in read:
        ahead = "off"
    return those_set(cuda_graph_max=largest, async_scheduling=ahead)


def _of_compilation(flags: ParsedFlags) -> int | None:
    """The largest captured batch that vLLM's compilation JSON asks for, whole or field by field."""
    text = flags.read.get("compilation")
    fields: dict[str, object] = {}
    if text is not None:
        found = _json(text)
        if isinstance(found, dict):
            fields |= found
        else:
            flags.not_modelled.append(f"--compilation-config {text[:40]}")
    for name in [n for n in flags.dotted if n.split(".", 1)[0] in _COMPILATION]:
        fields[name.split(".", 1)[1].replace("-", "_")] = _json(flags.dotted.pop(name))
    mode, used = str(fields.pop("cudagraph_mode", "")), fields.pop("use_cudagraph", None)
    sizes = _numbers(str(fields.pop("cudagraph_capture_sizes", "")))
    most = fields.pop("max_cudagraph_capture_size", None)
    if mode.upper() not in ("", "NONE", "FULL_AND_PIECEWISE"):
        fields["cudagraph_mode"] = mode
    flags.not_modelled += [f"--compilation-config.{name[:40]}" for name in fields]
    if mode.upper() == "NONE" or used is False:
        return 0
    if isinstance(most, int) and most > 0:
        return most
    return max(sizes, default=None)


def _numbers(text: str) -> list[int]:
    """Whole numbers of a list as it may be written: 1 2 4, 1,2,4 or [1, 2, 4]."""
    return [int(number) for number in re.findall(r"\d{1,7}", text)]


def _json(text: str) -> object:
    """A word that is no JSON stands for itself, as in vLLM."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
