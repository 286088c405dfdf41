"""What a fit may change: kernel parameters with their priors.

A parameter is fitted as the logarithm of its value. Its prior is the base profile's value with a
relative width (standard deviation of the logarithm): wide for latencies, narrower for shares of a
peak, which no device misses by far. `targets` are the kernel tables it is written to; one number
may stand in several (a CPU's prompts wider than 128 are as fast as narrow ones).

A device that the measurements call a CPU has kernels without tiles and waves (`untiled`): what
there is to fit are the cost of a call, the share of the memory rate and of the product peak, and
how sharply one gives way to the other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from specsim.hardware.profile import HardwareProfile, KernelTable
from specsim.roofline.defaults import ASSUMED

WIDE, CPU_LATENCY, LATENCY, SHARE, KNEE = 1.2, 2.0, 0.8, 0.3, 0.35

NO_FLOOR_S = 1e-6


@dataclass(frozen=True, slots=True)
class Parameter:
    """name: 'table: parameter'. start: the prior's median; width: its relative standard deviation;
    low, high: bounds of the value."""

    name: str
    start: float
    width: float
    low: float
    high: float
    targets: tuple[tuple[str, str], ...]


# A CPU's prompts go through the same attention as large steps: one floor for both, since prompts
# alone cannot tell it from what else a layer costs.
_SHARED = {("attn_decode.bf16", "floor_s"): (("attn_prefill", "floor_s"),)}
# table -> parameter -> (width, low, high, further parameters of the table with the same value)
_Rule = tuple[float, float, float, tuple[str, ...]]
_FRACTION = (0.005, 1.5)
_CPU: Mapping[str, Mapping[str, _Rule]] = {
    "gemm.bf16": {
        "floor_s": (CPU_LATENCY, 1e-8, 1e-2, ()), "mem_frac": (SHARE, *_FRACTION, ()),
        "peak_frac": (SHARE, *_FRACTION, ()), "p": (KNEE, 1.0, 12.0, ()),
    },
    "attn_decode.bf16": {
        "floor_s": (CPU_LATENCY, 1e-8, 1e-2, ()), "mem_frac": (WIDE, *_FRACTION, ()),
        "peak_frac": (WIDE, *_FRACTION, ()), "block_s": (WIDE, 1e-10, 1e-3, ()),
        "small_floor_s": (CPU_LATENCY, 1e-8, 1e-2, ()),
        "small_mem_frac": (WIDE, *_FRACTION, ()),
        "small_frac": (WIDE, 1e-4, 1.5, ()),
    },
    "attn_prefill": {"peak_frac": (WIDE, *_FRACTION, ("wide_frac",))},
    "elementwise": {
        "floor_s": (CPU_LATENCY, 1e-8, 1e-2, ()), "mem_frac": (WIDE, *_FRACTION, ()),
    },
    "sample": {"floor_s": (CPU_LATENCY, 1e-8, 1e-1, ()), "mem_frac": (WIDE, *_FRACTION, ())},
    "moe.bf16": {
        "floor_s": (CPU_LATENCY, 1e-8, 1e-1, ()), "mem_frac": (WIDE, *_FRACTION, ()),
        "peak_frac": (WIDE, *_FRACTION, ()), "p": (KNEE, 1.0, 12.0, ()),
    },
}
_GPU: Mapping[str, Mapping[str, _Rule]] = {
    "gemm.bf16": {
        "floor_s": (LATENCY, 1e-8, 1e-4, ()), "mem_frac": (SHARE, *_FRACTION, ()),
        "peak_frac": (SHARE, *_FRACTION, ()), "p": (KNEE, 1.0, 12.0, ()),
        "tile_s": (LATENCY, 1e-8, 1e-4, ()), "k_step_s": (LATENCY, 1e-11, 1e-7, ()),
    },
    "attn_decode.bf16": {
        "floor_s": (LATENCY, 1e-8, 1e-3, ()), "mem_frac": (SHARE, *_FRACTION, ()),
        "peak_frac": (LATENCY, *_FRACTION, ()), "tile_s": (LATENCY, 1e-8, 1e-3, ()),
        "sm_frac": (LATENCY, *_FRACTION, ()),
    },
    "attn_prefill": {
        "floor_s": (LATENCY, 1e-8, 1e-3, ()), "peak_frac": (LATENCY, *_FRACTION, ()),
    },
    "elementwise": {
        "floor_s": (LATENCY, 1e-8, 1e-4, ()), "mem_frac": (SHARE, *_FRACTION, ()),
    },
    "sample": {"floor_s": (LATENCY, 1e-7, 1e-2, ()), "mem_frac": (LATENCY, *_FRACTION, ())},
    "moe.bf16": {
        "floor_s": (LATENCY, 1e-7, 1e-2, ()), "mem_frac": (SHARE, *_FRACTION, ()),
        "peak_frac": (LATENCY, *_FRACTION, ()), "tile_s": (LATENCY, 1e-9, 1e-4, ()),
    },
}
# A CPU library has no tiles to waste, no waves and no second cost of a cold start.
_CPU_GEMM = {
    "untiled": 1.0, "floor_s": 10e-6, "mem_frac": 0.85, "peak_frac": 0.8, "p": 2.2,
    "act_traffic": 1.0, "cold_s": 0.0, "tile_s": 0.0, "k_step_s": 0.0, "tail": 0.0,
    "tile_by_rows": 0.0, "split_s": 0.0, "split_traffic": 0.0, "sag": 0.0, "sag_s": 0.0,
    "row_s": 0.0, "quant_frac": 1.0, "fill_penalty": 0.0, "fill_power": 1.0, "l2_frac": 1.0,
    "tile_128x128_frac": 1.0, "tile_64x128_frac": 1.0, "tile_64x64_frac": 1.0,
}
_CPU_TABLES: Mapping[str, Mapping[str, float]] = {
    "gemm.bf16": _CPU_GEMM,
    "attn_decode.bf16": {
        "untiled": 1.0, "small_flops": 6e6, "small_flops_one": 16e6, "small_floor_s": 5e-6,
        "small_frac": 0.02, "small_mem_frac": 0.3, "floor_s": 10e-6, "mem_frac": 0.5,
        "peak_frac": 0.2, "p": 2.0, "cold_s": 0.0,
        "wide_power": 0.0, "tile_s": 0.0, "tile_power": 0.0, "tail": 0.0, "split_s": 0.0,
        "max_splits": 1.0, "sm_frac": 1.5, "block_s": 1e-6, "l2_frac": 1.0, "l2_traffic": 1.0,
    },
    "attn_prefill": {
        "floor_s": 20e-6, "mem_frac": 0.85, "peak_frac": 0.3, "p": 2.0, "wide_frac": 0.3,
        "chain_gain": 2.0, "tile_s": 0.0, "sag": 0.0, "sag_s": 10.0,
    },
    "elementwise": {"floor_s": 10e-6, "mem_frac": 0.5, "p_floor": 1.0},
    "sample": {"floor_s": 50e-6, "mem_frac": 0.3, "passes": 1.0},
    "moe.bf16": {
        "floor_s": 100e-6, "sort_s": 0.0, "mem_frac": 0.7, "peak_frac": 0.4, "p": 2.0,
        "tile_s": 0.0, "tile_rows": 1.0, "act_frac": 0.5, "routing_shape": 1.5, "rank_skew": 0.0,
        "rank_power": 0.0, "unaligned": 1.0, "crowded": 1.0,
    },
}


def starting_tables(profile: HardwareProfile) -> HardwareProfile:
    """The profile with every kernel table that a fit may change, in the form its device needs.

    Tables it lacks are those assumed for any device; a CPU's are always without tiles: what its
    profile states of them is kept where it has the same meaning.
    """
    kernels = dict(profile.kernels)
    if profile.kind == "cpu":
        for name, params in _CPU_TABLES.items():
            table = kernels.get(name)
            own = dict(table.params) if table is not None and _is_untiled(profile) else {}
            if own and own.get("untiled", 0.0) != params.get("untiled", 0.0):
                own.pop("peak_frac", None)  # it stood for rows of padded tiles
            if own.get("floor_s", 1.0) <= NO_FLOOR_S:
                own.pop("floor_s")  # shorter than any call: it was left to other kernels
            kept = {k: v for k, v in own.items() if v > 0.0 or params.get(k) == 0.0}
            source = table.source if table is not None else "assumed: typical of a CPU library"
            kernels[name] = KernelTable(name, {**params, **kept}, source, assumed=True)
        return replace(profile, kernels=kernels)
    for name in _GPU:
        if name not in kernels:
            source = "assumed: typical of tuned kernels"
            kernels[name] = KernelTable(name, dict(ASSUMED[name]), source, assumed=True)
    return replace(profile, kernels=kernels)


def _is_untiled(profile: HardwareProfile) -> bool:
    table = profile.kernels.get("gemm.bf16")
    return table is not None and bool(table.params.get("untiled"))


def free_parameters(profile: HardwareProfile, tables: Iterable[str]) -> tuple[Parameter, ...]:
    """The parameters of these tables, around the values of `profile`."""
    rules = _CPU if profile.kind == "cpu" else _GPU
    out = []
    for table in rules:
        if table not in tables:
            continue
        for name, (width, low, high, also) in rules[table].items():
            start = profile.kernel(table)[name]
            if start <= 0.0:
                continue  # the base knows no such cost
            targets = tuple((table, one) for one in (name, *also))
            if profile.kind == "cpu":
                targets += _SHARED.get((table, name), ())
            out.append(Parameter(f"{table}: {name}", min(max(start, low), high), width, low, high,
                                 targets))
    return tuple(out)


def with_values(
    profile: HardwareProfile, values: Mapping[Parameter, float]
) -> HardwareProfile:
    """The profile with these parameters in their tables."""
    kernels = dict(profile.kernels)
    changed: dict[str, dict[str, float]] = {}
    for parameter, value in values.items():
        for table, name in parameter.targets:
            changed.setdefault(table, dict(kernels[table].params))[name] = value
    for table, params in changed.items():
        kernels[table] = replace(kernels[table], params=params)
    return replace(profile, kernels=kernels)
