"""What the kernel model reads from a hardware profile, and how its parameters are found.

A kernel family has a table of dimensionless fractions, seconds and exponents: `gemm.bf16`,
`attn_decode.fp8`, ... An engine's own variant (`gemm.fp8@sglang`) is preferred when the
engine is named. A profile without measured tables gets `defaults.assumed`, whose numbers
describe how such kernels behave relative to any device's peaks.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from specsim.model.part import WeightFormat
from specsim.model.weights import FORMATS, weight_format
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
    def arch(self) -> str: ...
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
    def link_kind(self) -> str: ...
    @property
    def kernels(self) -> Mapping[str, ParameterTable]: ...


# Architectures whose narrow units no engine feeds with a format: AMD's take MXFP4's scales only; on
# Blackwell vLLM runs the MXFP4 experts of W4A4 checkpoints through Marlin (kernel names of its
# own tables, validation/data/other_gpus/moe.csv.gz).
_NOT_FED = {
    "nvfp4": ("cdna3", "cdna4"),
    "mxfp4_w4a4": ("blackwell", "blackwell-consumer"),
    "mxfp4_w4a8": ("ada", "hopper", "blackwell-consumer", "cdna3", "cdna4"),
}
# Kernels that serve a format where its own dtype is multiplied.
_FAMILY = {
    "bf16": "bf16", "fp16": "bf16", "fp32": "bf16", "fp8": "fp8", "fp8_block": "fp8_block",
    "int8": "int8", "nvfp4": "fp4", "mxfp4_w4a4": "fp4",
    "mxfp4_w4a8": "fp4",
}


def _format(fmt: str) -> WeightFormat:
    return FORMATS.get(fmt) or weight_format(fmt)


def native(device: Device, fmt: str) -> bool:
    """True where engines multiply a format's weights in its own dtype on this device."""
    dtype = _format(fmt).compute
    return bool(device.flops.get(dtype)) and device.arch not in _NOT_FED.get(fmt, ())


def compute_peak(device: Device, fmt: str) -> float:
    """Peak FLOP/s at which weights of this format are multiplied on this device: of its own
    dtype, else of 16 bits, to which kernels unpack them."""
    return device.flops[_format(fmt).compute if native(device, fmt) else "bf16"]


def stored_bytes(fmt: str) -> float:
    """Bytes per stored weight of a format, block scales included."""
    return _format(fmt).bytes_per_weight


def family(device: Device, fmt: str) -> str:
    """Which kernels serve a weight format on this device: those of its dtype where that is
    multiplied, else weight-only ones (Marlin and its like: unpack, multiply in 16 bits)."""
    found = _FAMILY.get(fmt, "weight_only")
    return found if found == "bf16" or native(device, fmt) else "weight_only"


# Dense integers on Hopper: vLLM takes Machete before Marlin (the order of its `_POSSIBLE_KERNELS`,
# 0.25 to 0.33), TensorRT-LLM its own, both CUTLASS on Hopper's instructions; SGLang runs Marlin.
_MIXED_INPUT = ("int4", "int8_w8a16")
_MARLIN_ALONE = frozenset({"sglang"})  # variants of kernel tables


def gemm_table(device: Device, fmt: str, engine: str = "") -> str:
    """Kernel table of a dense layer's weight format, as the engine's kernels are chosen."""
    found = family(device, fmt)
    mixed = fmt in _MIXED_INPUT and device.arch == "hopper" and engine not in _MARLIN_ALONE
    return "gemm.mixed_input" if mixed and found == "weight_only" else f"gemm.{found}"


def foreign(device: Device) -> bool:
    """True for what is built otherwise than any measured device: the seconds that a GPU's core
    takes for a tile or a block say nothing about units of another size and number."""
    return device.arch == "other"


def untiled(device: Device) -> bool:
    """True for a CPU, whose libraries multiply no idle rows of a tile and run in no waves: its
    measured products say so, and formats without a table of their own do not differ in that. Also
    for a device of a make of its own."""
    return foreign(device) or plain_loops(device.kernels)


def plain_loops(kernels: Mapping[str, ParameterTable]) -> bool:
    """Whether products were fitted as a CPU's."""
    table = kernels.get("gemm.bf16")
    return table is not None and bool(table.params.get("untiled"))


# Kernels that were timed on no device, and whose parameters stand in. Engines run 8-bit integers
# through the same CUTLASS kernels as FP8. Prompts beside an 8-bit cache were timed on Hopper; heads
# of 512 run on a kernel of their own there alone.
BORROWED = {
    "gemm.int8": "gemm.fp8", "moe.int8": "moe.fp8", "attn_prefill.fp8": "attn_prefill",
    "attn_decode.bf16.hd512": "attn_decode.bf16",
}


def params(device: Device, name: str, engine: str = "") -> Params:
    """The parameters of a kernel family: the engine's own table, the device's, those of the family
    it borrows from, the assumed."""
    kernels = device.kernels
    if engine:
        table = kernels.get(f"{name}@{engine}")
        if table is not None:
            return table.params
    table = kernels.get(name)
    if table is not None:
        return table.params
    return params(device, BORROWED[name], engine) if name in BORROWED else assumed()[name]
