"""Dense products of Marlin, measured nowhere, beside its measured experts."""

import csv
import gzip
from pathlib import Path

import pytest

from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile
from specsim.ops.shapes import Gemm
from specsim.roofline.gemm import gemm

DATA = Path(__file__).parents[2] / "validation/data"
TABLES = (DATA / "other_gpus/moe.csv.gz", DATA / "h200/moe_vllm_0.24.0.csv.gz")
DEVICES = ("a100-80gb", "l40s", "rtx-pro-6000", "h100-sxm", "h200-sxm", "b200", "b300", "gb200",
           "gb300")
# Kimi-K2's experts, whole on one GPU: 8 of 384 a token.
SHAPE = {"moe_dtype": "int4_wo", "hidden_size": "7168", "inter_size": "2048", "topk": "8",
         "num_experts": "384", "moe_tp_size": "1", "distribution": "balanced"}


def each_further_expert_s(device: str) -> float:
    """From 32 experts of one row each to 128: floors of the call are in both."""
    for path in TABLES:
        for row in csv.DictReader(gzip.decompress(path.read_bytes()).decode().splitlines()):
            here = row.get("profile", "h200-sxm") == device and row.get("moe_ep_size", "1") == "1"
            if here and all(row[name] == value for name, value in SHAPE.items()):
                return (float(row["16"]) - float(row["4"])) * 1e-6 / 96
    raise AssertionError(device)


@pytest.mark.parametrize("device", DEVICES)
def test_a_weight_takes_what_one_of_an_expert_does(device: str) -> None:
    """One time to unpack a weight, fitted on the H200, beside the bandwidth of 16-bit products.
    The experts' own share of the bandwidth is no such number: fitted beside floors and a smoother
    maximum it stood at 97% on A100 and L40S, and 4-bit weights streamed a fifth to a third too
    fast; on H200 and B200, where the SMs are few for the bandwidth, 1.2 and 1.7 times."""
    wide = gemm(load_profile(device), Gemm(1, 96 * 3 * 2048, 7168, "int4")).seconds / 96
    assert wide == pytest.approx(each_further_expert_s(device), rel=0.12)


def test_unpacking_is_per_weight_and_shows_where_bandwidth_is_large() -> None:
    h200, l40s = load_profile("h200-sxm"), load_profile("l40s")

    def seconds(device: HardwareProfile, fmt: str) -> float:
        return gemm(device, Gemm(1, 65536, 8192, fmt)).seconds

    # Half the bytes, but not half the time; bytes alone where memory is slow.
    assert seconds(h200, "int8_w8a16") < 1.6 * seconds(h200, "int4")
    assert seconds(l40s, "int8_w8a16") > 1.85 * seconds(l40s, "int4")
