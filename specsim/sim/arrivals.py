"""When requests are sent, seconds from the start of the run.

`bench_serve_times` reproduces the client of vLLM 0.25 to 0.33 (`vllm bench serve`) to the bit: the
same seed gives the send times that client plans. Facts read from its source (Apache-2.0): numpy's
legacy generator seeded with `--seed` (0 by default), one gamma draw per request, cumulative sum,
rescaled so that the last request is sent at num_prompts / request_rate (not with a ramp).
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from specsim.errors import UsageError

Floats = NDArray[np.float64]
CHUNK = 4096


def check_rate(rate: float, name: str = "request_rate") -> None:
    if isinstance(rate, bool) or math.isnan(rate) or rate <= 0:
        raise UsageError(f"{name} is {rate!r}; it must be requests per second, above 0")


def bench_serve_times(
    num_prompts: int,
    request_rate: float,
    *,
    burstiness: float = 1.0,
    seed: int = 0,
    ramp_up: tuple[str, float, float] | None = None,
) -> Floats:
    """Send times of `vllm bench serve`. ramp_up: ('linear' | 'exponential', first, last rate).

    burstiness is the gamma shape: 1 Poisson, below 1 burstier, infinite constant spacing. An
    infinite rate sends everything at once.
    """
    check_rate(request_rate)
    if not burstiness > 0:
        raise UsageError(f"burstiness is {burstiness!r}; it must be above 0")
    if ramp_up is not None and (ramp_up[0] not in ("linear", "exponential")):
        raise UsageError(f"ramp-up strategy {ramp_up[0]!r} must be 'linear' or 'exponential'")
    state = np.random.RandomState(seed)
    delays = np.zeros(num_prompts)
    for i in range(num_prompts):
        rate = request_rate
        if ramp_up is not None:
            strategy, first, last = ramp_up
            part = i / max(num_prompts - 1, 1)
            linear = strategy == "linear"
            rate = first + (last - first) * part if linear else first * (last / first) ** part
        if math.isinf(rate):
            delays[i] = 0.0
        elif math.isinf(burstiness):
            delays[i] = 1.0 / rate
        else:
            delays[i] = state.gamma(shape=burstiness, scale=1.0 / (rate * burstiness))
    # The client adds them up in Python floats, one after the other; so does cumsum.
    times = np.cumsum(delays)
    if ramp_up is None and num_prompts and times[-1] != 0:
        times = times * (num_prompts / request_rate / times[-1])
    return times


def sglang_serving_times(num_prompts: int, request_rate: float, *, seed: int = 42) -> Floats:
    """Send times of `sglang.benchmark.serving`: first at once, exponential gaps, not rescaled."""
    check_rate(request_rate)
    if math.isinf(request_rate):
        return np.zeros(num_prompts)
    gaps = np.random.RandomState(seed).exponential(1.0 / request_rate, size=num_prompts)
    return np.concatenate(([0.0], np.cumsum(gaps)[:-1])) if num_prompts else np.empty(0)


def gamma_times(rate: float, seed: int, *, burstiness: float = 1.0) -> Iterator[float]:
    """Endless arrivals with gamma gaps (burstiness 1: Poisson), not rescaled."""
    check_rate(rate)
    if not burstiness > 0:
        raise UsageError(f"burstiness is {burstiness!r}; it must be above 0")
    if math.isinf(burstiness):
        yield from constant_times(rate)
        return
    generator = np.random.default_rng([seed, 1])
    now = 0.0
    while True:
        for gap in generator.gamma(burstiness, 1.0 / (rate * burstiness), size=CHUNK).tolist():
            now += gap
            yield now


def constant_times(rate: float) -> Iterator[float]:
    """Endless arrivals 1 / rate apart, the first at 0."""
    check_rate(rate)
    i = 0
    while True:
        yield i / rate
        i += 1


def ramp_times(first_rate: float, last_rate: float, over_s: float, seed: int) -> Iterator[float]:
    """Poisson arrivals whose rate moves linearly from first_rate to last_rate over `over_s` and
    stays there: unit exponential steps through the integral of the rate."""
    check_rate(first_rate, "first rate")
    check_rate(last_rate, "last rate")
    if not over_s > 0:
        raise UsageError(f"the ramp takes {over_s!r} s; it must be above 0")
    generator = np.random.default_rng([seed, 1])
    slope = (last_rate - first_rate) / over_s
    expected_by_end = (first_rate + last_rate) / 2 * over_s
    expected = 0.0
    while True:
        for step in generator.standard_exponential(size=CHUNK).tolist():
            expected += step
            if expected >= expected_by_end:
                yield over_s + (expected - expected_by_end) / last_rate
            elif slope == 0.0:
                yield expected / first_rate
            else:
                # first t + slope t^2 / 2 = expected
                root = math.sqrt(first_rate * first_rate + 2.0 * slope * expected)
                yield 2.0 * expected / (first_rate + root)
