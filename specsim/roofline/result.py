"""KernelTime: the price of one kernel call, and the smooth maximum it is made with.

A call can be limited by memory traffic, by arithmetic or by latency. The three terms are
kept so that a breakdown can say which one binds. Times in seconds.
"""

from typing import NamedTuple


class KernelTime(NamedTuple):
    """seconds: predicted time of one call. mem_s, compute_s, floor_s: what memory traffic,
    arithmetic and fixed latency would take alone; bound: the largest of the three
    ('memory', 'compute' or 'latency').

    A named tuple rather than a dataclass: it is made a hundred times per prediction and
    costs a third as much to build.
    """

    seconds: float
    mem_s: float
    compute_s: float
    floor_s: float
    bound: str


ZERO = KernelTime(0.0, 0.0, 0.0, 0.0, "latency")


def smooth_max(a: float, b: float, p: float) -> float:
    """(a^p + b^p)^(1/p): the sum for p = 1, max(a, b) as p grows. Needs a, b >= 0, p >= 1."""
    if a < b:
        a, b = b, a
    if b <= 0.0:
        return a
    return float(a * (1.0 + (b / a) ** p) ** (1.0 / p))


def kernel_time(
    mem_s: float, compute_s: float, floor_s: float, p: float = 1e9, p_floor: float = 1.0
) -> KernelTime:
    """Joins the three terms: memory and arithmetic overlap (exponent p), latency is paid
    before either streams at full speed (exponent p_floor; 1 adds it)."""
    work_s = smooth_max(mem_s, compute_s, p)
    return labelled(smooth_max(work_s, floor_s, p_floor), mem_s, compute_s, floor_s)


def labelled(seconds: float, mem_s: float, compute_s: float, floor_s: float) -> KernelTime:
    """A KernelTime whose bound is the largest of the three terms."""
    if mem_s >= compute_s:
        bound = "memory" if mem_s >= floor_s else "latency"
    else:
        bound = "compute" if compute_s >= floor_s else "latency"
    return KernelTime(seconds, mem_s, compute_s, floor_s, bound)


def without_launch(time: KernelTime) -> KernelTime:
    """The same call as part of one whose latency another op pays."""
    return time._replace(seconds=time.seconds - time.floor_s, floor_s=0.0)


def datasheet_time(mem_s: float, compute_s: float) -> KernelTime:
    """The plain roofline: the greater of the two, no latency."""
    if mem_s >= compute_s:
        return KernelTime(mem_s, mem_s, compute_s, 0.0, "memory")
    return KernelTime(compute_s, mem_s, compute_s, 0.0, "compute")
