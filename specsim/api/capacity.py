"""`specsim.capacity`: the largest load within objectives, by simulation."""


from specsim.api.capacity_run import searched
from specsim.api.functions import python_function
from specsim.api.results import Decided, flat
from specsim.options.repeat import repeat
from specsim.options.sizing import CapacityOptions
from specsim.planning import capacity_result as planning
from specsim.planning.verdict_results import of_capacity


class Capacity(Decided, planning.CapacityFigures):
    """The largest load: `main.capacity`, `baseline`, `gain`, `advised_slots`, `replicas`, ..."""

    BLOCKS = "capacity.capacity_blocks"

    def to_rows(self) -> list[dict[str, object]]:
        return [flat(row) for row in self.rows()]


def run(options: CapacityOptions, bar: bool = False) -> Capacity:
    """Find the largest load of `model` within objectives, with speculation and without.

    It simulates in `jobs` processes, so a script calls it under `if __name__ == "__main__":`."""
    found = searched(options, bar=bar)
    return Capacity.of(found, repeat(options)).with_verdict(of_capacity(found))


capacity = python_function(CapacityOptions, run)
