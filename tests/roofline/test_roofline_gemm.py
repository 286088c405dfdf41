"""Dense products: numbers by hand, the wave model on paper, the features the data shows."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from roofline_calls import gemm
from specsim.errors import UsageError
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile
from specsim.model.weights import FORMATS as WEIGHT_FORMATS
from specsim.roofline.gemm import _tiles, _waves, cache_hits

FORMATS = tuple(WEIGHT_FORMATS)
rows = st.integers(1, 4096)
widths = st.integers(1, 400).map(lambda x: 64 * x)


def at(profile: HardwareProfile, bytes_per_s: float, flops: float) -> HardwareProfile:
    return replace(profile, mem_bytes_per_s=bytes_per_s, flops={"bf16": flops})


def test_one_product_by_hand(h200: HardwareProfile) -> None:
    # (M, K, N) = (8, 4096, 12288) in bf16: 2 * 8 * 4096 * 12288 = 805,306,368 FLOP and
    # 2 * 4096 * 12288 = 100,663,296 bytes of weights; at 4.3 TB/s and 788 TFLOP/s that is
    # 23.41 us against 1.02 us.
    time = gemm(at(h200, 4.3e12, 788e12), 8, 12288, 4096, fidelity="datasheet")
    act = 2 * 8 * (4096 + 12288)
    assert time.mem_s == pytest.approx((100_663_296 + act) / 4.3e12)
    assert time.mem_s == pytest.approx(23.41e-6, rel=0.01)
    assert time.compute_s == pytest.approx(805_306_368 / 788e12)
    assert time.bound == "memory"
    assert time.seconds == time.mem_s


def test_the_ridge_of_the_datasheet_roofline(h200: HardwareProfile) -> None:
    # Weights alone: bytes = 2 n k, FLOP = 2 m n k, so the ridge is m = 788e12 / 4.3e12 = 183.3.
    # Activations raise it: at m rows they add 2 m (n + k) bytes, here 1/12288 + 1/4096 per row.
    device = at(h200, 4.3e12, 788e12)
    ridge = next(
        m for m in range(1, 400)
        if gemm(device, m, 12288, 4096, fidelity="datasheet").bound == "compute"
    )
    assert ridge == pytest.approx(183.3 * (1 + 183.3 * (1 / 12288 + 1 / 4096)), abs=3)


def test_waves_on_paper() -> None:
    table = {"p": 1e9, "tail": 1.0, "fill_penalty": 0.0, "fill_power": 1.0}
    # 2.5 waves whose tiles take 4 s each and which share 5 s of memory traffic: three of 4 s.
    assert _waves(table, 64, 64, 2.5, 4.0, 5.0) == pytest.approx(12.0)
    # Bound by memory, the tail takes its share only: 5 s in all.
    assert _waves(table, 64, 64, 2.5, 0.1, 5.0) == pytest.approx(5.0)
    # Flowing without a tail: 2.5 times 4 s.
    assert _waves({**table, "tail": 0.0}, 64, 64, 2.5, 4.0, 5.0) == pytest.approx(10.0)
    # Fewer tiles than SMs: one tile or all the bytes.
    assert _waves(table, 64, 64, 0.1, 4.0, 5.0) == pytest.approx(5.0)
    # 160 rows in tiles of 128: the second is filled by a quarter, three quarters are empty.
    penal = {**table, "fill_penalty": 0.4}
    assert _waves(penal, 160, 128, 1.0, 4.0, 1.0) == pytest.approx(4.0 * (1 + 0.4 * 0.75))


def test_k_is_split_over_idle_sms() -> None:
    table = {
        "k_step_s": 1.0, "tile_s": 0.0, "peak_frac": 1.0, "tile_by_rows": 0.0, "split_s": 1.0,
        "split_traffic": 0.0, "p": 1e9, "tail": 1.0, "fill_penalty": 0.0, "fill_power": 1.0,
    }
    # 128 SMs and 4 tiles of 256 columns: 8 parts of k. 80 steps become 10, plus 1 for the sum.
    seconds, busy = _tiles(table, 128, 128, 1024, 80, 128, 0.0, 0.0)
    assert seconds == pytest.approx(11.0)
    assert not busy
    seconds, _ = _tiles({**table, "split_s": 0.0}, 128, 128, 1024, 80, 128, 0.0, 0.0)
    assert seconds == pytest.approx(80.0)


@settings(max_examples=examples(200), deadline=None)
@given(rows, widths, widths, st.sampled_from(FORMATS))
def test_never_below_a_physical_bound(
    h200: HardwareProfile, m: int, n: int, k: int, fmt: str
) -> None:
    time = gemm(h200, m, n, k, fmt)
    weights_s = n * k * WEIGHT_FORMATS[fmt].bytes_per_weight / h200.mem_bytes_per_s
    assert time.seconds >= weights_s
    assert time.seconds >= gemm(h200, m, n, k, fmt, fidelity="datasheet").compute_s
    assert time.seconds >= max(time.mem_s, time.compute_s) * (1 - 1e-9)


@settings(max_examples=examples(150), deadline=None)
@given(rows, widths, widths, st.sampled_from(FORMATS), st.floats(1.0, 4.0))
def test_a_faster_device_is_never_slower(
    h200: HardwareProfile, m: int, n: int, k: int, fmt: str, gain: float
) -> None:
    base = gemm(h200, m, n, k, fmt).seconds
    wide = replace(h200, mem_bytes_per_s=h200.mem_bytes_per_s * gain)
    strong = replace(h200, flops={d: f * gain for d, f in h200.flops.items()})
    assert gemm(wide, m, n, k, fmt).seconds <= base * (1 + 1e-9)
    assert gemm(strong, m, n, k, fmt).seconds <= base * (1 + 1e-9)


@settings(max_examples=examples(150), deadline=None)
@given(rows, widths, widths, st.sampled_from(FORMATS))
def test_longer_k_costs_more_and_so_do_whole_row_tiles(
    h200: HardwareProfile, m: int, n: int, k: int, fmt: str
) -> None:
    """Within one count of rows; over rows only at full tiles, because a partly filled last tile
    is slower than a full one (measured: 160 rows against 256 in FP8)."""
    assert gemm(h200, m, n, k + 512, fmt).seconds >= gemm(h200, m, n, k, fmt).seconds
    full = 128 * (1 + m // 128)
    assert gemm(h200, full + 128, n, k, fmt).seconds >= gemm(h200, full, n, k, fmt).seconds * 0.999


def test_doubling_bandwidth_halves_a_memory_bound_product(h200: HardwareProfile) -> None:
    slow = gemm(h200, 1, 65536, 16384)
    fast = gemm(replace(h200, mem_bytes_per_s=2 * h200.mem_bytes_per_s), 1, 65536, 16384)
    assert fast.mem_s == pytest.approx(slow.mem_s / 2)
    assert slow.bound == "memory"
    assert fast.seconds == pytest.approx(slow.seconds / 2, rel=0.03)


def test_small_weights_are_far_from_the_bandwidth(h200: HardwareProfile) -> None:
    # Measured: a third of the bandwidth at 12 MB, five sixths beyond 500 MB.
    def share(n: int, k: int) -> float:
        return 2.0 * n * k / h200.mem_bytes_per_s / gemm(h200, 1, n, k).seconds

    assert share(2048, 3072) == pytest.approx(0.35, abs=0.06)
    assert share(65536, 8192) == pytest.approx(0.84, abs=0.04)


def test_fp8_dips_above_128_rows(h200: HardwareProfile) -> None:
    # A second row of tiles, mostly empty: 160 rows cost more than 256 in the 8192 x 8192 table
    # (44.3 us against 33.7 us), while 128 cost 26.7 us.
    at_128, at_160, at_256 = (gemm(h200, m, 8192, 8192, "fp8").seconds for m in (128, 160, 256))
    assert at_160 > at_256 > 1.15 * at_128


def test_a_verify_of_four_tokens_is_nearly_free_for_few_sequences(h200: HardwareProfile) -> None:
    # Table of t(bq)/t(b) in bf16: 1.03 for 8 x 4, 2.1 for 128 x 4.
    def penalty(batch: int) -> float:
        return gemm(h200, 4 * batch, 8192, 8192).seconds / gemm(h200, batch, 8192, 8192).seconds

    assert penalty(8) == pytest.approx(1.03, abs=0.06)
    assert penalty(128) == pytest.approx(2.1, abs=0.3)


def test_a_device_without_fp8_units_multiplies_in_16_bit(h200: HardwareProfile) -> None:
    old = replace(h200, flops={"bf16": 312e12})
    time = gemm(old, 4096, 8192, 8192, "fp8", fidelity="datasheet")
    assert time.compute_s == pytest.approx(2 * 4096 * 8192 * 8192 / 312e12)
    # Half the weight bytes still pay at one row.
    assert gemm(old, 1, 65536, 8192, "fp8").seconds < gemm(old, 1, 65536, 8192, "bf16").seconds


def test_a_benchmark_that_repeats_a_small_weight_is_faster(h200: HardwareProfile) -> None:
    assert cache_hits(1e6, 50e6) > 0.99
    assert cache_hits(500e6, 50e6) < 0.01
    cold = gemm(h200, 1, 2048, 1024).seconds
    assert gemm(h200, 1, 2048, 1024, rotated_copies=8).seconds < cold
    huge = gemm(h200, 1, 65536, 8192).seconds
    assert gemm(h200, 1, 65536, 8192, rotated_copies=8).seconds == pytest.approx(huge, rel=1e-4)


def test_engines_have_their_own_tables(h200: HardwareProfile) -> None:
    assert gemm(h200, 64, 8192, 8192, engine="sglang") != gemm(h200, 64, 8192, 8192)
    # No table of that engine: the default one.
    assert gemm(h200, 64, 8192, 8192, engine="nobody") == gemm(h200, 64, 8192, 8192)


def test_a_profile_without_tables_is_priced_by_assumption(bare: HardwareProfile) -> None:
    for fmt in FORMATS:
        assert gemm(bare, 8, 8192, 8192, fmt).seconds > 0


def test_an_unknown_format_names_the_known_ones(h200: HardwareProfile) -> None:
    with pytest.raises(UsageError, match=r"'fp7' is not known; .*use bf16, fp16"):
        gemm(h200, 8, 1024, 1024, "fp7")


def test_weight_only_kernels_waste_no_more_rows_than_eight(h200: HardwareProfile) -> None:
    # A device with little arithmetic for its bandwidth (H20): four-bit weights padded to 16 rows
    # were slower than 16-bit ones for a single row, in SGLang, which runs Marlin there.
    weak = replace(h200, flops={"bf16": 148e12}, mem_bytes_per_s=4e12, sms=78)
    one, eight, nine = (
        gemm(weak, m, 51200, 5120, "int4", engine="sglang").seconds for m in (1, 8, 9)
    )
    assert one < 0.8 * gemm(weak, 1, 51200, 5120, "bf16").seconds
    # 9 rows are multiplied as 16: twice the arithmetic of 8
    assert eight < 1.1 * one and 1.5 * eight < nine


def test_formats_without_a_table_run_without_tiles_on_a_cpu_too() -> None:
    cpu = load_profile("cpu-generic")
    times = [gemm(cpu, m, 4096, 4096, "fp8").seconds for m in (1, 16, 17, 32)]
    assert times[0] < gemm(cpu, 1, 4096, 4096, "bf16").seconds  # half the bytes
    assert times[2] < 1.1 * times[1]  # no second row of tiles begins
    assert times[3] == pytest.approx(2 * times[1], rel=0.1)
