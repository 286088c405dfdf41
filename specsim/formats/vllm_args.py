"""vLLM's `--speculative-config` JSON: the fields that decide cost and acceptance.

Field names and defaults as in vLLM 0.25.1/0.33.0 config/speculative.py. Unknown fields are
refused, so that a misspelt one is not ignored in silence; fields that change neither cost nor
acceptance are accepted and left alone.
"""

import json
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from specsim.errors import FormatError, UsageError

MAX_BYTES = 100_000
_IGNORED = frozenset(
    {
        "revision", "code_revision", "quantization", "draft_load_config", "moe_backend",
        "attention_backend", "kv_cache_dtype", "max_model_len", "enforce_eager",
        "prompt_lookup_max", "prompt_lookup_min", "parallel_drafting", "draft_sample_method",
        "use_local_argmax_reduction", "use_heterogeneous_vocab", "disable_padded_drafter_batch",
        "disable_eagle_block_drop", "disable_lookahead_block_hashes", "rejection_sample_method",
        "suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests",
        "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob",
        "enable_adaptive_verification", "draft_lm_head_quantization", "dspark_draft_topk",
    }
)
_READ = frozenset(
    {
        "method", "model", "num_speculative_tokens", "draft_tensor_parallel_size",
        "synthetic_acceptance_rates", "synthetic_acceptance_length",
        "num_speculative_tokens_per_batch_size",
    }
)


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """What the JSON asks for. batch_table: ((first batch, last batch, k), ...) of dynamic
    speculation, empty when static."""

    method: str
    k: int | None = None
    model: str | None = None
    draft_tp: int = 0
    acceptance: tuple[float, ...] = ()
    acceptance_length: float | None = None
    batch_table: tuple[tuple[int, int, int], ...] = ()


def parse_speculative_config(text: str) -> SpeculativeConfig:
    """Reads the JSON. FormatError for broken JSON, UsageError for a broken rule."""
    if len(text) > MAX_BYTES:
        raise FormatError("--speculative-config is longer than 100 kB; give the JSON object only")
    try:
        raw = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise FormatError(
            f"--speculative-config is not JSON: {error}; "
            """example: '{"method": "mtp", "num_speculative_tokens": 3}'"""
        ) from None
    if not isinstance(raw, dict):
        raise FormatError(f"--speculative-config must be a JSON object, got {type(raw).__name__}")
    for key in raw:
        if key not in _READ and key not in _IGNORED:
            near = get_close_matches(key, _READ | _IGNORED, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"--speculative-config has the unknown field {key!r}{hint}")
    k = _whole(raw, "num_speculative_tokens")
    model = raw.get("model")
    if model is not None and not isinstance(model, str):
        raise UsageError(f"--speculative-config model is {model!r}; it must be text")
    method = raw.get("method")
    if method is None:
        method = detect_method(model or "")
    if not isinstance(method, str):
        raise UsageError(f"--speculative-config method is {method!r}; it must be text")
    rates = raw.get("synthetic_acceptance_rates") or ()
    if not isinstance(rates, list | tuple) or not all(_is_number(r) for r in rates):
        raise UsageError("synthetic_acceptance_rates must be a list of numbers")
    length = raw.get("synthetic_acceptance_length")
    if length is not None and not _is_number(length):
        raise UsageError(f"synthetic_acceptance_length is {length!r}; it must be a number")
    return SpeculativeConfig(
        method=method,
        k=k,
        model=model,
        draft_tp=_whole(raw, "draft_tensor_parallel_size") or 0,
        acceptance=tuple(float(r) for r in rates),
        acceptance_length=None if length is None else float(length),
        batch_table=_batch_table(raw.get("num_speculative_tokens_per_batch_size")),
    )


def detect_method(model: str) -> str:
    """The method vLLM infers from the draft model's name when none is given."""
    key = model.lower()
    for fragment, method in (
        ("eagle3", "eagle3"), ("eagle-3", "eagle3"), ("eagle-", "eagle"), ("dflash", "dflash"),
        ("dspark", "dspark"), ("medusa", "medusa"), ("mtp", "mtp"),
    ):
        if fragment in key:
            return method
    return "draft-model"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(raw: dict[str, Any], key: str) -> int | None:
    value = raw.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"--speculative-config {key} is {value!r}; it must be a whole number >= 1")
    return value


def _batch_table(value: Any) -> tuple[tuple[int, int, int], ...]:
    if value is None:
        return ()
    rule = "num_speculative_tokens_per_batch_size must be [[first, last, k], ...]"
    if not isinstance(value, list) or not value:
        raise UsageError(f"{rule}, got {value!r}")
    rows: list[tuple[int, int, int]] = []
    for row in value:
        whole = isinstance(row, list) and len(row) == 3
        if not whole or not all(isinstance(n, int) and not isinstance(n, bool) for n in row):
            raise UsageError(f"{rule} of whole numbers, got {row!r}")
        first, last, k = row
        if first < 1 or last < first or k < 0 or (rows and first <= rows[-1][1]):
            raise UsageError(f"{rule} with rising ranges and k >= 0, got {row!r}")
        rows.append((first, last, k))
    if rows[0][0] != 1:
        raise UsageError(f"{rule}; the first range must start at batch 1, got {rows[0][0]}")
    return tuple(rows)
