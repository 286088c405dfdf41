"""Whatever a file holds, a profile comes out or a SpecSimError with one line does."""

import math
import tomllib
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from thinned import examples

from profile_text import load_profile_text
from specsim.data import data_root
from specsim.errors import SpecSimError
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.schema import profile_from_document
from specsim.hardware.toml_file import to_toml

MINIMAL = Path(__file__).with_name("minimal.toml").read_text()
VALID = (data_root("hw_profiles") / "h200-sxm.toml").read_text().split("# --- fitted")[0] + """
[kernels."gemm.bf16"]
floor_s = 3.5e-6
mem_frac = 0.83
source = "a fit"
measured_on = "a device"
"""
LINES = VALID.splitlines()

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)


def check(text: str) -> None:
    try:
        profile = load_profile_text(text, "h200-sxm", "fuzz.toml")
    except SpecSimError as error:
        assert "\n" not in str(error)
        return
    assert_sane(profile)


def assert_sane(profile: HardwareProfile) -> None:
    assert 1e9 <= profile.mem_bytes_per_s <= 5e13
    assert 1e9 <= profile.mem_bytes <= 1e12
    assert all(1e8 <= peak <= 1e17 for peak in profile.flops.values())
    assert all(math.isfinite(v) for t in profile.kernels.values() for v in t.params.values())
    assert load_profile_text(to_toml(profile), profile.name) == profile


@given(st.integers(0, len(LINES) - 1), st.text(max_size=40))
@example(3, "\x00")
def test_a_valid_file_with_one_line_replaced(index: int, line: str) -> None:
    check("\n".join([*LINES[:index], line, *LINES[index + 1 :]]))


@given(st.integers(0, len(VALID) - 1), st.integers(0, 30), st.text(max_size=6))
def test_a_valid_file_with_a_piece_cut_or_put_in(start: int, cut: int, insert: str) -> None:
    check(VALID[:start] + insert + VALID[start + cut :])


@given(st.permutations(LINES))
def test_a_valid_file_with_its_lines_in_another_order(lines: list[str]) -> None:
    check("\n".join(lines))


def paths(table: dict[str, Any], prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in table.items():
        found.append((*prefix, key))
        if isinstance(value, dict):
            found += paths(value, (*prefix, key))
    return found


PATHS = paths(tomllib.loads(VALID))


@settings(max_examples=examples(300))
@given(st.sampled_from(PATHS), junk, st.booleans(), st.text(max_size=10))
def test_a_valid_document_with_one_value_replaced_or_added(
    path: tuple[str, ...], value: object, add: bool, key: str
) -> None:
    doc: dict[str, Any] = tomllib.loads(VALID)
    target = doc
    for step in path[:-1]:
        target = target[step]
    target[key if add else path[-1]] = value
    try:
        profile = profile_from_document(doc, "h200-sxm", "fuzz.toml")
    except SpecSimError as error:
        assert "\n" not in str(error)
        return
    assert_sane(profile)


@given(st.binary(max_size=200))
def test_arbitrary_text(raw: bytes) -> None:
    check(raw.decode("latin-1"))


@given(
    st.floats(1e9, 5e13), st.integers(10**9, 10**12), st.floats(1e8, 1e17), st.integers(1, 2000)
)
def test_numbers_survive_writing_to_the_last_bit(
    bandwidth: float, capacity: int, peak: float, sms: int
) -> None:
    text = (
        MINIMAL.replace("4.8e12", repr(bandwidth)).replace("141e9", str(capacity))
        .replace("989e12", repr(peak)).replace("sms = 132", f"sms = {sms}")
    )
    profile = load_profile_text(text, "toy")
    assert (profile.mem_bytes_per_s, profile.mem_bytes) == (bandwidth, capacity)
    assert load_profile_text(to_toml(profile), "toy") == profile
