"""Demand, cost, limits, slots, loads: the parts of a capacity study without a simulation."""

from pathlib import Path

import pytest

from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import FormatError, UsageError
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.model.catalogue import find_model
from specsim.planning.capacity import check_gates, with_waiting_gate
from specsim.planning.capacity_demand import Demand, read_demand, replicas_for
from specsim.planning.capacity_loads import Arrivals, People
from specsim.planning.capacity_slots import SlotTrial, first_slots, recommend_slots
from specsim.planning.capacity_start import (
    CrowdModel,
    estimate_capacity,
    lengthened,
    turns_of,
)
from specsim.planning.cost import cost_of
from specsim.planning.limits import ADMISSION, DECODE, KV, PREFILL, UNSTABLE, name_limit
from specsim.sim.config import SimConfig
from specsim.sim.engine_rules import EngineRules
from specsim.sim.scenario import find_scenario


def system(max_num_seqs: int = 0) -> System:
    return System(
        find_model("llama-3.1-8b"), load_profile("h100-sxm"), find_engine("vllm"),
        max_num_seqs=max_num_seqs,
    )


def people() -> People:
    scenario = find_scenario("mindrouter-chat")
    return People(scenario.behaviour, scenario.duration_s, scenario.warmup_s, scenario.name)


# --- demand and replicas ------------------------------------------------------------------------


def test_replicas_carry_the_demand_and_a_failure() -> None:
    found = replicas_for(Demand("users", (1000.0,), "x"), 180.0, 0.8)
    assert found is not None
    assert (found.least, found.count, found.with_spare) == (6, 7, 7)
    assert 1000 / (found.with_spare - 1) <= 180
    lone = replicas_for(Demand("users", (100.0,), "x"), 180.0, 0.8)
    assert lone is not None and (lone.count, lone.with_spare) == (1, 2)
    exact = replicas_for(Demand("users", (720.0,), "x"), 180.0, 1.0)
    assert exact is not None and (exact.least, exact.count, exact.with_spare) == (4, 4, 5)
    assert replicas_for(Demand("users", (1.0,), "x"), 0.0, 0.8) is None


def test_demand_files(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text("hour,users\n0,10\n1,300\n\n2,144\n")
    found = read_demand(str(path))
    assert found.unit == "users" and found.peak == 300 and len(found.amounts) == 3
    plan = replicas_for(found, 180.0, 0.8)
    assert plan is not None and plan.mean_needed == pytest.approx((1 + 3 + 1) / 3)
    toml = tmp_path / "day.toml"
    toml.write_text("rate = [0.5, 2]\n")
    assert read_demand(str(toml)).unit == "requests/s"
    (tmp_path / "day.json").write_text('{"users": 12}')
    assert read_demand(str(tmp_path / "day.json")).amounts == (12.0,)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "hour,people\n1,2\n", "users or rate"),
        ("a.csv", "users\n-4\n", "line 2"),
        ("a.csv", "users\nmany\n", "many"),
        ("a.csv", "users\n0\n", "above 0"),
        ("a.csv", "", "nothing"),
        ("a.toml", "users = [", "TOML"),
        ("a.json", "[1, 2]", "table"),
        ("a.toml", 'users = ["x"]', "entry 1"),
        ("a.toml", "users = [1]\nrate = [1]", "one of"),
    ],
)
def test_bad_demand_files_are_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(FormatError, match=words):
        read_demand(str(path))


# --- cost ---------------------------------------------------------------------------------------


def test_cost_of_tokens() -> None:
    found = cost_of(1000.0, 2, load_profile("h200-sxm"), 3.0)
    # Two GPUs at 3 per hour give 3.6 million tokens an hour.
    assert found.per_million_tokens == pytest.approx(6 / 3.6)
    assert found.joules_per_token_at_most == pytest.approx(1.4)
    assert found.power_source
    assert cost_of(1000.0, 2, load_profile("h200-sxm")).per_million_tokens is None
    assert cost_of(0.0, 1, load_profile("h200-sxm"), 3.0).per_million_tokens is None


# --- gates --------------------------------------------------------------------------------------


def test_gates_must_bound_the_load() -> None:
    with pytest.raises(UsageError, match="--slo"):
        check_gates({})
    with pytest.raises(UsageError, match="output_tok_s"):
        check_gates({"output_tok_s": 100.0})
    assert with_waiting_gate({"ttft_p95": 1.0}) == {"ttft_p95": 1.0}
    assert with_waiting_gate({"stream_tok_s_p10": 15.0})["queue_p95"] == 10.0


# --- limits -------------------------------------------------------------------------------------


def summary(**changes: float) -> dict:
    flat = {
        "ttft_s.p95": 5.0, "queue_s.p95": 4.8, "running_max": 48, "running_mean": 44.0,
        "waiting_max": 30, "kv_usage_max": 0.4, "preemptions": 0, "gateway_queue_max": 0,
        "request_rate": 3.0, "error_rate": 0.0, "time_share.prefill": 0.3,
        "time_share.verify": 0.5, "time_share.draft": 0.1,
    } | {key.replace("__", "."): value for key, value in changes.items()}
    out: dict = {}
    for key, value in flat.items():
        at = out
        *path, name = key.split(".")
        for part in path:
            at = at.setdefault(part, {})
        at[name] = value
    return out


