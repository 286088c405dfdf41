"""`specsim.tune`: the best method and draft length per load, and what to type for it."""

from dataclasses import replace
from typing import Any

from specsim.api.deployment import DeploymentRequest
from specsim.api.functions import python_function
from specsim.api.results import Decided, DeployedAs, flat
from specsim.api.tune_plan import check_plan, plan_runs
from specsim.api.tune_setup import build_offer
from specsim.api.verdicts import unmeasured
from specsim.errors import UsageError
from specsim.jsonable import Key
from specsim.options.declare import repeat
from specsim.options.tuning import TuneOptions
from specsim.options.values import parse_concurrency, parse_contexts, parse_rates
from specsim.planning import tune as planning
from specsim.planning.tune_choices import OfferedLoad
from specsim.planning.tune_map import CLIENTS, CONTEXTS, MOST_CELLS
from specsim.planning.verdict_results import of_tuning
from specsim.report.progress import task_bar
from specsim.sim.slo import parse_slo

DEFAULT_CLIENTS = (1, 8, 64)
SHOW_BAR_FROM = 20  # loads; some seconds


class Tuning(Decided, planning.TuningFigures, DeployedAs):
    """The choice per load: `answers`, each with `best`, `candidates`, `flags`, ..."""

    BLOCKS = "tuning.tuning_section"
    ep = attention_dp = input_len = output_len = Key[int]()
    slo = Key[dict[str, float]]()
    methods = Key[list[dict[str, Any]]]()
    # One value for one load, by load for several.
    best_k = Key[int | dict[str, int | None] | None]()
    best_method = Key[str | dict[str, str | None] | None]()
    candidates = Key[list[dict[str, Any]]]()
    flags = Key[dict[str, Any] | None]()
    map = Key[dict[str, Any] | None]()

    def to_rows(self) -> list[dict[str, object]]:
        if self.by_cell is not None:
            return [flat(cell.to_dict()) for cell in self.by_cell.cells]
        return [flat(row) for row in self.candidate_rows()]


def loads_of(options: TuneOptions) -> list[OfferedLoad]:
    """The loads that --concurrency or --rate name."""
    if options.rate is not None:
        return [OfferedLoad(rate=value) for value in parse_rates(options.rate)]
    usual = DEFAULT_CLIENTS if options.by is None else CLIENTS
    return [OfferedLoad(value) for value in parse_concurrency(options.concurrency, usual)]


def _contexts(options: TuneOptions, own: int, loads: int) -> list[int]:
    """Lengths of the prompts in the map that --by asks for; none where it does not."""
    if options.by != "batch,context":
        if options.contexts is not None:
            raise UsageError("--contexts are rows of the map; add --by batch,context")
        if options.by is None:
            return []
    if options.rate is not None:
        raise UsageError("--by maps a closed loop; give --concurrency in place of --rate")
    if options.by == "batch":
        return [own]
    found = list(CONTEXTS) if options.contexts is None else parse_contexts(options.contexts)
    if len(found) * loads > MOST_CELLS:
        raise UsageError(
            f"{len(found)} --contexts x {loads} --concurrency are {len(found) * loads} cells; give "
            f"at most {MOST_CELLS}"
        )
    return found


def run(options: TuneOptions, bar: bool = False) -> Tuning:
    """Choose method and draft length of `model` for every load (`concurrency=` or `rate=`)."""
    loads = loads_of(options)
    gates = {} if options.slo is None else parse_slo(str(options.slo))
    if options.slo is not None and not gates:
        raise UsageError("--slo is empty; write limits like ttft_mean=2,stream_tok_s_mean=15")
    planned = check_plan(options)
    offer = build_offer(options)
    contexts = _contexts(options, offer.workload.input_len, len(loads))
    many = len(loads) >= SHOW_BAR_FROM or options.by == "batch,context"
    with task_bar(bar and many, "loads") as report:
        found = planning.tune(
            offer, loads, objective=options.objective, gates=gates, longest=options.max_k,
            contexts=contexts, report=report,
        )
    if planned:
        found = replace(found, plan=plan_runs(options, offer, found, loads))
    case = None
    if offer.plain is not None and offer.unknown is not None:
        case = unmeasured(DeploymentRequest(offer.plain, offer.workload, (), offer.unknown))
    decided = found.plan is not None and found.plan.measured  # by runs, not by predictions
    verdict = None if decided else of_tuning(found, offer.names, case)
    return Tuning.of(found, repeat(options)).with_verdict(verdict)


tune = python_function(TuneOptions, run)
