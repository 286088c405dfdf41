"""The classes of `core` as C structures, so that compiled code can read and write their fields.

A number stands in the structure itself. For an object it holds the address of another structure,
for a list or array the address of its first element and its shape; the object or array itself is an
attribute of the structure in Python. So the driver reads `core.waiting.count` as in a plain run,
and the compiled loop gets along with one address.

`Declarations` writes the same as C: whole numbers are int64_t, truth included, and floats are
double. A structure is known by its address, an array stands as `{address, lengths}`.
"""

import ctypes
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

State = TypeVar("State")
Item = TypeVar("Item")
_C_NUMBERS: dict[type, type] = {int: ctypes.c_int64, float: ctypes.c_double}


@dataclass(frozen=True, slots=True)
class Kind:
    """What a field is. element: int or float, a numpy number or a class of `core`. dims: 0 for a
    single one, else the dimensions of the array."""

    element: type
    dims: int

    @property
    def is_struct(self) -> bool:
        return is_dataclass(self.element)

    @property
    def is_number(self) -> bool:
        return self.dims == 0 and not self.is_struct


def kind_of(hint: object) -> Kind:
    """Of int, bool, float, a class of `core`, list[...] of these, or an array of `core`."""
    if get_origin(hint) is Annotated:
        array, dims = get_args(hint)
        return Kind(get_args(get_args(array)[1])[0], dims)
    if get_origin(hint) is list:
        inner = kind_of(get_args(hint)[0])
        return Kind(inner.element, inner.dims + 1)
    assert isinstance(hint, type)
    return Kind(int if hint is bool else hint, 0)


@cache
def kinds(cls: type) -> dict[str, Kind]:
    """The fields of a class of `core`, in order."""
    hints = get_type_hints(cls, include_extras=True)
    return {item.name: kind_of(hints[item.name]) for item in fields(cls)}


@cache
def struct_of(cls: type) -> type[ctypes.Structure]:
    """The structure of a class: numbers by their names, of the rest `<name>_at`, `<name>_shape`."""
    members: list[tuple[str, type]] = []
    for name, kind in kinds(cls).items():
        if kind.is_number:
            members.append((name, _C_NUMBERS[kind.element]))
        else:
            members.append((f"{name}_at", ctypes.c_int64))
        if kind.dims:
            members.append((f"{name}_shape", ctypes.c_int64 * kind.dims))
    return type(cls.__name__, (ctypes.Structure,), {"_fields_": members})


def as_struct(state: State) -> State:
    """A structure with the content of an object of `core`, to be used in its place."""
    cls: type = type(state)
    struct = struct_of(cls)()
    for name, kind in kinds(cls).items():
        value = getattr(state, name)
        if kind.is_struct:
            value = _structs(kind.element, value) if kind.dims else as_struct(value)
        elif kind.dims:
            value = np.ascontiguousarray(value, dtype=kind.element)
        setattr(struct, name, value)
    return cast(State, struct)


def _structs(cls: type, values: Sequence[object]) -> "ctypes.Array[ctypes.Structure]":
    """Structures side by side from values that are all equal, as they are at the start."""
    assert values[0] == values[-1]
    memory = (struct_of(cls) * len(values))()
    first = cast(ctypes.Structure, as_struct(values[0]))
    ctypes.memmove(memory, bytes(first) * len(values), ctypes.sizeof(memory))
    return memory


def address_of(core: object, cls: type) -> int:
    """Write down where everything is that belongs to a structure; its own address."""
    assert isinstance(core, ctypes.Structure)
    for name, kind in kinds(cls).items():
        value = getattr(core, name)
        if kind.is_number:
            continue
        shape: tuple[int, ...] = ()
        if not kind.dims:
            at = address_of(value, kind.element)
        elif kind.is_struct:
            at, shape = ctypes.addressof(value), (len(value),)
        else:
            assert value.flags.c_contiguous and value.dtype == kind.element
            at, shape = value.ctypes.data, value.shape
        setattr(core, f"{name}_at", at)
        if kind.dims:
            setattr(core, f"{name}_shape", shape)
    return ctypes.addressof(core)


def longer(values: list[Item], size: int, more: Item) -> list[Item]:
    """The same values and `more`, `size` in all: a list, array or structures as they were."""
    if isinstance(values, np.ndarray):
        rest = np.full(size - len(values), more, dtype=values.dtype)
        return cast("list[Item]", np.concatenate([values, rest]))
    if isinstance(values, ctypes.Array):
        struct = cast("type[ctypes.Structure]", type(values[0]))
        grown = (struct * size)()
        ctypes.memmove(grown, values, ctypes.sizeof(values))
        return cast("list[Item]", grown)
    return [*values, *(copy(more) for _ in range(size - len(values)))]


@cache
def row_of(cls: type) -> np.dtype[np.void]:
    """A row of a table of structures without objects and arrays in them."""
    columns = [(name, kind.element) for name, kind in kinds(cls).items()]
    return np.dtype(columns, align=True)


def table_of(values: object, cls: type) -> NDArray[np.void]:
    """Structures side by side as a numpy table with named columns, on the same memory."""
    return np.frombuffer(cast(bytes, values), dtype=row_of(cls))


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