CONFIG = SimConfig(num_kv_blocks=1000, rules=EngineRules(max_num_seqs=48))


def test_limits_are_named_from_what_the_runs_show() -> None:
    def name(gate: str = "ttft_p95", offered: float | None = None, **changes: float) -> str:
        return name_limit([summary(**changes)], CONFIG, gate, 200.0, offered).name

    assert name() == ADMISSION
    assert name(running_max=30, running_mean=25, kv_usage_max=0.99) == KV
    assert name(running_max=40, running_mean=30, preemptions=12) == KV
    assert name(running_max=20, running_mean=10) == PREFILL
    assert name(queue_s__p95=0.5) == PREFILL
    assert name("stream_tok_s_p10") == DECODE
    assert name("stream_tok_s_p10", time_share__prefill=0.7, time_share__verify=0.2) == PREFILL
    assert name(offered=4.0) == UNSTABLE
    assert name(offered=3.05) == ADMISSION
    found = name_limit([summary()], CONFIG, "ttft_p95", 200.0, 4.0)
    assert found.cause == ADMISSION and any("48 of 48" in text for text in found.evidence)


# --- slots --------------------------------------------------------------------------------------


@pytest.mark.parametrize("true", [3, 17, 48, 100, 333])
@pytest.mark.parametrize("guess", [5, 40, 120, 500])
def test_seats_are_the_most_that_keep_the_floor(true: int, guess: int) -> None:
    def attempt(slots: int) -> SlotTrial:
        return SlotTrial(slots, 100.0, 15.0 * true / slots, float(slots), slots <= true)

    found = recommend_slots(guess, 15.0, attempt)
    step = 8 if guess >= 32 else 4 if guess >= 12 else 1
    assert found.slots == true // step * step
    assert found.held_by == "floor"


def test_seats_end_where_the_cache_does() -> None:
    def attempt(slots: int) -> SlotTrial:
        return SlotTrial(slots, 100.0, 30.0, float(min(slots, 50)), True)

    found = recommend_slots(64, 15.0, attempt)
    assert found.held_by == "cache" and found.slots == 64


def test_first_slots_fall_with_the_floor() -> None:
    shape = Arrivals(Workload(1024, 256))
    slots = [first_slots(system(), shape, floor) for floor in (20.0, 40.0, 80.0)]
    assert slots[0] > slots[1] > slots[2] >= 1


# --- formulas -----------------------------------------------------------------------------------


def test_turns_have_the_means_of_the_scenario() -> None:
    turns = turns_of(people())
    # 460 tokens per answer; reading at 15 tokens/s and composing take about 45 s.
    assert turns.output == pytest.approx(460, rel=0.05)
    assert turns.pause_s == pytest.approx(45, rel=0.08)
    assert 0 < turns.old < turns.prompt < turns.context


def test_crowds_obey_littles_law_and_wait_when_seats_are_few() -> None:
    model = CrowdModel(system(16), people())
    waits = []
    for users in (20, 200, 600):
        found = model.at(users)
        think_s = model.turns.pause_s
        busy = found.running + found.waiting
        # Everybody is either in the system or thinking.
        assert busy + found.request_rate * think_s == pytest.approx(users, rel=0.01)
        waits.append(found.ttft_p95_s)
    assert waits[0] < waits[1] < waits[2] and waits[2] > 10


@pytest.mark.slow
def test_estimates_grow_with_slots_and_looser_gates() -> None:
    slo = {"ttft_p95": 2.0}
    few, many = (estimate_capacity(system(n), people(), slo) for n in (8, 64))
    assert 1 < few < many
    assert estimate_capacity(system(8), people(), {"ttft_p95": 20.0}) > few
    shape = Arrivals(Workload(1024, 256))
    rate = estimate_capacity(system(64), shape, slo)
    assert 0.1 < rate < estimate_capacity(system(256), shape, slo) + 1e-9


def test_more_load_is_the_same_load_and_more() -> None:
    shape = Arrivals(Workload(100, 10), duration_s=50.0, range_ratio=0.5)
    slow = list(shape._requests(2.0, 3))
    fast = list(shape._requests(4.0, 3))
    assert len(fast) > len(slow)
    for a, b in zip(slow, fast, strict=False):
        assert b.arrival_s == pytest.approx(a.arrival_s / 2)
        assert (a.prompt_tokens, a.output_tokens) == (b.prompt_tokens, b.output_tokens)


def test_runs_are_lengthened_for_slow_answers_and_low_rates() -> None:
    slow = Arrivals(Workload(512, 4096), stretch=True)
    found = lengthened(system(8), slow, {"ttft_p95": 5.0})
    assert isinstance(found, Arrivals) and not found.stretch
    rate = estimate_capacity(system(8), slow, {"ttft_p95": 5.0})
    assert (found.duration_s - found.warmup_s) * rate >= 295
    assert found.warmup_s >= slow.warmup_s
    asked = Arrivals(Workload(512, 4096), 100.0, 10.0)
    assert lengthened(system(8), asked, {"ttft_p95": 5.0}) is asked
    chat = people()
    assert lengthened(system(8), chat, {"ttft_p95": 5.0}) is chat
