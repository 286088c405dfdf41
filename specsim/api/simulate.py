"""`specsim.simulate`: a load on a deployment, request by request, with and without speculation."""

from typing import Any, Unpack

from specsim.api.parameters import SimulateOptions, filled
from specsim.api.repeat import command_of
from specsim.api.results import Result
from specsim.api.simulate_run import run
from specsim.sim import result as sim


class Simulation(Result, sim.Simulation):
    """A simulated load: `comparison.main`, `comparison.baseline`, `comparison.gain`, ..."""

    def to_dict(self, over_time: bool = True) -> dict[str, Any]:
        """As `--json`; over_time: with the timelines of both sides, some thousand numbers."""
        return {**sim.Simulation.to_dict(self, over_time), "command": self.command}

    def to_rows(self) -> list[dict[str, Any]]:
        return self.rows()

    def to_text(self) -> str:
        from specsim.report.simulation import simulation_text

        return simulation_text(self)


def simulate(model: str | None = None, **options: Unpack[SimulateOptions]) -> Simulation:
    """Simulate a load on `model`: one of `rate=`, `concurrency=`, `users=`, `trace=`, `scenario=`.

    Options are those of `specsim simulate`. Raises `specsim.errors.SpecSimError` for whatever a
    caller can correct. Ctrl-C ends the simulation and returns what was simulated until then
    (`partial`)."""
    values = filled("simulate", model, options)
    found = run({**values, "json_out": False, "csv_out": False}, frozenset(options), bar=False)
    return Simulation.of(found, command_of("simulate", values))
