"""Predicted serving of equal requests against what can be said by hand."""

import pytest

from specsim.accuracy.run_serving import (
    ServingLoad,
    measured_figures,
    predict_serving,
    serving_system,
)
from specsim.calibrate.price import Models
from specsim.calibrate.records import RunHeader
from specsim.errors import FormatError, UsageError
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.latency.shape import PrefillChunk, StepShape
from specsim.model.catalogue import find_model
from specsim.sim.build import Deployment

CPU, ENGINE = load_profile("cpu-generic"), find_engine("specsim")
SPEC = find_model("SmolLM2-135M")


def test_one_client_without_speculation_by_hand() -> None:
    load = ServingLoad("none", 0, 0.0, 4, 100, 11, (), 1, 6)
    system = serving_system(SPEC, CPU, ENGINE, load)
    found = predict_serving(system, load, [0])
    prompt_s = system.latency.seconds(StepShape(prefill=(PrefillChunk(100),)))
    steps = [system.latency.seconds(StepShape(1, 1, 100.0 + i)) for i in range(10)]
    assert found["ttft_s_p50"] == pytest.approx(prompt_s, rel=1e-6)
    assert found["tpot_s_p50"] == pytest.approx(sum(steps) / 10, rel=1e-3)
    assert found["output_tok_s"] == pytest.approx(11 / (prompt_s + sum(steps)), rel=1e-3)
    assert found["tokens_per_step"] == 1.0


def test_speculation_gives_the_tokens_per_step_of_its_rate() -> None:
    load = ServingLoad("ngram", 3, 0.6, 4, 50, 400, (), 2, 20)
    found = predict_serving(serving_system(SPEC, CPU, ENGINE, load), load, range(3))
    assert found["tokens_per_step"] == pytest.approx(1 + 0.6 + 0.36 + 0.216, rel=0.02)


def test_waiting_shows_in_the_time_to_first_token() -> None:
    arrivals = tuple(0.01 * i for i in range(12))
    crowded = ServingLoad("none", 0, 0.0, 2, 64, 16, arrivals)
    roomy = ServingLoad("none", 0, 0.0, 12, 64, 16, arrivals)
    late = predict_serving(serving_system(SPEC, CPU, ENGINE, crowded), crowded, [0])
    soon = predict_serving(serving_system(SPEC, CPU, ENGINE, roomy), roomy, [0])
    assert late["ttft_s_p95"] > 1.5 * soon["ttft_s_p95"]


def test_the_decoder_is_simulated_with_exact_prices_and_no_prefix_cache() -> None:
    load = ServingLoad("none", 0, 0.0, 4, 50, 10, (), 1, 1)
    config = Deployment(serving_system(SPEC, CPU, ENGINE, load)).config
    assert config.exact_cost and not config.rules.prefix_caching
    assert config.rules.readback_lag_steps == 0 and config.rules.max_num_batched_tokens == 512


def test_a_load_needs_arrivals_or_clients() -> None:
    with pytest.raises(UsageError, match="arrivals, or clients"):
        ServingLoad("none", 0, 0.0, 4, 50, 10)


def test_figures_of_a_measured_run() -> None:
    series = {"arrival_s": [0.0, 1.0], "ttft_s": [0.1, 0.3], "tpot_s": [0.01, 0.03],
              "e2el_s": [0.5, 1.0]}
    found = measured_figures(series, 20, 1.5)
    assert found["output_tok_s"] == pytest.approx(40 / 2.0)
    assert found["ttft_s_p50"] == pytest.approx(0.2)
    assert found["tokens_per_step"] == 1.5


def test_a_model_that_a_header_lacks_is_named() -> None:
    header = RunHeader(device={"kind": "cpu", "name": "x"}, software={}, models={}, seed=0,
                       threads=1, date="2026-01-01", grid="small")
    with pytest.raises(FormatError, match=r"model 'absent'.*header does not describe"):
        Models().spec(header, "absent", "bf16")
