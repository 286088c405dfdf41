"""A server's /metrics around a run: whole before and after, the two gauges that matter during it.

During the run only the lines of the running and waiting gauges are parsed, so that looking costs
little. A server without /metrics, or with other metrics than an engine's, is no fault: the run
goes on without and says so.
"""

import asyncio
import re
import time

from specsim.client.http import MAX_METRICS_BYTES, Connection
from specsim.errors import FormatError, ServerError
from specsim.formats.bench.server_metrics import run_of
from specsim.formats.metrics_text import Snapshot, parse_metrics

SETTLE_S = 0.3  # an engine counts a finished request a moment after its last token
MAX_SAMPLES = 100_000
_GAUGES = re.compile(
    r"^(?:vllm:num_requests_(?:running|waiting)|sglang:num_(?:running|queue)_reqs"
    r"|trtllm_num_requests_(?:running|waiting))(?:\{.*)? .*$",
    re.M,
)


class Scraper:
    """first, last: snapshots before and after. samples: (seconds, running, waiting)."""

    def __init__(self, connection: Connection, every_s: float) -> None:
        self._connection = connection
        self._every_s = every_s
        self._start = 0.0
        self.first: Snapshot | None = None
        self.last: Snapshot | None = None
        self.samples: list[tuple[float, float, float]] = []
        self.warnings: list[str] = []

    async def before(self) -> None:
        self.first = await self._snapshot("before the run")
        self._start = time.perf_counter()

    async def after(self) -> None:
        if self.first is None:
            return
        await asyncio.sleep(SETTLE_S)
        self.last = await self._snapshot("after the run")

    async def _snapshot(self, when: str) -> Snapshot | None:
        try:
            status, text = await self._connection.text("/metrics", MAX_METRICS_BYTES)
            if status != 200:
                raise ServerError(f"/metrics answered {status}")
            snapshot = parse_metrics(text, f"{self._connection.target.base}/metrics {when}")
            run_of(snapshot)  # refuses what is no engine's
            return snapshot
        except (ServerError, FormatError) as error:
            self.warnings.append(
                f"no engine metrics {when} ({error}): acceptance, batch and queue are known only "
                "as far as the client sees them"
            )
            return None

    async def sample(self) -> None:
        """Until cancelled, look at the gauges at fixed intervals."""
        if self.first is None or self._every_s <= 0:
            return
        due = time.perf_counter()
        while len(self.samples) < MAX_SAMPLES:
            due += self._every_s
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            try:
                status, text = await self._connection.text("/metrics", MAX_METRICS_BYTES)
                lines = "\n".join(_GAUGES.findall(text)) + "\n" if status == 200 else ""
                server = run_of(parse_metrics(lines, "/metrics")).server
            except (ServerError, FormatError):
                continue  # a busy server may miss one
            if server is not None and server.running is not None:
                now = time.perf_counter() - self._start
                self.samples.append((now, server.running, server.waiting or 0.0))
