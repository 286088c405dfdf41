"""Which function prices which kernel shape: one registration per family.

    @prices(Gemm)
    def gemm(device: Device, shape: Gemm, how: Pricing = CALIBRATED) -> KernelTime: ...

A plug-in prices a shape of its own the same way.
"""

from collections.abc import Callable
from typing import TypeVar

from specsim.roofline.result import KernelTime

# The shape's own type is known to the function that is registered for it, not to the table.
Kernel = Callable[..., KernelTime]  # (device, shape, how)
KERNELS: dict[type, Kernel] = {}
K = TypeVar("K", bound=Callable[..., KernelTime])


def prices(*shapes: type) -> Callable[[K], K]:
    """Register a function (device, shape, how) for kernel shapes."""

    def register(kernel: K) -> K:
        for shape in shapes:
            KERNELS[shape] = kernel
        return kernel

    return register
