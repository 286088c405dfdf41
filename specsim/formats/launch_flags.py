"""Flags of `vllm serve` and SGLang's server that say how steps are launched: up to which batch CUDA
graphs are captured, and whether a step is planned while the one before it runs.

Read in the sources of vLLM 0.12.0 and 0.25.1 (engine/arg_utils.py, config/compilation.py) and
SGLang 0.5.23 (server_args.py), both Apache-2.0.
"""

import re

from specsim.formats.server_flags import (
    CommandValues,
    ParsedFlags,
    json_or_text,
    those_set,
    whole_number,
)

_COMPILATION = ("compilation-config", "cc")
_MOST = "max_cudagraph_capture_size"


def launch_values(flags: ParsedFlags) -> CommandValues:
    """`cuda_graph_max` and `async_scheduling` as the flags set them; what else stands in vLLM's
    compilation JSON goes to `not_modelled`. UsageError for a size that is no number from 1."""
    read = flags.read
    largest = _of_compilation(flags)
    for name in ("graph sizes", "graphs"):
        if (text := read.get(name)) is not None:
            largest = largest_batch(text)
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
        found = json_or_text(text)
        if isinstance(found, dict):
            fields |= found
        else:
            flags.not_modelled.append(f"--compilation-config {text[:40]}")
    for name in [n for n in flags.dotted if n.split(".", 1)[0] in _COMPILATION]:
        fields[name.split(".", 1)[1].replace("-", "_")] = json_or_text(flags.dotted.pop(name))
    fields = {name: value for name, value in fields.items() if value is not None}  # null: default
    mode, used = fields.pop("cudagraph_mode", ""), fields.pop("use_cudagraph", True)
    sizes = [fields.pop(n) for n in ("cudagraph_capture_sizes", _MOST) if n in fields]
    found = [largest_batch(size) for size in sizes]
    name = "NONE" if mode == 0 else str(mode).upper()
    if name not in ("", "NONE", "FULL_AND_PIECEWISE"):
        fields["cudagraph_mode"] = mode
    flags.not_modelled += [f"--compilation-config.{name[:40]}" for name in fields]
    if name == "NONE" or str(used).lower() in ("false", "0"):
        return 0
    return found[-1] if found else None


def largest_batch(batches: object) -> int:
    """The largest of the batches that CUDA graphs are captured for: a number, a list, or a list as
    a command line has it (1 2 4, 1,2,4 or [1, 2, 4]). UsageError for anything else."""
    items = batches if isinstance(batches, list) else [batches]
    if isinstance(batches, str):
        items = re.split(r"[\s,]+", batches.strip(" []"))
    return max(whole_number(str(item), "a batch of CUDA graphs") for item in items or [0])
