"""`specsim.pareto`: speed for one user against throughput of a GPU, over all that can be set."""

from typing import Any

from specsim.api.functions import python_function
from specsim.api.pareto_axes import axes_of, builder, one_deployment
from specsim.api.results import Deployed, Result, flat
from specsim.errors import UsageError
from specsim.jsonable import Key
from specsim.options.analytic import ParetoOptions
from specsim.options.repeat import repeat
from specsim.options.values import parse_speeds
from specsim.planning import pareto as planning
from specsim.planning.pareto_at import with_speeds
from specsim.report.blocks import Section
from specsim.report.progress import task_bar

SHOW_BAR_FROM = 3000  # combinations: about two seconds


class Pareto(Result, planning.ParetoFigures, Deployed):
    """All combinations as `points`; the best of them as `frontier`, `speculative`, `plain`."""

    engine_version = method = Key[str]()
    draft = Key[str | None]()
    input_len = output_len = combinations = feasible = Key[int]()
    infeasible_examples = Key[dict[str, str]]()
    frontier_speculative = frontier_plain = Key[list[dict[str, Any]]]()

    def to_dict(self, every_point: bool = False) -> dict[str, object]:
        """As `--json`; with every_point as `--json --all`."""
        from specsim.report.paretos import pareto_json

        return {**pareto_json(self, every_point), "command": self.command}

    def section(self) -> Section:
        from specsim.report.paretos import pareto_blocks

        return pareto_blocks(self)

    def to_rows(self) -> list[dict[str, object]]:
        from specsim.report.paretos import pareto_rows

        return [flat(row) for row in pareto_rows(self)]


def run(options: ParetoOptions, bar: bool = False) -> Pareto:
    """Every combination of draft length, GPUs, formats and limits for `model`."""
    if options.model is None:
        raise UsageError("a MODEL is needed; `specsim models` lists them")
    speeds = [] if options.at is None else parse_speeds(options.at)
    if options.price_per_gpu_hour is not None and not speeds:
        raise UsageError("--price-per-gpu-hour prices the tokens at a speed; give --at, too")
    floor = options.stream_floor or 0.0
    if speeds and speeds[0] < floor:
        raise UsageError(
            f"--at has {speeds[0]:g} tok/s, but --stream-floor leaves out what is slower than "
            f"{floor:g}; ask for {floor:g} or more, or leave one out"
        )
    base, axes = axes_of(options)
    one = one_deployment(options)
    if base.system.speculative and not one.draft:
        # The method that is best for the smallest replica is compared at every width.
        one = one.but(method=base.system.setup.method)
    with task_bar(bar and axes.count >= SHOW_BAR_FROM, "combinations") as report:
        found = planning.pareto(
            base.system, base.workload, axes, builder(one), max_ttft_s=options.max_ttft,
            stream_floor_tok_s=options.stream_floor, warnings=base.warnings, report=report,
        )
    found = with_speeds(found, speeds, options.price_per_gpu_hour, options.max_ttft)
    return Pareto.of(found, repeat(options))


pareto = python_function(ParetoOptions, run)
