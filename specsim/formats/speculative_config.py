"""vLLM's `--speculative-config` JSON: the fields that decide cost and acceptance.

Field names and defaults as in vLLM 0.25.1/0.33.0 config/speculative.py. Unknown fields are
refused, so that a misspelt one is not ignored in silence. Fields that change neither cost nor
acceptance are accepted and left alone; those that do, but are not modelled, are named in
`not_modelled` so that a prediction can say so.
"""

import json
import math
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from specsim.errors import FormatError, UsageError
from specsim.methods.draft_model import DraftModelMethod
from specsim.methods.registry import method_of_checkpoint

MAX_BYTES = 100_000
_IGNORED = frozenset(
    {
        "revision", "code_revision", "draft_load_config", "max_model_len", "moe_backend",
        "attention_backend", "use_heterogeneous_vocab", "disable_eagle_block_drop",
        "disable_lookahead_block_hashes", "suffix_decoding_max_cached_requests",
        "draft_sample_method", "fly_window_size", "fly_entropy_threshold", "fly_entropy_top_k",
    }
)
# Field -> value that changes nothing (vLLM's default); any other is reported as not modelled.
_NOT_MODELLED: dict[str, tuple[Any, ...]] = {
    "quantization": (None,),
    "kv_cache_dtype": (None, "auto"),
    "enforce_eager": (None, False),
    "prompt_lookup_max": (None, 5),
    "prompt_lookup_min": (None, 5),
    "use_local_argmax_reduction": (None, False),
    "disable_padded_drafter_batch": (None, False),
    "suffix_decoding_max_tree_depth": (None, 24),
    "suffix_decoding_max_spec_factor": (None, 1.0),
    "suffix_decoding_min_token_prob": (None, 0.1),
    "enable_adaptive_verification": (None, False),
    "draft_lm_head_quantization": (None,),
    "dspark_draft_topk": (None,),
    "xpress_topc": (None,),
    "index_share_for_mtp_iteration": (None, False),
    "num_speculative_tokens_per_batch_size": (None,),
}
_READ = frozenset(
    {
        "method", "model", "num_speculative_tokens", "draft_tensor_parallel_size",
        "synthetic_acceptance_rates", "synthetic_acceptance_length", "rejection_sample_method",
        "parallel_drafting",
    }
)
_KNOWN = _IGNORED | _READ | frozenset(_NOT_MODELLED)
_SAMPLERS = ("standard", "synthetic", "block", "fly")


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """What the JSON asks for. batch_table: ((first batch, last batch, k), ...) of dynamic
    speculation, empty when static. not_modelled: fields set to something that changes cost or
    acceptance in a way that is not modelled."""

    method: str
    k: int | None = None
    model: str | None = None
    draft_tp: int = 0
    acceptance: tuple[float, ...] = ()
    acceptance_length: float | None = None
    batch_table: tuple[tuple[int, int, int], ...] = ()
    parallel_drafting: bool = False
    not_modelled: tuple[str, ...] = ()


