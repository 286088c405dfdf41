"""What a device reaches of its peaks by its sibling's measurements."""

import pytest

from specsim.hardware.inherited import CLOSEST, inherited_tables
from specsim.hardware.profile import KernelTable
from specsim.hardware.store import load_profile

L40S = load_profile("l40s")
HALF = {"bf16": 362.05e12 / 2, "fp8": 733e12}


def tables(flops, arch="ada", sms=142):
    return inherited_tables(L40S, arch, sms, flops)


def test_a_halved_peak_is_reached_at_the_siblings_rate_or_nearly_in_full():
    whole, half = L40S.kernels, tables(HALF)
    rate = whole["gemm.bf16"]["peak_frac"] * 362.05e12
    assert half["gemm.bf16"]["peak_frac"] == CLOSEST < 2 * whole["gemm.bf16"]["peak_frac"]
    third = tables({"bf16": 362.05e12 * 0.6})["gemm.bf16"]["peak_frac"]
    assert third == CLOSEST or third * 0.6 * 362.05e12 == pytest.approx(rate)
    # Attention: the products take twice the time, what they wait for the same.
    before, after = whole["attn_prefill"]["peak_frac"], half["attn_prefill"]["peak_frac"]
    assert 2 / after - 2 == pytest.approx(1 / before - 1)


@pytest.mark.parametrize("name", ["gemm.fp8", "attn_decode.bf16", "gemm.weight_only"])
def test_what_is_not_halved_stays(name):
    assert tables(HALF)[name]["mem_frac"] == L40S.kernels[name]["mem_frac"]
    assert tables(HALF)["gemm.fp8"].params == L40S.kernels["gemm.fp8"].params


def test_slower_clocks_other_designs_and_equal_devices_keep_the_fractions():
    for found in (
        tables({"bf16": 121e12, "fp8": 242e12}, sms=58),  # L4: the same SMs at a lower clock
        tables(HALF, arch="hopper"),
        tables(dict(L40S.flops)),
    ):
        for name, table in found.items():
            assert isinstance(table, KernelTable) and table.assumed and table.inherited_from
            assert table.params == L40S.kernels[name].params


def test_shipped_devices_with_halved_arithmetic():
    # The L40S's tensor cores at half their rate, of its own generation or an older one.
    for name in ("rtx-4090", "rtx-3090", "rtx-2080-ti", "a10g", "rtx-5090", "h20"):
        assert load_profile(name).kernels["gemm.bf16"]["peak_frac"] == CLOSEST
    parents = {"a30": "a100-80gb", "v100": "a100-80gb"}
    parents |= {"h200-nvl": "h200-sxm", "h800-sxm": "h200-sxm"}
    for name in ("l4", "t4", "a10", "rtx-a6000", *parents):
        profile = load_profile(name)
        parent = load_profile(parents.get(name, "l40s"))
        assert profile.kernels["gemm.bf16"].params == parent.kernels["gemm.bf16"].params
