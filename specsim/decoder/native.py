# mypy: ignore-errors
# (numba's language: types come from compilation, not annotations)
"""Small CPU kernels compiled by numba: RMS norm, and rotary + store + attention in one.

Why: at batch 1 a layer of a small model is a handful of matrix products that stream their weights
through the caches, and between them a dozen tiny torch kernels whose code and data are cold each
time. Measured on a Xeon with 2 MB of L2 per core: even an empty allocation costs 10 us after a
product that costs 1 us in a loop, so the dozen adds up to 0.2-0.3 ms per layer. One small function
does the same work in 10-20 us.

Numbers: activations and cache are fp32 or bf16 (as uint16 bit patterns); everything is computed in
fp32 and rounded to nearest-even once, on store. exp is a polynomial, relative error below 3e-7.
Single-threaded; `native_ops` leaves large contexts and prompts to torch's attention. Loop bounds
are run-time values: with head width and group as constants attention is 1.3 times faster, which is
not worth a compilation per model.

numba is optional (extra `specsim-llm[fast]`); without it the torch kernels are used.
"""

import ctypes
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numba
from llvmlite import ir
from numba import cfunc, njit, types
from numba.extending import intrinsic, overload

# Offsets in the int64 parameter block of `attend`.
(P_BATCH, P_Q, P_HEADS, P_KV_HEADS, P_DIM, P_PAGE, P_START, P_ROWS, P_ANGLES, P_WORK, P_NORMED,
 P_ATTEND) = range(12)
PARAMS = 12

_FAST = {"reassoc", "contract", "arcp", "nsz"}


def _conversion(how, to, given, out):
    """An intrinsic that reads a value as another type without computing anything: an operation of
    the IR builder, its target type, and numba's types of argument and result."""

    @intrinsic
    def convert(typingctx, value):
        def codegen(context, builder, signature, args):
            return getattr(builder, how)(args[0], to)

        return out(given), codegen

    return convert


# The float32 with these bits, and its bits; an int64 address as a pointer.
_as_float = _conversion("bitcast", ir.FloatType(), types.uint32, types.float32)
_as_bits = _conversion("bitcast", ir.IntType(32), types.float32, types.uint32)
_ints_at = _conversion("inttoptr", ir.IntType(64).as_pointer(), types.int64,
                       types.CPointer(types.int64))
_floats_at = _conversion("inttoptr", ir.FloatType().as_pointer(), types.int64,
                         types.CPointer(types.float32))


@intrinsic
def _get(typingctx, pointer, index):
    """pointer[index], without numba's check for negative indices (which defeats vector code)."""
    if not isinstance(pointer, types.CPointer):
        return None

    def codegen(context, builder, signature, args):
        return builder.load(builder.gep(args[0], [args[1]]))

    return pointer.dtype(pointer, types.int64), codegen


