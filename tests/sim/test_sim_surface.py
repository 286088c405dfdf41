"""The interpolated step cost: exact where the cost is linear, close where it is not, never
outside what was asked."""

import math

import pytest

from sim_costs import Curved, Linear, Random, config
from specsim.errors import UsageError
from specsim.latency.shape import StepShape
from specsim.sim.arrivals import gamma_times
from specsim.sim.loads import OpenLoop, requests_of
from specsim.sim.run import simulate
from specsim.sim.steplog import chunks_like
from specsim.sim.tables import ladder
from specsim.speculation.acceptance import Acceptance


def load(count=300, rate=30.0):
    from specsim.sim.lengths import Uniform

    return OpenLoop(
        requests_of(gamma_times(rate, 3), Uniform(10, 1500), Uniform(5, 200), 4, limit=count)
    )


def test_linear_cost_gives_the_same_run_as_asking_every_step():
    cost = Linear(0.004, 1e-4, 1e-5, 1e-8, 1e-4)
    settings = {"k": 2, "acceptance": Acceptance.from_rate(0.7, 2), "max_num_seqs": 64}
    fast = simulate(config(**settings), load(), cost).summary()
    exact = simulate(config(**settings, exact_cost=True), load(), cost).summary()
    for name in ("ttft_s", "tpot_s", "e2el_s"):
        assert fast[name]["mean"] == pytest.approx(exact[name]["mean"], rel=1e-6)
    assert fast["steps"] == exact["steps"]


def test_curved_cost_is_met_within_its_stated_error():
    settings = {"k": 2, "acceptance": Acceptance.from_rate(0.7, 2), "max_num_seqs": 64}
    fast = simulate(config(**settings), load(), Curved()).summary()
    exact = simulate(config(**settings, exact_cost=True), load(), Curved()).summary()
    error = fast["cost_surface"]
    assert error["checked_steps"] > 50
    assert error["median_rel_error"] < 0.002
    assert error["max_rel_error"] < 0.02 and error["exact_from_step"] is None
    for name in ("ttft_s", "tpot_s", "e2el_s"):
        gap = abs(fast[name]["mean"] / exact[name]["mean"] - 1)
        assert gap < 0.02, (name, gap)
    assert error["nodes"] < exact["steps"]


def test_decode_only_steps_are_exact_in_the_batch():
    """A staircase over sequences is met at every step of it."""

    class Staircase:
        def seconds(self, shape: StepShape) -> float:
            return 0.001 * -(-shape.decode_seqs // 8) + 1e-5 * shape.prefill_tokens

    settings = {"max_num_seqs": 50}
    requests = list(requests_of(gamma_times(400.0, 1), 1, 150, 0, limit=60))
    fast = simulate(config(**settings), OpenLoop(requests), Staircase())
    exact = simulate(config(**settings, exact_cost=True), OpenLoop(requests), Staircase())
    # Only steps with prompts are interpolated in the batch.
    ratio = fast.summary()["e2el_s"]["mean"] / exact.summary()["e2el_s"]["mean"]
    assert ratio == pytest.approx(1.0, abs=0.02)


def test_random_cost_is_asked_at_every_step():
    result = simulate(config(exact_cost=True), load(50), Random(0.01, 1))
    error = result.summary()["cost_surface"]
    assert (error["nodes"], error["checked_steps"]) == (0, 0)
    assert error["median_rel_error"] is error["max_rel_error"] is None


class Steep:
    """Jumps where no node stands by itself, in the tokens of a step with prompts."""

    def __init__(self, jumps: int) -> None:
        self.period = 4000 // jumps

    def seconds(self, shape: StepShape) -> float:
        return 0.010 + 0.004 * (shape.prefill_tokens % self.period > self.period // 2)


def test_nodes_are_added_where_steps_are_far_from_the_tables():
    def both(cost):
        runs = [simulate(config(exact_cost=exact), load(), cost).summary() for exact in (0, 1)]
        fast, exact = runs
        assert fast["ttft_s"]["mean"] == pytest.approx(exact["ttft_s"]["mean"], rel=0.02)
        return fast["cost_surface"]

    found = both(Steep(40))
    assert found["nodes_added"] > 0


def test_a_cost_that_no_table_holds_is_asked_at_every_step_with_prompts():
    """It depends on more than the sums of the chunks, so nodes do not help."""

    class ByParts:
        def seconds(self, shape: StepShape) -> float:
            odd = sum((chunk.new_tokens // 7) % 2 for chunk in shape.prefill)
            return 0.010 + 0.010 * odd + 1e-4 * shape.decode_seqs

    settings = {"max_num_seqs": 64}
    fast = simulate(config(**settings), load(), ByParts())
    exact = simulate(config(**settings, exact_cost=True), load(), ByParts())
    assert fast.summary()["cost_surface"]["exact_from_step"] is not None
    assert fast.summary()["ttft_s"]["mean"] == pytest.approx(
        exact.summary()["ttft_s"]["mean"], rel=0.01
    )


def test_many_short_prompts_in_one_step_cost_what_the_model_says():
    """128 clients with short prompts start together: one step of 8192 prompt tokens or more."""
    from specsim import simulate as command

    found = command(
        "llama-3.1-8b", gpu="h200", workload="short", concurrency=128, method="none", requests=256
    ).to_dict()
    assert found["cost_surface"]["max_rel_error"] < 0.02
    assert found["ttft_s"]["mean"] < 0.4 and found["output_tok_s"] > 10_000


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_cost_that_is_no_time_is_refused(bad):
    class Broken:
        def seconds(self, shape: StepShape) -> float:
            return bad

    with pytest.raises(UsageError, match="step cost gives"):
        simulate(config(), load(5), Broken())


@pytest.mark.parametrize(
    ("new", "span"), [(1, 1), (1, 700), (64, 32.5), (64, 500), (512, 40), (8192, 4096.5), (7, 1)]
)
def test_equivalent_chunks_keep_tokens_and_attention(new, span):
    chunks = chunks_like(new, span)
    assert sum(chunk.new_tokens for chunk in chunks) == new
    work = sum(c.new_tokens * (2 * c.cached_tokens + c.new_tokens + 1) / 2 for c in chunks)
    assert work / new == pytest.approx(max(1.0, span), abs=0.6)


def test_ladder_ends_exactly_where_asked():
    nodes = ladder(8192, 1.5, 256)
    assert nodes[0] == 0 and nodes[-1] == 8192
    assert nodes == sorted(set(nodes))
    assert len(ladder(1, 2.0, 1, start=1)) == 2
