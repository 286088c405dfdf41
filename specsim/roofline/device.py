"""What the kernel model reads from a hardware profile, and how its parameters are found.

A kernel family has a table of dimensionless fractions, seconds and exponents: `gemm.bf16`,
`attn_decode.fp8`, ... An engine's own variant (`gemm.fp8@sglang`) is preferred when the
engine is named. A profile without measured tables gets `defaults.ASSUMED`, whose numbers
describe how such kernels behave relative to any device's peaks.
"""

from collections.abc import Mapping
from typing import Protocol

from specsim.errors import UsageError
from specsim.roofline.defaults import ASSUMED

Params = Mapping[str, float]


class Table(Protocol):
    """Parameters of one kernel family."""

    @property
    def params(self) -> Mapping[str, float]: ...


class Device(Protocol):
    """The part of a hardware profile that prices kernels. Rates per GPU, one direction
    for the link."""

    @property
    def mem_bytes_per_s(self) -> float: ...
    @property
    def flops(self) -> Mapping[str, float]: ...
    @property
    def sms(self) -> int: ...
    @property
    def link_bytes_per_s(self) -> float: ...
    @property
    def kernels(self) -> Mapping[str, Table]: ...


# Multiplication dtype of a weight format, in order of preference: a device without the
# first takes the next (a weight-only kernel that unpacks to 16 bits).
COMPUTE_DTYPES: dict[str, tuple[str, ...]] = {
    "bf16": ("bf16",),
    "fp16": ("bf16",),
    "fp32": ("fp32", "bf16"),
    "fp8": ("fp8", "bf16"),
    "fp8_block": ("fp8", "bf16"),
    "int8": ("int8", "bf16"),
    "nvfp4": ("fp4", "bf16"),
    "mxfp4": ("fp4", "bf16"),
    "int4": ("bf16",),
}


def compute_peak(device: Device, fmt: str) -> float:
    """Peak FLOP/s at which weights of this format are multiplied on this device."""
    try:
        wanted = COMPUTE_DTYPES[fmt]
    except KeyError:
        known = ", ".join(COMPUTE_DTYPES)
        raise UsageError(f"weight format '{fmt}' is not known; use one of {known}") from None
    flops = device.flops
    for dtype in wanted:
        peak = flops.get(dtype)
        if peak:
            return peak
    return flops["bf16"]


def native(device: Device, fmt: str) -> bool:
    """True where the device multiplies this format's own dtype."""
    return bool(device.flops.get(COMPUTE_DTYPES[fmt][0]))


def params(device: Device, name: str, engine: str = "") -> Params:
    """The parameters of a kernel family: the engine's own table, the device's, the assumed."""
    kernels = device.kernels
    if engine:
        table = kernels.get(f"{name}@{engine}")
        if table is not None:
            return table.params
    table = kernels.get(name)
    if table is not None:
        return table.params
    return ASSUMED[name]
