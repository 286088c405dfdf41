"""Gated DeltaNet and Mamba-2: state traffic by hand, verify, chunks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from roofline_calls import gdn_decode, gdn_prefill, mamba2_decode, mamba2_prefill
from specsim.hardware.profile import HardwareProfile

HEADS = (16, 48, 128, 128)  # Qwen3.6-27B


def test_decode_bytes_by_hand(h200: HardwareProfile) -> None:
    time = gdn_decode(h200, 32, 1, *HEADS, fidelity="datasheet")
    state = 48 * 128 * 128 * 4
    channels = 2 * 16 * 128 + 48 * 128
    # State read and written; window of 3 inputs read and written; one input and one output.
    moved = 32 * (2 * state + channels * 2 * (3 * 2 + 2))
    assert time.seconds == pytest.approx(moved / 4.8e12)


@pytest.mark.parametrize("q", [2, 4, 8])
def test_verify_reads_one_state_and_writes_q(h200: HardwareProfile, q: int) -> None:
    one = gdn_decode(h200, 128, 1, 24, 24, 128, 128)
    time = gdn_decode(h200, 128, q, 24, 24, 128, 128)
    # Measured for KDA with 24 heads and 128 sequences: 1.47, 2.49, 4.6 times a decode.
    assert time.seconds / one.seconds == pytest.approx((1 + q) / 2, rel=0.08)


def test_copies_of_the_state_are_paid(h200: HardwareProfile) -> None:
    state = 64 * 48 * 128 * 128 * 4.0
    plain = gdn_decode(h200, 64, 4, *HEADS)
    same = gdn_decode(h200, 64, 4, *HEADS, state_traffic=5 * state)
    assert same.seconds == pytest.approx(plain.seconds)
    more = gdn_decode(h200, 64, 4, *HEADS, state_traffic=7 * state)
    assert more.seconds == pytest.approx(plain.seconds * 7 / 5, rel=0.05)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 1024), st.integers(1, 9))
def test_decode_bounds_and_growth(h200: HardwareProfile, seqs: int, q: int) -> None:
    time = gdn_decode(h200, seqs, q, *HEADS).seconds
    assert time >= gdn_decode(h200, seqs, q, *HEADS, fidelity="datasheet").seconds
    assert gdn_decode(h200, seqs + 1, q, *HEADS).seconds >= time
    assert gdn_decode(h200, seqs, q + 1, *HEADS).seconds >= time


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 16384), st.integers(1, 16))
def test_prefill_bounds_and_growth(h200: HardwareProfile, tokens: int, seqs: int) -> None:
    time = gdn_prefill(h200, tokens, *HEADS, seqs).seconds
    assert time >= gdn_prefill(h200, tokens, *HEADS, seqs, fidelity="datasheet").seconds
    assert gdn_prefill(h200, tokens + 64, *HEADS, seqs).seconds >= time
    assert gdn_prefill(h200, tokens, *HEADS, seqs + 1).seconds >= time


def test_prefill_of_one_prompt_is_a_chain_of_chunks(h200: HardwareProfile) -> None:
    # 6 heads (an eighth of the model) on 132 SMs: one wave, so a second prompt rides along.
    heads = (2, 6, 128, 128)
    one = gdn_prefill(h200, 8192, *heads, 1).seconds
    assert gdn_prefill(h200, 8192, *heads, 2).seconds < 1.15 * one
    assert gdn_prefill(h200, 16384, *heads, 1).seconds == pytest.approx(2 * one, rel=0.05)
    # Measured: 413.5 us for 8,192 tokens of 24 heads, 1,627 us for 32,768, plus the convolution.
    long = gdn_prefill(h200, 32768, 8, 24, 128, 128).seconds
    assert long == pytest.approx(3.95 * gdn_prefill(h200, 8192, 8, 24, 128, 128).seconds, rel=0.05)


def test_mamba2(h200: HardwareProfile) -> None:
    # State of 128 heads x 64 x 128 in fp32; channels 128 * 64 + 2 * 8 * 128.
    time = mamba2_decode(h200, 32, 1, 128, 64, 128, 8, fidelity="datasheet")
    moved = 32 * (2 * 128 * 64 * 128 * 4 + (8192 + 2048) * 2 * 8)
    assert time.seconds == pytest.approx(moved / 4.8e12)
    half = mamba2_decode(h200, 512, 1, 128, 64, 128, 8, state_bytes_per_elem=2.0).seconds
    assert half == pytest.approx(mamba2_decode(h200, 512, 1, 128, 64, 128, 8).seconds / 2, rel=0.1)
    assert mamba2_prefill(h200, 4096, 128, 64, 128, 8).seconds > 0
