"""`specsim.capacity`: the largest load within objectives, by simulation."""

from typing import Any, Unpack

from specsim.api.capacity_run import run
from specsim.api.parameters import CapacityOptions, filled
from specsim.api.repeat import command_of
from specsim.api.results import Result, flat
from specsim.planning import capacity_result as planning


class Capacity(Result, planning.Capacity):
    """The largest load: `main.capacity`, `baseline`, `gain`, `advised_seats`, `replicas`, ..."""

    def to_rows(self) -> list[dict[str, Any]]:
        return [flat(row) for row in self.rows()]

    def to_text(self) -> str:
        from specsim.report.capacity import capacity_text

        return capacity_text(self)


def capacity(model: str | None = None, **options: Unpack[CapacityOptions]) -> Capacity:
    """Find the largest load of `model` within objectives, with speculation and without.

    Options are those of `specsim capacity`; it simulates in `jobs` processes, so a script calls it
    under `if __name__ == "__main__":`. Raises `specsim.errors.SpecSimError` for whatever a caller
    can correct."""
    values = filled("capacity", model, options)
    found = run({**values, "json_out": False, "csv_out": False}, frozenset(options), bar=False)
    return Capacity.of(found, command_of("capacity", values))
