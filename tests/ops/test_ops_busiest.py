"""The busiest GPU of expert parallelism, against routing played out."""

import math
from dataclasses import replace

import numpy as np
import pytest

from specsim.analytic.system import System
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.latency.shape import StepShape
from specsim.model.catalogue import find_model
from specsim.ops.work import UNIFORM, Parallel, Routing


@pytest.mark.parametrize(("shape", "ranks"), [(4.0, 8), (4.0, 32), (20.0, 16), (math.inf, 32)])
def test_the_busiest_gpu_gets_what_routing_played_out_gives(shape: float, ranks: int) -> None:
    """256 experts of gamma popularity, 4096 rows on 8 of them each."""
    generator = np.random.default_rng(3)
    experts, rows = 256, 4096 * 8
    shares = []
    for _ in range(400):
        popular = (
            np.ones(experts) if math.isinf(shape) else generator.gamma(shape, 1 / shape, experts)
        )
        counts = generator.multinomial(rows, popular / popular.sum())
        shares.append(counts.reshape(ranks, -1).sum(axis=1).max() * ranks / rows)
    found = Routing(1.0, shape).busiest(experts / ranks, ranks, rows)
    assert found - 1 == pytest.approx(np.mean(shares) - 1, rel=0.2)


def test_bounds() -> None:
    assert UNIFORM.busiest(256, 1, 100) == 1.0
    assert UNIFORM.busiest(1, 64, 1) == 64.0  # one row is on one GPU
    assert UNIFORM.busiest(8, 32, 1e9) == pytest.approx(1.0, abs=1e-3)
    assert Routing(1.0, 2.0).busiest(8, 32, 1e9) > 1.4
    for rows in (100.0, 1e4, 1e9):  # copies even out what is popular, not the luck of few rows
        evened = Routing(0.5, 2.0, evened=True).busiest(8, 32, rows)
        assert evened == UNIFORM.busiest(8, 32, rows)


def test_between_nodes_the_exchange_waits_for_the_busiest() -> None:
    """Rows that all GPUs get alike would cross in less time; within a node nothing is sent so."""
    def step(groups: int, routing: Routing) -> float:
        system = System(
            find_model("deepseek-r1"), load_profile("h200-sxm"), find_engine("vllm"),
            Parallel(1, groups, groups), routing=routing,
        )
        ops = system.latency.step(StepShape(groups * 64, 1, groups * 64 * 1000.0)).ops
        return sum(op.seconds for op in ops if op.op.name == "ffn_all_reduce")

    skewed = Routing(1.0, 4.0)
    assert step(32, replace(skewed, evened=True)) == step(32, UNIFORM)
    assert step(32, skewed) > 1.1 * step(32, UNIFORM)
    assert step(8, skewed) == step(8, UNIFORM)
