"""Fleet files: a pool of GPUs and the models that are to be served on it, as TOML or JSON.

    name = "campus"
    operating_share = 0.8                 # of a replica's capacity, at the demand given
    n_minus_1 = true                      # any one replica may fail; per model too
    [[gpus]]
    type = "h200-sxm"
    count = 10
    [[models]]
    name = "chat"
    model = "gemma-4-31b"                 # and the keys of [system] in scenario files
    users = 700                           # or rate = ..., tokens_per_s = ..., fill = true
    scenario = "mindrouter-chat"          # the habits of the users
    stream_floor = 15                     # tokens/s of a stream, p10
    slo = { ttft_p95 = 2 }

Unknown keys are refused: a misspelt one would otherwise change nothing, silently.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from specsim.errors import FormatError, UsageError
from specsim.planning.cost import check_price
from specsim.planning.values import real, shown
from specsim.sim.scenario import SYSTEM_KEYS
from specsim.sim.slo import canonical, check_slo

MAX_BYTES = 1_000_000
MAX_MODELS = 200
MAX_GPUS = 20_000
MAX_AMOUNT = 1e8  # users, requests per second, tokens per second
MAX_FLOOR = 1e5  # tokens per second of a stream
TOP_KEYS = {
    "name", "source", "gpus", "models", "operating_share", "n_minus_1", "price_per_gpu_hour", "slo",
    "engine", "engine_version",
}
GPU_KEYS = {"type", "count", "per_node", "price_per_gpu_hour"}
# Keys of [system] that say how a model is served; where and how often is what a fleet decides.
SERVED_KEYS = (SYSTEM_KEYS | {"fidelity"}) - {"gpu", "replicas", "router", "max_concurrent"}
MODEL_KEYS = SERVED_KEYS | {
    "name", "users", "rate", "tokens_per_s", "fill", "scenario", "workload", "input_len",
    "output_len", "cached_share", "range_ratio", "burstiness", "duration_s", "warmup_s",
    "stream_floor", "slo", "n_minus_1", "gpus", "share_gpu", "min_replicas",
}
DEMANDS = ("users", "rate", "tokens_per_s", "fill")


@dataclass(frozen=True, slots=True)
class Pool:
    """Devices of one type. per_node: how many one link joins; 0: as the profile says."""

    gpu: str
    count: int
    per_node: int = 0
    price_per_gpu_hour: float | None = None


@dataclass(frozen=True)
class Wanted:
    """A model that is to be served. demand: 'users', 'rate' or 'tokens_per_s' and its amount;
    'fill': what is left of the pool. served: keys of [system]; traffic: lengths and pace."""

    name: str
    demand: str
    amount: float
    served: Mapping[str, Any]
    traffic: Mapping[str, Any]
    scenario: str | None
    slo: Mapping[str, float]
    stream_floor: float
    n_minus_1: bool
    gpus: tuple[str, ...]
    share_gpu: bool
    min_replicas: int


@dataclass(frozen=True)
class FleetPlanFile:
    """A checked fleet file."""

    name: str
    pools: tuple[Pool, ...]
    models: tuple[Wanted, ...]
    operating_share: float
    source: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)


def read_fleet(name: str) -> FleetPlanFile:
    """A fleet file by path. UsageError, FormatError with the table and the key."""
    path = Path(name)
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise UsageError(f"fleet file {shown(name)} {what}")
    if path.stat().st_size > MAX_BYTES:
        raise FormatError(f"{path.name} is larger than 1 MB; a fleet is a few kB of TOML or JSON")
    try:
        text = path.read_text(encoding="utf-8")
        raw = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path.name} is not valid TOML or JSON: {error}") from None
    except OSError as error:
        raise FormatError(f"{path.name} cannot be read: {error.strerror}") from None
    if not isinstance(raw, Mapping):
        raise FormatError(f"{path.name} must hold a table, not {type(raw).__name__}")
    return fleet_from(raw, path.name)


def fleet_from(raw: Mapping[str, Any], where: str) -> FleetPlanFile:
    """Check a parsed fleet."""
    _known(raw, TOP_KEYS, f"{where}: the top level")
    share = _number(raw, "operating_share", 0.8, where)
    if not 0 < share <= 1:
        raise UsageError(f"{where}: operating_share is {share:g}; it must be above 0 and at most 1")
    price = raw.get("price_per_gpu_hour")
    spare = _switch(raw, "n_minus_1", True, where)
    slo = _slo(raw.get("slo", {}), where)
    pools = tuple(
        _pool(item, price, f"{where}: [[gpus]] {i + 1}")
        for i, item in enumerate(_tables(raw, "gpus", where, MAX_MODELS))
    )
    if len({pool.gpu for pool in pools}) < len(pools):
        raise UsageError(f"{where}: a GPU type stands in [[gpus]] twice; add up the counts")
    shared = {key: raw[key] for key in ("engine", "engine_version") if key in raw}
    models = tuple(
        _model(item, shared, slo, spare, pools, f"{where}: [[models]] {i + 1}")
        for i, item in enumerate(_tables(raw, "models", where, MAX_MODELS))
    )
    names = [model.name for model in models]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"{where}: two models are named {twice!r}; give each endpoint a name of its own"
        )
    return FleetPlanFile(
        str(raw.get("name", where)), pools, models, share, str(raw.get("source", ""))
    )


def _pool(item: Mapping[str, Any], price: Any, where: str) -> Pool:
    _known(item, GPU_KEYS, where)
    if not isinstance(item.get("type"), str):
        raise UsageError(f"{where} needs a type, such as \"h200-sxm\"; see `specsim gpus`")
    given = item.get("price_per_gpu_hour", price)
    own = real(given)
    if given is not None:
        if own is None:
            raise UsageError(f"{where}: price_per_gpu_hour is {shown(given)}; it must be a number")
        check_price(own, f"{where}: price_per_gpu_hour")
    count = _whole(item, "count", 1, MAX_GPUS, 1, where)
    per_node = _whole(item, "per_node", 0, MAX_GPUS, 0, where)
    return Pool(item["type"], count, per_node, own)


def _model(
    item: Mapping[str, Any],
    shared: Mapping[str, Any],
    slo: Mapping[str, float],
    spare: bool,
    pools: tuple[Pool, ...],
    where: str,
) -> Wanted:
    _known(item, MODEL_KEYS, where)
    if not isinstance(item.get("model"), str):
        raise UsageError(f"{where} needs a model; see `specsim models`")
    name = item.get("name", item["model"])
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise UsageError(f"{where}: name is {shown(name)}; it must be text on one line")
    where = f"{where} ({name})"
    named = [key for key in DEMANDS if key in item]
    if len(named) != 1:
        raise UsageError(
            f"{where} must say how much is wanted with one of {', '.join(DEMANDS)}; it has "
            f"{' and '.join(named) or 'none'}"
        )
    demand = named[0]
    if demand == "fill":
        if item["fill"] is not True:
            raise UsageError(
                f"{where}: fill is {shown(item['fill'])}; it must be true, or left out"
            )
        amount = 0.0
    else:
        amount = _number(item, demand, 0.0, where)
        if not 0 < amount <= MAX_AMOUNT:
            raise UsageError(f"{where}: {demand} is {amount:g}; it must be above 0 and at most 1e8")
    traffic_keys = ("workload", "input_len", "output_len", "cached_share", "range_ratio",
                    "burstiness", "duration_s", "warmup_s")
    traffic = {key: item[key] for key in traffic_keys if key in item}
    lengths = [key for key in traffic if key not in ("duration_s", "warmup_s")]
    people = demand == "users" or (demand == "fill" and not lengths)
    if people and lengths:
        raise UsageError(
            f"{where}: {lengths[0]} belongs to rate or tokens_per_s; what users send comes from "
            "their scenario"
        )
    scenario = item.get("scenario")
    if scenario is not None and (not people or not isinstance(scenario, str)):
        raise UsageError(f"{where}: scenario is the habits of users; name one, and give users")
    types = item.get("gpus", [pool.gpu for pool in pools])
    types = [types] if isinstance(types, str) else types
    if not isinstance(types, list) or not types or not all(isinstance(x, str) for x in types):
        raise UsageError(f"{where}: gpus is {shown(types)}; it must be a list of types of the pool")
    known = [pool.gpu for pool in pools]
    for kind in types:
        if kind not in known:
            raise UsageError(
                f"{where}: gpus names {kind!r}, but the pool has {', '.join(known)}"
            )
    floor = _number(item, "stream_floor", 0.0, where)
    if floor > MAX_FLOOR:
        raise UsageError(
            f"{where}: stream_floor is {floor:g}; it must be tokens per second, from 0 (none) to "
            f"{MAX_FLOOR:g}"
        )
    gates = {**slo, **_slo(item.get("slo", {}), where)}
    served = {**shared, **{key: item[key] for key in item if key in SERVED_KEYS}}
    return Wanted(
        name=name,
        demand=demand,
        amount=amount,
        served=served,
        traffic=traffic,
        scenario=(scenario or "mindrouter-chat") if people else None,
        slo=gates,
        stream_floor=floor,
        n_minus_1=_switch(item, "n_minus_1", spare, where),
        gpus=tuple(types),
        share_gpu=_switch(item, "share_gpu", False, where),
        min_replicas=_whole(item, "min_replicas", 1, MAX_GPUS, 1, where),
    )


def _tables(raw: Mapping[str, Any], key: str, where: str, most: int) -> list[Mapping[str, Any]]:
    value = raw.get(key)
    good = isinstance(value, list) and value and all(isinstance(x, Mapping) for x in value)
    if not good:
        raise UsageError(f"{where} needs [[{key}]], one table for each")
    assert isinstance(value, list)
    if len(value) > most:
        raise UsageError(f"{where} has {len(value)} [[{key}]]; at most {most} are planned")
    return value


def _slo(value: Any, where: str) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: slo is {shown(value)}; it must be a table of gates and limits")
    gates = {}
    for name, given in value.items():
        limit = real(given)
        if limit is None:
            raise UsageError(f"{where}: slo {name} is {shown(given)}; it must be a number")
        if canonical(name) in gates:
            raise UsageError(f"{where}: slo has {canonical(name)} twice; give each gate once")
        gates[canonical(name)] = limit
    check_slo(gates)
    return gates


def _known(table: Mapping[str, Any], known: set[str], what: str) -> None:
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(known))}"
            raise UsageError(f"{what} has no key {key!r}; {hint}")


def _switch(table: Mapping[str, Any], key: str, default: bool, where: str) -> bool:
    value = table.get(key, default)
    if not isinstance(value, bool):
        raise UsageError(f"{where}: {key} is {shown(value)}; it must be true or false")
    return value


def _number(table: Mapping[str, Any], key: str, default: float, where: str) -> float:
    value = real(table.get(key, default))
    if value is None or not value >= 0:
        raise UsageError(f"{where}: {key} is {shown(table[key])}; it must be a number, 0 or more")
    return value


def _whole(
    table: Mapping[str, Any], key: str, low: int, high: int, default: int, where: str
) -> int:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UsageError(
            f"{where}: {key} is {shown(value)}; it must be a whole number from {low} to {high}"
        )
    return value
