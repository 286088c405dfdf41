"""Joules of a load: parts that add up, the simulator beside the formulas, ratios and intervals."""

from dataclasses import replace

import pytest

import specsim
from specsim.analytic.closed import closed_loop
from specsim.analytic.energy import energy_of, ratio_interval, token_interval
from specsim.analytic.open import open_loop
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.latency.power import Power
from specsim.latency.shape import StepShape
from specsim.options.groups import DeploymentOptions as Options

LOAD = Workload(1024, 256)


def system(**options: object) -> System:
    given: dict[str, object] = {"model": "llama-3.1-8b", "method": "eagle3", "k": 3,
                                "acceptance_length": 2.8, **options}
    return build_request(Options(**given)).system


def test_decode_energy_is_the_watts_of_its_steps() -> None:
    """Long answers in a closed loop: watts of the decode step over tokens per second."""
    plain = system(method="none", k=0, acceptance_length=None)
    load = Workload(1, 4096)
    state = closed_loop(plain, load, 16)
    found = energy_of(plain, load, state)
    assert found is not None
    watts = plain.latency.power_w(plain.decode_shape(16, load.mean_context))
    assert watts is not None
    assert found.power_w == pytest.approx(watts, rel=0.01)
    assert found.joules_per_output_token == pytest.approx(watts / state.output_tok_s, rel=0.01)


@pytest.mark.parametrize("concurrency", [1, 8, 300])
def test_parts_add_up_and_hosts_are_besides(concurrency: int) -> None:
    loaded = system(tp=2)
    state = closed_loop(loaded, LOAD, concurrency)
    found = energy_of(loaded, LOAD, state)
    hosted = replace(loaded, profile=replace(loaded.profile, host_w=150.0))
    more = energy_of(hosted, LOAD, closed_loop(hosted, LOAD, concurrency))
    assert found is not None and more is not None
    assert found.joules_per_request == pytest.approx(256 * found.joules_per_output_token)
    assert found.joules_per_request * state.request_rate == pytest.approx(2 * found.power_w)
    assert found.host_joules_per_request == 0
    assert more.power_w == pytest.approx(found.power_w + 150)
    power = Power.of(loaded.profile)
    assert power is not None
    assert power.idle_w <= found.power_w <= power.limit_w * (1 + 1e-9)


def test_no_board_exceeds_its_limit_where_stages_wait_for_each_other() -> None:
    point = specsim.predict("llama-3.1-70b", tp=4, pp=2, concurrency=64, method="none").points[0]
    assert point.energy is not None
    assert 600 < point.energy.power_w <= 700 * (1 + 1e-9)


def test_an_open_loop_costs_idle_power_between_requests() -> None:
    loaded = system()
    power = Power.of(loaded.profile)
    assert power is not None
    watts = []
    for rate in (1e-4, 0.1, 1.0, 10.0):
        found = energy_of(loaded, LOAD, open_loop(loaded, LOAD, rate))
        assert found is not None
        assert found.joules_per_output_token == pytest.approx(found.power_w / rate / 256)
        watts.append(found.power_w)
    assert watts[0] == pytest.approx(power.idle_w, rel=1e-3)
    assert watts == sorted(watts)
    # Beyond the capacity no more tokens come than at it.
    most = energy_of(loaded, LOAD, open_loop(loaded, LOAD, 1e3))
    assert most is not None and most.power_w <= power.limit_w * (1 + 1e-9)


def test_prefill_apart_counts_all_replicas() -> None:
    found = specsim.predict(
        "llama-3.1-8b", rate=2.0, prefill_replicas=1, decode_replicas=2, input_len=1024,
        output_len=256,
    ).points[0].energy
    assert found is not None and found.gpus == 3
    assert found.joules_per_request * 2.0 == pytest.approx(3 * found.power_w)
    assert found.prefill_joules_per_request > 0 < found.decode_joules_per_request


def test_energy_follows_the_work_not_the_speedup_alone() -> None:
    """One client: waits shrink, arithmetic grows; the ratio is near but not 1 / speedup."""
    point = specsim.predict(
        "llama-3.1-8b", method="eagle3", k=3, acceptance_length=2.8, concurrency=1
    ).points[0]
    assert point.energy is not None and point.baseline_energy is not None
    assert point.joules_ratio == pytest.approx(
        point.energy.joules_per_output_token / point.baseline_energy.joules_per_output_token
    )
    watts = point.energy.power_w / point.baseline_energy.power_w
    assert point.joules_ratio == pytest.approx(watts / point.speedup, rel=1e-6)


