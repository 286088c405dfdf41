"""More work is never cheaper, a better device never slower: every kernel family, on every shipped
device and on devices with other rates.

What the H200's tables show and monotony does not hold for is left out by name: FP8 and FP4
products just above a whole tile of rows (`fill_penalty`), and experts of which one more lets a
kernel keep its tiles (`crowded`).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from roofline_calls import (
    all_gather,
    all_reduce,
    attn_decode,
    attn_prefill,
    elementwise,
    gdn_decode,
    gdn_prefill,
    gemm,
    mla_decode,
    mla_prefill,
    moe,
    sample,
)
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import list_profiles, load_profile
from specsim.model.weights import FORMATS as WEIGHT_FORMATS
from specsim.roofline.device import BORROWED, gemm_table
from specsim.roofline.result import KernelTime

NAMES = [entry.name for entry in list_profiles()]
shipped = cache(load_profile)
EPSILON = 1e-9


class Case(NamedTuple):
    """sizes: size -> (smallest, largest) in steps of its unit."""

    kernel: Callable[..., KernelTime]
    sizes: Mapping[str, tuple[int, int]]
    units: Mapping[str, int] = MappingProxyType({})
    formats: tuple[str, ...] = ()


KV = ("bf16", "fp8")
GROUP = 4  # query heads per KV head, so that heads stay whole groups


def grouped(kernel: Callable[..., KernelTime]) -> Callable[..., KernelTime]:
    """`kernel` with heads counted in KV heads."""

    def price(device: HardwareProfile, kv_heads: int, **rest: object) -> KernelTime:
        return kernel(device, heads=GROUP * kv_heads, kv_heads=kv_heads, **rest)

    return price


def wide(kernel: Callable[..., KernelTime], head_dim: int) -> Callable[..., KernelTime]:
    return lambda device, **rest: grouped(kernel)(device, head_dim=head_dim, **rest)


def latent(device: HardwareProfile, **sizes: object) -> KernelTime:
    return mla_decode(device, kv_lora_rank=512, rope_dim=64, **sizes)


def expanded(device: HardwareProfile, **sizes: object) -> KernelTime:
    return mla_prefill(device, qk_head_dim=192, v_head_dim=128, **sizes)


def state(device: HardwareProfile, seqs: int, q_len: int, v_heads: int) -> KernelTime:
    return gdn_decode(device, seqs, q_len, 8, v_heads, 128, 128)


def prompt_state(device: HardwareProfile, tokens: int, seqs: int, v_heads: int) -> KernelTime:
    return gdn_prefill(device, tokens, 8, v_heads, 128, 128, seqs)


def routed(device: HardwareProfile, top_k: int, **rest: object) -> KernelTime:
    return moe(device, top_k=top_k, experts=128, **rest)


def among(kernel: Callable[..., KernelTime], gpus: int) -> Callable[..., KernelTime]:
    return lambda device, **rest: kernel(device, gpus=gpus, **rest)


BUFFER = {"buffer_bytes": (256, 10**9)}
DECODE = {"seqs": (1, 512), "q_len": (1, 16), "kv_heads": (1, 32), "ctx": (1, 200_000)}
PREFILL = {"new": (1, 32_768), "cached": (1, 100_000), "kv_heads": (1, 32), "seqs": (1, 16)}
CASES = {
    **{f"attn_decode {d}": Case(wide(attn_decode, d), DECODE, formats=KV) for d in (64, 128, 256)},
    **{f"attn_prefill {d}": Case(wide(attn_prefill, d), PREFILL, formats=KV) for d in (128, 256)},
    "mla_decode": Case(
        latent, {"seqs": (1, 512), "q_len": (1, 16), "heads": (1, 128), "ctx": (1, 200_000)},
        formats=KV,
    ),
    "mla_prefill": Case(
        expanded,
        {"new": (1, 32_768), "cached": (1, 100_000), "heads": (1, 128), "seqs": (1, 16)},
    ),
    "gemm": Case(
        gemm, {"m": (1, 16_384), "n": (1, 2_000), "k": (1, 500)}, {"n": 64, "k": 64},
        tuple(WEIGHT_FORMATS),
    ),
    "moe": Case(
        routed, {"tokens": (1, 8_192), "hidden": (8, 128), "inter": (8, 512), "top_k": (1, 16)},
        {"hidden": 64, "inter": 16}, tuple(WEIGHT_FORMATS),
    ),
    "state_decode": Case(state, {"seqs": (1, 512), "q_len": (1, 9), "v_heads": (1, 48)}),
    "state_prefill": Case(
        prompt_state, {"tokens": (1, 32_768), "seqs": (1, 16), "v_heads": (1, 48)}
    ),
    "elementwise": Case(elementwise, {"moved_bytes": (10, 10**9)}),
    "sample": Case(sample, {"rows": (1, 4_096), "vocab": (1_000, 300_000)}),
    **{f"all_reduce {g}": Case(among(all_reduce, g), BUFFER) for g in (2, 4, 8)},
    **{f"all_gather {g}": Case(among(all_gather, g), BUFFER) for g in (2, 4, 8)},
}


@st.composite
def devices(draw: st.DrawFn) -> HardwareProfile:
    """A shipped device with memory, arithmetic and link up to six times as fast or slow."""
    device = shipped(draw(st.sampled_from(NAMES)))
    memory, arithmetic, link = (draw(st.floats(1 / 6, 6)) for _ in range(3))
    return scaled(device, memory, arithmetic, link)


def scaled(
    device: HardwareProfile, memory: float, arithmetic: float, link: float
) -> HardwareProfile:
    return replace(
        device,
        mem_bytes_per_s=device.mem_bytes_per_s * memory,
        flops={dtype: rate * arithmetic for dtype, rate in device.flops.items()},
        link_bytes_per_s=(device.link_bytes_per_s or 30e9) * link,
    )


def drawn(data: st.DataObject, case: Case) -> dict[str, object]:
    """Sizes drawn alike over their powers of two, and a format."""
    sizes: dict[str, object] = {}
    for name, (low, high) in case.sizes.items():
        top = data.draw(st.integers(low.bit_length(), high.bit_length()))
        value = data.draw(st.integers(max(low, 2 ** (top - 1)), min(high, 2**top)))
        sizes[name] = value * case.units.get(name, 1)
    if case.formats:
        sizes["fmt"] = data.draw(st.sampled_from(case.formats))
    return sizes


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=examples(60), deadline=None)
@given(device=devices(), data=st.data())
def test_more_work_is_never_cheaper(
    name: str, device: HardwareProfile, data: st.DataObject
) -> None:
    case = CASES[name]
    sizes = drawn(data, case)
    base = case.kernel(device, **sizes).seconds
    for size in case.sizes:
        step = data.draw(st.integers(1, 200)) if size not in ("q_len", "top_k") else 1
        more = {**sizes, size: sizes[size] + step * case.units.get(size, 1)}  # type: ignore[operator]
        if name == "gemm" and size == "m":
            device = without_fill(device, str(sizes["fmt"]))
            base = case.kernel(device, **sizes).seconds
        assert case.kernel(device, **more).seconds >= base * (1 - EPSILON), size


def without_fill(device: HardwareProfile, fmt: str) -> HardwareProfile:
    """The device whose products do not slow down where the last row of tiles is partly filled."""
    name = gemm_table(device, fmt)
    table = device.kernels.get(name) or device.kernels.get(BORROWED.get(name, ""))
    if table is None:
        return device
    plain = replace(table, params={**table.params, "fill_penalty": 0.0})
    return replace(device, kernels={**device.kernels, name: plain})


@pytest.mark.parametrize("fmt", ["fp8", "fp8_block", "int8", "nvfp4"])
@settings(max_examples=examples(60), deadline=None)
@given(
    device=devices(), tiles=st.integers(1, 60), more=st.integers(1, 60),
    n=st.integers(1, 2_000), k=st.integers(1, 500),
)
def test_whole_tiles_of_rows_are_never_cheaper(
    fmt: str, device: HardwareProfile, tiles: int, more: int, n: int, k: int
) -> None:
    few, many = (gemm(device, 128 * t, 64 * n, 64 * k, fmt).seconds for t in (tiles, tiles + more))
    assert many >= few * (1 - EPSILON)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=examples(60), deadline=None)
@given(device=devices(), data=st.data(), gain=st.floats(1.0, 6.0))
def test_a_faster_device_is_never_slower(
    name: str, device: HardwareProfile, data: st.DataObject, gain: float
) -> None:
    case = CASES[name]
    sizes = drawn(data, case)
    base = case.kernel(device, **sizes).seconds * (1 + EPSILON)
    assert case.kernel(scaled(device, gain, 1.0, 1.0), **sizes).seconds <= base
    assert case.kernel(scaled(device, 1.0, gain, 1.0), **sizes).seconds <= base
    assert case.kernel(scaled(device, 1.0, 1.0, gain), **sizes).seconds <= base
