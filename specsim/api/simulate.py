"""`specsim.simulate`: a load on a deployment, request by request, with and without speculation."""

from typing import Any

from specsim.api.functions import python_function
from specsim.api.results import Result
from specsim.api.simulate_run import simulated
from specsim.jsonable import Key
from specsim.options.declare import repeat
from specsim.options.serving import SimulateOptions
from specsim.sim import result as sim
from specsim.sim.figures import Distribution


class Simulation(Result, sim.SimulationFigures):
    """A simulated load: the figures with speculation, those without as `baseline`, `gain`, ..."""

    BLOCKS = "simulation.simulation_section"
    ttft_s = tpot_s = itl_s = itl_per_token_s = e2el_s = queue_s = Key[Distribution]()
    stream_tok_s = transfer_s = Key[Distribution]()
    pools = cost_surface = trend = stationarity = Key[dict[str, Any]]()
    output_tok_s = request_rate = goodput = running_mean = running_max = Key[float]()
    waiting_mean = waiting_max = gateway_queue_max = kv_usage_mean = kv_usage_max = Key[float]()
    preemptions = steps = error_rate = stall_rate = Key[float]()
    prefix_hit_rate = acceptance_length = acceptance_rate = Key[float | None]()
    tokens_per_chunk = mean_batch = Key[float | None]()
    time_share = requests = Key[dict[str, float]]()
    window_s = Key[list[float]]()
    slo = energy = baseline = timeline = baseline_timeline = Key[dict[str, Any] | None]()
    confidence_95 = gain_confidence_95 = Key[dict[str, list[float]]]()
    gain = Key[dict[str, float | None] | None]()
    replications = Key[int]()

    def to_dict(self, over_time: bool = True) -> dict[str, object]:
        """As `--json`; over_time: with the timelines of both sides, some thousand numbers."""
        return {**sim.SimulationFigures.to_dict(self, over_time), "command": self.command}

    def to_rows(self) -> list[dict[str, object]]:
        return self.rows()

    def live(self) -> dict[str, object]:
        from specsim.report.simulation import live

        return live(self)


def run(options: SimulateOptions, bar: bool = False) -> Simulation:
    """Simulate a load on `model`: one of `rate=`, `concurrency=`, `users=`, `trace=`, `scenario=`.

    Ctrl-C ends the simulation and returns what was simulated until then (`partial`)."""
    return Simulation.of(simulated(options, bar=bar), repeat(options))


simulate = python_function(SimulateOptions, run)
