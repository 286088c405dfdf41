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
from typing import NotRequired, TypedDict

from specsim.data import data_table
from specsim.hardware.profile import HardwareProfile, KernelTable
from specsim.roofline.defaults import assumed
from specsim.roofline.device import plain_loops

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


class _Rule(TypedDict):
    """Of one parameter in catalog/calibration.toml, which says what the fields mean."""

    width: float
    low: float
    high: float
    also: NotRequired[list[str]]


class _Kind(TypedDict):
    """What may be fitted on a kind of device, and the tables that a CPU starts from."""

    free: dict[str, dict[str, _Rule]]
    start: NotRequired[dict[str, dict[str, float]]]


def _of_kind(kind: str) -> _Kind:
    found: _Kind = data_table("catalog", "calibration.toml")[kind]
    return found


def starting_tables(profile: HardwareProfile) -> HardwareProfile:
    """The profile with every kernel table that a fit may change, in the form its device needs.

    Tables it lacks are those assumed for any device; a CPU's are always without tiles: what its
    profile states of them is kept where it has the same meaning.
    """
    kernels = dict(profile.kernels)
    if profile.kind == "cpu":
        for name, params in _of_kind("cpu").get("start", {}).items():
            table = kernels.get(name)
            own = dict(table.params) if table is not None and plain_loops(profile.kernels) else {}
            if own and own.get("untiled", 0.0) != params.get("untiled", 0.0):
                own.pop("peak_frac", None)  # it stood for rows of padded tiles
            if own.get("floor_s", 1.0) <= NO_FLOOR_S:
                own.pop("floor_s")  # shorter than any call: it was left to other kernels
            kept = {k: v for k, v in own.items() if v > 0.0 or params.get(k) == 0.0}
            source = table.source if table is not None else "assumed: typical of a CPU library"
            kernels[name] = KernelTable(name, {**params, **kept}, source, assumed=True)
        return replace(profile, kernels=kernels)
    for name in _of_kind("gpu")["free"]:
        if name not in kernels:
            source = "assumed: typical of tuned kernels"
            kernels[name] = KernelTable(name, dict(assumed()[name]), source, assumed=True)
    return replace(profile, kernels=kernels)


def free_parameters(profile: HardwareProfile, tables: Iterable[str]) -> tuple[Parameter, ...]:
    """The parameters of these tables, around the values of `profile`."""
    rules = _of_kind("cpu" if profile.kind == "cpu" else "gpu")["free"]
    out = []
    for table in rules:
        if table not in tables:
            continue
        for name, rule in rules[table].items():
            start = profile.kernel(table)[name]
            if start <= 0.0:
                continue  # the base knows no such cost
            targets = tuple((table, one) for one in (name, *rule.get("also", ())))
            if profile.kind == "cpu":
                targets += _SHARED.get((table, name), ())
            start = min(max(start, rule["low"]), rule["high"])
            out.append(Parameter(
                f"{table}: {name}", start, rule["width"], rule["low"], rule["high"], targets
            ))
    return tuple(out)


def with_values(profile: HardwareProfile, values: Mapping[Parameter, float]) -> HardwareProfile:
    """The profile with these parameters in their tables."""
    kernels = dict(profile.kernels)
    changed: dict[str, dict[str, float]] = {}
    for parameter, value in values.items():
        for table, name in parameter.targets:
            changed.setdefault(table, dict(kernels[table].params))[name] = value
    for table, params in changed.items():
        kernels[table] = replace(kernels[table], params=params)
    return replace(profile, kernels=kernels)
