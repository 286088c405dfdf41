"""The day of a fleet file: demand by the hour, autoscaling, maintenance (docs/capacity.md).

A profile is 24 numbers, the demand at 0:00, 1:00, ... 23:00, between which it changes evenly; only
their ratios count, the largest stands for the model's demand. Those with names are made up, as
their words say. A trace is counted in steps of `TRACE_STEP_S`. The day repeats: after 23:00 comes
0:00.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from specsim.checked import Rule, Shape
from specsim.errors import FormatError, UsageError, shown
from specsim.options.tables import real
from specsim.sim.request import Request

HOURS = 24
HOUR_S, DAY_S = 3600.0, 86400.0
TRACE_STEP_S = 300.0
LEAST_TRACE_S = 23 * HOUR_S  # a day whose last hour nobody asks in is a day
MAX_AMOUNT = 1e8
MAX_GPUS = 20_000
LONGEST_START_S = 43_200.0
TARGETS = ("target_utilisation", "target_queue")
# Made up: people at work, people at home, machines.
PROFILES: Mapping[str, tuple[float, ...]] = {
    "office": (5, 4, 4, 4, 5, 8, 15, 35, 70, 95, 100, 98, 85, 92, 98, 95, 85, 65, 40, 25, 18, 12,
               8, 6),
    "evening": (45, 28, 16, 10, 8, 8, 12, 20, 28, 34, 38, 42, 48, 50, 50, 52, 58, 66, 76, 88, 97,
                100, 90, 68),
    "flat": (1.0,) * HOURS,
}


def as_float(value: object) -> object:
    """Numbers beyond the range of floats as infinity, which every bound then refuses."""
    found = real(value)
    return value if found is None else found


Number = Annotated[float, BeforeValidator(as_float)]
Seconds = Annotated[Number, Field(ge=0, le=LONGEST_START_S), Rule("seconds, from 0 to 43200")]
Profile = Annotated[
    str | Annotated[
        tuple[Annotated[Number, Field(ge=0, le=MAX_AMOUNT)], ...], Field(strict=False)
    ] | None,
    Rule(f"24 numbers from 0 to 1e8, or one of {', '.join(PROFILES)}"),
]


class Day(Shape):
    """profile: of models that name none. lost: what is to fail once at each model's peak, and what
    n_minus_1 spares. give_up_s: how long a request waits before it is given up. timezone: of
    schedules that are exported."""

    profile: Profile = None
    lost: Literal["replica", "node"] = "replica"
    step_s: Literal[10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600] = 60
    give_up_s: Annotated[Number, Field(gt=0, le=86400), Rule("above 0 and at most 86400")] = 300.0
    timezone: Annotated[str, Field(pattern=r"^[A-Za-z0-9_+/-]{1,64}$"),
                        Rule("a name such as Europe/Berlin")] = "UTC"


class Autoscale(Shape):
    """How replicas follow the demand. target_utilisation: of the capacity (default: the file's
    operating_share); target_queue: waiting requests per replica, instead. start_s: from the
    decision until a replica serves; left out: boot_s + its weights / load_bytes_per_s. cool_down_s:
    how long a lower demand has to last. ahead_s: how far a rule that knows the day looks ahead."""

    target_utilisation: Annotated[
        Number | None, Field(gt=0, le=1), Rule("above 0 and at most 1")
    ] = None
    target_queue: Annotated[
        Number | None, Field(gt=0, le=1e6), Rule("waiting requests, above 0 and at most 1e6")
    ] = None
    max_replicas: Annotated[int | None, Field(ge=1, le=MAX_GPUS)] = None
    start_s: Annotated[Seconds | None, Rule("seconds, from 0 to 43200 (half a day)")] = None
    boot_s: Seconds = 60.0
    load_bytes_per_s: Annotated[
        Number, Field(ge=1e6, le=1e13), Rule("bytes per second, from 1e6 to 1e13")
    ] = 2e9
    cool_down_s: Seconds = 300.0
    ahead_s: Seconds = 0.0

    @model_validator(mode="after")
    def _one_target(self) -> "Autoscale":
        if self.target_utilisation is not None and self.target_queue is not None:
            raise ValueError(
                "autoscale has target_utilisation and target_queue; give the one it follows"
            )
        return self


class Maintenance(Shape):
    """GPUs that are out of service for some hours of the day."""

    type: Annotated[str, Rule("a type of the pool")]
    gpus: Annotated[int, Field(ge=1, le=MAX_GPUS)]
    from_hour: Annotated[Number, Field(ge=0, lt=HOURS), Rule("an hour, from 0 to below 24")]
    hours: Annotated[Number, Field(gt=0, le=HOURS), Rule("above 0 and at most 24")]

    def covers(self, hour: float) -> bool:
        """Whether it is going on at that hour; past midnight it goes on from 0:00."""
        return (hour - self.from_hour) % HOURS < self.hours


class TraceDay(NamedTuple):
    """rates: requests per second in each step of `TRACE_STEP_S`. Mean lengths in tokens."""

    rates: tuple[float, ...]
    input_len: int
    output_len: int


def profile_of(value: str | Sequence[float], where: str) -> tuple[float, ...]:
    """24 numbers of a profile, the largest 1. UsageError names what is missing or wrong."""
    if isinstance(value, str):
        if value not in PROFILES:
            raise UsageError(
                f"{where}: profile is {shown(value)}; it must be one of {', '.join(PROFILES)}, or "
                "24 numbers"
            )
        value = PROFILES[value]
    if len(value) != HOURS:
        raise UsageError(
            f"{where}: profile has {len(value)} numbers; a day needs {HOURS}, the demand at 0:00, "
            "1:00, ... 23:00"
        )
    if not max(value) > 0:
        raise UsageError(f"{where}: profile has no hour above 0; give at least one")
    return tuple(number / max(value) for number in value)


def trace_day(requests: Iterable[Request], name: str) -> TraceDay:
    """The day of a trace: its busiest, counted from its first request. FormatError for a trace that
    lasts less than one."""
    steps = round(DAY_S / TRACE_STEP_S)
    counts: list[int] = []
    prompt, output, last_s = 0, 0, 0.0
    for request in requests:
        at, last_s = int(request.arrival_s // TRACE_STEP_S), request.arrival_s
        if at > 400 * steps:
            raise FormatError(f"{name} lasts over 400 days; give the day that is meant")
        counts += [0] * (at + 1 - len(counts))
        counts[at] += 1
        prompt, output = prompt + request.prompt_tokens, output + request.output_tokens
    if last_s < LEAST_TRACE_S:
        raise FormatError(
            f"{name} lasts {last_s / HOUR_S:.3g} of the 24 hours that a day needs; give a "
            "longer trace, or a profile with rate"
        )
    total = sum(counts)
    counts += [0] * (-len(counts) % steps)
    busiest = max((counts[at : at + steps] for at in range(0, len(counts), steps)), key=sum)
    return TraceDay(
        tuple(count / TRACE_STEP_S for count in busiest),
        max(1, round(prompt / total)), max(1, round(output / total)),
    )


def demand_at(shares: Sequence[float], step_s: float, peak: float) -> list[float]:
    """Demand in each step of a day. shares: 24 numbers, between which it changes evenly, or those
    of a trace, each of which holds for its step."""
    steps = round(DAY_S / step_s)
    if len(shares) != HOURS:
        return [peak * shares[int(i * len(shares) / steps)] for i in range(steps)]
    out = []
    for i in range(steps):
        part, hour = math.modf(i * step_s / HOUR_S)
        low, high = shares[int(hour)], shares[(int(hour) + 1) % HOURS]
        out.append(peak * (low + (high - low) * part))
    return out
