"""When requests are sent, and what becomes of each: the run of a load against a server.

Open loop: every request has its time; with a limit of open requests besides, it waits in the
client and its clock starts when it is let go, as `vllm bench serve --max-concurrency` does. Closed
loop: all times 0 and a limit. Times are of one monotonic clock, which no change of the machine's
date moves. Ctrl-C ends the run and keeps what was finished.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from specsim.client.http import (
    MAX_ERROR_BYTES,
    Connection,
    Target,
    connect,
    refusal,
    run_to_end,
    unreachable,
)
from specsim.client.metrics import Scraper
from specsim.client.prompts import WARM_UP, Prompt
from specsim.client.result import LiveRequest, LiveRun
from specsim.client.stream import EventParser, Sampling, StreamedAnswer, body_of
from specsim.errors import ServerError, UsageError, require
from specsim.sim.request import FAILED, FINISHED, REJECTED, TIMEOUT, UNFINISHED, RequestRecord
from specsim.units import counted

STALL_S = 2.0  # gaps between chunks longer than this count as stalls, as in the simulation
MAX_REQUESTS = 1_000_000
LATE_S = 0.05


@dataclass(frozen=True, slots=True)
class LiveLoad:
    """prompts[i] is sent times_s[i] after the start (closed loop: times_s empty).
    max_concurrency: open requests at most; 0: no limit. rate, burstiness: what the times were
    drawn from, for the record. warmups: requests sent before and not recorded. until_s: no request
    is begun later than this after the start, nor, where it is finite, after one has failed."""

    prompts: tuple[Prompt, ...]
    times_s: tuple[float, ...] = ()
    max_concurrency: int = 0
    rate: float = math.inf
    burstiness: float = 1.0
    warmups: int = 1
    name: str = ""
    until_s: float = math.inf

    def __post_init__(self) -> None:
        count = len(self.prompts)
        require(
            (1 <= count <= MAX_REQUESTS,
             f"{count} requests are to be sent; it must be 1 to {MAX_REQUESTS}"),
            (not self.times_s or len(self.times_s) == count,
             f"{len(self.times_s)} send times for {count} prompts"),
            (bool(self.times_s) or self.max_concurrency >= 1,
             "a closed loop needs a concurrency of 1 or more"),
            (all(a <= b for a, b in pairwise(self.times_s)),
             "send times must not fall; sort the requests by time"),
        )


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """Progress: requests ended, of how many, open now."""

    ended: int
    total: int
    running: int


Report = Callable[[LoadProgress], None]


def drive(
    target: Target, load: LiveLoad, sampling: Sampling, *, model: str = "",
    report: Report | None = None, sample_every_s: float = 1.0,
) -> LiveRun:
    """Send the load and wait for its end. model: name at the server, '' for its first one.

    ServerError when the server is not there or no request comes through; single failures are
    records with their reason. Ctrl-C returns what was finished (`partial`), or is passed on where
    nothing was sent yet but warm-ups."""

    async def whole() -> LiveRun:
        async with connect(target) as connection:
            served = await connection.models()
            if model and model not in served:
                raise UsageError(
                    f"the server has no model {model[:80]!r}; it serves {', '.join(served)[:200]}"
                )
            run = _LoadRun(connection, load, model or served[0], sampling, report)
            run.version = await connection.version()
            await run.warm_up()
            scraper = Scraper(connection, sample_every_s)
            await scraper.before()
            sampler = asyncio.create_task(scraper.sample())
            try:
                await run.all()
            finally:
                sampler.cancel()
                await asyncio.gather(sampler, return_exceptions=True)
            if not run.partial:
                try:
                    await scraper.after()
                except asyncio.CancelledError:
                    run.stopped()
        return run.result(scraper)

    return run_to_end(whole())


class _LoadRun:
    """The state of one run."""

    def __init__(
        self, connection: Connection, load: LiveLoad, model: str, sampling: Sampling,
        report: Report | None,
    ) -> None:
        self._connection, self._load, self._model = connection, load, model
        self._sampling, self._report = sampling, report
        self._path = "/v1/chat/completions" if sampling.chat else "/v1/completions"
        self._gate = asyncio.Semaphore(load.max_concurrency) if load.max_concurrency else None
        self._found: dict[int, LiveRequest] = {}
        self._running: dict[int, tuple[float, StreamedAnswer]] = {}
        self._late: list[float] = []
        self._start = self._end = 0.0
        self.partial = self._failed = False
        self.version = ""

    async def warm_up(self) -> None:
        """Requests that are not recorded; the first tells whether the server takes ours at all."""
        load = self._load
        text = Prompt(WARM_UP, min(16, load.prompts[0].output_tokens))
        if not isinstance(load.prompts[0].content, str) and not self._sampling.chat:
            text = replace(load.prompts[0], output_tokens=text.output_tokens)
        self._start = time.perf_counter()
        first = await self._request(-1, text, 0.0)
        if first.record.status == REJECTED and self._sampling.token_counts:
            # Not every server knows vLLM's counts per chunk.
            self._sampling = replace(self._sampling, token_counts=False)
            first = await self._request(-1, text, 0.0)
        if first.record.status == UNFINISHED:
            raise asyncio.CancelledError  # Ctrl-C, not the server's doing
        if first.record.status != FINISHED:
            raise ServerError(
                f"the first request to {self._connection.target.base} failed: "
                f"{first.record.reason}"
            )
        for _ in range(1, load.warmups):
            again = await self._request(-1, text, 0.0)
            if again.record.status == UNFINISHED:
                raise asyncio.CancelledError

    async def all(self) -> None:
        """Send everything; Ctrl-C (a cancelled task) keeps what is there."""
        tasks: list[asyncio.Task[None]] = []
        self._start = time.perf_counter()
        try:
            for number, prompt in enumerate(self._load.prompts):
                if self._load.times_s:
                    wait = self._start + self._load.times_s[number] - time.perf_counter()
                    if wait > 0:
                        await asyncio.sleep(wait)
                tasks.append(asyncio.create_task(self._one(number, prompt)))
            await asyncio.gather(*tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.stopped()
        self._end = time.perf_counter()

    def stopped(self) -> None:
        """Ctrl-C came: what was finished is a result, so it is not passed on."""
        self.partial = True
        this = asyncio.current_task()
        if this is not None:
            this.uncancel()

    async def _one(self, number: int, prompt: Prompt) -> None:
        if self._gate is not None:
            await self._gate.acquire()
        try:
            sent = time.perf_counter() - self._start
            until_s, begun = self._load.until_s, self._found or self._running
            if until_s < math.inf and begun and (self._failed or sent > until_s):
                return
            if self._load.times_s and self._gate is None:
                self._late.append(sent - self._load.times_s[number])
            found = self._found[number] = await self._request(number, prompt, sent)
            self._failed |= found.record.status != FINISHED
        finally:
            if self._gate is not None:
                self._gate.release()
            if self._report is not None:
                self._report(
                    LoadProgress(len(self._found), len(self._load.prompts), len(self._running))
                )

    async def _request(self, number: int, prompt: Prompt, sent_s: float) -> LiveRequest:
        """Send one request and read its answer; every failure is a record."""
        import aiohttp

        answer = StreamedAnswer()
        self._running[number] = (sent_s, answer)
        status, reason = FINISHED, ""
        try:
            status, reason = await self._read(prompt, answer)
        except ServerError as error:
            status, reason = FAILED, str(error)
        except aiohttp.ConnectionTimeoutError:
            limits = self._connection.target
            status, reason = FAILED, f"no connection within {limits.connect_s:g} s"
        except (TimeoutError, aiohttp.ServerTimeoutError):
            limits = self._connection.target
            took = time.perf_counter() - self._start - sent_s
            status = TIMEOUT
            if took < limits.request_s - 0.5:
                reason = f"stalled: nothing for {limits.stall_s:g} s after {_so_far(answer)}"
            else:
                reason = f"took longer than {limits.request_s:g} s ({_so_far(answer)})"
        except (
            aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, ConnectionError
        ) as error:
            words = " ".join(str(error).split())[:100]
            status, reason = FAILED, f"connection lost after {_so_far(answer)}: {words}"
        except (aiohttp.ClientError, OSError) as error:
            status, reason = FAILED, unreachable(self._connection.target.base, error)
        except asyncio.CancelledError:
            status, reason = UNFINISHED, "interrupted"
        finally:
            self._running.pop(number, None)
        return self._record(number, prompt, sent_s, answer, status, reason)

    async def _read(self, prompt: Prompt, answer: StreamedAnswer) -> tuple[str, str]:
        body = body_of(prompt, self._model, self._sampling)
        async with self._connection.post(self._path, body) as reply:
            if reply.status != 200:
                text = (await reply.content.read(MAX_ERROR_BYTES)).decode("utf-8", "replace")
                refused = 400 <= reply.status < 500
                return REJECTED if refused else FAILED, refusal(reply.status, text)
            kind = reply.headers.get("Content-Type", "")
            if "event-stream" not in kind:
                return FAILED, f"the server answered {kind[:60] or 'no type'}, not an event stream"
            events = EventParser()
            async for piece in reply.content.iter_any():
                now = time.perf_counter() - self._start
                for data in events.feed(piece):
                    answer.take(data, now)
        if not answer.done and answer.finish_reason is None:
            return FAILED, f"the stream ended early, after {_so_far(answer)}"
        if not answer.times_s:
            return FAILED, "the answer held no token"
        if answer.finish_reason == "abort":
            return FAILED, f"the server aborted the request after {_so_far(answer)}"
        return FINISHED, ""

    def _record(
        self, number: int, prompt: Prompt, sent_s: float, answer: StreamedAnswer, status: str,
        reason: str,
    ) -> LiveRequest:
        times = answer.times_s
        tokens = answer.output_tokens
        if tokens is None:
            tokens = len(times)
        content = prompt.content
        known = len(content) if not isinstance(content, str) else 0
        gaps = [b - a for a, b in pairwise(times)]
        record = RequestRecord(
            request_id=number, session=-1, turn=0, replica=0, status=status, arrival_s=sent_s,
            scheduled_s=None, first_token_s=times[0] if times else None,
            last_token_s=times[-1] if times else None,
            prompt_tokens=answer.prompt_tokens or known, cached_tokens=answer.cached_tokens or 0,
            output_tokens=tokens, requested_tokens=prompt.output_tokens, chunks=len(times),
            verify_steps=answer.spec_steps or 0, drafted_tokens=answer.spec_drafted or 0,
            accepted_tokens=answer.spec_accepted or 0, preemptions=0,
            stalls=sum(gap > STALL_S for gap in gaps),
            end_s=times[-1] if times and status == FINISHED else time.perf_counter() - self._start,
            reason=reason,
        )
        return LiveRequest(
            record, tuple(times), answer.chunk_tokens(), answer.steps_accepted,
            usage=answer.output_tokens is not None, version=answer.version,
        )

    def result(self, scraper: Scraper) -> LiveRun:
        """The run with its records in the order of sending."""
        requests = tuple(self._found[i] for i in sorted(self._found))
        warnings = list(scraper.warnings)
        fingerprint = next((r.version for r in requests if r.version), "")
        done = [r for r in requests if r.record.status == FINISHED]
        if not done and not self.partial:
            reasons = sorted({r.record.reason for r in requests})
            raise ServerError(
                f"none of {len(requests)} requests was answered: {'; '.join(reasons)[:300]}"
            )
        if any(not r.usage for r in done):
            warnings.append(
                "the server sent no usage: tokens were counted as chunks, which is wrong where a "
                "chunk holds several (speculation)"
            )
        late = sorted(self._late)
        if late and late[int(0.95 * (len(late) - 1))] > LATE_S:
            warnings.append(
                f"requests left the client up to {late[-1] * 1e3:.0f} ms late: its machine is "
                "busy; the times really sent are what is simulated"
            )
        settings: dict[str, object] = {
            "endpoint": self._path, "temperature": self._sampling.temperature,
            "ignore_eos": self._sampling.ignore_eos, "seed": self._sampling.seed,
        }
        load = self._load
        return LiveRun(
            url=self._connection.target.base, model=self._model,
            version=self.version or fingerprint, name=load.name,
            rate=load.rate if load.times_s else math.inf, burstiness=load.burstiness,
            max_concurrency=load.max_concurrency or None,
            planned=len(load.prompts if math.isinf(load.until_s) else requests),
            duration_s=self._duration(done), requests=requests, before=scraper.first,
            after=scraper.last, samples=tuple(scraper.samples), partial=self.partial,
            settings=settings, warnings=tuple(warnings),
        )

    def _duration(self, done: Sequence[LiveRequest]) -> float:
        """From the start to the last answer; until now where there is none."""
        ends = [r.record.end_s for r in done if r.record.end_s is not None]
        return max(ends) if ends else max(self._end - self._start, 1e-9)


def _so_far(answer: StreamedAnswer) -> str:
    count = len(answer.times_s)
    return counted(count, "chunk") if count else "no token at all"
