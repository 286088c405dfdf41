"""Kernel tables that a profile takes from another device's.

Fractions of a peak carry over in kind between devices that are built alike. Where a device has its
sibling's design with most of its arithmetic switched off (GeForce and A10G against the workstation
card, H20 against H200: half the peak per SM or less), what kept the sibling's kernels from their
peak costs the same time beside arithmetic that takes longer:

* a matrix product loads its next tile while it multiplies: it reaches the sibling's rate per SM,
  or its own peak as closely as the best measured kernels, whichever is less;
* attention waits for its softmax between two products (FlashAttention-2; arXiv 2407.08608,
  section 3.2): with the share f of the peak, 1 / f - 1 of the arithmetic's time is such waiting.
"""

from collections.abc import Mapping
from dataclasses import replace

from specsim.hardware.profile import HardwareProfile, KernelTable

HALVED = 0.6  # of the peak per SM: the same design with a part switched off, at any clock
CLOSEST = 0.97  # of a peak: the limit of all fits
# Tensor cores of one width: 512 16-bit multiply-adds per SM and cycle in Turing, in the Ampere of
# graphics cards and in Ada (NVIDIA's architecture papers); the A100's, not of this make, have 1024.
_ALIKE = {"turing": "ada", "ampere": "ada"}
# Decode with heads of 512 runs on FlashAttention 4, with 2 us per sequence, on Hopper alone; with
# SGLang on Triton, there and on AMD. On Blackwell and Ada it was measured as with other heads.
_WIDEST = "attn_decode.bf16.hd512"
_WIDEST_TRITON = (f"{_WIDEST}@", "attn_prefill.hd512@")
# Prompts in 8 bits and TensorRT-LLM's: of Hopper's kernels too.
_OF_THE_ARCHITECTURE = (
    _WIDEST, "attn_prefill.fp8", "attn_prefill@trtllm", "attn_prefill.fp8@trtllm",
)
_NO_TRITON = ("ada", "blackwell", "blackwell-consumer")
_PRODUCTS = ("gemm", "moe")
_FRACTIONS = ("peak_frac", "wide_frac", "narrow_frac")


def inherited_tables(
    parent: HardwareProfile, arch: str, sms: float, flops: Mapping[str, float]
) -> dict[str, KernelTable]:
    """The parent's tables for a device of this architecture, SMs and peaks (FLOP/s by format)."""
    tables = {}
    alike = parent.arch in (arch, _ALIKE.get(arch))
    for name, table in parent.kernels.items():
        if (name in _OF_THE_ARCHITECTURE and not alike) or (
            name.startswith(_WIDEST_TRITON) and arch in _NO_TRITON
        ):
            continue
        params = dict(table.params)
        family, _, rest = name.partition(".")
        kind = rest.partition("@")[0]
        left = _left(parent, sms, flops, kind if kind in flops else "bf16")
        if alike and left <= HALVED and family in (*_PRODUCTS, "attn_prefill"):
            for key in _FRACTIONS:
                if key in params:
                    params[key] = _fraction(params[key], left, family in _PRODUCTS)
        if not alike:  # prompts with narrow heads: of kernels that overlap softmax and products
            params.pop("narrow_frac", None)
        tables[name] = replace(
            table, params=params, assumed=True,
            inherited_from=table.inherited_from or parent.name,
        )
    return tables


def _left(
    parent: HardwareProfile, sms: float, flops: Mapping[str, float], kind: str
) -> float:
    """Peak per SM over the parent's; 1 where either is not known."""
    own, whole = flops.get(kind), parent.flops.get(kind)
    if not (own and whole and sms and parent.sms):
        return 1.0
    return own / sms / (whole / parent.sms)


def _fraction(fraction: float, left: float, overlaps: bool) -> float:
    """What a kernel reaches of a peak of which only the share `left` is there."""
    if overlaps:
        return max(fraction, min(CLOSEST, fraction / left))
    return 1.0 / (1.0 + (1.0 / fraction - 1.0) * left)