@intrinsic
def _put(typingctx, pointer, index, value):
    """pointer[index] = value"""
    if not isinstance(pointer, types.CPointer):
        return None

    def codegen(context, builder, signature, args):
        builder.store(args[2], builder.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(pointer, types.int64, pointer.dtype), codegen


@intrinsic
def _load(typingctx, pointer, index):
    """Element as float32: of fp32 memory, or of bf16 memory typed as uint16."""
    if not isinstance(pointer, types.CPointer):
        return None

    def codegen(context, builder, signature, args):
        value = builder.load(builder.gep(args[0], [args[1]]))
        if signature.args[0].dtype == types.float32:
            return value
        wide = builder.zext(value, ir.IntType(32))
        return builder.bitcast(builder.shl(wide, ir.Constant(ir.IntType(32), 16)), ir.FloatType())

    return types.float32(pointer, types.int64), codegen


@njit(forceinline=True)
def _round_bf16(value):
    """float32 rounded to the nearest bf16, ties to even: its bits (uint32), low half junk."""
    bits = _as_bits(value)
    return bits + numba.uint32(0x7FFF) + ((bits >> numba.uint32(16)) & numba.uint32(1))


@intrinsic
def _narrow(typingctx, pointer, bits):
    """The upper half of uint32 bits as the pointer's uint16 element."""

    def codegen(context, builder, signature, args):
        high = builder.lshr(args[1], ir.Constant(ir.IntType(32), 16))
        return builder.trunc(high, ir.IntType(16))

    return types.uint16(pointer, types.uint32), codegen


def _store(pointer, index, value):
    """pointer[index] = float32 value, rounded when the memory is bf16."""
    raise NotImplementedError


@overload(_store, inline="always")
def _store_for(pointer, index, value):
    if pointer.dtype == types.float32:
        return lambda pointer, index, value: _put(pointer, index, value)  # noqa: PLW0108
    return lambda pointer, index, value: _put(pointer, index,
                                              _narrow(pointer, _round_bf16(value)))


def _as_stored(pointer, value):
    """The float32 that storing `value` to `pointer` and loading it again would give."""
    raise NotImplementedError


@overload(_as_stored, inline="always")
def _as_stored_for(pointer, value):
    if pointer.dtype == types.float32:
        return lambda pointer, value: value
    return lambda pointer, value: _as_float(_round_bf16(value) & numba.uint32(0xFFFF0000))


@njit(forceinline=True)
def _exp(x):
    """e^x for x <= 0, float32: 2^n times the Taylor series of e^f, |f| <= ln(2) / 2."""
    y = max(x, numba.float32(-87.0)) * numba.float32(1.4426950408889634)
    n = math.floor(y + numba.float32(0.5))
    f = numba.float32(y - n) * numba.float32(0.6931471805599453)
    p = numba.float32(1.0 / 5040.0)
    p = p * f + numba.float32(1.0 / 720.0)
    p = p * f + numba.float32(1.0 / 120.0)
    p = p * f + numba.float32(1.0 / 24.0)
    p = p * f + numba.float32(1.0 / 6.0)
    p = p * f + numba.float32(0.5)
    p = p * f + numba.float32(1.0)
    p = p * f + numba.float32(1.0)
    return p * _as_float(numba.uint32(numba.int32(n) + numba.int32(127)) << numba.uint32(23))


@njit(fastmath=_FAST, forceinline=True)
def _norm_scale(source, at, width, eps):
    """1 / sqrt(mean(x^2) + eps) of source[at : at + width]."""
    total = numba.float32(0.0)
    for i in range(width):
        value = _load(source, at + i)
        total += value * value
    return numba.float32(1.0 / math.sqrt(total / width + eps))


@njit(fastmath=_FAST)
def _rms_norm(x, weight, out, rows, width, eps):
    """out = x / sqrt(mean(x^2) + eps) * weight over rows [rows, width]."""
    for row in range(rows):
        at = row * width
        scale = _norm_scale(x, at, width, eps)
        for i in range(width):
            _store(out, at + i, _load(x, at + i) * scale * _load(weight, i))


@njit(fastmath=_FAST, forceinline=True)
def _rotate_head(source, at, dim, angles, angle_at, weight, weight_at, eps, out, to):
    """Norm of one head where weight_at >= 0, then its rotation, into fp32 out."""
    scale = _norm_scale(source, at, dim, eps) if weight_at >= 0 else numba.float32(1.0)
    for pair in range(dim // 2):
        a = _load(source, at + 2 * pair)
        b = _load(source, at + 2 * pair + 1)
        if weight_at >= 0:
            a *= scale * _load(weight, weight_at + 2 * pair)
            b *= scale * _load(weight, weight_at + 2 * pair + 1)
        cos = _get(angles, angle_at + 2 * pair)
        sin = _get(angles, angle_at + 2 * pair + 1)
        _put(out, to + 2 * pair, a * cos - b * sin)
        _put(out, to + 2 * pair + 1, a * sin + b * cos)


@njit(fastmath=_FAST, forceinline=True)
def _attend_group(query, group, dim, scores, page, cache, k_at, v_at, seen, result):
    """The group's queries [group, dim] over positions 0 .. seen-1 -> result [group, dim].

    scores: fp32 [group, page] of scratch.
    """
    root = numba.float32(1.0 / math.sqrt(dim))
    for s in range(seen):
        for g in range(group):
            total = numba.float32(0.0)
            for i in range(dim):
                total += _get(query, g * dim + i) * _load(cache, k_at + s * dim + i)
            _put(scores, g * page + s, total * root)
    for g in range(group):
        first = g * page
        top = _get(scores, first)
        for s in range(seen):
            top = max(top, _get(scores, first + s))
        mass = numba.float32(0.0)
        for s in range(seen):
            weight = _exp(_get(scores, first + s) - top)
            _put(scores, first + s, weight)
            mass += weight
        part = numba.float32(1.0) / mass
        for s in range(seen):
            _put(scores, first + s, _get(scores, first + s) * part)
    for i in range(group * dim):
        _put(result, i, numba.float32(0.0))
    for s in range(seen):
        for g in range(group):
            weight = _get(scores, g * page + s)
            for i in range(dim):
                value = weight * _load(cache, v_at + s * dim + i)
                _put(result, g * dim + i, _get(result, g * dim + i) + value)


@njit(fastmath=_FAST)
def _attend(params, qkv, weight, cache, out, eps):
    """qkv [B, Q, heads + 2 kv_heads, D] -> out [B, Q, heads * D]; k and v into the cache.

    cache: one layer, [slots, 2, kv_heads, page, D]. Row b works on slot rows[b] at positions
    start[b] .. start[b] + Q - 1 (held inside the page). angles: fp32 [page, D], cosine and sine of
    each pair. weight [heads + kv_heads, D] normalises q and k where P_NORMED is set. Without
    P_ATTEND, out is the rotated queries. work: fp32 [group * page + 2 * group * D] of scratch.
    """
    batch, q_len, page = _get(params, P_BATCH), _get(params, P_Q), _get(params, P_PAGE)
    heads, kv_heads, dim = _get(params, P_HEADS), _get(params, P_KV_HEADS), _get(params, P_DIM)
    normed, attending = _get(params, P_NORMED) != 0, _get(params, P_ATTEND) != 0
    blocks, group = heads + 2 * kv_heads, heads // kv_heads
    starts, rows = _ints_at(_get(params, P_START)), _ints_at(_get(params, P_ROWS))
    angles, scores = _floats_at(_get(params, P_ANGLES)), _floats_at(_get(params, P_WORK))
    query = _floats_at(_get(params, P_WORK) + 4 * group * page)
    result = _floats_at(_get(params, P_WORK) + 4 * group * (page + dim))
    for b in range(batch):
        slot = _get(rows, b) * 2 * kv_heads
        for i in range(q_len):
            token = (b * q_len + i) * blocks
            at = min(max(_get(starts, b) + i, 0), page - 1)
            for h in range(kv_heads):
                _rotate_head(qkv, (token + heads + h) * dim, dim, angles, at * dim, weight,
                             (heads + h) * dim if normed else -1, eps, query, 0)
                to = ((slot + h) * page + at) * dim
                for e in range(dim):
                    _store(cache, to + e, _get(query, e))
                source = (token + heads + kv_heads + h) * dim
                to = ((slot + kv_heads + h) * page + at) * dim
                for e in range(dim):
                    _put(cache, to + e, _get(qkv, source + e))
        for i in range(q_len):
            token = (b * q_len + i) * blocks
            at = min(max(_get(starts, b) + i, 0), page - 1)
            for h in range(kv_heads):
                for g in range(group):
                    head = h * group + g
                    _rotate_head(qkv, (token + head) * dim, dim, angles, at * dim, weight,
                                 head * dim if normed else -1, eps, query, g * dim)
                to = ((b * q_len + i) * heads + h * group) * dim
                if not attending:
                    for e in range(group * dim):
                        _store(out, to + e, _get(query, e))
                    continue
                for e in range(group * dim):
                    _put(query, e, _as_stored(out, _get(query, e)))
                _attend_group(query, group, dim, scores, page, cache, (slot + h) * page * dim,
                              (slot + kv_heads + h) * page * dim, at + 1, result)
                for e in range(group * dim):
                    _store(out, to + e, _get(result, e))


class Kernels(NamedTuple):
    """C functions: rms_norm(x, weight, out, rows, width, eps) and attend(params, qkv, weight,
    cache, out, eps), pointers as integers."""

    rms_norm: Callable[..., None]
    attend: Callable[..., None]


@functools.cache
def kernels(bf16: bool) -> Kernels:
    """Compiled kernels for bf16 or fp32 memory. Seconds the first time, then cached on disk."""
    element = types.CPointer(types.uint16 if bf16 else types.float32)
    norm_type = types.void(element, element, element, types.int64, types.int64, types.float64)
    attend_type = types.void(types.CPointer(types.int64), element, element, element, element,
                             types.float64)

    def rms_norm(x, weight, out, rows, width, eps):
        _rms_norm(x, weight, out, rows, width, eps)

    def attend(params, qkv, weight, cache, out, eps):
        _attend(params, qkv, weight, cache, out, eps)

    def compiled(function, signature):
        try:
            return cfunc(signature, cache=True)(function)
        except RuntimeError:  # no folder to cache in can be written
            return cfunc(signature)(function)

    rms_norm, attend = compiled(rms_norm, norm_type), compiled(attend, attend_type)

    address, count, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    norm_call = ctypes.CFUNCTYPE(None, address, address, address, count, count, real)
    attend_call = ctypes.CFUNCTYPE(None, address, address, address, address, address, real)
    return Kernels(norm_call(rms_norm.address), attend_call(attend.address))
