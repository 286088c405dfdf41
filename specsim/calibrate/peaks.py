"""The device's own figures from its records: what the fit's shares are shares of.

A GPU has a datasheet: its peaks stay those of the base profile, and the shares carry what kernels
reach. A CPU of a cloud machine or laptop has none worth the name, so its peaks are the best that
was measured: the fastest read of the memory sweep's large sizes (beyond any cache), and the fastest
product of the run. Cores, memory and last cache come from the records' header.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from specsim.calibrate.price import gemm_flop_per_s
from specsim.calibrate.records import Measurement, RunHeader
from specsim.hardware.profile import HardwareProfile

LARGE = 4.0  # caches that a memory sweep must exceed to have measured the memory


def own_figures(
    base: HardwareProfile, run: RunHeader, records: Iterable[Measurement], name: str
) -> HardwareProfile:
    """`base` with the measured device's figures, called `name`."""
    device = run.device
    found = list(records)
    title = str(device.get("name", "")) or base.title
    origin = f"measured on {title}, {run.date[:10]}"
    profile = replace(base, name=name, title=_line(title), aliases=(), origin="")
    if base.kind != "cpu":
        return profile
    sources, assumed = dict(base.sources), set(base.assumed)
    changes: dict[str, object] = {"sms": max(1, run.threads), "mem_marketing_gb": None}
    sources["sms"] = f"threads of the measuring run ({device.get('cores', '?')} cores)"
    memory = device.get("memory_bytes")
    if isinstance(memory, int) and 1e9 <= memory <= 1e12:
        changes["mem_bytes"] = memory
        sources["mem_bytes"] = "size of the measured machine"
    cache = last_cache_bytes(device.get("caches"))
    if cache:
        changes["l2_bytes"] = cache
        sources["l2_bytes"] = "last-level cache of the measured machine"
    rate = memory_rate(found, cache or base.l2_bytes)
    if rate:
        changes["mem_bytes_per_s"] = rate
        sources["mem_bytes_per_s"] = f"{origin}: fastest read of the memory sweep"
    flops = dict(base.flops)
    for dtype, peak in product_peaks(found).items():
        flops[dtype] = peak
        sources[f"flops.{dtype}"] = f"{origin}: fastest product of the run, {run.threads} threads"
    if "fp32" in flops and "bf16" not in product_peaks(found) and flops["bf16"] < flops["fp32"]:
        flops["bf16"] = flops["fp32"]  # weights of 16 bits are multiplied in 32
    changes["flops"] = flops
    given = {k for k in changes if k != "flops"} | {f"flops.{d}" for d in flops}
    assumed -= {k for k in given if k in sources}
    return replace(profile, **changes, sources=sources, assumed=frozenset(assumed))  # type: ignore[arg-type]


def memory_rate(records: Iterable[Measurement], cache_bytes: float) -> float | None:
    """Bytes/s of the fastest read beyond the caches, the probes beside the other points among
    them; of the largest size where a cache (of the whole host, say) holds them all."""
    found = list(records)
    reads = [
        (float(r.shape["bytes"]), r.values["bytes_per_s"]) for r in found
        if r.kind == "stream" and r.shape["op"] == "read" and "bytes_per_s" in r.values
    ]
    if not reads:
        return None
    least = min(LARGE * cache_bytes, max(size for size, _ in reads))
    probed = max((r.stream_bytes_per_s for r in found), default=0.0)
    return max(probed, *(rate for size, rate in reads if size >= least))


def product_peaks(records: Iterable[Measurement]) -> dict[str, float]:
    """FLOP/s by dtype of the fastest product."""
    out: dict[str, float] = {}
    for r in records:
        if r.kind in ("gemm", "gemm_peak") and r.timing.min_s > 0:
            dtype = str(r.shape["dtype"])
            out[dtype] = max(out.get(dtype, 0.0), gemm_flop_per_s(r, r.timing.min_s))
    return out


def last_cache_bytes(caches: object) -> int | None:
    """Bytes of the last level of {'L2': '1024K', 'L3': '32768K'}; None where it is not stated."""
    if not isinstance(caches, dict) or not caches:
        return None
    text = str(caches[max(caches)])
    found = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    if not found:
        return None
    size = int(found[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[found[2]]
    return size if 1e5 <= size <= 5e9 else None


def _line(text: str) -> str:
    kept = "".join(ch for ch in text if ch.isprintable())
    return kept[:200]
