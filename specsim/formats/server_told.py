"""What a server says of its own flags, as the command line that would set them.

SGLang tells all its arguments (/server_info, before 0.5 /get_server_info), vLLM some labels of its
metrics. Only flags that decide cost or memory are taken over (`engines/commands/*.toml`): the rest,
a key among it, is not looked at.
"""

import shlex
from collections.abc import Mapping

from specsim.formats.metrics_text import Snapshot
from specsim.formats.server_flags import flag_table

MAX_VALUE = 300  # characters of one value
_OTHER_NAMES = {"cache-dtype": "kv-cache-dtype"}  # labels of vLLM that are no names of flags
_STARTS = {"vllm": ["vllm", "serve"], "sglang": ["sglang", "serve"]}


def told_command(engine: str, model: str, facts: Mapping[str, object]) -> str:
    """`facts` (names as in Python) as a command of `engine`; '' for an engine without one."""
    if engine not in _STARTS:
        return ""
    table = flag_table(engine)
    words = [*_STARTS[engine], *([model] if engine == "vllm" else ["--model-path", model])]
    for key, value in facts.items():
        name = key.replace("_", "-")
        name = _OTHER_NAMES.get(name, name)
        known = table.read.get(name)
        if known in (None, "model") or value in (None, False, "", "None", "auto"):
            continue
        if name in table.switches:
            words += [f"--{name}"] if value is True else []
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            words += [f"--{name}", str(value)[:MAX_VALUE]]
    return shlex.join(words)


def cache_labels(metrics: Snapshot) -> dict[str, object]:
    """Labels of vLLM's cache_config_info."""
    rows = metrics.gauge_values.get("vllm:cache_config_info", ())
    return dict(rows[0][0]) if rows else {}