def test_intervals_hold_the_values_and_the_pair_is_surer() -> None:
    loaded = system()
    point = specsim.predict(
        "llama-3.1-8b", method="eagle3", k=3, acceptance_length=2.8, concurrency=8
    ).points[0]
    low, high = point.interval_90["joules_per_output_token"] or (0.0, 0.0)
    assert point.energy is not None
    assert low < point.energy.joules_per_output_token < high
    less, more = point.interval_90["joules_ratio"] or (0.0, 0.0)
    assert less < (point.joules_ratio or 0.0) < more
    # A speedup that is known exactly leaves the pair's spread alone.
    power = Power.of(loaded.profile)
    assert power is not None and power.pair_spread < power.spread
    assert ratio_interval(loaded.plain(), None, 1.0) is None
    assert token_interval(loaded, None, 1.0) is None
    assert ratio_interval(replace(loaded, fidelity="datasheet"), 0.5, 2.0) is None


def test_at_a_rate_joules_lie_between_idle_power_and_the_limit() -> None:
    point = specsim.predict("llama-3.1-8b", rate=4.0, input_len=1024, output_len=256).points[0]
    power = Power.of(system().profile)
    low, high = point.interval_90["joules_per_output_token"] or (0.0, 0.0)
    assert point.energy is not None and power is not None
    assert power.idle_w / (4 * 256) <= low < point.energy.joules_per_output_token < high
    assert high <= power.limit_w / (4 * 256) * (1 + 1e-9)


def test_no_figure_where_the_power_is_not_known() -> None:
    found = specsim.predict("llama-3.2-1b", gpu="cpu-generic", engine="specsim")
    point = found.points[0]
    assert (point.energy, point.baseline_energy, point.joules_ratio) == (None, None, None)
    assert "J/token" not in str(found)


@pytest.mark.parametrize(("concurrency", "rate"), [(8, None), (None, 2.0)])
def test_the_simulator_integrates_what_the_formulas_say(
    concurrency: int | None, rate: float | None
) -> None:
    load = {"concurrency": concurrency, "rate": rate}
    given = {key: value for key, value in load.items() if value is not None}
    run = specsim.simulate(
        "llama-3.1-8b", input_len=1024, output_len=256, requests=150, baseline=False, **given
    ).to_dict()
    point = specsim.predict("llama-3.1-8b", input_len=1024, output_len=256, **given).points[0]
    assert point.energy is not None
    expected = point.energy.joules_per_output_token
    assert run["energy"]["joules_per_output_token"] == pytest.approx(expected, rel=0.06)
    tokens = run["output_tok_s"]
    assert run["energy"]["power_w"] == pytest.approx(
        tokens * run["energy"]["joules_per_output_token"]
    )


def test_the_integral_is_the_sum_over_the_steps_of_a_run() -> None:
    """Step by step from the trace, each priced as what it was, beside the sum by kinds of steps."""
    from specsim.sim.build import Deployment
    from specsim.sim.loads import ClosedLoop
    from specsim.sim.request import Request
    from specsim.sim.run import simulate
    from specsim.sim.steplog import chunks_like

    loaded = system(method="none", k=0, acceptance_length=None)
    deployment = Deployment(loaded)
    requests = [Request(0.0, 512, 128) for _ in range(60)]
    result = simulate(
        deployment.config, ClosedLoop(requests, 8), deployment.cost, 1,
        keep_trace=True,
    )
    figures = result.summary()["energy"]
    assert figures is not None
    stats = result.cluster.replicas[0].stats
    joules = busy_s = 0.0
    for log in stats.trace:
        for i in range(len(log.end_s)):
            new, rows = int(log.new[i]), int(log.rows[i])
            prompts = chunks_like(new, float(log.span_work[i]) / new) if new else ()
            watts = loaded.latency.power_w(
                StepShape(rows, int(log.width[i]), float(log.context[i]), prompts)
            )
            spent_s = float(log.end_s[i] - log.start_s[i])
            joules += spent_s * (watts or 0.0)
            busy_s += spent_s
    idle_w = loaded.latency.power_w(None) or 0.0
    joules += idle_w * (result.window.seconds - busy_s)
    assert figures["power_w"] == pytest.approx(joules / result.window.seconds, rel=0.005)
