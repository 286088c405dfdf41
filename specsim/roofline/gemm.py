"""Time of a dense linear layer y[m, n] = x[m, k] W[k, n], from how such kernels run.

Work is cut into output tiles; every SM computes one tile at a time, so tiles run in *waves*.
A tile steps through k; a step takes the time of its multiplications or, for few rows, a fixed
latency (`k_step_s` per element of k). All tiles share the memory bandwidth. So

    tile_s = tile start + k * max(2 rows tile_n / (peak per SM * peak_frac), k_step_s)
    time   = launch + cold start + activation quantisation
             + smooth maximum of waves * tile_s and bytes / bandwidth

which gives the half-speed size of small weights, the soft knee, and the dip just above
m = 128, where a second row of tiles is mostly empty. With few tiles k is split over idle SMs.
A library either picks the fastest tile of a list (`TILES`), or, as vLLM's FP8 kernel does, by
the number of rows alone (parameter `tile_by_rows`).

Bytes: weights once, activations times `act_traffic` (reads that miss the cache). FLOP: 2 m n k.
Parameters: floor_s, cold_s (extra start when weights are not in the L2 cache), mem_frac,
peak_frac, p, act_traffic, tile_s, k_step_s, tail (1: whole waves; 0: tiles flow without a
tail), split_s and split_traffic (cost of splitting k), sag and sag_s (clock loss per doubling
of the arithmetic beyond sag_s seconds: power limit), row_s and quant_frac (quantising a row of
activations to 8 bit: start and share of bandwidth), fill_penalty and fill_power (slower steps
when the last row of tiles is partly filled), tile_MxN_frac (a tile shape's speed), unpack_s
(weight-only kernels: what one SM takes to widen a weight, whatever its bits; few rows wait for it
where bandwidth is large for the SMs).
"""

from collections.abc import Mapping
from math import ceil, log2

from specsim.ops.shapes import Gemm
from specsim.roofline.device import (
    CALIBRATED,
    Device,
    Pricing,
    compute_peak,
    foreign,
    gemm_table,
    params,
    stored_bytes,
    untiled,
)
from specsim.roofline.kernels import prices
from specsim.roofline.result import KernelTime, datasheet_time, labelled, smooth_max

# (rows, columns, parameter with its share of the best tile's speed)
TILES = (
    (128, 256, ""),
    (128, 128, "tile_128x128_frac"),
    (64, 128, "tile_64x128_frac"),
    (64, 64, "tile_64x64_frac"),
    (64, 32, "tile_64x32_frac"),
    (64, 16, "tile_64x16_frac"),
)
ACT_BYTES = 2.0  # activations between kernels are 16 bit


