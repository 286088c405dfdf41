"""HardwareProfile: lookups, and writing a file back."""

import json

import pytest

from profile_text import load_profile_text
from specsim.errors import ProfileError, UsageError
from specsim.hardware.profile import HardwareProfile, KernelTable
from specsim.hardware.store import load_profile
from specsim.hardware.toml_file import to_toml

TABLE = KernelTable("gemm.bf16", {"floor_s": 3e-6, "mem_frac": 0.8}, "fitted", "a device")


def make_profile(**changes: object) -> HardwareProfile:
    values: dict[str, object] = {
        "name": "toy",
        "title": "Toy",
        "arch": "other",
        "kind": "gpu",
        "mem_bytes_per_s": 1e12,
        "mem_bytes": 16_000_000_000,
        "flops": {"bf16": 1e14},
        "sms": 10,
        "l2_bytes": 1_000_000,
        "kernels": {"gemm.bf16": TABLE},
        **changes,
    }
    return HardwareProfile(**values)  # type: ignore[arg-type]


def test_kernel_lookup_names_the_profile_the_table_and_the_near_ones() -> None:
    profile = make_profile()
    assert profile.kernel("gemm.bf16")["mem_frac"] == 0.8
    with pytest.raises(ProfileError, match=r"'toy' has no kernel table 'gemm\.bf17'.*gemm\.bf16"):
        profile.kernel("gemm.bf17")
    with pytest.raises(ProfileError, match="inherit"):
        make_profile(kernels={}).kernel("gemm.bf16")
    with pytest.raises(ProfileError, match=r"'gemm\.bf16' lacks the parameter 'peak_frac'"):
        TABLE["peak_frac"]


def test_profiles_work_as_cache_keys_and_compare_by_value() -> None:
    assert make_profile() == make_profile()
    assert hash(make_profile()) == hash(make_profile())
    assert make_profile() != make_profile(sms=11)
    assert len({make_profile(), make_profile(), make_profile(sms=11)}) == 2


def test_tensor_parallelism_needs_a_link() -> None:
    strix = load_profile("strix-halo")
    strix.require_link(1)
    with pytest.raises(UsageError, match="2 x strix-halo: the profile states no link"):
        strix.require_link(2)
    load_profile("gb10").require_link(2)  # over the network
    load_profile("h200").require_link(8)


def test_to_dict_is_json_and_holds_every_source() -> None:
    profile = load_profile("h200")
    data = json.loads(json.dumps(profile.to_dict()))
    assert data["mem_bytes"] == 143771 * 2**20
    assert data["flops"]["bf16"] == 989e12
    assert data["sources"]["mem_bytes_per_s"] == profile.sources["mem_bytes_per_s"]
    assert data["assumed"] == sorted(profile.assumed)


@pytest.mark.parametrize("name", ["h200-sxm", "b200", "gb10", "cpu-generic", "rtx-2080-ti"])
def test_a_written_profile_reads_back_equal(name: str) -> None:
    profile = load_profile(name)
    again = load_profile_text(to_toml(profile), name)
    assert again == profile
    assert to_toml(again) == to_toml(profile)


def test_strings_with_quotes_backslashes_and_control_characters_survive_writing() -> None:
    source = 'a "quoted" C:\\path, a tab\t, a newline\n, DEL \x7f and \u4e2d\u6587'
    profile = make_profile(sources={"sms": source})
    assert load_profile_text(to_toml(profile), "toy").sources["sms"] == source
