"""vLLM's `--speculative-config` JSON: the fields that decide cost and acceptance.

Field names as in vLLM 0.25.1/0.33.0 config/speculative.py; those that are not read stand in
`engines/commands/speculative_config.toml`. Unknown fields are refused, so that a misspelt one is
not ignored in silence. Fields that change neither cost nor acceptance are accepted and left alone;
those that do, but are not modelled, are named in `not_modelled` so that a prediction can say so.
"""

import json
import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, ValidationError

from specsim.checked import Rule, Shape, problem_of
from specsim.data import data_table
from specsim.errors import FormatError, UsageError, closest, shown
from specsim.methods.draft_model import DraftModelMethod
from specsim.methods.lookup import DEVICE_LOOKUP, NgramMethod
from specsim.methods.registry import lookup_named, method_of_checkpoint

MAX_BYTES = 100_000
_FIELDS = data_table("engines", "commands/speculative_config.toml")
WHOLE = Annotated[int | None, Field(ge=1), Rule("a whole number from 1")]
TEXT = Annotated[str | None, Field(pattern=r"\S"), Rule("text")]
_RATES = "a list of numbers, one per draft position"
_SAMPLERS = Literal["standard", "synthetic", "block", "fly"]
_TABLE = "num_speculative_tokens_per_batch_size"


class SpeculativeJson(Shape):
    """The fields that are read. null means vLLM's default, as if the field were not there."""

    model_config = ConfigDict(extra="allow")  # of the others the names alone are checked

    method: TEXT = None
    model: TEXT = None
    num_speculative_tokens: WHOLE = None
    draft_tensor_parallel_size: WHOLE = None
    prompt_lookup_min: WHOLE = None
    prompt_lookup_max: WHOLE = None
    synthetic_acceptance_rates: Annotated[
        list[int | float] | None, Field(min_length=1), Rule(_RATES)
    ] = None
    synthetic_acceptance_length: Annotated[int | float | None, Rule("a number")] = None
    rejection_sample_method: _SAMPLERS | None = None
    parallel_drafting: bool | None = None
    num_speculative_tokens_per_batch_size: object = None


_KNOWN = {*_FIELDS["ignored"], *_FIELDS["unchanged"], *SpeculativeJson.model_fields}


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
            f"--speculative-config is {shown(text)}, which is not JSON ({reason}); put it in "
            """single quotes, its texts in double ones: '{"method": "mtp", """
            """"num_speculative_tokens": 3}'"""
        ) from None
    if not isinstance(raw, dict):
        raise FormatError(
            f"--speculative-config is a JSON {type(raw).__name__}; it must be an object such as "
            """'{"method": "mtp", "num_speculative_tokens": 3}'"""
        )
    for key in raw:
        if key not in _KNOWN:
            hint = f"{closest(key, _KNOWN)}see vLLM's SpeculativeConfig"
            raise UsageError(f"--speculative-config has the unknown field {shown(key)}; {hint}")
    try:
        asked = SpeculativeJson.model_validate(raw)
    except ValidationError as error:
        found = problem_of(error, SpeculativeJson)
        key = str(found.place[0])
        raise UsageError(
            f"--speculative-config {key} is {shown(raw[key])}; it must be {found.rule}"
        ) from None
    _check_together(asked)
    method = asked.method or detect_method(asked.model or "")
    apart: tuple[str, ...] = ()
    if method == DEVICE_LOOKUP:  # the same lookup, on the device
        method, apart = NgramMethod.name, (f"method {method} (priced as the host's ngram)",)
    rates, length = asked.synthetic_acceptance_rates, asked.synthetic_acceptance_length
    return SpeculativeConfig(
        method=method, k=asked.num_speculative_tokens,
        model=None if lookup_named(method) else asked.model,  # a lookup's word again
        draft_tp=asked.draft_tensor_parallel_size or 0,
        acceptance=tuple(_real(r) for r in rates or ()),
        acceptance_length=None if length is None else _real(length),
        batch_table=_batch_table(asked.num_speculative_tokens_per_batch_size),
        parallel_drafting=bool(asked.parallel_drafting),
        not_modelled=apart + tuple(
            key for key, same in _FIELDS["unchanged"].items()
            if raw.get(key) is not None and raw[key] not in same
        ),
    )


def detect_method(model: str) -> str:
    """The method vLLM infers from the draft model's name when none is given."""
    return method_of_checkpoint(model) or DraftModelMethod.name


def _check_together(asked: SpeculativeJson) -> None:
    """What vLLM refuses of fields that are each right."""
    if asked.method is None and asked.model is None:
        raise UsageError(
            "--speculative-config names neither a method nor a model; give one of them, "
            'e.g. "method": "mtp"'
        )
    # vLLM lets a length of the lookup that is not given copy the other.
    low, high = asked.prompt_lookup_min, asked.prompt_lookup_max
    if low is not None and high is not None and low > high:
        raise UsageError(
            f"--speculative-config has prompt_lookup_min {low} above prompt_lookup_max {high}, "
            "which vLLM refuses; swap or lower it"
        )
    rates, length = asked.synthetic_acceptance_rates, asked.synthetic_acceptance_length
    if rates is not None and length is not None:
        raise UsageError(
            "synthetic_acceptance_rates and synthetic_acceptance_length are both given; vLLM "
            "takes exactly one"
        )
    if asked.rejection_sample_method == "synthetic" and rates is None and length is None:
        raise UsageError(
            "rejection_sample_method is 'synthetic', which needs synthetic_acceptance_rates or "
            "synthetic_acceptance_length"
        )


def _real(value: float) -> float:
    """A JSON number as a float; whole numbers beyond its range become infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _batch_table(value: object) -> tuple[tuple[int, int, int], ...]:
    if value is None:
        return ()
    rule = f"{_TABLE} must be [[first, last, k], ...]"
    if not isinstance(value, list) or not value:
        raise UsageError(f"{rule}, got {shown(value)}")
    rows: list[tuple[int, int, int]] = []
    for row in value:
        whole = isinstance(row, list) and len(row) == 3
        if not whole or not all(isinstance(n, int) and not isinstance(n, bool) for n in row):
            raise UsageError(f"{rule} of whole numbers, got {shown(row)}")
        first, last, k = row
        if first < 1 or last < first or k < 0 or (rows and first <= rows[-1][1]):
            raise UsageError(f"{rule} with rising ranges and k >= 0, got {shown(row)}")
        rows.append((first, last, k))
    if rows[0][0] != 1:
        raise UsageError(f"{rule}; the first range must start at batch 1, got {rows[0][0]}")
    return tuple(rows)
