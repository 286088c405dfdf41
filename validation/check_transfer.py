"""What inheriting the H200's kernel tables is worth on other devices.

The profiles of most devices inherit the tables fitted on the H200, as an assumption. Here they
price kernels that were measured on nine of those devices (validation/data/other_gpus, nothing of
which was fitted) and the error is written down per device and kernel family, to
validation/transfer.json and validation/transfer.md. Run from the top of the repository:

    python -m validation.check_transfer
"""

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from specsim.hardware import HardwareProfile, load_profile
from specsim.roofline import all_reduce, attn_decode, gemm, moe

HERE = Path(__file__).resolve().parent
DATA = HERE / "data" / "other_gpus"
ROTATED_COPIES = 8  # as the H200 fit finds for this collector
FORMATS = {
    "bfloat16": "bf16",
    "fp8": "fp8",
    "nvfp4": "nvfp4",
    "fp8_block": "fp8_block",
    "int4_wo": "int4",
    "w4a16_mxfp4": "mxfp4",
}


class Point(NamedTuple):
    profile: str
    family: str
    measured_s: float
    calibrated_s: float
    datasheet_s: float


def read(file: str) -> Iterator[dict[str, str]]:
    with gzip.open(DATA / file, "rt", newline="") as handle:
        yield from csv.DictReader(handle)


def cells(row: dict[str, str]) -> Iterator[tuple[int, float]]:
    """(value of the wide column, seconds) of the filled cells."""
    for column, text in row.items():
        if column.isdigit() and text:
            yield int(column), float(text) * 1e-6


def points() -> Iterator[Point]:
    """Every measured kernel call beside its two predictions."""
    devices: dict[str, HardwareProfile] = {}

    def device(name: str) -> HardwareProfile:
        return devices.setdefault(name, load_profile(name))

    for row in read("gemm.csv.gz"):
        fmt, gpu = FORMATS[row["gemm_dtype"]], device(row["profile"])
        n, k = int(row["n"]), int(row["k"])
        for m, seconds in cells(row):
            yield Point(
                gpu.name,
                f"gemm.{fmt}",
                seconds,
                gemm(gpu, m, n, k, fmt, rotated_copies=ROTATED_COPIES).seconds,
                gemm(gpu, m, n, k, fmt, fidelity="datasheet").seconds,
            )
    for row in read("attn_decode.csv.gz"):
        fmt, gpu = FORMATS[row["kv_cache_dtype"]], device(row["profile"])
        shape = [int(row[c]) for c in ("num_heads", "num_key_value_heads", "head_dim")]
        for kv, seconds in cells(row):
            args = (gpu, int(row["batch_size"]), 1, *shape, kv - 1, fmt)
            yield Point(
                gpu.name,
                f"attn_decode.{fmt}",
                seconds,
                attn_decode(*args).seconds,
                attn_decode(*args, fidelity="datasheet").seconds,
            )
    for row in read("moe.csv.gz"):
        fmt, gpu = FORMATS[row["moe_dtype"]], device(row["profile"])
        hidden, inter, top_k, experts = (
            int(row[c]) for c in ("hidden_size", "inter_size", "topk", "num_experts")
        )
        inter //= int(row["moe_tp_size"])
        for tokens, seconds in cells(row):
            shape = (gpu, tokens, hidden, inter, top_k, experts)
            how = {"fmt": fmt, "distribution": row["distribution"]}
            yield Point(
                gpu.name,
                f"moe.{fmt}",
                seconds,
                moe(*shape, **how).seconds,
                moe(*shape, **how, fidelity="datasheet").seconds,
            )
    for row in read("comm_all_reduce.csv.gz"):
        size, gpus = int(row["message_bytes"]), int(row["gpus"])
        # What tensor parallelism sends: up to a few thousand tokens of a wide model.
        if "graph" not in row["kernel"] or size > 32 * 2**20:
            continue
        gpu = device(row["profile"])
        yield Point(
            gpu.name,
            "all_reduce",
            float(row["latency_us"]) * 1e-6,
            all_reduce(gpu, size, gpus).seconds,
            all_reduce(gpu, size, gpus, fidelity="datasheet").seconds,
        )


def score(rows: list[Point]) -> dict[str, float]:
    """Relative errors: median and p90 of their size, median with sign (above 0: too slow)."""
    signed = [row.calibrated_s / row.measured_s - 1 for row in rows]
    sizes = sorted(map(abs, signed))
    sheet = median(abs(row.datasheet_s / row.measured_s - 1) for row in rows)
    return {
        "n": len(rows),
        "median_abs_error": round(median(sizes), 4),
        "p90_abs_error": round(sizes[int(0.9 * (len(sizes) - 1))], 4),
        "bias": round(median(signed), 4),
        "datasheet_median_abs_error": round(sheet, 4),
    }


def main() -> None:
    groups: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in points():
        groups[point.family, point.profile].append(point)
    result = {f"{f}/{p}": score(rows) for (f, p), rows in sorted(groups.items())}
    (HERE / "transfer.json").write_text(json.dumps(result, indent=1) + "\n")
    lines = [
        "# Kernel tables of the H200 on other devices",
        "",
        "Written by `python -m validation.check_transfer`. Relative errors of single kernel times;",
        "bias above 0 means predicted slower than measured. Nothing here was fitted.",
        "",
        "| kernels | device | n | median | p90 | bias | plain datasheet roofline, median |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for key, s in result.items():
        family, _, profile = key.rpartition("/")
        percent = [f"{100 * s[c]:.0f} %" for c in ("median_abs_error", "p90_abs_error")]
        lines.append(
            f"| {family} | {profile} | {s['n']} | {percent[0]} | {percent[1]} | "
            f"{100 * s['bias']:+.0f} % | {100 * s['datasheet_median_abs_error']:.0f} % |"
        )
    (HERE / "transfer.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
