"""The shipped H200 tables against the measurements they were not fitted on.

Scores the profile as it is on every held-out row, so that a change of the model without a new
fit, or of the fit without a new profile, is seen. The bars are those of the fit script.
"""

import json
from pathlib import Path

import pytest
from kernels import attention, comm, gemm, mla, moe, recurrent
from kernels.fitting import Fit, score
from kernels.tables import held_out

from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import list_profiles, load_profile
from specsim.latency import power
from specsim.roofline.defaults import assumed

SHARES = ("idle", "busy", "stream", "multiply", "spread", "pair_spread")  # of power

REPORT = json.loads(
    (Path(__file__).resolve().parents[2] / "validation" / "reports" / "kernel_fit.json").read_text()
)["tables"]
# Tables whose hold-out is a hash of the shape; the others were scored by leaving out in turn.
HASHED = [label for label, entry in REPORT.items() if "shapes held out" in entry["hold_out"]]


@pytest.fixture(scope="module")
def fits() -> dict[str, Fit]:
    return {f.label: f for m in (gemm, attention, mla, moe, recurrent, comm) for f in m.fits()}


def test_the_report_covers_every_fit(fits: dict[str, Fit]) -> None:
    assert set(REPORT) == set(fits)


@pytest.mark.parametrize("label", HASHED)
def test_the_profile_scores_what_the_report_says(
    h200: HardwareProfile, fits: dict[str, Fit], label: str
) -> None:
    fit = fits[label]
    test = [row for row in fit.rows if held_out(row.group)][::3]
    found = score(h200, fit.price, test)
    told = REPORT[label]["held_out"]
    assert found.median == pytest.approx(told["median_abs_error"], rel=0.25, abs=0.005)
    assert found.p90 == pytest.approx(told["p90_abs_error"], rel=0.3, abs=0.01)


@pytest.mark.parametrize(
    "label",
    ["gemm.bf16", "gemm.fp8", "gemm.fp8_block", "gemm.bf16@sglang", "attn_decode.bf16",
     "attn_decode.fp8", "moe.bf16", "moe.fp8_block", "moe.fp8", "gdn_decode", "gdn_prefill"],
)
def test_the_bars_are_met_on_held_out_shapes(label: str) -> None:
    entry = REPORT[label]
    assert entry["met"]
    assert entry["held_out"]["median_abs_error"] <= entry["bars"]["median"]
    assert entry["held_out"]["p90_abs_error"] <= entry["bars"]["p90"]
    assert entry["held_out"]["median_abs_error"] < entry["datasheet_roofline"]["median_abs_error"]


def test_whole_shapes_are_held_out(fits: dict[str, Fit]) -> None:
    rows = fits["gemm.bf16"].rows
    groups = {row.group for row in rows}
    share = sum(held_out(group) for group in groups) / len(groups)
    assert 0.2 < share < 0.4
    by_group = {(row.group, held_out(row.group)) for row in rows}
    assert len(by_group) == len(groups)


@pytest.mark.parametrize("profile", [entry.name for entry in list_profiles()])
def test_every_table_has_the_parameters_the_model_reads(profile: str) -> None:
    for name, table in load_profile(profile).kernels.items():
        base = SHARES if name == power.TABLE else assumed()[name.partition("@")[0]]
        optional = {key for key in base if key.startswith("tile_") and key.endswith("_frac")}
        assert set(base) - optional <= set(table.params), name
        assert table.assumed or table.measured_on


def test_other_devices_inherit_and_stay_plausible() -> None:
    # The same product moves by the ratio of the bandwidths where it is bound by memory.
    h200, h100 = load_profile("h200-sxm"), load_profile("h100-sxm")
    ratio = gemm.gemm(h100, 1, 28672, 8192).seconds / gemm.gemm(h200, 1, 28672, 8192).seconds
    assert ratio == pytest.approx(4.8 / 3.35, rel=0.05)