def parse_speculative_config(text: str) -> SpeculativeConfig:
    """Reads the JSON. FormatError for broken JSON, UsageError for a broken rule."""
    if len(text) > MAX_BYTES:
        raise FormatError("--speculative-config is longer than 100 kB; give the JSON object only")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise FormatError(
            f"--speculative-config is not JSON: {reason}; "
            """example: '{"method": "mtp", "num_speculative_tokens": 3}'"""
        ) from None
    if not isinstance(raw, dict):
        raise FormatError(
            f"--speculative-config is a JSON {type(raw).__name__}; it must be an object such as "
            """'{"method": "mtp", "num_speculative_tokens": 3}'"""
        )
    for key in raw:
        if key not in _KNOWN:
            near = get_close_matches(key, _KNOWN, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "; see vLLM's SpeculativeConfig"
            raise UsageError(f"--speculative-config has the unknown field {_show(key)}{hint}")
    k = _whole(raw, "num_speculative_tokens")
    model, method = _text(raw, "model"), _text(raw, "method")
    if method is None:
        if model is None:
            raise UsageError(
                "--speculative-config names neither a method nor a model; give one of them, "
                'e.g. "method": "mtp"'
            )
        method = detect_method(model)
    apart: tuple[str, ...] = ()
    if method == "ngram_gpu":  # the same lookup, on the device
        method, apart = "ngram", ("method ngram_gpu (priced as the host's ngram)",)
    _check_lookup(raw)
    rates = raw.get("synthetic_acceptance_rates")
    if rates is not None and (
        not isinstance(rates, list) or not rates or not all(_is_number(r) for r in rates)
    ):
        raise UsageError(
            f"synthetic_acceptance_rates is {_show(rates)}; it must be a list of numbers, one per "
            "draft position"
        )
    length = raw.get("synthetic_acceptance_length")
    if length is not None and not _is_number(length):
        raise UsageError(f"synthetic_acceptance_length is {_show(length)}; it must be a number")
    if rates is not None and length is not None:
        raise UsageError(
            "synthetic_acceptance_rates and synthetic_acceptance_length are both given; vLLM "
            "takes exactly one"
        )
    sampler = _text(raw, "rejection_sample_method") or "standard"
    if sampler not in _SAMPLERS:
        raise UsageError(
            f"rejection_sample_method is {_show(sampler)}; it must be one of {', '.join(_SAMPLERS)}"
        )
    if sampler == "synthetic" and rates is None and length is None:
        raise UsageError(
            "rejection_sample_method is 'synthetic', which needs synthetic_acceptance_rates or "
            "synthetic_acceptance_length"
        )
    parallel = raw.get("parallel_drafting")
    if parallel not in (None, True, False):
        raise UsageError(f"parallel_drafting is {_show(parallel)}; it must be true or false")
    table = _batch_table(raw.get("num_speculative_tokens_per_batch_size"))
    return SpeculativeConfig(
        method=method,
        k=k,
        model=model,
        draft_tp=_whole(raw, "draft_tensor_parallel_size") or 0,
        acceptance=tuple(_real(r) for r in rates or ()),
        acceptance_length=None if length is None else _real(length),
        batch_table=table,
        parallel_drafting=bool(parallel),
        not_modelled=apart
        + tuple(key for key, same in _NOT_MODELLED.items() if key in raw and raw[key] not in same),
    )


def detect_method(model: str) -> str:
    """The method vLLM infers from the draft model's name when none is given."""
    return method_of_checkpoint(model) or DraftModelMethod.name


def _check_lookup(raw: dict[str, Any]) -> None:
    """Both lengths of an n-gram lookup; vLLM lets one that is not given copy the other."""
    low, high = _whole(raw, "prompt_lookup_min"), _whole(raw, "prompt_lookup_max")
    if low is not None and high is not None and low > high:
        raise UsageError(
            f"--speculative-config has prompt_lookup_min {low} above prompt_lookup_max {high}, "
            "which vLLM refuses; swap or lower it"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _real(value: float) -> float:
    """A JSON number as a float; whole numbers beyond its range become infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _show(value: object) -> str:
    """A value as an error shows it: short, on one line."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of more than 4300 digits
        text = f"a {type(value).__name__} too large to print"
    return text if len(text) <= 60 else text[:57] + "..."


def _text(raw: dict[str, Any], key: str) -> str | None:
    value = raw.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"--speculative-config {key} is {_show(value)}; it must be text")
    return value


def _whole(raw: dict[str, Any], key: str) -> int | None:
    value = raw.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(
            f"--speculative-config {key} is {_show(value)}; it must be a whole number from 1"
        )
    return value


def _batch_table(value: Any) -> tuple[tuple[int, int, int], ...]:
    if value is None:
        return ()
    rule = "num_speculative_tokens_per_batch_size must be [[first, last, k], ...]"
    if not isinstance(value, list) or not value:
        raise UsageError(f"{rule}, got {_show(value)}")
    rows: list[tuple[int, int, int]] = []
    for row in value:
        whole = isinstance(row, list) and len(row) == 3
        if not whole or not all(isinstance(n, int) and not isinstance(n, bool) for n in row):
            raise UsageError(f"{rule} of whole numbers, got {_show(row)}")
        first, last, k = row
        if first < 1 or last < first or k < 0 or (rows and first <= rows[-1][1]):
            raise UsageError(f"{rule} with rising ranges and k >= 0, got {_show(row)}")
        rows.append((first, last, k))
    if rows[0][0] != 1:
        raise UsageError(f"{rule}; the first range must start at batch 1, got {rows[0][0]}")
    return tuple(rows)
