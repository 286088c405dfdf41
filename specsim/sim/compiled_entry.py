"""Entry of the compiled step loop: from addresses to arrays. Imported only where numba is."""

from typing import Any

import numpy as np
from numba import carray, types
from numba.extending import intrinsic, register_jitable

from specsim.sim.fields import Core
from specsim.sim.step import run


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    """An integer as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), generate


@register_jitable
def _whole(addresses, shapes, i):  # type: ignore[no-untyped-def]
    return carray(_pointer(addresses[i]), (shapes[i, 0],), np.int64)


@register_jitable
def _whole_2d(addresses, shapes, i):  # type: ignore[no-untyped-def]
    return carray(_pointer(addresses[i]), (shapes[i, 0], shapes[i, 1]), np.int64)


@register_jitable
def _real(addresses, shapes, i):  # type: ignore[no-untyped-def]
    return carray(_pointer(addresses[i]), (shapes[i, 0],), np.float64)


@register_jitable
def _real_2d(addresses, shapes, i):  # type: ignore[no-untyped-def]
    return carray(_pointer(addresses[i]), (shapes[i, 0], shapes[i, 1]), np.float64)


def run_at(addresses, shapes, horizon_s):  # type: ignore[no-untyped-def]
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
        _whole(a, s, 8),  # finished
        _whole(a, s, 9),  # freed
        carray(_pointer(a[10]), (s[10, 0],), np.uint8),  # accept
        _whole(a, s, 11),  # span_key
        _whole(a, s, 12),  # span_end
        _whole_2d(a, s, 13),  # node
        _whole(a, s, 14),  # bucket
        _whole_2d(a, s, 15),  # chunk
        _whole(a, s, 16),  # k_table
        _whole_2d(a, s, 17),  # adapt
        _whole_2d(a, s, 18),  # tier
        _real(a, s, 19),  # grid_ctx
        _real(a, s, 20),  # grid_seqs
        _real(a, s, 21),  # grid_new
        _real(a, s, 22),  # grid_span
        carray(_pointer(a[23]), (s[23, 0], s[23, 1], s[23, 2]), np.float64),  # decode_s
        carray(
            _pointer(a[24]), (s[24, 0], s[24, 1], s[24, 2], s[24, 3], s[24, 4]), np.float64
        ),  # mixed_s
        _real_2d(a, s, 25),  # log_s
        _whole_2d(a, s, 26),  # log
        _whole(a, s, 27),  # cover
        _real(a, s, 28),  # gaps
    )
    return run(core, horizon_s)
