"""`specsim.capacity`: the largest load within objectives, by simulation."""


from typing import Any

from specsim.api.capacity_run import searched
from specsim.api.functions import python_function
from specsim.api.results import Decided, DeployedAs
from specsim.jsonable import Key
from specsim.options.repeat import repeat
from specsim.options.sizing import CapacityOptions
from specsim.planning import capacity_result as planning
from specsim.planning.verdict_results import of_capacity
from specsim.report.deployment import live


class Capacity(Decided, planning.CapacityFigures, DeployedAs):
    """The largest load: `main.capacity`, `baseline`, `gain`, `advised_slots`, `replicas`, ..."""

    BLOCKS = "capacity.capacity_section"
    gpus_per_replica = k = max_num_seqs = advised_max_num_seqs = seed = Key[int]()
    replications_at_most = Key[int]()
    apart = load = Key[dict[str, Any]]()
    method = unit = rule = Key[str]()
    acceptance_length = sure_fail = smallest_failing = ladder_capacity = Key[float | None]()
    slo = Key[dict[str, float]]()
    capacity = sure_pass = estimate_by_formulas = Key[float]()
    trials = Key[list[dict[str, Any]]]()
    binding_limit = failing_load_with_twice_the_slots = Key[dict[str, Any] | None]()
    at_capacity = operating_point = cost = other_question = Key[dict[str, Any] | None]()
    stream_floor = with_recommended_max_num_seqs = demand = Key[dict[str, Any] | None]()
    demand_with_recommended_max_num_seqs = Key[dict[str, Any] | None]()
    recommended_max_num_seqs = Key[int | None]()
    quick = Key[bool]()

    def live(self) -> dict[str, object]:
        return {**live(self.study.system), "share": f"{self.wishes.share:.0%}"}


def run(options: CapacityOptions, bar: bool = False) -> Capacity:
    """Find the largest load of `model` within objectives, with speculation and without."""
    found = searched(options, bar=bar)
    return Capacity.of(found, repeat(options)).with_verdict(of_capacity(found))


capacity = python_function(CapacityOptions, run)
