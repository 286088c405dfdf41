"""Prefill and decode replicas, and stages, from Python: what goes together and what comes out."""

import json

import pytest

import specsim
from specsim.errors import CapacityError, UsageError

MODEL = "llama-3.1-8b"
APART = {"prefill_replicas": 1, "decode_replicas": 2}
LOAD = {"input_len": 2000, "output_len": 100, "method": "none"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"prefill_replicas": 1}, "give both"),
        ({"kv_link": "40"}, "--kv-link is given"),
        ({"kv_transfer": "chunks"}, "--kv-transfer is given"),
        ({**APART, "kv_transfer": "some"}, "whole or chunks"),
        ({**APART, "kv_link": "-1"}, "--kv-link is '-1'"),
        ({**APART, "pp": 2}, "not split into stages"),
        ({**APART, "replicas": 3}, "leave out --replicas"),
        ({**APART, "max_concurrent": 3}, "max_concurrent"),
        ({**APART, "fail": "3:1:2"}, "0 to 2"),
        ({"pp": 33}, "32 layers"),
    ],
)
def test_what_contradicts_each_other_is_refused(more: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        specsim.simulate(MODEL, rate=1.0, **LOAD, **more)


def test_predictions_are_asked_for_at_a_rate() -> None:
    with pytest.raises(UsageError, match="give --rate"):
        specsim.predict(MODEL, concurrency="4", **LOAD, **APART)
    with pytest.raises(UsageError, match="leave it out"):
        specsim.predict("deepseek-r1", tp=8, ep=8, rate="1", prefill_tp=4, **APART)
    with pytest.raises(CapacityError, match="smallest tp"):
        specsim.predict(
            "llama-3.3-70b", gpu="h100-sxm", tp=4, rate="1", prefill_tp=1, **LOAD, **APART
        )


def test_results_say_what_was_deployed() -> None:
    found = specsim.predict(MODEL, rate="3", prefill_tp=2, kv_link="ib-400", **LOAD, **APART)
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["apart"] == {
        "prefill_replicas": 1, "decode_replicas": 2, "prefill_tp": 2,
        "kv_link_bytes_per_s": 40e9, "kv_link_latency_s": 10e-6, "kv_transfer": "whole",
    }
    run = specsim.simulate(MODEL, rate=3.0, requests=40, kv_link="inf", **LOAD, **APART)
    inputs = json.loads(json.dumps(run.to_dict(), allow_nan=False))["inputs"]
    assert inputs["apart"]["kv_link_bytes_per_s"] is None
    assert inputs["config"]["prefill"]["n_replicas"] == 1
    assert "prompts on 1 (tp 1) and decoding on 2 replicas" in str(run)


def test_prefill_replicas_of_more_gpus_answer_sooner() -> None:
    one, two = (
        specsim.predict(MODEL, rate="2", prefill_tp=tp, **LOAD, **APART).points[0] for tp in (1, 2)
    )
    assert two.ttft_s < 0.8 * one.ttft_s
    assert two.tpot_s < one.tpot_s  # each GPU sends half of the cache


def test_stages_are_simulated_as_they_are_predicted() -> None:
    """One client, whose trips do not depend on how a round is put together."""
    common = {"pp": 2, "method": "none", "input_len": 1000, "output_len": 100, "concurrency": 1}
    (point,) = specsim.predict(MODEL, **{**common, "concurrency": "1"}).points
    runs = [
        specsim.simulate(MODEL, requests=30, seed=4, **common).to_dict() for _ in range(2)
    ]
    assert json.dumps(runs[0]) == json.dumps(runs[1])
    assert runs[0]["tpot_s"]["mean"] == pytest.approx(point.tpot_s, rel=0.02)
    assert runs[0]["ttft_s"]["mean"] == pytest.approx(point.ttft_s, rel=0.02)
    assert runs[0]["requests"]["finished"] == 30
    assert runs[0]["time_share"]["pipeline"] > 0
    assert runs[0]["inputs"]["pp"] == 2


def test_one_stage_is_what_it_was() -> None:
    """Byte for byte, and nothing in the result speaks of stages."""
    plain, one = (
        specsim.predict(MODEL, concurrency="1,8", **LOAD, **more).to_dict()
        for more in ({}, {"pp": 1})
    )
    assert json.dumps({**plain, "command": ""}) == json.dumps({**one, "command": ""})
    assert "pp" not in plain


@pytest.mark.slow
def test_capacity_counts_all_replicas_together() -> None:
    found = specsim.capacity(
        MODEL, unit="rate", slo="ttft_p95=1,tpot_p95=0.05", duration=20, warmup=5, replications=2,
        jobs=1, resolution=0.3, price_per_gpu_hour=2.0, **LOAD, **APART,
    )
    told = found.to_dict()
    assert told["gpus_per_replica"] == 3 and told["apart"]["decode_replicas"] == 2
    rate = specsim.predict(MODEL, rate="1", **LOAD, **APART).points[0]
    assert 0.5 < told["capacity"] / (rate.request_rate / rate.utilisation) < 1.3
    with pytest.raises(UsageError, match="stream-floor"):
        specsim.capacity(MODEL, unit="rate", slo="ttft_p95=1", stream_floor=20, **LOAD, **APART)
