"""`specsim.pareto`: speed for one user against throughput of a GPU, over all that can be set."""

from collections.abc import Callable
from typing import Any, Unpack

from specsim.api.parameters import ParetoOptions, filled
from specsim.api.pareto_axes import axes_of, builder
from specsim.api.repeat import command_of
from specsim.api.results import Result, flat
from specsim.errors import UsageError
from specsim.planning import pareto as planning

Report = Callable[[int, int], None]


class Pareto(Result, planning.Pareto):
    """All combinations as `points`; the best of them as `frontier`, `speculative`, `plain`."""

    def to_dict(self, every_point: bool = False) -> dict[str, Any]:
        """As `--json`; with every_point as `--json --all`."""
        from specsim.report.paretos import pareto_json

        return {**pareto_json(self, every_point), "command": self.command}

    def to_rows(self) -> list[dict[str, Any]]:
        from specsim.report.paretos import pareto_rows

        return [flat(row) for row in pareto_rows(self)]

    def to_text(self) -> str:
        from specsim.report.paretos import pareto_text

        return pareto_text(self)


def pareto(model: str | None = None, **options: Unpack[ParetoOptions]) -> Pareto:
    """Every combination of draft length, GPUs, formats and limits for `model`.

    Options are those of `specsim pareto`. Raises `specsim.errors.SpecSimError` for whatever a
    caller can correct."""
    values = filled("pareto", model, options)
    return Pareto.of(Study(values).run(), command_of("pareto", values))


class Study:
    """Checked axes; `run` prices them."""

    def __init__(self, values: dict[str, Any]) -> None:
        if values["model"] is None:
            raise UsageError("a MODEL is needed; `specsim models` lists them")
        self.limits = (values["max_ttft"], values["stream_floor"])
        for flag, limit in zip(("--max-ttft", "--stream-floor"), self.limits, strict=True):
            if limit is not None and not 0 < limit < float("inf"):
                raise UsageError(f"{flag} is {limit:g}; it must be above 0 and finite")
        self.base, self.axes, self.options, self.warnings = axes_of(values)

    def run(self, report: Report | None = None) -> planning.Pareto:
        """report: told (done, all) while it goes on."""
        slowest_s, floor = self.limits
        return planning.pareto(
            self.base.system, self.base.workload, self.axes, builder(self.options),
            max_ttft_s=slowest_s, stream_floor_tok_s=floor, warnings=self.warnings, report=report,
        )
