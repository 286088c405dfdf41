"""What must hold for a simulated load on any deployment.

Shares lie from 0 to 1 and sum to it, means lie within their extremes, percentiles rise, intervals
hold their point and stay in its range, and what is written is JSON.
"""

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

import random_deployments
from predict_properties import Miss, below

from specsim.api.simulate import run
from specsim.options.serving import SimulateOptions
from specsim.sim.figures import SHARES, numbers_in, value_at

SIGNED = ("trend", "slo", "cost_surface", "stationarity")  # differences among them


def options(draw: random.Random) -> dict[str, Any]:
    """Of `specsim simulate`: a small load on a random deployment."""
    found = random_deployments.options(draw)
    for name in ("fidelity", "equal_lengths", "requests_per_client", "range_ratio", "cached_share"):
        found.pop(name, None)
    found["input_len"] = min(found["input_len"], random_deployments.log_uniform(draw, 1, 20_000))
    found["output_len"] = random_deployments.log_uniform(draw, 1, 300)
    found["requests"] = random_deployments.log_uniform(draw, 1, 60)
    if "concurrency" in found:
        found["concurrency"] = random_deployments.log_uniform(draw, 1, 64)
    found["replications"] = draw.choice([1, 1, 2, 3, 6])
    found["seed"] = draw.randrange(1000)
    if draw.random() < 0.2:
        found["replicas"] = draw.choice([2, 3])
        if draw.random() < 0.3:
            found["fail"] = f"0:{draw.choice([0, 0.5, 3])}:{draw.choice([0.01, 1, 10])}"
    if draw.random() < 0.3:
        found["duration"] = 10 ** draw.uniform(-1, 2)
        if draw.random() < 0.5:
            found["warmup"] = found["duration"] * draw.random() * 0.9
    return found


def misses(number: int) -> list[Miss]:
    """All that is wrong with the load of this number. SpecSimError where it is refused."""
    found = run(SimulateOptions(**options(random.Random(number))))
    written = found.to_dict()
    json.dumps(written, allow_nan=False)
    missed = []
    for side in (written, written["baseline"]):
        if isinstance(side, Mapping):
            missed += of_figures(side)
    gains = {"confidence_95": written["gain_confidence_95"], **(found.comparison.gain or {})}
    return missed + list(of_intervals(gains))


def of_figures(figures: Mapping[str, Any]) -> Iterator[Miss]:
    """Of one side."""
    for path, value in numbers_in(figures):
        first = path.partition(".")[0]
        if first == "confidence_95" or any(part in SIGNED for part in path.split(".")):
            continue
        if not math.isfinite(value) or value < 0:
            yield Miss("finite and not negative", math.inf, f"{path} is {value}")
        if first in SHARES:
            yield from below(f"{first} at most 1", value, 1)
    if figures["time_share"]:
        total = sum(figures["time_share"].values())
        yield from below("time shares sum to 1", total, 1)
        yield from below("time shares sum to 1", 1, total)
    for what in ("running", "waiting", "kv_usage"):
        mean, most = figures[f"{what}_mean"], figures[f"{what}_max"]
        yield from below(f"{what}_mean within its maximum", mean, most)
    for name, values in figures.items():
        if isinstance(values, Mapping) and "p50" in values:
            known = [values[key] for key in ("p10", "p50", "p90", "p95", "p99") if values.get(key)]
            for low, high in itertools.pairwise(known):
                yield from below(f"percentiles of {name} rise", low, high)
    yield from of_intervals(figures)


def of_intervals(figures: Mapping[str, Any]) -> Iterator[Miss]:
    """Of all 95% intervals among the figures."""
    for path, (low, high) in figures.get("confidence_95", {}).items():
        value = value_at(figures, path)
        if value is None:
            continue
        yield from below("a 95% interval holds its point", low, value)
        yield from below("a 95% interval holds its point", value, high)
        if low < 0:
            yield Miss("a 95% interval is not negative", math.inf, f"{path} from {low}")
        if path.partition(".")[0] in SHARES:
            yield from below("a share's interval ends at 1", high, 1)
