"""Watts of a step: shares of the limit by hand, bounds over shapes, energy per token."""

import csv
import gzip
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import list_profiles, load_profile
from specsim.latency.engine import find_engine
from specsim.latency.instance import Instance
from specsim.latency.power import Z90, KernelDemand, Power
from specsim.latency.shape import PrefillChunk, StepShape
from specsim.latency.step import LatencyModel
from specsim.methods.base import SpecSetup
from specsim.model.catalogue import find_model
from specsim.ops.work import Parallel

POWER = Power(
    limit_w=1000.0, bytes_per_s=1e12, idle=0.2, busy=0.4, stream=0.3, multiply=2.0, spread=0.1,
    pair_spread=0.05, assumed=False,
)


def model(
    profile: HardwareProfile, name: str = "llama-3.1-8b", parallel: Parallel | None = None
) -> LatencyModel:
    spec = find_model(name)
    return LatencyModel(Instance(
        spec, profile, find_engine("vllm"), parallel or Parallel(), spec.default_kv_dtype,
        SpecSetup(),
    ))


def decode(seqs: int, context: float = 1000.0) -> StepShape:
    return StepShape(seqs, 1, seqs * context)


def test_shares_of_the_limit_by_hand() -> None:
    # Of two seconds kernels run one: 0.2 + 0.5 (0.4 - 0.2) + 0.3 x 0.25 + 2 x 0.05 = 0.475.
    asked = KernelDemand(bytes=0.5e12, peak_s=0.1, kernel_s=1.0, wall_s=2.0)
    assert POWER.watts(asked) == pytest.approx(475)
    assert POWER.above_idle_j(asked) == pytest.approx(2 * 275)
    assert POWER.watts(KernelDemand()) == POWER.idle_w == pytest.approx(200)
    assert POWER.watts(KernelDemand(0, 0, 0, 3.0)) == pytest.approx(200)
    # Arithmetic at the peak asks 2 limits: the board holds it at one.
    assert POWER.watts(KernelDemand(0, 1.0, 1.0, 1.0)) == pytest.approx(1000)


@pytest.mark.parametrize("gpu", ["h200-sxm", "b200", "l4", "mi300x", "rtx-3090"])
@pytest.mark.parametrize("seqs", [1, 7, 64, 500])
@pytest.mark.parametrize("prompt", [0, 1, 4096])
def test_between_idle_and_the_limit(gpu: str, seqs: int, prompt: int) -> None:
    profile = load_profile(gpu)
    priced = model(profile)
    chunks = (PrefillChunk(prompt),) if prompt else ()
    watts = priced.power_w(replace(decode(seqs), prefill=chunks))
    idle = priced.power_w(None)
    assert watts is not None and idle is not None and profile.power_w is not None
    assert idle < watts <= profile.power_w * (1 + 1e-9)


def test_gpus_and_their_hosts_add_up() -> None:
    profile = load_profile("h200-sxm")
    one, four = model(profile), model(profile, parallel=Parallel(tp=4))
    idle = one.power_w(None)
    assert idle is not None
    assert four.power_w(None) == pytest.approx(4 * idle)
    with_host = model(replace(profile, host_w=150.0), parallel=Parallel(tp=4))
    assert with_host.power_w(None) == pytest.approx(4 * (idle + 150))
    watts, bare = with_host.power_w(decode(8)), four.power_w(decode(8))
    assert watts is not None and bare is not None
    assert watts == pytest.approx(bare + 600)


def test_energy_per_token_falls_with_the_batch_until_arithmetic_binds() -> None:
    priced = model(load_profile("h200-sxm"))
    joules = []
    for seqs in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        shape = decode(seqs, 200.0)
        joules.append((priced.power_w(shape) or 0.0) * priced.seconds(shape) / seqs)
    assert all(later < before for before, later in pairwise(joules))
    # Beyond the knee the work of a token is its own: no more is shared.
    assert joules[-1] / joules[-2] > 0.6 > joules[1] / joules[0]


def test_a_verify_step_draws_no_less_than_a_plain_one() -> None:
    """More arithmetic for the same bytes."""
    priced = model(load_profile("h200-sxm"))
    plain, wide = decode(8), replace(decode(8), decode_q_len=6)
    few, many = priced.demand(plain), priced.demand(wide)
    assert many.peak_s == pytest.approx(6 * few.peak_s, rel=0.1)
    assert many.bytes < 1.1 * few.bytes
    assert (priced.power_w(wide) or 0) >= (priced.power_w(plain) or 0)


def test_stages_share_the_layers() -> None:
    profile = load_profile("h200-sxm")
    one, two = model(profile), model(profile, parallel=Parallel(pp=2))
    shape = decode(16)
    # Two microbatches of 8 read the weights once each, and each stage has half of them.
    assert two.demand(shape).bytes == pytest.approx(one.demand(shape).bytes, rel=0.1)
    alone = two.demand(decode(1))  # one microbatch: half of the layers wait
    assert alone.bytes == pytest.approx(one.demand(decode(1)).bytes / 2, rel=0.05)
    assert alone.kernel_s <= alone.wall_s


def test_no_power_without_a_limit_or_a_table() -> None:
    profile = load_profile("h200-sxm")
    assert Power.of(replace(profile, power_w=None)) is None
    kernels = {name: table for name, table in profile.kernels.items() if name != "power"}
    assert Power.of(replace(profile, kernels=kernels)) is None
    assert model(replace(profile, power_w=None)).power_w(decode(1)) is None


def test_every_shipped_gpu_has_shares_that_make_sense() -> None:
    for name in [entry.name for entry in list_profiles()]:
        power = Power.of(load_profile(name))
        if power is None:
            assert load_profile(name).kind == "cpu"
            continue
        assert 0 < power.idle < power.busy < 1
        assert power.assumed == (name != "b200")
        # An arithmetic-bound kernel at half of its peak reaches the limit.
        assert power.busy + 0.5 * power.multiply >= 1


def test_measured_kernels_are_met_by_what_the_profile_says() -> None:
    """Long kernels of experts on the B200, as they were read, by rates worked out here."""
    path = Path(__file__).parents[2] / "validation" / "data" / "power" / "b200_kernels.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["dtype"] == "bfloat16"
                and row["family"] == "experts"]
    profile = load_profile("b200")
    power = Power.of(profile)
    assert power is not None and len(rows) > 1000
    errors = []
    for row in rows:
        tokens, hidden, inter, top_k, experts, tp, ep = (int(row[key]) for key in (
            "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size",
            "moe_ep_size"))
        weights = 3 * hidden * inter / tp
        seconds = float(row["latency_us"]) * 1e-6
        moved = 2 * min(experts, tokens * top_k) / ep * weights + 4 * tokens * hidden
        peak_s = 2 * tokens * top_k / ep * weights / profile.flops["bf16"]
        watts = power.watts(KernelDemand(moved, peak_s, seconds, seconds))
        errors.append(math.log(watts / float(row["power_w"])))
    assert abs(median(errors)) < 0.05
    assert median(abs(error) for error in errors) < 0.13
    inside = sum(abs(error) < Z90 * power.spread for error in errors) / len(errors)
    assert inside > 0.9
