"""Readers of the measured H200 operator tables (validation/data/h200, see its README there).

Every reader yields plain rows: a shape as keyword numbers, the measured seconds, and a `group`:
the name of the shape that is fitted or held out as a whole. Cells are microseconds.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from common import DATA, read_csv

from specsim.roofline.device import Device, Pricing
from specsim.roofline.result import KernelTime

HELD_OUT_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Row:
    """One measured kernel call. kwargs: numbers of the kernel's shape and of how it is priced."""

    group: str
    kwargs: Mapping[str, Any]
    seconds: float


def called(
    kernel: Callable[..., KernelTime], shape: Callable[..., Any]
) -> Callable[..., KernelTime]:
    """A roofline function called with the numbers of its shape and of its `Pricing`."""

    def price(device: Device, *sizes: float, **named: Any) -> KernelTime:
        how = {name: named.pop(name) for name in Pricing._fields if name in named}
        return kernel(device, shape(*sizes, **named), Pricing(**how))

    return price


def held_out(group: str, share: float = HELD_OUT_SHARE) -> bool:
    """Whether a whole shape belongs to the hold-out: decided by a hash of its name, so that it
    never depends on the order or the number of rows."""
    digest = hashlib.sha256(group.encode()).digest()
    return int.from_bytes(digest[:4], "big") < share * 2**32


def wide(file: str) -> Iterator[tuple[dict[str, str], int, float]]:
    """(labels, value of the wide column, microseconds) for every filled cell of a table."""
    for line in read_csv(DATA / "h200" / file):
        labels = {name: value for name, value in line.items() if not name.isdigit()}
        for column, cell in line.items():
            if column.isdigit() and cell:
                yield labels, int(column), float(cell)
