"""The busiest GPU of expert parallelism, against routing played out."""

import math
from dataclasses import replace

import numpy as np
import pytest

from specsim.analytic.system import System
from specsim.hardware.store import load_profile
from specsim.latency.collectives import nodes_reached
from specsim.latency.engine import find_engine
from specsim.latency.shape import StepShape
from specsim.model.catalogue import find_model
from specsim.ops.work import UNIFORM, Parallel, Routing, clumping


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


@pytest.mark.parametrize(("ranks", "expected"), [(2, 2.0), (4, 2.0), (8, 2.0), (32, 1.226)])
def test_rows_of_a_token_come_together_where_its_experts_lie_in_few_groups(
    ranks: int, expected: float
) -> None:
    """DeepSeek-V3: 8 experts in the best 4 of 8 groups of 32. Variance of a GPU's rows and nodes
    that a row reaches, against tokens drawn so."""
    generator = np.random.default_rng(5)
    rows = np.zeros((20000, ranks))
    for token in rows:
        groups = generator.choice(8, 4, replace=False)
        experts = groups[generator.integers(0, 4, 8)] * 32 + generator.integers(0, 32, 8)
        np.add.at(token, experts * ranks // 256, 1)
    drawn = rows.var(axis=0).mean() / (8 / ranks * (1 - 1 / ranks))
    assert clumping(ranks, 8, 8, 4) == pytest.approx(drawn, rel=0.03)
    assert clumping(ranks, 8, 8, 4) == pytest.approx(expected, abs=0.01)
    assert clumping(ranks, 8, 1, 1) == clumping(ranks, 8, 8, 8) == 1.0
    reached = (rows > 0).sum(axis=1).mean()
    assert nodes_reached(8, ranks, 8, 4) == pytest.approx(reached, rel=0.01)


def test_a_row_crosses_to_four_nodes_at_most() -> None:
    # Of 8 nodes without a limit 5.25, with it 4 x (1 - 0.75^8) = 3.6.
    assert nodes_reached(8, 8) == pytest.approx(5.25, abs=0.01)
    assert nodes_reached(8, 8, 8, 4) == pytest.approx(3.60, abs=0.01)


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
