"""Units used everywhere in specsim, in one place.

Times are seconds, sizes are bytes, work is FLOP with a multiply-add counted as 2.
GB is 1e9 bytes (as datasheets and bandwidths use it); GiB is 2**30 bytes and is
named wherever it is meant. Rates are per GPU unless a name says otherwise.
"""

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


def counted(value: float, noun: str) -> str:
    """'1 replica', '2 replicas', '1,024 layers'."""
    number = f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"
    return f"{number} {noun}{'' if value == 1 else 's'}"
