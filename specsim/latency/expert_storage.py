"""Memory of experts whose sizes an engine rounds up.

Kernels for MXFP4 experts take widths in multiples of their tiles, and engines keep the weights
rounded up to those: gpt-oss, 2880 wide, takes 9 % more memory where Marlin multiplies it, 14 % on
AMD. An expert that tensor parallelism slices is rounded slice by slice.

Sizes by kernel: vLLM 0.33.0, fused_moe/oracle/mxfp4.py; SGLang 0.5.23 rounds as Marlin and Triton
do (layers/quantization/mxfp4.py). Which kernel runs where: the priorities of the former and the
kernel names in validation/data/other_gpus/moe.csv.gz.
"""

from math import ceil
from typing import NamedTuple

from specsim.model.feedforward import MoE


class _Multiples(NamedTuple):
    width: int  # of the tokens that enter and leave an expert
    inter: int  # within it


_TRITON = _Multiples(1, 64)
_MARLIN = _Multiples(256, 128)
_TRTLLM = _Multiples(256, 128)
_AMD = _Multiples(256, 256)
_AMD_PLAIN = _Multiples(128, 128)  # behind SiLU, which is not the activation of gpt-oss
_BY_ARCH = {
    "hopper": _TRITON, "xe2": _TRITON, "blackwell": _TRTLLM,
    **dict.fromkeys(("turing", "ampere", "ada", "blackwell-consumer"), _MARLIN),
    **dict.fromkeys(("cdna2", "cdna3", "cdna4", "rdna3", "rdna3.5", "rdna4"), _AMD),
}


def rounded_up(part: MoE, hidden: int, arch: str, slices: int) -> float:
    """Memory of routed experts over that of their weights, each expert cut into so many slices."""
    multiples = _BY_ARCH.get(arch)
    if part.weight.name != "mxfp4" or multiples is None:
        return 1.0
    if multiples is _AMD and not part.expert_bias:
        multiples = _AMD_PLAIN
    width, inter = part.latent or hidden, ceil(part.intermediate / slices)
    kept = _multiple(width, multiples.width) * _multiple(inter, multiples.inter) * slices
    return kept / (width * part.intermediate)


def _multiple(size: int, of: int) -> int:
    return ceil(size / of) * of
