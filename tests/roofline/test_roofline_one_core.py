"""Attention of a CPU decoder: small calls on one core in a loop of their own, no padded rows."""

from dataclasses import replace

import pytest

from roofline_calls import attn_decode
from specsim.calibrate.parameters import starting_tables
from specsim.hardware.store import load_profile

CPU = starting_tables(load_profile("cpu-generic"))


def table(**params: float):  # type: ignore[no-untyped-def]
    found = CPU.kernel("attn_decode.bf16")
    own = replace(found, params={**found.params, **params})
    return replace(CPU, kernels={**CPU.kernels, "attn_decode.bf16": own})


def test_a_small_call_by_hand() -> None:
    device = table(small_floor_s=5e-6, small_frac=0.02, small_mem_frac=0.25)
    # 1 sequence, 1 query, 128 cached tokens, 9 heads over 3 of width 64.
    flop = 4 * 1 * 1 * (128 + 1) * 9 * 64
    read = (128 + 1) * 2 * 3 * 64 * 2
    other = 2 * 3 * 64 * 2 + 9 * 64 * 4
    expected = (5e-6 + flop / (384e9 * 0.02) + (read + other) / (33.3e9 * 0.25))
    assert attn_decode(device, 1, 1, 9, 3, 64, 128).seconds == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("q_len", "limit"), [(1, 16e6), (4, 6e6)])
def test_the_line_is_the_decoder_s(q_len: int, limit: float) -> None:
    """16 MFLOP for one query, 6 MFLOP for more (specsim/decoder/native_ops.py)."""
    device = table(small_floor_s=1.0)
    per_token = 4.0 * q_len * 9 * 64
    inside, beyond = limit / per_token * 0.99 - q_len, limit / per_token * 1.01 - q_len
    assert attn_decode(device, 1, q_len, 9, 3, 64, inside).seconds > 1.0
    assert attn_decode(device, 1, q_len, 9, 3, 64, beyond).seconds < 1.0


def test_rows_are_not_padded() -> None:
    device = table(small_flops=0.0, small_flops_one=0.0, floor_s=0.0, block_s=0.0, mem_frac=1.5)
    one = attn_decode(device, 32, 1, 9, 3, 64, 2048)
    eight = attn_decode(device, 32, 8, 9, 3, 64, 2048)
    assert eight.compute_s / one.compute_s == pytest.approx(8, rel=0.01)
