"""Prefill and decoding apart, in closed form: theory, limits, agreement with simulation."""

import math
from dataclasses import replace

import numpy as np
import pytest

import specsim
from specsim.analytic.apart import Apart, apart_open, batch_sojourn_s, decode_load
from specsim.analytic.closed import closed_loop
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import UsageError
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.latency.kv_link import LINKS, link_rate
from specsim.model.catalogue import find_model

INFINITE = (math.inf, 0.0)
LOAD = Workload(2000, 200)


@pytest.fixture(scope="module")
def system() -> System:
    return System(find_model("llama-3.1-8b"), load_profile("h200-sxm"), find_engine("vllm"))


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
def test_one_prompt_per_step_is_md1(rho: float) -> None:
    """Pollaczek and Khinchine: a wait of rho / (2 (1 - rho)) services before one's own."""
    assert batch_sojourn_s([2.0], rho / 2.0) == pytest.approx(
        2.0 + 2.0 * rho / (2 * (1 - rho)), rel=1e-6
    )


def test_batches_are_those_of_a_server_played_out() -> None:
    """Steps of up to three requests, each as long as its number makes it."""
    step_s, rate = [1.0, 1.4, 1.8], 1.2
    generator = np.random.default_rng(5)
    arrivals = np.cumsum(generator.exponential(1 / rate, size=200_000))
    now_s, at, spent = 0.0, 0, []
    while at < len(arrivals):
        now_s = max(now_s, arrivals[at])
        count = min(3, int(np.searchsorted(arrivals, now_s, side="right")) - at)
        now_s += step_s[count - 1]
        spent.append(now_s - arrivals[at : at + count])
        at += count
    assert batch_sojourn_s(step_s, rate) == pytest.approx(
        float(np.concatenate(spent).mean()), rel=0.02
    )


def test_light_load_is_one_prompt_and_then_plain_steps(system: System) -> None:
    """At a rate of nearly nothing and over an infinite link: TTFT is that of one client, TPOT that
    of one sequence's steps."""
    found = apart_open(Apart(system, 1, 1, INFINITE), system, LOAD, 1e-4)
    alone = closed_loop(system, LOAD, 1)
    assert found.ttft_s == pytest.approx(alone.ttft_s, rel=1e-3)
    assert found.tpot_s == pytest.approx(alone.tpot_s, rel=1e-2)


def test_the_link_shows_between_first_and_second_token(system: System) -> None:
    rate = (10e9, 1e-3)
    slow, fast = (
        apart_open(Apart(system, 1, 1, link), system, LOAD, 1e-4) for link in (rate, INFINITE)
    )
    moved_s = LOAD.input_len * system.memory.kv_bytes_per_token / 10e9
    assert slow.ttft_s == fast.ttft_s
    gap_s = (slow.tpot_s - fast.tpot_s) * (LOAD.output_len - 1)
    assert gap_s == pytest.approx(moved_s + 1e-3, rel=1e-3)


def test_chunks_leave_only_the_last_to_wait_for(system: System) -> None:
    load = Workload(20_000, 200)
    whole, chunks = (
        apart_open(Apart(system, 1, 1, (20e9, 0.0), by_chunk), system, load, 1e-4)
        for by_chunk in (False, True)
    )
    sent_s = load.input_len * system.memory.kv_bytes_per_token / 20e9
    last = (load.input_len - 2 * system.batched_tokens) / load.input_len
    saved_s = (whole.tpot_s - chunks.tpot_s) * (load.output_len - 1)
    assert saved_s == pytest.approx(sent_s * (1 - last), rel=1e-3)


def test_a_step_of_short_prompts_holds_max_num_seqs_of_them(system: System) -> None:
    load = replace(LOAD, input_len=2, output_len=2)
    one, four = (
        apart_open(Apart(system.with_(max_num_seqs=most), 1, 9, INFINITE), system, load, 1.0)
        for most in (1, 4)
    )
    assert 3 < four.capacity_rate / one.capacity_rate <= 4


def test_capacity_is_that_of_the_scarcer_kind(system: System) -> None:
    def capacity(prefill: int, decode: int, rate: tuple[float, float] = INFINITE) -> float:
        return apart_open(Apart(system, prefill, decode, rate), system, LOAD, 1.0).capacity_rate

    assert capacity(2, 8) == pytest.approx(2 * capacity(1, 8))
    assert capacity(8, 2) == pytest.approx(2 * capacity(8, 1))
    assert capacity(1, 50) == capacity(1, 100)
    # A link that takes a second for a prompt carries one per second and replica.
    second = LOAD.input_len * system.memory.kv_bytes_per_token
    assert capacity(3, 50, (second, 0.0)) == pytest.approx(3.0)
    beyond = apart_open(Apart(system, 1, 1, INFINITE), system, LOAD, 1e3)
    assert not beyond.stable and math.isinf(beyond.ttft_s) and math.isfinite(beyond.tpot_s)


def test_decode_replicas_compute_no_prompt(system: System) -> None:
    """With many clients TPOT is the step, not the step and the prompts of the others."""
    state = closed_loop(system, decode_load(LOAD), 64)
    assert state.tpot_s == pytest.approx(state.step_s)
    assert closed_loop(system, LOAD, 64).tpot_s > 1.2 * state.tpot_s
    with pytest.raises(UsageError, match="nothing decodes"):
        apart_open(Apart(system, 1, 1, INFINITE), system, replace(LOAD, output_len=1), 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "prefill"), [(6.0, 1), (14.0, 2)])
def test_formulas_and_simulation_agree(rate: float, prefill: int) -> None:
    """Which is what the parts that only one of them has (whole steps, unlike luck) leave."""
    common = {
        "gpu": "h200-sxm", "method": "none", "prefill_replicas": prefill, "decode_replicas": 1,
        "input_len": 4000, "output_len": 200, "rate": rate,
    }
    (point,) = specsim.predict("llama-3.1-8b", **common).points
    run = specsim.simulate(
        "llama-3.1-8b", **common, requests=1500, warmup=10.0, replications=4
    ).comparison.main.figures
    assert point.ttft_s == pytest.approx(run["ttft_s"]["mean"], rel=0.04)
    assert point.tpot_s == pytest.approx(run["tpot_s"]["mean"], rel=0.03)
    assert point.running == pytest.approx(run["pools"]["decode"]["running_mean"], rel=0.06)


def test_links_by_name_and_number() -> None:
    h200 = load_profile("h200-sxm")
    assert link_rate(None, h200) == (40e9, 10e-6)
    assert link_rate("ib-400", h200)[0] == pytest.approx(40e9)
    assert link_rate("12.5", h200)[0] == 12.5e9
    assert link_rate("nvlink", h200)[0] == pytest.approx(0.8 * h200.link_bytes_per_s)
    assert link_rate("inf", h200) == INFINITE
    assert all(0 < rate < 1e12 for rate in LINKS.values())
    for wrong in ("0", "-3", "nan", "ib-401"):
        with pytest.raises(UsageError, match="kv-link"):
            link_rate(wrong, h200)
