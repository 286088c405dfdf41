"""What a profile file may hold: ranges, unit slips, unknown keys, sources, kernel tables."""

from pathlib import Path

import pytest

from profile_text import load_profile_text
from specsim.errors import FormatError, ProfileError
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile

MINIMAL = Path(__file__).with_name("minimal.toml").read_text()


def load(text: str) -> HardwareProfile:
    return load_profile_text(text, "toy", "toy.toml")


def refused(text: str, error: type[Exception] = ProfileError) -> str:
    with pytest.raises(error) as caught:
        load(text)
    message = str(caught.value)
    assert message.startswith("toy.toml: ")
    assert "\n" not in message
    return message


def test_a_minimal_file_is_enough_and_everything_in_it_counts_as_assumed() -> None:
    profile = load(MINIMAL)
    assert (profile.name, profile.kind, profile.gpus_per_node) == ("toy", "gpu", 1)
    assert profile.mem_bytes == 141_000_000_000
    assert isinstance(profile.mem_bytes, int)
    assert profile.assumed == {
        "sms", "l2_bytes", "mem_bytes", "mem_bytes_per_s", "flops.bf16", "gpus_per_node",
    }


def test_a_source_lifts_the_assumption() -> None:
    profile = load(MINIMAL + '[sources]\nsms = "counted"\n"flops.bf16" = "datasheet"\n')
    assert not profile.is_assumed("sms")
    assert not profile.is_assumed("flops.bf16")
    assert profile.is_assumed("mem_bytes")
    both = load(MINIMAL + '[sources]\nsms = "recalled"\nassumed = ["sms"]\n')
    assert both.is_assumed("sms")


@pytest.mark.parametrize(
    ("right", "wrong", "hint"),
    [
        ("bf16 = 989e12", "bf16 = 989", "flops.bf16 = 989 is outside 1e+08 to 1e+17 FLOP/s; "
         "it looks like TFLOP/s, write 9.89e+14"),
        ("mem_bytes_per_s = 4.8e12", "mem_bytes_per_s = 4800", "it looks like GB/s"),
        ("mem_bytes_per_s = 4.8e12", "mem_bytes_per_s = 4800000", "it looks like MB/s"),
        ("mem_bytes = 141e9", "mem_bytes = 141", "it looks like GB, write 1.41e+11"),
        ("l2_bytes = 50e6", "l2_bytes = 50", "it looks like MB, write 5e+07"),
        ("sms = 132", "sms = 0", "sms = 0 is outside 1 to 2000"),
        ("sms = 132", "sms = 132.5", "whole number"),
        ("sms = 132", "sms = true", "must be a number"),
        ("sms = 132", 'sms = "132"', "must be a number"),
        ("sms = 132", "sms = nan", "outside"),
        ("sms = 132", "sms = inf", "outside"),
        ("sms = 132", f"sms = 1{'0' * 400}", "more than 30 digits"),
        ("bf16 = 989e12", "bf16 = -1", "outside"),
        ('arch = "hopper"', 'arch = "hoper"', "device.arch = 'hoper' must be one of volta"),
        ('arch = "hopper"', "arch = 9", "must be a string"),
        ('arch = "hopper"', "", "device.arch is missing"),
        ("sms = 132", "", "sms is missing; write [device] sms"),
        ("mem_bytes_per_s = 4.8e12", "", "mem_bytes_per_s is missing"),
        ("bf16 = 989e12", "", "[peak.flops] is missing"),
        ("bf16 = 989e12", "fp16 = 989e12", "needs bf16, on which missing precisions fall back"),
        ("bf16 = 989e12", "bf16 = 989e12\nfp7 = 1e15", "unknown key 'fp7'; near matches: fp"),
        ("sms = 132", "sms = 132\nsm_count = 132", "[device]: unknown key 'sm_count'"),
        ("sms = 132", 'sms = 132\nkind = "tpu"', "device.kind = 'tpu' must be one of gpu, cpu"),
        ("sms = 132", 'sms = 132\nname = "other"', "must equal the file's name 'toy'"),
        ("sms = 132", 'sms = 132\ntitle = "two\\nlines"', "printable"),
        ("sms = 132", 'sms = 132\naliases = "h200"', "must be a list"),
        ("sms = 132", "sms = 132\naliases = [7]", "must be a string"),
        ("[device]", "[devise]", "unknown key 'devise'; near matches: device"),
        ("[peak.flops]\nbf16 = 989e12", "flops = 3", "must be a table"),
    ],
)
def test_bad_values_are_named_with_the_rule(right: str, wrong: str, hint: str) -> None:
    assert right in MINIMAL
    assert hint in refused(MINIMAL.replace(right, wrong))


