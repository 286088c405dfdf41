"""Server configuration found in result files: one place that knows every spelling of it.

Benchmarks rarely record how the server was started. Where they do (SGLang's server_info, a
sweep's parameters, what a user passed as --metadata k=v), the keys below are read; values that
cannot be understood are left as text in `other`, since they are somebody's own notes.
"""

import json
import re
from collections.abc import Callable, Mapping

from specsim.formats.bench.fields import simple_text, whole
from specsim.formats.bench.record import ServerArgs

MAX_METADATA = 60  # entries kept of what a user added

_K = ("num_speculative_tokens", "speculative_config.num_speculative_tokens", "spec_k", "k")
_METHOD = ("speculative_config.method", "spec_method", "speculative_method", "method")
_DRAFT = ("speculative_config.model", "speculative_model", "draft_model")
_TP = ("tensor_parallel_size", "tp_size", "tp")
_DP = ("data_parallel_size", "dp_size", "dp")
_SEQS = ("max_num_seqs",)
# any spelling of these in a file: --max-num-seqs, tensor_parallel_size, speculative-config.model
ARGUMENT = re.compile(
    "-*(?:" + "|".join(
        re.escape(name).replace("_", "[-_]")
        for name in (*_K, *_METHOD, *_DRAFT, *_TP, *_DP, *_SEQS)
    ) + r")|(?:.*\.)?-*speculative[-_]config", re.IGNORECASE,
)
# of SGLang's several hundred arguments, those that bear on speculation and memory
_KEPT = ("speculative_", "quantization", "kv_cache_dtype", "ep_size", "attention")


def metadata_of(data: Mapping[str, object], own: Callable[[str], bool]) -> dict[str, str]:
    """The scalar entries of a result that the tool itself does not write, as text."""
    out: dict[str, str] = {}
    for key, value in data.items():
        text = simple_text(value)
        if text is None or own(key) or len(out) >= MAX_METADATA:
            continue
        out[key[:80]] = text
    return out


def args_from_metadata(data: Mapping[str, object]) -> ServerArgs:
    """vLLM's server arguments among the keys of a result (sweep overrides, --metadata)."""
    flat = _flatten(data)
    return ServerArgs(
        num_speculative_tokens=_whole(flat, _K), method=_text(flat, _METHOD),
        draft_model=_text(flat, _DRAFT), tp=_whole(flat, _TP), dp=_whole(flat, _DP),
        max_num_seqs=_whole(flat, _SEQS),
    )


def args_from_sglang(info: Mapping[str, object]) -> ServerArgs:
    """SGLang's `server_info`: the server's arguments as it resolved them.

    A chain (topk 1) of n steps drafts n tokens. With a tree, the drafted tokens of a step are
    speculative_num_draft_tokens less the root.
    """
    algorithm = simple_text(info.get("speculative_algorithm"))
    steps = whole(info.get("speculative_num_steps"))
    width = whole(info.get("speculative_num_draft_tokens"))
    topk = whole(info.get("speculative_eagle_topk"))
    drafted = None
    if algorithm and algorithm.lower() != "none":
        chain = topk in (None, 1)
        drafted = steps if chain and steps else (width - 1 if width else None)
    other = {
        key: text
        for key, value in info.items()
        if key.startswith(_KEPT) and (text := simple_text(value)) is not None
    }
    return ServerArgs(
        num_speculative_tokens=drafted, method=algorithm,
        draft_model=simple_text(info.get("speculative_draft_model_path")),
        tp=whole(info.get("tp_size")), dp=whole(info.get("dp_size")),
        max_num_seqs=whole(info.get("max_running_requests")),
        other=dict(list(other.items())[:MAX_METADATA]),
    )


def _flatten(data: Mapping[str, object]) -> dict[str, object]:
    """Keys with underscores; `speculative_config` (an object, or JSON text) opened by a dot."""
    out: dict[str, object] = {}
    for raw, value in data.items():
        key = raw.strip().lstrip("-").replace("-", "_").lower()
        if key.rsplit(".", 1)[-1] == "speculative_config":
            for name, inner in _object(value).items():
                out.setdefault(f"speculative_config.{name.replace('-', '_').lower()}", inner)
        elif not isinstance(value, Mapping):
            out.setdefault(key, value)
    return out


def _object(value: object) -> Mapping[str, object]:
    """A JSON object given as such or as text; empty for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def _whole(flat: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    for name in names:
        number = whole(flat.get(name))
        if number is not None:
            return number
    return None


def _text(flat: Mapping[str, object], names: tuple[str, ...]) -> str | None:
    for name in names:
        if isinstance(flat.get(name), str) and flat[name]:
            return str(flat[name])[:200]
    return None
