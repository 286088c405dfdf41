"""The open loop against queueing theory: Erlang, stability, low load."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.analytic.closed import closed_loop
from specsim.analytic.open import erlang_c, open_loop
from specsim.analytic.pace import pace
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import UsageError
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.model.catalogue import find_model

SYSTEM = System(find_model("llama-3.1-8b"), load_profile("h200-sxm"), find_engine("vllm"),
                max_num_seqs=32)
CHAT = Workload(1000, 200)


# One server: the load itself. Two at load 1: 1/3. Tables: 10 at 8: 0.4092, 5 at 4: 0.5541
@pytest.mark.parametrize(
    ("servers", "load", "waits"),
    [(1, 0.5, 0.5), (1, 0.9, 0.9), (2, 1.0, 1 / 3), (3, 2.0, 4 / 9), (5, 4.0, 0.5541),
     (10, 8.0, 0.4092), (4, 0.0, 0.0), (4, 4.0, 1.0), (4, 4.5, 1.0), (4, 9.0, 1.0)],
)
def test_erlang_c(servers: int, load: float, waits: float) -> None:
    assert erlang_c(servers, load) == pytest.approx(waits, abs=5e-5)


@given(st.integers(1, 200), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
@settings(deadline=None)
def test_more_load_waits_more_and_more_servers_less(servers: int, a: float, b: float) -> None:
    low, high = sorted((a * servers, b * servers))
    assert erlang_c(servers, low) <= erlang_c(servers, high) + 1e-12
    assert erlang_c(servers + 1, low) <= erlang_c(servers, low) + 1e-12
    assert 0 <= erlang_c(servers, low) <= 1


def test_prompts_that_never_end_fill_the_batch_and_no_more() -> None:
    """Prompts first, and more come than a step of prompts holds off: they fill the batch, which
    then decodes as that of waiting clients does, and not for ever slower."""
    system = replace(SYSTEM, engine=find_engine("transformers"), max_num_seqs=16)
    full = closed_loop(system, CHAT, 16)
    state = open_loop(system, CHAT, 0.9 * full.request_rate)
    assert state.stable and state.tpot_s <= full.tpot_s * (1 + 1e-9)


def test_where_prompts_take_all_the_time_the_engine_still_admits() -> None:
    """One client completes about as many requests per second as eight; the engine takes more than
    one all the same, and outputs wait for the prompts of others."""
    system = replace(SYSTEM, profile=load_profile("rtx-a6000"), max_num_seqs=8)
    long = Workload(60_000, 3)
    rates = [closed_loop(system, long, clients).request_rate for clients in (1, 8)]
    assert rates[1] == pytest.approx(rates[0], rel=0.02)
    alone, state = closed_loop(system, long, 1), open_loop(system, long, 0.7 * rates[1])
    assert state.stable and state.tpot_s > 3 * alone.tpot_s


def test_an_idle_server_serves_as_one_client_is_served() -> None:
    alone = closed_loop(SYSTEM, CHAT, 1)
    state = open_loop(SYSTEM, CHAT, 1e-7 * alone.request_rate)
    assert state.stable
    assert state.tpot_s == pytest.approx(alone.tpot_s, rel=1e-6)
    assert state.ttft_s == pytest.approx(alone.ttft_s, rel=1e-6)
    assert state.running == pytest.approx(1e-7, rel=1e-6)
    assert state.queue_s == pytest.approx(0.0, abs=1e-9)


def test_a_request_meets_as_many_as_run_when_it_comes() -> None:
    """Probabilities of the batch by detailed balance, batch by batch."""
    rate = 0.5 * closed_loop(SYSTEM, CHAT, 32).request_rate
    times_s = [pace(SYSTEM, CHAT, n, rate).decode_s for n in range(1, 33)]
    weights = [1.0]
    for n, time_s in enumerate(times_s[:-1], start=1):
        weights.append(weights[-1] * rate * time_s / n)
    weights[-1] /= 1 - rate * times_s[-1] / 32
    mean_s = sum(w * time_s for w, time_s in zip(weights, times_s, strict=True)) / sum(weights)
    tpot_s = mean_s / (CHAT.output_len - 1)
    assert open_loop(SYSTEM, CHAT, rate).tpot_s == pytest.approx(tpot_s, rel=0.005)


def test_beyond_capacity_the_queue_is_infinite() -> None:
    full = closed_loop(SYSTEM, CHAT, 32)
    state = open_loop(SYSTEM, CHAT, 1.01 * full.request_rate)
    assert not state.stable
    assert math.isinf(state.queue_s) and math.isinf(state.ttft_s)
    assert state.utilisation == pytest.approx(1.01)
    assert state.output_tok_s == pytest.approx(full.output_tok_s)
    assert state.running == 32
    near = open_loop(SYSTEM, CHAT, 0.99 * full.request_rate)
    assert near.stable and math.isfinite(near.ttft_s)
    assert near.queue_s > open_loop(SYSTEM, CHAT, 0.8 * full.request_rate).queue_s


@given(st.floats(0.02, 0.98))
@settings(max_examples=40, deadline=None)
def test_between_the_two(load: float) -> None:
    capacity = closed_loop(SYSTEM, CHAT, 32).request_rate
    state = open_loop(SYSTEM, CHAT, load * capacity)
    assert state.output_tok_s == pytest.approx(load * capacity * 200)  # all that arrives is served
    assert 0 < state.running <= 32
    # Little's law again, between two whole batches
    stay_s = state.ttft_s - state.queue_s + state.tpot_s * 199
    assert state.running == pytest.approx(load * capacity * stay_s, rel=0.05)
    more = open_loop(SYSTEM, CHAT, min(0.985, load * 1.2) * capacity)
    assert more.tpot_s >= state.tpot_s * (1 - 1e-9)
    assert more.ttft_s >= state.ttft_s * (1 - 1e-9)


def test_one_slot_is_an_m_g_1_queue() -> None:
    # Pollaczek-Khinchine with constant service: Wq = rho / (2 (1 - rho)) service times
    single = replace(SYSTEM, max_num_seqs=1)
    service_s = 1 / closed_loop(single, CHAT, 1).request_rate
    for rho in (0.5, 0.8):
        state = open_loop(single, CHAT, rho / service_s)
        assert state.queue_s / service_s == pytest.approx(rho / (2 * (1 - rho)))
        # With exponential service the wait doubles: M/M/1.
        spread = open_loop(single, CHAT, rho / service_s, service_cv=1.0)
        assert spread.queue_s / service_s == pytest.approx(rho / (1 - rho))


@pytest.mark.parametrize("rate", [0, -1.0, math.nan, math.inf, -math.inf])
def test_impossible_rates(rate: float) -> None:
    with pytest.raises(UsageError, match="rate"):
        open_loop(SYSTEM, CHAT, rate)


def test_extreme_rates() -> None:
    assert open_loop(SYSTEM, CHAT, 1e-300).stable
    assert not open_loop(SYSTEM, CHAT, 1e300).stable


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_steepness_is_what_a_little_more_load_does(engine: str) -> None:
    system = replace(SYSTEM, engine=find_engine(engine))
    rate = 0.6 * closed_loop(system, CHAT, SYSTEM.seqs_limit).request_rate
    low, high = open_loop(system, CHAT, 0.99 * rate), open_loop(system, CHAT, 1.01 * rate)
    rise = math.log(high.tpot_s / low.tpot_s) / math.log(1.01 / 0.99)
    assert open_loop(system, CHAT, rate).steepness == pytest.approx(rise, rel=0.15)


def test_prompts_first_hold_up_decoding_by_their_own_share() -> None:
    """Whatever the batch, W = D + rate W P / size: prompts come at the rate of arrivals."""
    system = replace(SYSTEM, engine=find_engine("sglang"))
    rate = 0.3 / closed_loop(system, CHAT, 1).ttft_s
    for batch in (2, 8):
        step_s = system.decode_step_s(system.decode_shape(batch, CHAT.mean_context))
        wall_s = pace(system, CHAT, batch, rate).decode_s / (CHAT.output_len - 1)
        assert step_s < wall_s < step_s / (1 - 0.4)