@pytest.mark.parametrize(
    ("extra", "hint"),
    [
        ('[link]\nkind = "NVLink"\nbytes_per_s = 450\nallreduce_latency_s = 5e-6', "GB/s"),
        ('[link]\nkind = "NVLink"\nbytes_per_s = 450e9\nallreduce_latency_s = 5', "microseconds"),
        ('[link]\nkind = "NVLink"\nbytes_per_s = 450e9', "needs bytes_per_s"),
        ("[link]\nbytes_per_s = 450e9", "the link has no kind"),
        ("[sources]\nmem_gb = 'x'", "[sources]: unknown key 'mem_gb'"),
        ("[sources]\nassumed = ['mem_byte']", "unknown key 'mem_byte'; near matches: mem_bytes"),
        ("[sources]\nassumed = 'sms'", "must be a list"),
        ("[sources]\nassumed = [['sms']]", "must be a list"),
        ("[sources]\nsms = 3", "must be a string"),
        ("[sources]\n'flops.fp8' = 'x'", "unknown key 'flops.fp8'"),
        ('[kernels."a"]\nfloor_s = 50', "a\".floor_s = 50 is outside 0 to 10 s"),
        ('[kernels."a"]\nmem_frac = 83', "outside 0.0001 to 1.5 of peak"),
        ('[kernels."a"]\nmem_frac = 0', "is outside 0.0001 to 1.5 of peak"),
        ('[kernels."a"]\nx = "high"', "must be a number"),
        ('[kernels."a"]\nx = true', "must be a number"),
        ('[kernels."a"]\nx = nan', "outside"),
        ('[kernels."a"]\nx = [1, 2]', "must be a number"),
        ('[kernels."a"]\nsource = "s"', "holds no parameters"),
        ('[kernels."a"]\nx = 1\nassumed = 1', "must be true or false"),
        ("[kernels]\na = 3", "must be a table"),
        ("[kernels]\ninherit = 3", "must be a string"),
        ('[kernels]\ninherit = "../x"', "not a path"),
    ],
)
def test_bad_tables_are_refused(extra: str, hint: str) -> None:
    assert hint in refused(f"{MINIMAL}\n{extra}\n")


def test_broken_toml_names_the_line() -> None:
    assert "line 3" in refused('[device]\narch = "hopper"\nsms = = 3\n', FormatError)
    assert "not valid TOML" in refused("x = " + "[" * 100_000, FormatError)
    assert "not valid TOML" in refused("x = " + "9" * 5_000, FormatError)


def test_kernel_tables_take_any_name_and_numeric_parameters() -> None:
    profile = load(
        MINIMAL
        + """
[kernels."gemm.fp8@sglang"]
floor_s = 6e-6
mem_frac = 1.2
knee_rows = 96
offset = -3.5
source = "fit"
measured_on = "NVIDIA H200"
[kernels."no source"]
x = 1
"""
    )
    table = profile.kernel("gemm.fp8@sglang")
    assert table.params == {"floor_s": 6e-6, "mem_frac": 1.2, "knee_rows": 96.0, "offset": -3.5}
    assert (table.source, table.measured_on, table.assumed) == ("fit", "NVIDIA H200", False)
    assert profile.kernel("no source").assumed


