"""The ASGI application: routes, admission, and the way from a body to an answer.

    GET  /v1/models   /health   /version   /metrics
    POST /v1/completions   /v1/chat/completions

Text is tokenised in worker threads and the engine has its own, so the event loop only moves bytes.
A request is admitted, before it is tokenised, when fewer than max_num_seqs + max_queue requests are
open; all its sequences or none.

Tokenising takes about a second per megabyte and cannot be stopped once it runs, so a text is
refused by its size before, and short texts have a thread of their own. What waits belongs to an
admitted request, so the requests that can be open bound the queues too.

The wording of the log lines is vLLM's (v1/metrics/loggers.py and v1/spec_decode/metrics.py,
Apache-2.0), so that whatever reads its logs reads these.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from specsim.decoder.engine import Engine
from specsim.decoder.options import SamplingParams
from specsim.decoder.tokenizer import Tokenizer
from specsim.errors import SpecSimError, closest
from specsim.serve.engine_thread import EngineThread, ServedRequest, Update
from specsim.serve.errors import ApiError, bad, handlers
from specsim.serve.listening import HostGuard
from specsim.serve.protocol import Call, check_model, parse_call
from specsim.serve.replies import AnswerChoice, Replies
from specsim.serve.settings import ServeSettings, body_limit
from specsim.serve.streaming import DONE, EventResponse, event, read_object, unless_gone
from specsim.version import __version__


class LogLines:
    """Reads the counters that the engine's thread leaves behind each step."""

    def __init__(self, thread: EngineThread) -> None:
        self._thread = thread
        self._before = thread.counts
        self._at_s = thread.engine.clock()

    def since_last(self) -> list[str]:
        """The lines of the interval that ends now; none when nothing ran in it."""
        thread = self._thread
        at_s, self._at_s = self._at_s, thread.engine.clock()
        before, self._before = self._before, thread.counts
        counted, seconds = self._before.since(before), max(self._at_s - at_s, 1e-9)
        prompt, generated = counted.num_prompt_tokens, counted.num_generation_tokens
        if not prompt and not generated:
            return []
        lines = [
            f"Engine 000: Avg prompt throughput: {prompt / seconds:.1f} tokens/s, "
            f"Avg generation throughput: {generated / seconds:.1f} tokens/s, "
            f"Running: {thread.engine.num_running} reqs, Waiting: {thread.num_waiting} reqs, "
            f"GPU KV cache usage: {100 * thread.engine.pages.usage:.1f}%, "
            "Prefix cache hit rate: 0.0%"
        ]
        drafts = counted.num_drafts
        if drafts:
            drafted, accepted = counted.num_draft_tokens, counted.num_accepted_tokens
            rates = ", ".join(f"{n / drafts:.3f}" for n in counted.accepted_per_position)
            lines.append(
                f"SpecDecoding metrics: Mean acceptance length: {1 + accepted / drafts:.2f}, "
                f"Accepted throughput: {accepted / seconds:.2f} tokens/s, "
                f"Drafted throughput: {drafted / seconds:.2f} tokens/s, "
                f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
                f"Per-position acceptance rate: {rates}, "
                f"Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%"
            )
        return lines


SHORT_BYTES = 4096  # a millisecond or two


class TokenizingPool:
    """most_bytes: texts above it cannot fit max_model_len tokens, whatever they are."""

    def __init__(self, tokenizer: Tokenizer, max_model_len: int) -> None:
        self._tokenizer = tokenizer
        self.most_bytes = max_model_len * tokenizer.longest_token_bytes
        self._short, self._long = (
            ThreadPoolExecutor(1, thread_name_prefix=f"specsim-tokenize-{kind}")
            for kind in ("short", "long")
        )

    async def encode(self, call: Call) -> list[tuple[int, ...]]:
        """Token ids of each prompt of a request; ApiError (400) for a text that is too long."""
        size = call.text_bytes()
        lane = self._short if size <= SHORT_BYTES else self._long
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(lane, call.encode, self._tokenizer, self.most_bytes)
        except SpecSimError as error:
            raise bad(str(error), call.source) from None

    def close(self) -> None:
        for lane in (self._short, self._long):
            lane.shutdown(wait=False, cancel_futures=True)


