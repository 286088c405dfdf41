"""Objects that several foreign formats share: a distribution's figures, counts of drafts."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, model_validator

from specsim.checked import Broken
from specsim.formats.bench.fields import AT_LEAST_0, Count, Counts, Foreign, Number, as_figure, key
from specsim.formats.bench.record import BenchAcceptance, Stat
from specsim.formats.bench.stats import acceptance_from_counts, survival

_PERCENTILE = re.compile(r"p\d{1,4}(?:\.\d{1,4})?")


class MetricSpread(Foreign):
    """Mean, spread and percentiles (`p99`, beside the rest) of one quantity."""

    model_config = ConfigDict(extra="allow")

    mean: Number = key("mean", "avg")
    median: Number = None
    std: Number = key("std", "std_dev")
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
    """vLLM's per-request counts of drafts. acceptance_histogram[j]: steps with j accepted."""

    num_spec_steps: Count = None
    num_draft_tokens: Count = None
    num_accepted_draft_tokens: Count = None
    num_spec_tokens: Count = None
    acceptance_histogram: Histogram = ()

    def acceptance(self, where: str) -> BenchAcceptance | None:
        return acceptance_from_counts(
            self.num_spec_steps, self.num_draft_tokens, self.num_accepted_draft_tokens,
            survival(self.acceptance_histogram), where=where,
        )


def pooled(counts: Iterable[DraftCounts]) -> DraftCounts:
    """The sums over requests; k is that of the last one that says it."""
    steps = drafted = accepted = 0
    histogram: list[int] = []
    k = None
    for item in counts:
        steps += item.num_spec_steps or 0
        drafted += item.num_draft_tokens or 0
        accepted += item.num_accepted_draft_tokens or 0
        histogram += [0] * (len(item.acceptance_histogram) - len(histogram))
        for j, count in enumerate(item.acceptance_histogram):
            histogram[j] += count
        k = item.num_spec_tokens or k
    return DraftCounts.model_construct(
        num_spec_steps=steps, num_draft_tokens=drafted, num_accepted_draft_tokens=accepted,
        num_spec_tokens=k, acceptance_histogram=tuple(histogram),
    )
