"""Prices from tables against the model itself, at every step of a run, not only those checked."""

import pytest
from thinned import some

from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.api.simulate_load import fixed_plan
from specsim.options.groups import DeploymentOptions
from specsim.options.serving import SimulateOptions
from specsim.sim import step
from specsim.sim.build import Deployment
from specsim.sim.core import Core
from specsim.sim.replica import Replica
from specsim.sim.run import simulate

MOST_GAP, MOST_OF_TIME = 0.02, 0.005
DENSE = {"model": "llama-3.1-8b"}
KINDS = {
    "dense": (DENSE, 128, 128, 4),
    "dense, drafts": ({**DENSE, "tp": 8, "method": "eagle3", "k": 3}, 128, 128, 32),
    "no chunks": ({**DENSE, "engine": "sglang"}, 1024, 128, 16),
    "experts": ({"model": "gpt-oss-120b"}, 128, 64, 256),
    "experts, drafts": ({"model": "gpt-oss-120b", "method": "eagle3", "k": 3}, 2048, 128, 4),
    "recurrent": ({"model": "qwen3-next-80b-a3b", "tp": 8}, 2048, 128, 32),
    "recurrent, drafts": ({"model": "qwen3.6-27b", "method": "mtp", "k": 1}, 128, 128, 4),
    "parts of prompts": (
        {"model": "qwen3-next-80b-a3b", "tp": 8, "method": "mtp", "k": 2}, 8192, 64, 8,
    ),
    "ends of prompts": ({**DENSE, "tp": 8, "engine": "trtllm"}, 8192, 128, 32),
    "latent": ({"model": "deepseek-v3", "tp": 8, "method": "mtp", "k": 1}, 2048, 128, 32),
    "windows": ({"model": "gemma-3-27b", "engine": "trtllm"}, 128, 128, 32),
}


@pytest.mark.parametrize("kind", some(KINDS, 1))
def test_every_step_costs_what_the_model_says(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options, prompt, output, clients = KINDS[kind]
    system = build_request(DeploymentOptions(gpu="h200", **options)).system
    load = fixed_plan(
        SimulateOptions(concurrency=clients, requests=max(160, 2 * clients), range_ratio=0.6),
        Workload(prompt, output),
    )
    found = Deployment(system, settings=(("compiled", False),))
    prices: list[tuple[float, float]] = []
    surfaces = []
    price_step, make = step.price_step, Replica.__init__

    def made(self: Replica, *given: object, **named: object) -> None:
        make(self, *given, **named)
        surfaces.append(self.run.surface)

    def priced(c: Core) -> bool:
        if not price_step(c):
            return False
        prices.append((c.step_s, surfaces[0].exact_of(c)[0]))
        return True

    monkeypatch.setattr(Replica, "__init__", made)
    monkeypatch.setattr(step, "price_step", priced)
    result = simulate(found.config, load.make(0), found.cost, 0).summary()
    assert len(prices) == result["steps"] > 50
    error = result["cost_surface"]
    assert error["checked_steps"] > 20 and error["exact_from_step"] is None
    assert max(abs(ours / exact - 1) for ours, exact in prices) <= MOST_GAP
    assert error["max_rel_error"] <= MOST_GAP
    spent, exact = map(sum, zip(*prices, strict=True))
    assert abs(spent / exact - 1) <= MOST_OF_TIME