class Service:
    """The engine, its thread and the rules of admission. draining: refuse new requests."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, settings: ServeSettings) -> None:
        self.settings, self.engine = settings, engine
        self.max_model_len = engine.options.max_model_len
        self.tokenizing = TokenizingPool(tokenizer, self.max_model_len)
        self._preparing = 0  # sequences that are admitted and not yet the engine's
        self.thread = EngineThread(engine, tokenizer, settings.model_name, self._on_failure)
        self.draining = False
        self.when_failed: list[asyncio.Event] = []

    def _on_failure(self) -> None:
        for waiter in self.when_failed:
            waiter.set()

    async def write_log(self) -> None:
        """vLLM's log lines every log_interval_s in which something ran."""
        lines = LogLines(self.thread)
        while self.settings.log is not None:
            await asyncio.sleep(self.settings.log_interval_s)
            for line in lines.since_last():
                self.settings.log(line)

    @property
    def capacity(self) -> int:
        return self.engine.options.max_num_seqs + self.settings.max_queue

    def check_alive(self) -> None:
        if self.thread.failure is not None:
            raise ApiError(503, f"the engine has failed: {self.thread.failure}", code="engine_dead")
        if self.draining:
            raise ApiError(503, "the server is shutting down", code="shutting_down",
                           headers={"Connection": "close"})

    @contextmanager
    def places(self, count: int) -> Iterator[None]:
        """Hold count places while a request is prepared and started; 429, with a time after which
        one should be free, when there are not as many."""
        self.check_alive()
        if count > self.capacity:
            raise bad(
                f"the request starts {count} sequences; this server takes {self.capacity} at "
                "once; send fewer prompts or a smaller n", "n",
            )
        taken = self.thread.num_open + self._preparing
        if taken + count > self.capacity:
            self.thread.metrics.refused.inc()
            slots = self.engine.options.max_num_seqs
            wait_s = math.ceil(min(60.0, max(1.0, count * self.thread.mean_run_s / slots)))
            raise ApiError(
                429, f"{taken} requests are open and {self.capacity} fit; try again in {wait_s} s",
                code="queue_full", headers={"Retry-After": str(wait_s)},
            )
        self._preparing += count
        try:
            yield
        finally:
            self._preparing -= count


class Exchange:
    """One HTTP request from parsed body to answer."""

    def __init__(
        self, service: Service, call: Call, prompts: list[tuple[int, ...]], arrival_s: float
    ) -> None:
        self._service, self._call = service, call
        self.answers = [AnswerChoice(len(ids)) for ids in prompts for _ in range(call.n)]
        self.replies = Replies(
            call, service.settings.model_name, self.answers, service.settings.spec_metrics,
            service.engine.options.num_speculative_tokens,
        )
        self._updates: asyncio.Queue[tuple[int, Update]] = asyncio.Queue()
        jobs = []
        for i, ids in enumerate(prompts):
            if not ids:
                raise bad("the prompt has no tokens; give at least one", "prompt")
            for j in range(call.n):
                params = call.params(len(ids), service.max_model_len, j)
                jobs.append(self._job(i * call.n + j, ids, params, arrival_s))
        self._ids = [job.request_id for job in jobs]
        service.check_alive()
        service.thread.submit(jobs)

    def _job(
        self, index: int, ids: tuple[int, ...], params: SamplingParams, arrival_s: float
    ) -> ServedRequest:
        def sink(update: Update) -> None:
            self._updates.put_nowait((index, update))

        name = f"{self.replies.request_id}-{index}"
        return ServedRequest(name, ids, params, self._call.stop, arrival_s, sink)

    async def updates(self) -> AsyncIterator[tuple[int, Update]]:
        """All updates as they come, until each sequence has ended."""
        left = len(self.answers)
        while left:
            index, update = await self._updates.get()
            if update.error is not None:
                raise _engine_error(update.error)
            self.answers[index].add(update)
            left -= update.final
            yield index, update

    def close(self) -> None:
        """Stop what still runs; to be called when nobody reads the answer any more."""
        for request_id in self._ids:
            self._service.thread.cancel(request_id)

    async def events(self) -> AsyncIterator[bytes]:
        """The answer as server-sent events; an error after the start is an event too."""
        started: set[int] = set()
        try:
            async for index, update in self.updates():
                yield event(self.replies.chunk(index, update, index not in started))
                started.add(index)
            if self._call.stream_options.include_usage:
                yield event(self.replies.usage_chunk())
        except ApiError as error:
            yield event(error.body())
        yield DONE

    async def collect(self) -> None:
        async for _ in self.updates():
            pass


