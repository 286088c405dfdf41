"""`specsim.crossover`: with and without speculation while concurrency grows."""

from typing import Any, Unpack

from specsim.api.deployment import build_request
from specsim.api.options import parse_contexts
from specsim.api.parameters import CrossoverOptions, filled
from specsim.api.repeat import command_of
from specsim.api.results import Result, flat
from specsim.api.values import options_of
from specsim.errors import UsageError
from specsim.planning import crossover as planning


class Crossover(Result, planning.Crossover):
    """Where speculative work stops being cheap and where it stops paying: `curves`."""

    def to_rows(self) -> list[dict[str, Any]]:
        return [flat(row) for row in self.rows()]

    def to_text(self) -> str:
        from specsim.report.crossovers import crossover_text

        return crossover_text(self)


def crossover(model: str | None = None, **options: Unpack[CrossoverOptions]) -> Crossover:
    """Compare ordinary and speculative decoding of `model` while concurrency grows.

    Options are those of `specsim crossover`. Raises `specsim.errors.SpecSimError` for whatever a
    caller can correct."""
    values = filled("crossover", model, options)
    return Crossover.of(run(values), command_of("crossover", values))


def run(values: dict[str, Any]) -> planning.Crossover:
    """The curves for checked values of all options by name, as the command line has them."""
    contexts, highest, cheap = (
        values[name] for name in ("contexts", "max_concurrency", "cheap_share")
    )
    if contexts is not None and values["input_len"] is not None:
        raise UsageError("--contexts and --input-len both give prompt lengths; give one of them")
    if highest is not None and not 1 <= highest <= 100_000:
        raise UsageError(f"--max-concurrency is {highest}; it must be from 1 to 100000 clients")
    if not 0 < cheap <= 100:
        raise UsageError(f"--cheap-share is {cheap:g}; it must be above 0, such as 0.5 for 50 %")
    if values["model"] is None and values["command"] is None:
        raise UsageError("a MODEL is needed; `specsim models` lists them")
    request = build_request(options_of(values))
    lengths = [request.workload.input_len] if contexts is None else parse_contexts(contexts)
    return planning.crossover(
        request.system, request.workload, lengths, highest, cheap, request.warnings
    )
