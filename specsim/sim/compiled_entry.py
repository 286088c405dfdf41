"""What numba must know to compile the step loop: the structures of `structs` as types, and the
entry. Imported only where numba is.

A structure is known by its address. Reading a field loads a number, goes on to the structure it
names, or makes an array around the memory it points to. Such arrays are not reference counted,
which would cost more than the steps themselves.
"""

# numba and llvmlite have few types, and decorate without.
# mypy: disable-error-code="no-untyped-call,untyped-decorator,override,attr-defined,misc"
# mypy: disable-error-code="import-untyped"
from collections.abc import Callable
from typing import cast

import numpy as np
from llvmlite.ir import IRBuilder, Type, Value
from numba import from_dtype, types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.typing.templates import AttributeTemplate, Signature
from numba.extending import (
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    lower_setattr_generic,
    models,
    register_model,
)
from numba.np.arrayobj import make_array, populate_array

from specsim.sim.core import Core
from specsim.sim.step import run
from specsim.sim.structs import Kind, kinds, row_of, struct_of


class StructType(types.Type):
    """The address of a structure made from a class of `core`."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        super().__init__(name=f"specsim.{cls.__name__}")


register_model(StructType)(models.OpaqueModel)


def _type_of(kind: Kind) -> types.Type:
    if kind.is_number:
        return types.int64 if kind.element is int else types.float64
    if not kind.dims:
        return StructType(kind.element)
    if kind.is_struct:
        return types.Array(from_dtype(row_of(kind.element)), kind.dims, "C")
    return types.Array(from_dtype(np.dtype(kind.element)), kind.dims, "C")


@infer_getattr
class _Fields(AttributeTemplate):
    key = StructType

    def generic_resolve(self, struct: StructType, name: str) -> types.Type | None:
        kind = kinds(struct.cls).get(name)
        return None if kind is None else _type_of(kind)


def _place(
    builder: IRBuilder, struct: StructType, address: Value, member: str, like: Type
) -> Value:
    """Pointer to a member of the structure at `address`, for values of the LLVM type `like`."""
    offset = getattr(struct_of(struct.cls), member).offset
    return cgutils.pointer_add(builder, address, offset, return_type=like.as_pointer())


@lower_getattr_generic(StructType)
def _read(
    context: BaseContext, builder: IRBuilder, struct: StructType, address: Value, name: str
) -> Value:
    kind = kinds(struct.cls)[name]
    wanted = _type_of(kind)
    if kind.is_number:
        return builder.load(_place(builder, struct, address, name, context.get_value_type(wanted)))
    word = cgutils.intp_t
    at = builder.load(_place(builder, struct, address, f"{name}_at", word))
    if not kind.dims:
        return builder.inttoptr(at, context.get_value_type(wanted))
    lengths = _place(builder, struct, address, f"{name}_shape", word)
    shape = [builder.load(cgutils.gep(builder, lengths, i)) for i in range(kind.dims)]
    element = context.get_data_type(wanted.dtype)
    stride = word(context.get_abi_sizeof(element))
    strides = []
    for length in reversed(shape):
        strides.append(stride)
        stride = builder.mul(stride, length)
    array = make_array(wanted)(context, builder)
    populate_array(
        array,
        data=builder.inttoptr(at, element.as_pointer()),
        shape=shape,
        strides=strides[::-1],
        itemsize=strides[0],
        meminfo=None,
    )
    return array._getvalue()


@lower_setattr_generic(StructType)
def _write(
    context: BaseContext,
    builder: IRBuilder,
    signature: Signature,
    values: tuple[Value, Value],
    name: str,
) -> None:
    struct, kind_of_value = signature.args
    address, value = values
    builder.store(
        value,
        _place(builder, struct, address, name, context.get_value_type(kind_of_value)),
    )


def _address_of_core(
    typing_context: object, address: types.Type
) -> tuple[Signature, Callable[[BaseContext, IRBuilder, Signature, list[Value]], Value]]:
    """An integer as the address of a `Core`: signature and code, as `intrinsic` wants them."""

    def generate(
        context: BaseContext, builder: IRBuilder, signature: Signature, values: list[Value]
    ) -> Value:
        return builder.inttoptr(values[0], context.get_value_type(signature.return_type))

    return StructType(Core)(types.int64), generate


_core_at = cast("Callable[[int], Core]", intrinsic(_address_of_core))


def run_at(address: int, horizon_s: float) -> int:
    """`step.run` on the `Core` at this address."""
    return run(_core_at(address), horizon_s)