def _engine_error(error: Exception) -> ApiError:
    if isinstance(error, SpecSimError):
        return bad(str(error))
    return ApiError(500, f"the engine has failed: {error}", code="engine_dead")


def create_app(service: Service) -> ASGIApp:
    """The application; its lifespan starts and stops the engine's thread."""
    settings, config = service.settings, service.engine.target.config
    limit = body_limit(service.max_model_len)

    async def answer(request: Request, chat: bool) -> Response:
        raw = await read_object(request, limit, settings.body_timeout_s)
        arrival_s = service.engine.clock()
        service.check_alive()
        check_model(raw, settings.model_name)
        call = parse_call(raw, chat, config.vocab_size, len(config.eos_token_ids))
        with service.places(call.sequences):
            prompts = await unless_gone(request.receive, service.tokenizing.encode(call))
            exchange = Exchange(service, call, prompts, arrival_s)
        if call.stream:
            return EventResponse(exchange.events(), exchange.close)
        try:
            await unless_gone(request.receive, exchange.collect())
        finally:
            exchange.close()
        return JSONResponse(exchange.replies.whole())

    async def completions(request: Request) -> Response:
        return await answer(request, chat=False)

    async def chat(request: Request) -> Response:
        return await answer(request, chat=True)

    async def models(_: Request) -> Response:
        model = {"id": settings.model_name, "object": "model", "created": 0,
                 "owned_by": "specsim", "root": settings.model_name, "parent": None,
                 "max_model_len": service.max_model_len}
        return JSONResponse({"object": "list", "data": [model]})

    async def health(_: Request) -> Response:
        service.check_alive()
        return Response()

    async def version(_: Request) -> Response:
        return JSONResponse({"version": __version__})

    async def metrics(_: Request) -> Response:
        return Response(service.thread.metrics.text(),
                        headers={"Content-Type": CONTENT_TYPE_LATEST})

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.thread.start()
        logging = asyncio.create_task(service.write_log())
        yield
        logging.cancel()
        service.tokenizing.close()
        await service.thread.stop()

    app = Starlette(
        routes=[
            Route("/v1/models", models),
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/health", health), Route("/version", version), Route("/metrics", metrics),
        ],
        exception_handlers={**handlers(), HTTPException: _http_error},
        lifespan=lifespan,
    )
    return app if settings.allowed_hosts is None else HostGuard(app, settings.allowed_hosts)


async def _http_error(request: Request, error: Exception) -> Response:
    """Unknown path (404) or wrong method (405)."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} is not allowed on {request.url.path}"
    if error.status_code == 404:
        paths = [route.path for route in request.app.routes]
        hint = f"{closest(request.url.path, paths)}there are {', '.join(paths)}"
        message = f"there is no {request.url.path[:100]}; {hint}"
    body = ApiError(error.status_code, message).body()
    return JSONResponse(body, error.status_code, headers=error.headers)
