"""Entry of the compiled step loop: from addresses to arrays. Imported only where numba is."""

from typing import Any

import numpy as np
from numba import carray, types  # type: ignore[attr-defined,unused-ignore]
from numba.extending import intrinsic, register_jitable

from specsim.sim.fields import Core
from specsim.sim.step import run


def _integer_to_pointer(typing_context: Any, address: Any) -> Any:
    """An integer as a pointer: signature and code generator, as numba's `intrinsic` wants."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), generate


_pointer: Any = intrinsic(_integer_to_pointer)


@register_jitable
def _whole(addresses: Any, shapes: Any, i: Any) -> Any:
    return carray(_pointer(addresses[i]), (shapes[i, 0],), np.int64)


@register_jitable
def _whole_2d(addresses: Any, shapes: Any, i: Any) -> Any:
    return carray(_pointer(addresses[i]), (shapes[i, 0], shapes[i, 1]), np.int64)


@register_jitable
def _real(addresses: Any, shapes: Any, i: Any) -> Any:
    return carray(_pointer(addresses[i]), (shapes[i, 0],), np.float64)


@register_jitable
def _real_2d(addresses: Any, shapes: Any, i: Any) -> Any:
    return carray(_pointer(addresses[i]), (shapes[i, 0], shapes[i, 1]), np.float64)


def run_at(addresses: Any, shapes: Any, horizon_s: Any) -> Any:
    """`step.run` on the state at these addresses, in the order of the fields of `Core`."""
    a, s = addresses, shapes
    core = Core(
        _whole(a, s, 0),  # ints
        _real(a, s, 1),  # flts
        _whole_2d(a, s, 2),  # slot
        _real_2d(a, s, 3),  # slot_time
        _whole_2d(a, s, 4),  # rows
        _whole(a, s, 5),  # prefill
        _whole(a, s, 6),  # wait
        _whole(a, s, 7),  # standby
        _whole(a, s, 8),  # coming
        _whole(a, s, 9),  # finished
        _whole(a, s, 10),  # freed
        carray(_pointer(a[11]), (s[11, 0],), np.uint8),  # accept
        _whole(a, s, 12),  # span_key
        _whole(a, s, 13),  # span_end
        _whole_2d(a, s, 14),  # node
        _whole(a, s, 15),  # bucket
        _whole_2d(a, s, 16),  # chunk
        _whole(a, s, 17),  # k_table
        _whole_2d(a, s, 18),  # adapt
        _whole_2d(a, s, 19),  # tier
        _real(a, s, 20),  # grid_ctx
        _real(a, s, 21),  # grid_seqs
        _real(a, s, 22),  # grid_tokens
        _real(a, s, 23),  # grid_span
        carray(_pointer(a[24]), (s[24, 0], s[24, 1], s[24, 2]), np.float64),  # decode_s
        carray(
            _pointer(a[25]), (s[25, 0], s[25, 1], s[25, 2], s[25, 3]), np.float64
        ),  # mixed_s
        _real_2d(a, s, 26),  # log_s
        _whole_2d(a, s, 27),  # log
        _whole(a, s, 28),  # cover
        _real(a, s, 29),  # gaps
    )
    return run(core, horizon_s)
