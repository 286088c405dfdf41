"""Objects that several foreign formats share: a distribution's figures, counts of drafts."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, model_validator

from specsim.checked import Broken
from specsim.formats.bench.fields import (
    AT_LEAST_0,
    Count,
    Counts,
    Foreign,
    Number,
    Text,
    as_figure,
    key,
)
from specsim.formats.bench.record import BenchAcceptance, Stat
from specsim.formats.bench.stats import acceptance_from_counts, rates_of_steps, survival

OTHER_FIGURES = r".*\.(?:min|max|std|median|mode|count|sum|p[\d.]+)"  # of a distribution
MAX_DRAFT = 1000  # tokens a step; no engine comes near
_PERCENTILE = re.compile(r"p\d{1,4}(?:\.\d{1,4})?")


class MetricSpread(Foreign):
    """Mean, spread and percentiles (`p99`, beside the rest) of one quantity."""

    model_config = ConfigDict(extra="allow")

    mean: Number = key("mean", "avg")
    median: Number = None
    std: Number = key("std", "std_dev", "stddev")
    count: Count = None
    total: Number = key("sum", "total", "total_sum")

    @model_validator(mode="after")
    def _percentiles_are_numbers(self) -> "MetricSpread":
        for name, value in (self.model_extra or {}).items():
            if self.is_percentile(name) and as_figure(value) is None:
                raise Broken(AT_LEAST_0, name, value)
        return self

    @staticmethod
    def is_percentile(name: str) -> bool:
        return _PERCENTILE.fullmatch(name) is not None

    def _percentiles(self) -> dict[str, float]:
        found = self.model_extra or {}
        return {name: value for name, value in found.items() if self.is_percentile(name)}

    @property
    def measured(self) -> float | None:
        """The mean; None where nothing was measured."""
        return None if self.count == 0 else self.mean

    def stat(self, scale: float = 1.0) -> Stat | None:
        """In the normal form; None where nothing was measured."""
        if self.mean is None or self.count == 0:
            return None
        found = {name: float(value) * scale for name, value in self._percentiles().items()}
        if self.median is not None:
            found["p50"] = self.median * scale
        std = None if self.std is None else self.std * scale
        return Stat(self.mean * scale, found.get("p50"), std, found, self.count)

    def normal(self) -> Stat | None:
        return self.stat()


_SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6,
            "ns": 1e-9, "nanoseconds": 1e-9}


def _time_unit(unit: str | None) -> str | None:
    if unit is not None and unit.lower().removesuffix("/token") not in _SECONDS:
        raise Broken(f"a unit of time ({', '.join(sorted(_SECONDS))}, or one of them per token)")
    return unit


class TimeSpread(MetricSpread):
    """A quantity with its unit of time. usual: the unit where none is named."""

    usual: ClassVar = "ms"

    unit: Annotated[Text, AfterValidator(_time_unit)] = key("unit", "units")

    def normal(self) -> Stat | None:
        return self.stat(_SECONDS[(self.unit or self.usual).lower().removesuffix("/token")])


def _by_accepted(value: object) -> object:
    """{"j": steps with j accepted tokens} as a list; absent counts are zero."""
    if not isinstance(value, Mapping):
        return value
    for name in value:
        if not (isinstance(name, str) and name.isascii() and name.isdigit() and len(name) <= 3):
            raise Broken("whole numbers of accepted tokens as keys", name, name)
    most = max((int(name) for name in value), default=-1)
    return [value.get(str(j)) or 0 for j in range(most + 1)]


Histogram = Annotated[Counts, BeforeValidator(_by_accepted)]


class DraftCounts(Foreign):
    """vLLM's per-request counts of drafts. acceptance_histogram[j]: steps with j accepted;
    per_step_*: tokens of every step with a draft, in order, where the server was asked for it
    (--per-request-spec-decode-metrics detailed)."""

    num_spec_steps: Count = None
    num_draft_tokens: Count = None
    num_accepted_draft_tokens: Count = None
    num_spec_tokens: Count = None
    acceptance_histogram: Histogram = ()
    per_step_accepted: Counts = ()
    per_step_drafted: Counts = ()

    @model_validator(mode="after")
    def _each_step_fits(self) -> "DraftCounts":
        """Counts that are missing are those of the steps."""
        accepted, drafted = self.per_step_accepted, self.per_step_drafted
        if drafted and len(accepted) != len(drafted):
            raise Broken(f"a list of {len(drafted)}, like per_step_drafted", "per_step_accepted",
                         accepted)
        for took, made in zip(accepted, drafted, strict=False):
            if took > made or made > MAX_DRAFT:
                raise Broken(f"at most {MAX_DRAFT} tokens a step, as many as drafted or fewer",
                             "per_step_accepted", took)
        if not drafted or self.num_spec_steps is not None:
            return self
        return self.model_copy(update={
            "num_spec_steps": len(drafted), "num_draft_tokens": sum(drafted),
            "num_accepted_draft_tokens": sum(accepted),
        })

    def acceptance(self, where: str) -> BenchAcceptance | None:
        """The rates by position are those of the steps, where they are there: a histogram does
        not tell short drafts from rejections."""
        took, made = self.per_step_accepted, self.per_step_drafted
        found = acceptance_from_counts(
            self.num_spec_steps, self.num_draft_tokens, self.num_accepted_draft_tokens,
            survival(self.acceptance_histogram), where=where,
        )
        if found is None or not made:
            return found
        return replace(found, per_position=rates_of_steps(took, made), undrafted_positions=0)


def pooled(counts: Iterable[DraftCounts]) -> DraftCounts:
    """The sums over requests; k is that of the last one that says it. Steps are kept where every
    request with drafts has them."""
    items = list(counts)
    whole = all(item.per_step_drafted or not item.num_spec_steps for item in items)
    columns = zip_longest(*(item.acceptance_histogram for item in items), fillvalue=0)
    return DraftCounts.model_construct(
        num_spec_steps=sum(item.num_spec_steps or 0 for item in items),
        num_draft_tokens=sum(item.num_draft_tokens or 0 for item in items),
        num_accepted_draft_tokens=sum(item.num_accepted_draft_tokens or 0 for item in items),
        num_spec_tokens=next((k for item in items[::-1] if (k := item.num_spec_tokens)), None),
        acceptance_histogram=tuple(map(sum, columns)),
        per_step_accepted=tuple(n for i in items for n in i.per_step_accepted if whole),
        per_step_drafted=tuple(n for i in items for n in i.per_step_drafted if whole),
    )