CHILD = MINIMAL + '[kernels]\ninherit = "parent"\n'
PARENT_TABLES = """
[kernels."gemm.bf16"]
floor_s = 3e-6
mem_frac = 0.8
source = "fit"
measured_on = "P"
[kernels."moe.bf16"]
floor_s = 3e-5
source = "fit of experts"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("SPECSIM_PROFILES", str(tmp_path))
    (tmp_path / "parent.toml").write_text(MINIMAL + PARENT_TABLES)
    return tmp_path


def test_inherited_tables_are_marked(folder) -> None:  # type: ignore[no-untyped-def]
    (folder / "child.toml").write_text(CHILD)
    child, parent = load_profile("child"), load_profile("parent")
    assert child.kernels.keys() == parent.kernels.keys()
    table = child.kernel("gemm.bf16")
    assert table.params == parent.kernel("gemm.bf16").params
    assert (table.assumed, table.inherited_from, table.measured_on) == (True, "parent", "P")
    assert not parent.kernel("gemm.bf16").assumed
    # A grandchild still says whose device was measured.
    (folder / "grand.toml").write_text(CHILD.replace('"parent"', '"child"'))
    assert load_profile("grand").kernel("gemm.bf16").inherited_from == "parent"


def test_a_partial_override_keeps_the_rest_and_the_assumption(folder) -> None:  # type: ignore[no-untyped-def]
    (folder / "child.toml").write_text(
        CHILD + '[kernels."gemm.bf16"]\nmem_frac = 0.6\nsource = "measured here"\n'
    )
    table = load_profile("child").kernel("gemm.bf16")
    assert table.params == {"floor_s": 3e-6, "mem_frac": 0.6}
    assert table.assumed
    assert table.inherited_from == "parent"
    assert table.source == "mem_frac: measured here; the rest: fit"
    assert table.measured_on == "P"
    (folder / "child.toml").write_text(
        CHILD + '[kernels."gemm.bf16"]\nmem_frac = 0.6\nmeasured_on = "C"\n'
    )
    table = load_profile("child").kernel("gemm.bf16")
    assert table.measured_on == "mem_frac: C; the rest: P"
    assert table.source == "mem_frac: no source; the rest: fit"


def test_a_full_or_replacing_override_is_the_profiles_own(folder) -> None:  # type: ignore[no-untyped-def]
    own = '[kernels."gemm.bf16"]\nmem_frac = 0.6\nfloor_s = 1e-6\nsource = "measured here"\n'
    (folder / "child.toml").write_text(CHILD + own)
    table = load_profile("child").kernel("gemm.bf16")
    assert (table.assumed, table.inherited_from, table.source) == (False, None, "measured here")
    other = '[kernels."gemm.bf16"]\nslope_s = 1e-6\nsource = "other form"\nreplace = true\n'
    (folder / "child.toml").write_text(CHILD + other)
    assert load_profile("child").kernel("gemm.bf16").params == {"slope_s": 1e-6}


def test_circles_and_long_chains_are_refused(folder) -> None:  # type: ignore[no-untyped-def]
    (folder / "a.toml").write_text(CHILD.replace('"parent"', '"b"'))
    (folder / "b.toml").write_text(CHILD.replace('"parent"', '"a"'))
    with pytest.raises(ProfileError, match=r"in a circle \(a -> b -> a\)"):
        load_profile("a")
    (folder / "c0.toml").write_text(MINIMAL)
    for i in range(1, 6):
        (folder / f"c{i}.toml").write_text(CHILD.replace('"parent"', f'"c{i - 1}"'))
    assert load_profile("c3").name == "c3"
    with pytest.raises(ProfileError, match="more than 4 profiles deep"):
        load_profile("c5")
    (folder / "self.toml").write_text(CHILD.replace('"parent"', '"self"'))
    with pytest.raises(ProfileError, match=r"kernels\.inherit: unknown GPU 'self'"):
        load_profile("self")
    (folder / "lost.toml").write_text(CHILD.replace('"parent"', '"h2000-sxm"'))
    with pytest.raises(ProfileError, match="near matches: h200-sxm"):
        load_profile("lost")


def test_a_users_profile_may_inherit_the_shipped_one_of_its_own_name(folder) -> None:  # type: ignore[no-untyped-def]
    (folder / "b200.toml").write_text(CHILD.replace('"parent"', '"b200"'))
    mine = load_profile("b200")
    assert mine.sms == 132
    plain = {name for name in load_profile("h200-sxm").kernels if "@" not in name}
    assert plain - set(mine.kernels) == {"attn_prefill.fp8", "attn_decode.bf16.hd512"}


def test_own_tables_stand_above_inherited_variants_of_one_engine() -> None:
    """The B200's all-reduce was measured, not SGLang's on it."""
    b200, h200 = load_profile("b200").kernels, load_profile("h200-sxm").kernels
    assert "all_reduce@sglang" in h200
    assert "all_reduce@sglang" not in b200
    assert b200["gdn_decode@sglang"].inherited_from == "h200-sxm"  # nothing of its own to prefer
