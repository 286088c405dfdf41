"""op_time: the kernel model for each kind of op (`specsim.ops.op.OpCost`)."""

from functools import lru_cache

from specsim.errors import ProfileError, UsageError
from specsim.ops.op import OpCost
from specsim.roofline.device import FIDELITIES, Device, Pricing
from specsim.roofline.kernels import KERNELS
from specsim.roofline.result import KernelTime


@lru_cache(maxsize=64)
def _pricing(fidelity: str, engine: str) -> Pricing:
    if fidelity not in FIDELITIES:
        raise UsageError(f"fidelity '{fidelity}' is not known; use one of {', '.join(FIDELITIES)}")
    return Pricing(fidelity, engine)


def op_time(
    op: OpCost, device: Device, fidelity: str = "calibrated", engine: str = ""
) -> KernelTime:
    """Seconds of ONE of the op's `count` identical calls, by its shape.

    UsageError for an unknown fidelity or a shape that no function prices; ProfileError where a
    kernel table (of a profile made by hand) lacks a parameter.
    """
    how = _pricing(fidelity, engine)
    kernel = KERNELS.get(type(op.shape))
    if kernel is None:
        raise UsageError(f"op '{op.name}' has kind '{op.kind}', which no kernel model covers")
    try:
        return kernel(device, op.shape, how)
    except KeyError as error:
        raise ProfileError(
            f"op '{op.name}' of kind '{op.kind}' finds no {error} in the device's kernel tables; "
            "complete the tables or inherit them with "
            '[kernels] inherit = "h200-sxm"'
        ) from None
