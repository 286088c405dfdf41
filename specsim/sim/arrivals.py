"""When requests are sent, seconds from the start of the run.

`bench_serve_times` reproduces the client of vLLM 0.25 to 0.33 (`vllm bench serve`) to the bit: the
same seed gives the send times that client plans. Facts read from its source (Apache-2.0): numpy's
legacy generator seeded with `--seed` (0 by default), one gamma draw per request, cumulative sum,
rescaled so that the last request is sent at num_prompts / request_rate.
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
    num_prompts: int, request_rate: float, *, burstiness: float = 1.0, seed: int = 0
) -> Floats:
    """Send times of `vllm bench serve`.

    burstiness is the gamma shape: 1 Poisson, below 1 burstier, infinite constant spacing. An
    infinite rate sends everything at once.
    """
    check_rate(request_rate)
    if not burstiness > 0:
        raise UsageError(f"burstiness is {burstiness!r}; it must be above 0")
    if math.isinf(request_rate):
        return np.zeros(num_prompts)
    if math.isinf(burstiness):
        delays = np.full(num_prompts, 1.0 / request_rate)
    else:
        state = np.random.RandomState(seed)
        scale = 1.0 / (request_rate * burstiness)
        delays = state.gamma(burstiness, scale, size=num_prompts)
    # The client adds them up in Python floats, one after the other; so does cumsum.
    times = np.cumsum(delays)
    if num_prompts and times[-1] != 0:
        times = times * (num_prompts / request_rate / times[-1])
    return times


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
