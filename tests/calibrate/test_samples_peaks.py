"""Disturbed samples are seen; a CPU's peaks are what was measured."""

from dataclasses import replace

import pytest

from calibrate_samples import header
from specsim.calibrate.peaks import last_cache_bytes, memory_rate, own_figures, product_peaks
from specsim.calibrate.records import Measurement, Timing
from specsim.calibrate.samples import faults, one_core, samples
from specsim.errors import UsageError
from specsim.hardware.store import load_profile
from specsim.options.measured import CalibrateFunctionOptions

RUN = header()
GPU = header("cuda")


def gemm(busy: float = 1.9, rate: float = 30e9, spread: float = 0.02, run=RUN,  # type: ignore[no-untyped-def]
         seconds: float = 1e-3) -> Measurement:
    timing = Timing(seconds, seconds * (1 - spread / 2), seconds * (1 + spread / 2),
                    seconds * (1 - spread), 20)
    shape = {"model": "small", "matrix": "o", "m": 8, "n": 576, "k": 576, "dtype": "bf16"}
    return Measurement("B", "gemm", shape, timing, busy, rate, run=run)


def test_contended_and_slow_samples_are_left_out() -> None:
    found = samples([*(gemm() for _ in range(10)), gemm(busy=1.0), gemm(rate=15e9),
                     gemm(busy=1.8, rate=27e9)])
    assert [bool(s.fault) for s in found] == [False] * 10 + [True, True, False]
    assert "contended" in found[10].fault and "slow memory" in found[11].fault
    assert found[12].noise == pytest.approx(0.1, rel=0.1)  # the shortfall of its memory rate
    assert found[0].noise == pytest.approx(0.01)
    assert sum(faults(found).values()) == 2


def test_a_gpu_has_no_such_signs() -> None:
    found = samples([gemm(busy=0.9, run=GPU), gemm(busy=0.1, rate=1e9, run=GPU)])
    assert not faults(found)


def test_noise_follows_the_spread_and_the_statistic_is_chosen() -> None:
    wide = samples([gemm(spread=0.4)])[0]
    assert wide.noise == pytest.approx(0.4 / 2.563 * 1.25 / 20**0.5, rel=1e-6)
    assert samples([gemm(spread=0.4)], "min")[0].seconds == pytest.approx(0.6e-3)
    with pytest.raises(UsageError, match="statistic is 'mean'; it must be median, p10 or min"):
        CalibrateFunctionOptions(statistic="mean")


@pytest.mark.parametrize(
    ("seqs", "q_len", "ctx", "small"),
    [(1, 1, 2048, True), (32, 1, 2048, False), (1, 8, 256, True), (8, 8, 256, False)],
)
def test_small_attention_is_held_to_one_core(
    seqs: int, q_len: int, ctx: int, small: bool
) -> None:
    shape = {"model": "small", "seqs": seqs, "q_len": q_len, "ctx": ctx, "heads": 9,
             "kv_heads": 3, "head_dim": 64, "dtype": "bf16"}
    record = Measurement("C", "attention", shape, Timing(1e-4, 1e-4, 1e-4, 1e-4, 9), 1.0, 30e9,
                         run=RUN)
    assert one_core(record) is small
    others = [replace(record, shape={**shape, "seqs": 32, "ctx": 4096}, cpu_over_wall=1.9)] * 5
    assert bool(samples([*others, record])[-1].fault) is not small


def stream(size: int, rate: float, op: str = "read") -> Measurement:
    return Measurement("A", "stream", {"bytes": size, "op": op}, Timing(1, 1, 1, 1, 3), 1.9, 28e9,
                       values={"bytes_per_s": rate}, run=RUN)


def test_memory_is_read_beyond_the_cache() -> None:
    reads = [stream(8 << 20, 90e9), stream(256 << 20, 31e9), stream(1 << 30, 30e9),
             stream(1 << 30, 50e9, "copy")]
    assert memory_rate(reads, 32e6) == 31e9
    # A cache of the whole host holds every size: the largest read and the probes are what there is.
    assert memory_rate(reads, 480e6) == 30e9
    assert memory_rate([], 32e6) is None


def test_a_cpu_profile_has_the_figures_of_its_machine() -> None:
    caches = {"L1": "48K", "L2": "2048K", "L3": "32M"}
    run = RUN.model_copy(update={"device": {**RUN.device, "caches": caches}})
    base = load_profile("cpu-generic")
    fast = gemm(seconds=2 * 8 * 576 * 576 / 500e9, spread=0.0)
    made = own_figures(base, run, [stream(1 << 30, 25e9), fast], "mine")
    assert made.mem_bytes_per_s == 30e9  # a probe beside a point was faster
    assert made.flops["bf16"] == pytest.approx(500e9)
    assert (made.sms, made.l2_bytes, made.mem_bytes) == (2, 32 << 20, 16 * 10**9)
    assert made.name == "mine" and "made-up machine" in made.sources["mem_bytes_per_s"]
    assert made.flops["fp32"] == base.flops["fp32"]
    assert product_peaks([fast]) == {"bf16": pytest.approx(500e9)}


@pytest.mark.parametrize(
    ("caches", "size"),
    [({"L3": "491520K"}, 491520 << 10), ({"L2": "1M"}, 1 << 20), ({}, None), (None, None),
     ({"L3": "big"}, None)],
)
def test_cache_sizes_as_systems_write_them(caches: object, size: int | None) -> None:
    assert last_cache_bytes(caches) == size
