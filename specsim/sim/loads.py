"""What sends requests: open loops (times fixed beforehand) and closed loops (answers come first).

A load is started once with a cluster; it submits requests and, if it listens, is told when they
end. Requests that it makes depend only on its seed and their number, not on how fast the system
is.
"""

import itertools
import math
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from simpy.events import Event

from specsim.errors import UsageError
from specsim.sim.cluster import Cluster, check_refusals
from specsim.sim.lengths import Constant, Law
from specsim.sim.request import REJECTED, Request
from specsim.sim.ticket import Ticket


class Load(Protocol):
    """listens: the load reacts to finished requests, so engines may not run past one.
    total: requests it will send in all, None if that is open."""

    listens: bool
    total: int | None

    def start(self, cluster: Cluster, seed: int) -> None:
        """Begin to send requests to the cluster."""
        ...


@dataclass(frozen=True, slots=True)
class PromptPool:
    """What the prompts of a benchmark have in common, which a prefix cache may find: one of a few
    prefixes (vLLM's `prefix_repetition`, SGLang's `generated-shared-prefix`), or all of a pool.

    shared_tokens: every prompt begins with so many tokens of one of `groups` prefixes.
    prompts: so many different prompts are sent in turn, again and again; 0: none twice."""

    shared_tokens: int = 0
    groups: int = 1
    prompts: int = 0

    def __post_init__(self) -> None:
        if self.prompts and self.groups > self.prompts:
            raise UsageError(
                f"{self.groups} prefixes cannot begin {self.prompts} prompts; ask for at most one "
                "per prompt"
            )

    def spans(self, number: int, prompt_tokens: int) -> tuple[tuple[int, int], ...]:
        """Content of the prompt of the request with this number, as `Request.spans`."""
        which = number % self.prompts if self.prompts else number
        shared = min(self.shared_tokens, prompt_tokens)
        pieces = [(which % self.groups, shared)] if shared else []
        if self.prompts and prompt_tokens > shared:
            pieces.append((self.groups + which, prompt_tokens - shared))
        return tuple(pieces)


def requests_of(
    times: Iterable[float], prompt: Law | int, output: Law | int, seed: int,
    *, limit: int | None = None,
) -> Iterator[Request]:
    """Requests at the given times with lengths drawn from laws (or fixed), each at least 1 token
    of prompt."""
    prompt_law = Constant(prompt) if isinstance(prompt, int) else prompt
    output_law = Constant(output) if isinstance(output, int) else output
    if isinstance(prompt_law, Constant) and isinstance(output_law, Constant):
        fixed = (max(1, round(prompt_law.value)), round(output_law.value))
        for time_s in itertools.islice(times, limit):
            yield Request(time_s, *fixed)
        return
    generator = np.random.default_rng([seed, 3])
    for time_s in itertools.islice(times, limit):
        yield Request(
            time_s, max(1, round(prompt_law.draw(generator))), round(output_law.draw(generator))
        )


def bench_random_lengths(
    num_prompts: int, input_len: int, output_len: int, *, range_ratio: float = 0.0, seed: int = 0
) -> list[tuple[int, int]]:
    """Lengths of `vllm bench serve --dataset-name random`: whole numbers from floor(L (1 - r)) to
    ceil(L (1 + r)), numpy's default generator, all inputs before all outputs."""
    if not 0 <= range_ratio < 1:
        raise UsageError(f"range_ratio is {range_ratio!r}; it must be from 0 to below 1")
    generator = np.random.default_rng(seed)
    drawn = []
    for length in (input_len, output_len):
        low, high = math.floor(length * (1 - range_ratio)), math.ceil(length * (1 + range_ratio))
        drawn.append(generator.integers(low, high + 1, size=num_prompts))
    return [(max(1, int(a)), max(1, int(b))) for a, b in zip(*drawn, strict=True)]


