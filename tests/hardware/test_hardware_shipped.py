"""The shipped profiles: complete, sourced, and consistent with each other."""

import pytest

from specsim.data import data_root
from specsim.hardware.schema import sourced_fields
from specsim.hardware.store import list_profiles, load_profile

NAMES = [entry.name for entry in list_profiles()]
ASKED = [
    "h200-sxm", "h200-nvl", "h100-sxm", "h100-pcie", "h100-nvl", "h20", "h800-sxm", "a100-40gb",
    "a100-80gb", "a100-pcie-80gb", "l40s", "l4", "a10g", "a30", "rtx-3090", "rtx-4090",
    "rtx-5090", "rtx-pro-6000", "b200", "b300", "gb200", "gb300", "gb10", "mi300x", "mi325x",
    "mi350x", "mi355x", "b60", "cpu-generic",
]


def test_the_devices_people_ask_for_are_there() -> None:
    assert set(ASKED) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_a_source_or_admits_to_be_assumed(name: str) -> None:
    profile = load_profile(name)
    for field in sourced_fields(profile):
        source = profile.sources.get(field, "")
        assert source, f"{name}: {field} has neither a source text nor a reason"
        if "recalled" in source and "recalled; InferSim" not in source:
            assert profile.is_assumed(field), f"{name}: {field} is recalled, so it is assumed"
    for table in profile.kernels.values():
        assert table.source or table.assumed


@pytest.mark.parametrize("name", NAMES)
def test_kernel_tables_not_measured_on_the_device_are_marked(name: str) -> None:
    profile = load_profile(name)
    assert profile.kernels, f"{name} has no kernel tables"
    for table in profile.kernels.values():
        if table.inherited_from is not None:
            assert table.assumed
        if not table.assumed:
            assert table.measured_on


@pytest.mark.parametrize("name", NAMES)
def test_figures_hang_together(name: str) -> None:
    profile = load_profile(name)
    flops = profile.flops
    # The driver's capacity is the marketing figure read as GB or GiB, give or take firmware.
    gb = profile.mem_marketing_gb
    assert gb is not None
    assert 0.75 * gb * 1e9 <= profile.mem_bytes <= 1.075 * gb * 1e9
    wide = flops["bf16"]
    if "fp16" in flops:
        assert flops["fp16"] == flops["bf16"]
    # Each halving of the width about doubles the rate, except in Gaudi 3's engines.
    if "fp8" in flops and name != "gaudi3":
        assert flops["fp8"] == pytest.approx(2 * wide, rel=0.02)
    if "fp4" in flops:
        assert 1.9 * flops["fp8"] <= flops["fp4"] <= 4.1 * flops["fp8"]
    # Ridge point: rows at which a 16-bit product stops being bound by memory.
    assert 5 <= wide / profile.mem_bytes_per_s <= 1000
    assert profile.l2_bytes < profile.mem_bytes
    assert profile.link_bytes_per_s < profile.mem_bytes_per_s


@pytest.mark.parametrize("name", NAMES)
def test_cards_in_the_slots_of_one_host_need_no_network_card(name: str) -> None:
    """Two GeForce cards counted as a node, so that sums of four went over network cards of 40 GB/s
    that such hosts do not have: eight RTX 4090 answered seven times as many requests as where their
    sums go through the slots."""
    profile = load_profile(name)
    if profile.link_kind.startswith("PCIe"):
        assert profile.gpus_per_node == 8


def test_no_fp8_where_the_hardware_has_none() -> None:
    for name in ("a100-80gb", "a100-40gb", "a100-pcie-80gb", "a30", "a10g", "rtx-3090", "b60"):
        assert "fp8" not in load_profile(name).flops
    for name in ("l40s", "l4", "rtx-4090", "h200-sxm", "mi300x"):
        assert "fp8" in load_profile(name).flops
        assert "fp4" not in load_profile(name).flops


def test_figures_of_the_h200_against_their_sources() -> None:
    h200 = load_profile("h200-sxm")
    assert h200.mem_bytes_per_s == 4.8e12
    assert h200.mem_bytes == 143_771 * 2**20  # as the driver lists it
    assert h200.flops == {"bf16": 989e12, "fp16": 989e12, "fp8": 1979e12, "int8": 1979e12}
    assert (h200.sms, h200.link_bytes_per_s, h200.power_w) == (132, 450e9, 700)


def test_the_fit_has_its_marker_to_write_below() -> None:
    text = (data_root("hw_profiles") / "h200-sxm.toml").read_text()
    script = "validation/scripts/fit_h200_kernels.py"
    marker = f"# --- fitted kernel tables below this line ({script}) ---"
    assert text.count(marker) == 1
    # The one above is another script's (fit_power.py).
    assert text.split(marker)[0].count("[kernels") == text.count('[kernels."power"]') == 1
