"""HardwareProfile: lookups, dtype fallbacks, overrides, and writing a file back."""

import json

import pytest

from specsim.errors import ProfileError, SpecSimError, UsageError
from specsim.hardware import (
    HardwareProfile,
    KernelTable,
    load_profile,
    load_profile_text,
    to_toml,
    with_overrides,
)

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


def test_a_dtype_without_a_unit_multiplies_in_sixteen_bit() -> None:
    a100 = load_profile("a100")
    assert a100.compute_dtype("fp8") == "bf16"
    assert a100.peak_flops("fp8") == a100.flops["bf16"] == 312e12
    assert a100.compute_dtype("int8") == "int8"
    assert load_profile("h200").compute_dtype("fp4") == "bf16"  # weight-only on Hopper
    turing = load_profile("rtx-2080-ti")  # has no bf16 units: fp16 runs in their place
    assert turing.flops["bf16"] == turing.flops["fp16"]
    assert load_profile("b200").compute_dtype("fp4") == "fp4"
    with pytest.raises(ProfileError, match="'fp8' and no bf16"):
        make_profile(flops={"int8": 1e14}).peak_flops("fp8")


def test_profiles_work_as_cache_keys_and_compare_by_value() -> None:
    assert make_profile() == make_profile()
    assert hash(make_profile()) == hash(make_profile())
    assert make_profile() != make_profile(sms=11)
    assert len({make_profile(), make_profile(), make_profile(sms=11)}) == 2


def test_tensor_parallelism_needs_a_link() -> None:
    spark = load_profile("gb10")
    spark.require_link(1)
    with pytest.raises(UsageError, match="2 x gb10: the profile states no link"):
        spark.require_link(2)
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


def test_overrides_are_checked_marked_and_do_not_touch_the_original() -> None:
    base = load_profile("h200")
    changed = with_overrides(base, mem_bytes_per_s=2.4e12, **{"flops.fp8": 1e15})
    assert changed.mem_bytes_per_s == 2.4e12
    assert changed.flops == {**base.flops, "fp8": 1e15}
    assert {"mem_bytes_per_s", "flops.fp8"} <= changed.assumed
    assert "caller" in changed.sources["mem_bytes_per_s"]
    assert changed.sources["flops.bf16"] == base.sources["flops.bf16"]
    assert base.mem_bytes_per_s == 4.8e12
    assert with_overrides(base) == base
    with_source = with_overrides(base, sms=100, sources={"sms": "counted"})
    assert with_source.sources["sms"] == "counted"
    assert "sms" not in with_source.assumed


def test_overrides_of_single_kernel_parameters() -> None:
    base = make_profile()
    changed = with_overrides(base, **{"kernels.gemm.bf16.mem_frac": 0.5})
    table = changed.kernel("gemm.bf16")
    assert table.params == {"floor_s": 3e-6, "mem_frac": 0.5}
    assert table.assumed
    assert "mem_frac: set by the caller" in table.source
    own = KernelTable("moe.bf16", {"floor_s": 1e-5}, "mine")
    assert with_overrides(base, kernels={"moe.bf16": own}).kernels == {
        "gemm.bf16": TABLE,
        "moe.bf16": own,
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mem_bytes_per_s": 4800}, "GB/s"),
        ({"mem_bandwidth": 1e12}, "unknown key 'mem_bandwidth'"),
        ({"flops.fp8": 1979}, "TFLOP/s"),
        ({"flops.fp9": 1e15}, "unknown key 'fp9'"),
        ({"kernels.gemm.bf16.mem": 0.5}, "lacks the parameter 'mem'"),
        ({"kernels.gemm.bf16.mem_frac": 5.0}, "mem_frac = 5.0 is outside"),
        ({"kernels.gemm.fp8.mem_frac": 0.5}, "no kernel table 'gemm.fp8'"),
        ({"sms": 1.5}, "whole number"),
        ({"sms": "many"}, "must be a number"),
        ({"arch": "volta"}, "must be one of"),
        ({"link_bytes_per_s": 5e10}, "link has no kind"),
        ({"kernels": {"gemm.bf16": 3}}, "wrong type"),
        ({"flops": 3}, "flops must be a mapping"),
    ],
)
def test_bad_overrides_say_what_is_wrong(changes: dict[str, object], words: str) -> None:
    with pytest.raises(SpecSimError) as caught:
        with_overrides(make_profile(), **changes)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
