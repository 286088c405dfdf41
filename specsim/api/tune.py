"""`specsim.tune`: the best method and draft length per load, and what to type for it."""

from collections.abc import Callable
from typing import Any, Unpack

from specsim.api.options import parse_concurrency, parse_rates
from specsim.api.parameters import TuneOptions, filled
from specsim.api.repeat import command_of
from specsim.api.results import Result, flat
from specsim.api.tune_setup import build_setup
from specsim.api.values import options_of
from specsim.errors import UsageError
from specsim.methods.base import MAX_K
from specsim.planning import tune as planning
from specsim.planning.tune_choices import Load
from specsim.sim.slo import parse_slo

DEFAULT_CLIENTS = (1, 8, 64)


class Tuning(Result, planning.Tuning):
    """The choice per load: `answers`, each with `best`, `candidates`, `flags`, ..."""

    def to_rows(self) -> list[dict[str, Any]]:
        return [flat(row) for row in self.candidate_rows()]

    def to_text(self) -> str:
        from specsim.report.tuning import tuning_text

        return tuning_text(self)


def tune(model: str | None = None, **options: Unpack[TuneOptions]) -> Tuning:
    """Choose method and draft length of `model` for every load (`concurrency=` or `rate=`).

    Options are those of `specsim tune`. Raises `specsim.errors.SpecSimError` for whatever a caller
    can correct."""
    values = filled("tune", model, options)
    return Tuning.of(run(values), command_of("tune", values))


def loads_of(values: dict[str, Any]) -> list[Load]:
    """The loads that --concurrency or --rate name."""
    if values["rate"] is not None:
        return [Load(rate=value) for value in parse_rates(values["rate"])]
    return [Load(value) for value in parse_concurrency(values["concurrency"], DEFAULT_CLIENTS)]


def run(
    values: dict[str, Any], report: Callable[[int, int], None] | None = None
) -> planning.Tuning:
    """The choice for checked values of all options by name, as the command line has them.

    report: told (loads done, all) while it goes on."""
    concurrency, rate, max_k, slo = (
        values[name] for name in ("concurrency", "rate", "max_k", "slo")
    )
    if values["model"] is None and values["command"] is None:
        raise UsageError("tune needs a MODEL or a --command; `specsim models` lists them")
    if concurrency is not None and rate is not None:
        raise UsageError("--concurrency is a closed loop and --rate an open one; give one of them")
    if not 1 <= max_k <= MAX_K:
        raise UsageError(f"--max-k is {max_k}; it must be from 1 to {MAX_K}")
    loads = loads_of(values)
    gates = parse_slo(slo) if slo is not None else {}
    if slo is not None and not gates:
        raise UsageError("--slo is empty; write gates like ttft_mean=2,stream_tok_s_mean=15")
    setup = build_setup(
        options_of(values), values["methods"], values["max_memory"], values["acceptance_range"],
        values["mix"],
    )
    return planning.tune(
        setup.systems, setup.workload, loads, plain=setup.plain, objective=values["objective"],
        gates=gates, longest=max_k, scenarios=setup.scenarios, spreads=setup.spreads,
        model=setup.model, draft=setup.draft, version=setup.version, skipped=setup.skipped,
        warnings=setup.warnings, report=report,
    )
