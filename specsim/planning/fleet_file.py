"""Fleet files: a pool of GPUs and the models that are to be served on it, as TOML or JSON
(`docs/capacity.md` shows one).

Unknown keys are refused: a misspelt one would otherwise change nothing, silently.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from specsim.checked import (
    Broken,
    Rule,
    Shape,
    Texts,
    check,
    did_you_mean,
    json_value,
    toml_table,
)
from specsim.errors import FormatError, UsageError, shown
from specsim.files import MAX_BYTES, file_text
from specsim.planning.fleet_day_file import (
    MAX_AMOUNT,
    MAX_GPUS,
    TARGETS,
    Autoscale,
    Day,
    Maintenance,
    Number,
    Profile,
    TraceDay,
    profile_of,
)
from specsim.sim.scenario import SYSTEM_KEYS
from specsim.sim.slo import canonical, check_slo

MAX_TABLES = 200
MAX_FLOOR = 1e5  # tokens per second of a stream
# Keys of [system] that say how a model is served; where and how often is what a fleet decides.
SERVED_KEYS = (SYSTEM_KEYS | {"fidelity"}) - {"gpu", "replicas", "router", "max_concurrent"}
LENGTH_KEYS = ("workload", "input_len", "output_len", "cached_share", "range_ratio", "burstiness")
DayOf = Callable[[Path], TraceDay]  # of a trace file
DEMANDS = ("trace", "users", "rate", "tokens_per_s", "fill")

Text = Annotated[str, BeforeValidator(str)]  # only shown: a year is as good a name as a word
Amount = Annotated[
    Number | None, Field(gt=0, le=MAX_AMOUNT), Rule("above 0 and at most 1e8")
]
Seconds = Annotated[Number | None, Field(ge=0, le=1e6), Rule("seconds, from 0 to 1000000")]
Price = Annotated[
    Number | None, Field(gt=0, lt=1e6), Rule("above 0 and below 1000000 per hour")
]
Tables = Field(min_length=1, max_length=MAX_TABLES)


class Pool(Shape):
    """Devices of one type. per_node: how many one link joins; 0: as the profile says."""

    type: Annotated[str, Rule("such as \"h200-sxm\"; see `specsim gpus`")]
    count: Annotated[int, Field(ge=1, le=MAX_GPUS)] = 1
    per_node: Annotated[int, Field(ge=0, le=MAX_GPUS)] = 0
    price_per_gpu_hour: Price = None


class Wanted(Shape):
    """A model that is to be served, one [[models]]. How else it is served and what is sent to it
    (SERVED_KEYS, LENGTH_KEYS) are options of other commands too, and are checked where they become
    those. tp: None: to be chosen. duration_s, warmup_s: of a run. burstiness, range_ratio: of the
    requests of a rate."""

    model_config = ConfigDict(extra="allow")

    model: Annotated[str, Rule("a name from `specsim models`, a config.json or its folder")]
    name: Annotated[str, Rule("text on one line")] = ""
    users: Amount = None
    rate: Amount = None
    tokens_per_s: Amount = None
    trace: Annotated[str | None, Rule("a trace file of a day")] = None
    profile: Profile = None
    autoscale: Autoscale | None = None
    fill: Annotated[bool | None, Rule("true, or left out")] = None
    scenario: Annotated[str | None, Rule("the habits of users: a name")] = None
    slo: dict[str, Number] = Field(default_factory=dict)
    stream_floor: Annotated[
        Number, Field(ge=0, le=MAX_FLOOR),
        Rule(f"tokens per second, from 0 (none) to {MAX_FLOOR:g}"),
    ] = 0.0
    n_minus_1: bool = True
    gpus: Annotated[
        str | Texts, Field(min_length=1), Rule("a list of types of the pool")
    ] = ()
    share_gpu: bool = False
    min_replicas: Annotated[int, Field(ge=1, le=MAX_GPUS)] = 1
    tp: Annotated[
        int | None, Field(ge=1, le=1024), Rule("a whole number from 1 to 1024, or left out")
    ] = None
    max_model_len: Annotated[
        int | None, Field(ge=1, le=100_000_000), Rule("a whole number from 1 to 100000000")
    ] = None
    duration_s: Seconds = None
    warmup_s: Seconds = None
    burstiness: Annotated[Number, Field(gt=0, le=math.inf), Rule("above 0")] = 1.0
    range_ratio: Annotated[Number, Field(ge=0, lt=1), Rule("from 0 to below 1")] = 0.0

    @model_validator(mode="before")
    @classmethod
    def _known(cls, raw: object) -> object:
        """Before anything is said to be missing: an unknown key is often a misspelt needed one."""
        known = {*cls.model_fields, *SERVED_KEYS, *LENGTH_KEYS}
        for key in raw if isinstance(raw, Mapping) else ():
            if key not in known:
                raise ValueError(f"has no key {key!r}; {did_you_mean(key, known)}")
        return raw

    @model_validator(mode="after")
    def _consistent(self) -> "Wanted":
        named_well = self.name.strip() and self.name.isprintable()
        if "name" in self.model_fields_set and not named_well:
            raise Broken("text on one line", "name", self.name)
        named = [key for key in DEMANDS if key in self.model_fields_set]
        if len(named) != 1:
            raise ValueError(
                f"must say how much is wanted with one of {', '.join(DEMANDS)}; it has "
                f"{' and '.join(named) or 'none'}"
            )
        if self.trace is not None and self.profile is not None:
            raise ValueError("has trace and profile, which both say the day; give one of them")
        if named == ["fill"] and not self.fill:
            raise Broken("true, or left out", "fill", self.fill)
        if named != ["fill"] and getattr(self, named[0]) is None:  # JSON's null is no amount
            raise Broken("above 0 and at most 1e8", named[0], None)
        return self

    @property
    def demand(self) -> str:
        """'users', 'rate' or 'tokens_per_s'; 'trace': the rate of one; 'fill': what is left of the
        pool."""
        return next(key for key in DEMANDS if key in self.model_fields_set)

    @property
    def amount(self) -> float:
        """Of the demand; 0 for what fills."""
        return self.users or self.rate or self.tokens_per_s or 0.0

    @property
    def day_shares(self) -> tuple[float, ...]:
        """Demand over the day as shares of its peak: by hour, or by step of a trace. UsageError
        where nothing says it."""
        if self.profile is None:
            raise UsageError(
                f"model {self.name} has no demand by the hour; give it profile = 24 numbers or a "
                "name such as \"office\", or trace, or profile under [day]"
            )
        assert not isinstance(self.profile, str)  # a name was looked up when the file was read
        return self.profile

    @property
    def options(self) -> dict[str, object]:
        """How it is served and what is sent, as options of other commands."""
        return {"model": self.model, **(self.model_extra or {})}


class FleetPlanFile(Shape):
    """The file: as it is written, then with what holds for all models in each of them."""

    gpus: Annotated[
        list[Pool], Tables, Rule(f"written as [[gpus]], one table for each, {MAX_TABLES} at most")
    ]
    models: Annotated[
        list[Wanted], Tables,
        Rule(f"written as [[models]], one table for each, {MAX_TABLES} at most"),
    ]
    name: Text = ""
    source: Text = ""
    operating_share: Annotated[Number, Field(gt=0, le=1), Rule("above 0 and at most 1")] = 0.8
    n_minus_1: bool = True
    price_per_gpu_hour: Price = None
    slo: dict[str, Number] = Field(default_factory=dict)
    engine: str | None = None
    engine_version: str | None = None
    day: Day | None = None
    autoscale: Autoscale | None = None
    maintenance: Annotated[list[Maintenance], Field(max_length=MAX_TABLES)] = Field(
        default_factory=list)

    def pool(self, gpu: str) -> Pool:
        """The pool of a type."""
        return next(pool for pool in self.gpus if pool.type == gpu)


def read_fleet(name: str, day_of: DayOf | None = None) -> FleetPlanFile:
    """A fleet file by path. day_of: of the traces that it names. UsageError, FormatError with the
    table and the key."""
    path = Path(name)
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise UsageError(f"fleet file {shown(name)} {what}")
    text = file_text(path, MAX_BYTES)
    is_json = path.suffix.lower() == ".json"
    raw = json_value(text, path.name) if is_json else toml_table(text, path.name)
    if not isinstance(raw, Mapping):
        raise FormatError(f"{path.name} must hold a table, not {type(raw).__name__}")
    return fleet_from(raw, path.name, day_of, path.parent)


def fleet_from(
    raw: Mapping[str, object], where: str, day_of: DayOf | None = None, folder: Path = Path()
) -> FleetPlanFile:
    """Check a parsed fleet. folder: where its traces are."""
    found = check(FleetPlanFile, raw, where, UsageError)
    slo = _gates(found.slo, where)
    pools = [
        pool.model_copy(update={
            "price_per_gpu_hour": pool.price_per_gpu_hour or found.price_per_gpu_hour})
        for pool in found.gpus
    ]
    if len({pool.type for pool in pools}) < len(pools):
        raise UsageError(f"{where}: a GPU type stands in [[gpus]] twice; add up the counts")
    models = [
        _wanted(item, found, slo, f"{where}: [[models]] {i} ({item.name or item.model})",
                day_of(folder / item.trace) if item.trace is not None and day_of else None)
        for i, item in enumerate(found.models, start=1)
    ]
    names = [model.name for model in models]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"{where}: two models are named {twice!r}; give each endpoint a name of its own"
        )
    _check_maintenance(found, where)
    if found.day is not None and found.day.profile is not None:
        profile_of(found.day.profile, f"{where}: [day]")
    return found.model_copy(update={"name": found.name or where, "gpus": pools, "models": models})


def _check_maintenance(found: FleetPlanFile, where: str) -> None:
    """UsageError for a type that the pool lacks, and for more GPUs away at a time than there are.
    (The most are away when some window begins.)"""
    counts = {pool.type: pool.count for pool in found.gpus}
    for item in found.maintenance:
        if item.type not in counts:
            raise UsageError(
                f"{where}: [[maintenance]] has type {shown(item.type)}; the pool has "
                f"{', '.join(counts)}"
            )
        away = sum(other.gpus for other in found.maintenance
                   if other.type == item.type and other.covers(item.from_hour))
        if away > counts[item.type]:
            raise UsageError(
                f"{where}: [[maintenance]] takes {away} GPUs at {item.from_hour:g} h, but the pool "
                f"has {counts[item.type]} of type {item.type}; take fewer at a time"
            )


def _wanted(
    item: Wanted, file: FleetPlanFile, slo: Mapping[str, float], where: str, trace: TraceDay | None
) -> Wanted:
    """A model with what holds for the whole file. trace: what its own says."""
    given = {*(item.model_extra or {}), *item.model_fields_set}
    lengths = [key for key in LENGTH_KEYS if key in given]
    people = item.demand == "users" or (item.demand == "fill" and not lengths)
    if people and lengths:
        raise UsageError(
            f"{where}: {lengths[0]} belongs to rate or tokens_per_s; what users send comes from "
            "their scenario"
        )
    if item.scenario is not None and not people:
        raise UsageError(f"{where}: scenario is the habits of users; name one, and give users")
    pool = [one.type for one in file.gpus]
    types = (item.gpus,) if isinstance(item.gpus, str) else item.gpus or tuple(pool)
    for kind in types:
        if kind not in pool:
            raise UsageError(f"{where}: gpus names {kind!r}, but the pool has {', '.join(pool)}")
    changes: dict[str, object] = {
        "name": item.name or item.model,
        "gpus": types,
        "scenario": (item.scenario or "mindrouter-chat") if people else None,
        "slo": {**slo, **_gates(item.slo, where)},
    }
    if "n_minus_1" not in item.model_fields_set:
        changes["n_minus_1"] = file.n_minus_1
    for key in ("engine", "engine_version"):
        if key not in given and getattr(file, key) is not None:
            changes[key] = getattr(file, key)
    return item.model_copy(update={**changes, **_over_the_day(item, file, where, trace)})


def _over_the_day(
    item: Wanted, file: FleetPlanFile, where: str, trace: TraceDay | None
) -> dict[str, object]:
    """The model's profile and autoscaling, and what its trace says of its load."""
    own, both = (rule.model_dump(exclude_unset=True) if rule else {}
                 for rule in (item.autoscale, file.autoscale))
    if own.keys() & TARGETS:
        both = {key: value for key, value in both.items() if key not in TARGETS}
    rule = Autoscale(**{**both, **own})
    if rule.max_replicas is not None and rule.max_replicas < item.min_replicas:
        raise UsageError(
            f"{where}: max_replicas is {rule.max_replicas}, below min_replicas, which is "
            f"{item.min_replicas}; raise it or lower the other"
        )
    out: dict[str, object] = {"autoscale": rule}
    shares = item.profile
    if shares is None and file.day is not None:
        shares = file.day.profile
    if trace is not None:
        peak, given = max(trace.rates), item.model_extra or {}
        if "workload" not in given:
            out |= {"input_len": trace.input_len, "output_len": trace.output_len, **given}
        out |= {"rate": peak, "profile": tuple(rate / peak for rate in trace.rates)}
    elif shares is not None:
        out["profile"] = profile_of(shares, where)
    return out


def _gates(given: Mapping[str, float], where: str) -> dict[str, float]:
    gates: dict[str, float] = {}
    for name, limit in given.items():
        if canonical(name) in gates:
            raise UsageError(f"{where}: slo has {canonical(name)} twice; give each SLO once")
        gates[canonical(name)] = limit
    check_slo(gates)
    return gates
