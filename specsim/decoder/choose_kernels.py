"""Which set of fused kernels a model runs with. What is not chosen is not imported."""

import torch

from specsim.decoder.attention import VerifyAttention
from specsim.decoder.kernels import LayerOps, TorchOps, verify_attention_torch


def ops_for(
    device: torch.device, dtype: torch.dtype, use_triton: bool | None = None, native: bool = False
) -> LayerOps:
    """Triton's fused kernels on CUDA (`use_triton` overrides), numba's where `native`, else torch.

    Raises UsageError when native kernels are asked for and numba is missing.
    """
    if use_triton if use_triton is not None else device.type == "cuda":
        from specsim.decoder.triton_kernels import TritonOps

        return TritonOps()
    if native:
        from specsim.decoder.native_ops import NativeOps

        return NativeOps(dtype)
    return TorchOps()


def verify_attention(use_triton: bool) -> VerifyAttention:
    """The split-KV kernel (CUDA, or Triton's interpreter), else its torch twin."""
    if use_triton:
        from specsim.decoder.triton_kernels import verify_attention as kernel

        return kernel
    return verify_attention_torch