@prices(Gemm)
def gemm(device: Device, shape: Gemm, how: Pricing = CALIBRATED) -> KernelTime:
    """Seconds for m rows through an n x k weight."""
    m, n, k, fmt, weight_bytes = shape
    stored = weight_bytes or n * k * stored_bytes(fmt)
    flops = 2.0 * m * n * k
    peak = compute_peak(device, fmt)
    bandwidth = device.mem_bytes_per_s
    name = gemm_table(device, fmt, how.engine)
    if how.datasheet:
        return datasheet_time((stored + ACT_BYTES * m * (n + k)) / bandwidth, flops / peak)
    t = params(device, name, how.engine)
    quantised = t["row_s"] > 0.0
    act = m * (k * (1.0 if quantised else ACT_BYTES) + n * ACT_BYTES)
    cache_bytes = device.l2_bytes * t["l2_frac"]
    # Seen where the copies of a benchmark outgrow the L2 (6 MB each); taken to grow up to there.
    cold_s = t["cold_s"] * min(1.0, 8.0 * stored / cache_bytes)
    if how.rotated_copies:
        cold_s *= 1.0 - cache_hits(stored * how.rotated_copies, cache_bytes)
    floor_s = t["floor_s"] + cold_s
    mem_s = (stored + t["act_traffic"] * act) / (bandwidth * t["mem_frac"])
    unpack_s = t.get("unpack_s", 0.0)
    if unpack_s and not foreign(device):
        mem_s = smooth_max(mem_s, n * k * unpack_s / device.sms, t["p"])
    ideal_s = flops / peak
    sag = 1.0
    if ideal_s > t["sag_s"] > 0.0:
        sag += t["sag"] * log2(ideal_s / t["sag_s"])
    if quantised:
        # One block of threads per row: a start cost shared by all SMs, then 3 bytes per element.
        start_s = 0.0 if foreign(device) else t["row_s"] / device.sms
        floor_s += m * smooth_max(
            start_s, k * 3.0 / (bandwidth * t["quant_frac"]), 2.0
        )
    if untiled(device):  # a CPU library: no tile of idle rows, no waves
        compute_s = ideal_s / t["peak_frac"]
        return labelled(floor_s + smooth_max(mem_s, compute_s, t["p"]), mem_s, compute_s, floor_s)
    # Few rows are multiplied as 16, 32 or 48 of a tile's 64; up to 8 by weight-only kernels as 8
    # (`m_block_size_8` of vLLM's Marlin kernels, read from its source).
    used = 8.0 if m <= 8 and name == "gemm.weight_only" else 16.0 * -(-m // 16)
    tiles_s, busy = _tiles(t, device.sms, m, n, k, used, mem_s, sag * device.sms / peak)
    seconds = floor_s + tiles_s
    if not how.rotated_copies:
        seconds = max(seconds, (stored + act) / bandwidth, ideal_s)
    # Where the step latency rather than the multiplications filled the tiles, it is latency.
    if busy:
        compute_s = max(ideal_s / t["peak_frac"], tiles_s if tiles_s > mem_s * 1.5 else 0.0)
    else:
        compute_s = ideal_s / t["peak_frac"]
        floor_s += max(0.0, tiles_s - mem_s)
    return labelled(seconds, mem_s, compute_s, floor_s)


def cache_hits(working_set: float, capacity: float) -> float:
    """Share of a cyclic working set (bytes) that a cache of `capacity` bytes serves: 1 well
    below it, 0 well above."""
    ratio = working_set / capacity
    return 1.0 / (1.0 + ratio**4)


def _tiles(
    t: Mapping[str, float], sms: int, m: float, n: float, k: float, used: float, mem_s: float,
    sm_flop_s: float,
) -> tuple[float, bool]:
    """Seconds of all waves with the best tile, and whether multiplications (not the step
    latency) fill them. used: rows that are multiplied where they are fewer than a tile's;
    sm_flop_s: seconds per FLOP of one SM at its peak."""
    step_s, start_s = t["k_step_s"], t["tile_s"]
    flop_s = 2.0 * sm_flop_s / t["peak_frac"]
    if t["tile_by_rows"]:
        rows = 64 if m <= 64 else 128
        columns = 64 if m <= 128 else 128
        mma_s = min(rows, used) * columns * flop_s
        tile_s = start_s + k * max(mma_s, step_s)
        waves = -(-m // rows) * -(-n // columns) / sms
        return _waves(t, m, rows, waves, tile_s, mem_s), mma_s > step_s
    best, busy = float("inf"), False
    split_s = t["split_s"]
    few = -(-m // 64) * -(-n // 64) <= sms
    for rows, columns, speed in TILES:
        # Narrow tiles only pay while SMs stand idle.
        if columns < 64 and not few:
            continue
        mma_s = min(rows, used) * columns * flop_s
        if speed:
            share = t.get(speed, 0.0)
            if not share:
                continue  # a shape this library does not have
            mma_s /= share
        per_k_s = mma_s if mma_s > step_s else step_s
        tiles = -(-m // rows) * -(-n // columns)
        waves = tiles / sms
        tile_s = start_s + k * per_k_s
        if max(1.0, waves) * tile_s < best:  # else it cannot be the fastest
            found = _waves(t, m, rows, waves, tile_s, mem_s)
            if found < best:
                best, busy = found, mma_s > step_s
        if split_s and waves <= 0.5:
            # Parts of k that fill the SMs with one wave: a power of two up to 8.
            split = 8 if waves <= 0.125 else 4 if waves <= 0.25 else 2
            tile_s = start_s + k / split * per_k_s
            extra_s = split_s + t["split_traffic"] * split * m * n
            if tile_s + extra_s < best:
                found = _waves(t, m, rows, waves * split, tile_s, mem_s) + extra_s
                if found < best:
                    best, busy = found, mma_s > step_s
    return best, busy


def _waves(
    t: Mapping[str, float], m: float, rows: int, waves: float, tile_s: float, mem_s: float
) -> float:
    """Seconds of `waves` waves of tiles of `rows` rows that share mem_s of memory traffic."""
    p = t["p"]
    seconds = smooth_max(mem_s, max(1.0, waves) * tile_s, p)
    if t["tail"] > 0.0 and waves > 1.0:
        whole = smooth_max(mem_s, ceil(waves) * tile_s, p)
        seconds += t["tail"] * (whole - seconds)
    penalty = t["fill_penalty"]
    if penalty > 0.0 and m > 16:
        row_tiles = -(-m // rows)
        empty = row_tiles - m / rows
        if empty > 0.0:
            seconds *= 1.0 + penalty * empty ** t["fill_power"] * min(1.0, 2.0 / row_tiles)
    return seconds
