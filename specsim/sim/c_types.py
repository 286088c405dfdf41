"""C types for the state of a replica: what `structs` lays out in memory, written as declarations.

Whole numbers are int64_t, truth included, and floats are double. A structure is known by its
address. An array stands as `{address, lengths}`, which is how `structs` keeps one in a field.
"""

from dataclasses import fields
from typing import cast

import numpy as np

from specsim.sim.structs import Kind, kinds

INT, FLOAT, NOTHING = Kind(int, 0), Kind(float, 0), Kind(type(None), 0)

_C_NAMES: dict[type, str] = {
    int: "int64_t",
    float: "double",
    type(None): "void",
    np.int64: "int64_t",
    np.float64: "double",
    np.uint8: "uint8_t",
}

# Python's rules where C has others: division rounds down, of equal values the first is taken.
HELPERS = """\
#include <math.h>
#include <stdint.h>

static inline int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}
static inline int64_t floor_mod(int64_t a, int64_t b) {
    int64_t r = a % b;
    return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
}
static inline int64_t int_min(int64_t a, int64_t b) { return b < a ? b : a; }
static inline int64_t int_max(int64_t a, int64_t b) { return b > a ? b : a; }
static inline double float_min(double a, double b) { return b < a ? b : a; }
static inline double float_max(double a, double b) { return b > a ? b : a; }
"""


def element_name(kind: Kind) -> str:
    """Of one element of an array, or of a single number or structure."""
    return f"struct {kind.element.__name__}" if kind.is_struct else _C_NAMES[kind.element]


def element_kind(kind: Kind) -> Kind:
    """What reading one element gives: bytes are read as whole numbers."""
    if kind.is_struct:
        return Kind(kind.element, 0)
    return FLOAT if kind.element in (float, np.float64) else INT


def array_name(kind: Kind) -> str:
    return element_name(kind).replace("struct ", "") + f"_array{kind.dims}"


def c_type(kind: Kind) -> str:
    """Of a variable, parameter, field or result."""
    if kind.dims:
        return array_name(kind)
    return element_name(kind) + (" *" if kind.is_struct else "")


class Declarations:
    """The structures and arrays that translated code has met, in an order that C can read."""

    def __init__(self) -> None:
        self._structs: dict[type, None] = {}
        self._arrays: dict[str, Kind] = {}

    def meet(self, kind: Kind) -> None:
        """Remember a type, with all that its fields hold."""
        if kind.dims:
            self._arrays.setdefault(array_name(kind), kind)
        if kind.is_struct and kind.element not in self._structs:
            self._structs[kind.element] = None
            for inner in kinds(kind.element).values():
                self.meet(inner)

    def text(self) -> str:
        out = [f"struct {cls.__name__};" for cls in self._structs]
        for name, kind in self._arrays.items():
            element = element_name(kind)
            out.append(f"typedef struct {{ {element} *at; int64_t shape[{kind.dims}]; }} {name};")
        for cls in self._structs:
            names = [item.name for item in fields(cast("type[object]", cls))]  # type: ignore[arg-type]
            inside = " ".join(f"{c_type(kinds(cls)[name])} {name};" for name in names)
            out.append(f"struct {cls.__name__} {{ {inside} }};")
        return "\n".join(out) + "\n"
