"""`specsim.simulate`: a load on a deployment, request by request, with and without speculation."""


from specsim.api.functions import python_function
from specsim.api.results import Result
from specsim.api.simulate_run import simulated
from specsim.options.repeat import repeat
from specsim.options.serving import SimulateOptions
from specsim.report.blocks import Section
from specsim.sim import result as sim


class Simulation(Result, sim.SimulationFigures):
    """A simulated load: `comparison.main`, `comparison.baseline`, `comparison.gain`, ..."""

    def to_dict(self, over_time: bool = True) -> dict[str, object]:
        """As `--json`; over_time: with the timelines of both sides, some thousand numbers."""
        return {**sim.SimulationFigures.to_dict(self, over_time), "command": self.command}

    def to_rows(self) -> list[dict[str, object]]:
        return self.rows()

    def section(self) -> Section:
        from specsim.report.simulation import simulation_blocks

        return simulation_blocks(self)


def run(options: SimulateOptions, bar: bool = False) -> Simulation:
    """Simulate a load on `model`: one of `rate=`, `concurrency=`, `users=`, `trace=`, `scenario=`.

    Ctrl-C ends the simulation and returns what was simulated until then (`partial`)."""
    return Simulation.of(simulated(options, bar=bar), repeat(options))


simulate = python_function(SimulateOptions, run)