def varied_lengths(
    lengths: tuple[int, int], range_ratio: float, seed: int
) -> Iterator[tuple[int, int]]:
    """The same law without end: (prompt, output) tokens that vary uniformly by a share."""
    if not range_ratio:
        yield from itertools.repeat(lengths)
    generator = np.random.default_rng([seed, 5])
    bounds = [
        (math.floor(x * (1 - range_ratio)), math.ceil(x * (1 + range_ratio)) + 1) for x in lengths
    ]
    while True:
        drawn = [generator.integers(low, high, size=1024).tolist() for low, high in bounds]
        for prompt, output in zip(*drawn, strict=True):
            yield max(1, prompt), max(1, output)


class OpenLoop:
    """Requests at their own times, which must not fall: traces, Poisson, `vllm bench serve`."""

    listens = False

    def __init__(self, requests: Iterable[Request], *, total: int | None = None) -> None:
        self.requests = requests
        known = len(requests) if isinstance(requests, list | tuple) else None
        self.total = known if total is None else total

    def start(self, cluster: Cluster, seed: int) -> None:
        cluster.clock.process(self._send(cluster))

    def _send(self, cluster: Cluster) -> Generator[Event, object, None]:
        clock = cluster.clock
        previous = -math.inf
        for number, request in enumerate(self.requests):
            due = request.arrival_s
            if not due >= previous:
                raise UsageError(
                    f"request {number} is sent at {due!r} s, after one at {previous!r} s; sort the "
                    "requests by arrival time"
                )
            previous = due
            if due > clock.now:
                yield clock.at(due)
            cluster.submit(request)


class LimitedOpenLoop(OpenLoop):
    """An open loop whose client holds at most `max_concurrency` requests open, as `vllm bench
    serve --max-concurrency` does: a request's clock starts when the client lets it go."""

    listens = True

    def __init__(
        self, requests: Iterable[Request], max_concurrency: int, *, total: int | None = None
    ) -> None:
        super().__init__(requests, total=total)
        if max_concurrency < 1:
            raise UsageError(f"max_concurrency is {max_concurrency}; it must be 1 or more")
        self.max_concurrency = max_concurrency

    def _send(self, cluster: Cluster) -> Generator[Event, object, None]:
        clock = cluster.clock
        held: deque[Request] = deque()
        open_now = 0

        def finished(ticket: Ticket, status: str, time_s: float) -> None:
            nonlocal open_now
            open_now -= 1
            release()

        def release() -> None:
            nonlocal open_now
            while held and open_now < self.max_concurrency:
                open_now += 1
                cluster.submit(held.popleft(), finished)

        for request in self.requests:
            if request.arrival_s > clock.now:
                yield clock.at(request.arrival_s)
            held.append(request)
            release()


class ClosedLoop:
    """`concurrency` clients that send the next request the moment the last one is answered.

    requests: an endless or finite supply; their arrival times are ignored.
    """

    listens = True

    def __init__(
        self, requests: Iterable[Request], concurrency: int, *, total: int | None = None
    ) -> None:
        if isinstance(concurrency, bool) or concurrency < 1:
            raise UsageError(f"concurrency is {concurrency!r}; it must be 1 or more")
        self.concurrency = concurrency
        known = len(requests) if isinstance(requests, list | tuple) else None
        self.total = known if total is None else total
        self._requests = requests

    def start(self, cluster: Cluster, seed: int) -> None:
        supply = itertools.islice(self._requests, self.total)
        refused = 0

        def send(ticket: Ticket | None = None, status: str = "", time_s: float = 0.0) -> None:
            nonlocal refused
            refused = refused + 1 if status == REJECTED else 0
            if ticket is not None:
                check_refusals(refused, ticket)
            request = next(supply, None)
            if request is not None:
                cluster.submit(request, send)

        for _ in range(self.concurrency):
            cluster.clock.call_at(0.0, send)

    def start_inside(self, cluster: Cluster) -> None:
        """The same loop run by the engine itself, where nothing stands between (much faster)."""
        supply = itertools.islice(self._requests, self.total)
        cluster.clock.call_at(0.0, cluster.supply, supply)
