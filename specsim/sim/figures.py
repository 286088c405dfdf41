"""The figures of a run by name, as `specsim simulate --json` writes them. Times are seconds."""

import math
from collections.abc import Iterator, Mapping
from typing import Required, TypedDict

# What a run computes of a figure, and therefore what a gate may ask for.
LATENCY_STATISTICS = ("mean", "p50", "p90", "p95", "p99")
STREAM_STATISTICS = ("mean", "p10", "p50", "p90")


# Those of the whole, at most 1, by the first part of their name.
SHARES = (
    "kv_usage_max", "kv_usage_mean", "prefix_hit_rate", "acceptance_rate", "time_share",
    "error_rate", "stall_rate",
)


def most_of(path: str) -> float:
    """The largest value that a figure of this dotted name can have."""
    return 1.0 if path.partition(".")[0] in SHARES else math.inf


def percents(statistics: tuple[str, ...]) -> tuple[float, ...]:
    """The percentiles among them."""
    return tuple(float(name[1:]) for name in statistics if name != "mean")


class Distribution(TypedDict, total=False):
    """Mean and percentiles, None where requests still waited when the run ended (`distributions`).
    censored: how many waited."""

    mean: Required[float | None]
    p10: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    censored: float


class RequestCounts(TypedDict):
    """Measured requests by how they ended. arrived: all, those of the warm-up included."""

    measured: float
    finished: float
    unfinished: float
    rejected: float
    timeout: float
    failed: float
    arrived: float


class PoolLoad(TypedDict):
    """Of the prefill or the decode replicas, where they are apart."""

    replicas: float
    busy: float  # share of the window in which a step ran
    running_mean: float
    kv_usage_max: float


class Latencies(TypedDict):
    """Of single requests."""

    ttft_s: Distribution  # arrival to first token
    tpot_s: Distribution  # (last - first token) / (output tokens - 1)
    e2el_s: Distribution  # arrival to last token
    queue_s: Distribution  # arrival to first scheduled
    stream_tok_s: Distribution  # 1 / TPOT


class DraftingFigures(TypedDict):
    """What a policy of speculation did."""

    switches: float  # decode steps whose draft length is another than in the one before
    drafts_mean: float  # verified per decoding request and step
    off_share: float  # of these, with none
    wasted_tokens: float  # drafted and not accepted
    wasted_share: float  # of the drafted ones
    wasted_per_token: float  # of output


class TrendFigures(TypedDict):
    """A series over the batches of the measured time and the line through it (`stationarity`).
    change_se: standard error of the change, None where too few batches are independent."""

    mean: float
    first: float
    last: float
    change: float  # of the line, from the first batch to the last
    change_se: float | None
    independent: float  # batches


class EnergyFigures(TypedDict):
    """Of all GPUs over the measured window, hosts where `--host-w` counts them."""

    power_w: float  # mean
    joules_per_output_token: float | None  # None where none was given out
    idle_share: float  # of the joules, while no step ran


class Figures(Latencies, total=False):
    """A run, or the mean of several (`compare`)."""

    itl_s: Required[Distribution]  # per chunk: one gap per step that yields tokens
    itl_per_token_s: Required[Distribution]  # with the 0 s gaps between the tokens of one chunk
    output_tok_s: Required[float]  # given out per second of the measured window
    request_rate: Required[float]  # finished in the window, whenever sent, per second
    transfer_s: Distribution  # first token to decode replica; only where prefill is apart
    pools: dict[str, PoolLoad]
    goodput: float  # those of the request rate within every limit; only with an SLO
    running_mean: Required[float]
    running_max: Required[float]  # of each replica, summed
    waiting_mean: Required[float]
    waiting_max: Required[float]
    gateway_queue_max: Required[float]
    kv_usage_max: Required[float]
    kv_usage_mean: Required[float]
    preemptions: Required[float]
    prefix_hit_rate: Required[float | None]
    acceptance_length: Required[float | None]  # tokens per verify step, before cuts at the end
    acceptance_rate: Required[float | None]
    tokens_per_chunk: Required[float | None]
    steps: Required[float]
    mean_batch: Required[float | None]
    time_share: Required[dict[str, float]]  # of the window, by what the engine did
    energy: Required[EnergyFigures | None]  # None where the device's power is not known
    requests: Required[RequestCounts]
    error_rate: Required[float]
    stall_rate: Required[float]
    window_s: Required[list[float]]  # start and end of what is measured
    partial: Required[bool]
    cost_surface: Required[dict[str, float | None]]  # how far interpolated prices are off
    slo: Required[dict[str, object] | None]
    drafting: DraftingFigures  # only where policies are compared
    trend: dict[str, TrendFigures]  # by series; empty where the run is too short


def value_at(figures: object, path: str) -> float | None:
    """A figure by dotted name; None where it is missing or no number."""
    value = figures
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def numbers_in(value: object, path: str = "") -> Iterator[tuple[str, float]]:
    """Dotted names and values of all numbers in nested figures."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield path, float(value)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from numbers_in(inner, f"{path}.{key}" if path else key)
