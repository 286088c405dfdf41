"""Units used everywhere in specsim, in one place.

Times are seconds, sizes are bytes, work is FLOP with a multiply-add counted as 2.
GB is 1e9 bytes (as datasheets and bandwidths use it); GiB is 2**30 bytes and is
named wherever it is meant. Rates are per GPU unless a name says otherwise.
"""

import math
from collections.abc import Sequence

KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
GIB = float(2**30)
GFLOP, TFLOP = 1e9, 1e12
MS, US = 1e-3, 1e-6

# Bytes of one element. FP4 formats carry block scales on top; those are stated per
# checkpoint in `specsim.model` because the block size differs between formats.
DTYPE_BYTES: dict[str, float] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "fp4": 0.5,
    "int4": 0.5,
}

Scale = Sequence[tuple[str, float]]  # units with their factors, the largest first

TIME: Scale = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
BYTES: Scale = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
FLOPS: Scale = (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("FLOP", 1.0))


def rounded(value: float) -> str:
    """Three figures, never an exponent: 0.0123, 4.64, 69.7, 1,504."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    shown = f"{value:.3g}"
    return shown if "e" not in shown else f"{value:.12f}".rstrip("0").rstrip(".") or "0"


def quantity(value: float | None, scale: Scale) -> str:
    """A value in the unit that fits it, with three figures; a dash for none."""
    if value is None or not math.isfinite(value):
        return "-"
    unit, factor = next(
        ((unit, factor) for unit, factor in scale if float(f"{abs(value):.3g}") >= factor),
        scale[-1])
    if factor == scale[-1][1]:
        return f"{value / factor:,.0f} {unit}"  # the smallest unit is not divided
    return f"{rounded(value / factor)} {unit}"


def seconds(value: float | None) -> str:
    """A time for people: us, ms or s with three figures; a dash for none."""
    return quantity(value, TIME)


def size(value: float) -> str:
    """Bytes in decimal units with three figures."""
    return quantity(value, BYTES)


def work(value: float) -> str:
    """FLOP in decimal units with three figures."""
    return quantity(value, FLOPS)


def counted(value: float, noun: str) -> str:
    """'1 replica', '2 replicas', '1,024 layers'."""
    number = f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"
    return f"{number} {noun}{'' if value == 1 else 's'}"
