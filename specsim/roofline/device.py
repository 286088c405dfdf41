"""What the kernel model reads from a hardware profile, and how its parameters are found.

A kernel family has a table of dimensionless fractions, seconds and exponents: `gemm.bf16`,
`attn_decode.fp8`, ... An engine's own variant (`gemm.fp8@sglang`) is preferred when the
engine is named. A profile without measured tables gets `defaults.assumed`, whose numbers
describe how such kernels behave relative to any device's peaks.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from specsim.errors import UsageError
from specsim.roofline.defaults import assumed

Params = Mapping[str, float]
FIDELITIES = ("calibrated", "datasheet")


class Pricing(NamedTuple):
    """How a call is priced. fidelity: 'calibrated' by the device's kernel parameters, 'datasheet'
    by the plain roofline. engine: whose own kernel tables are preferred. rotated_copies: number
    of copies of its operands that a benchmark cycles through, 0 for operands that are always
    cold: a decode step reads gigabytes between two uses of a weight, so it finds none of it in
    the L2 cache; a benchmark of a small one does."""

    fidelity: str = "calibrated"
    engine: str = ""
    rotated_copies: int = 0

    @property
    def datasheet(self) -> bool:
        return self.fidelity == "datasheet"


CALIBRATED = Pricing()


class ParameterTable(Protocol):
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
    def l2_bytes(self) -> float: ...
    @property
    def link_bytes_per_s(self) -> float: ...
    @property
    def kernels(self) -> Mapping[str, ParameterTable]: ...


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
    "int8_w8a16": ("bf16",),
}


def compute_peak(device: Device, fmt: str) -> float:
    """Peak FLOP/s at which weights of this format are multiplied on this device."""
    try:
        wanted = COMPUTE_DTYPES[fmt]
    except KeyError:
        raise _unknown_format(fmt) from None
    flops = device.flops
    for dtype in wanted:
        peak = flops.get(dtype)
        if peak:
            return peak
    return flops["bf16"]


# Bytes of one stored weight, block scales included.
STORED_BYTES: dict[str, float] = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp32": 4.0,
    "fp8": 1.0,
    "fp8_block": 1.0 + 4.0 / (128 * 128),
    "int8": 1.0,
    "nvfp4": 0.5 + 1.0 / 16,
    "mxfp4": 0.5 + 1.0 / 32,
    "int4": 0.5 + 2.0 / 128,
    "int8_w8a16": 1.0,
}


def stored_bytes(fmt: str) -> float:
    """Bytes per stored weight of a format."""
    try:
        return STORED_BYTES[fmt]
    except KeyError:
        raise _unknown_format(fmt) from None


def native(device: Device, fmt: str) -> bool:
    """True where the device multiplies this format's own dtype."""
    return bool(device.flops.get(COMPUTE_DTYPES[fmt][0]))


_FAMILY = {
    "bf16": "bf16", "fp16": "bf16", "fp32": "bf16", "fp8": "fp8", "int8": "fp8",
    "fp8_block": "fp8_block", "nvfp4": "fp4", "mxfp4": "fp4", "int4": "weight_only",
    "int8_w8a16": "weight_only",
}


def family(device: Device, fmt: str) -> str:
    """Which kernels serve a weight format on this device: its own where the device multiplies
    it, weight-only ones (unpack, multiply in 16 bit) where it does not."""
    found = _FAMILY.get(fmt)
    if found is None:
        raise _unknown_format(fmt)
    if found != "bf16" and not native(device, fmt):
        return "weight_only"
    return found


def gemm_table(device: Device, fmt: str) -> str:
    return f"gemm.{family(device, fmt)}"


def untiled(device: Device) -> bool:
    """True for a CPU, whose libraries multiply no idle rows of a tile and run in no waves: its
    measured products say so, and formats without a table of their own do not differ in that."""
    table = device.kernels.get("gemm.bf16")
    return table is not None and bool(table.params.get("untiled"))


def _unknown_format(fmt: str) -> UsageError:
    return UsageError(f"weight format '{fmt}' is not known; use one of {', '.join(STORED_BYTES)}")


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
    return assumed()[name]
