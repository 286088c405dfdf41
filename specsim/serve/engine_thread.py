"""The engine in a thread of its own: requests go in through a queue, updates come out through the
event loop, and neither waits for the other.

The thread alone touches the engine. It takes what has come in, runs one step, turns its tokens
into text, and posts all updates of the step to the loop in one call. `EngineThread`'s public
methods are called from the loop's thread, where `_open` is the one list of requests that still
owe an answer; every request gets exactly one final update (finish_reason or error set), also when
the engine fails.

Text that could be the beginning of a stop string is held back until it is known not to be one, so
a stream never shows part of one.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from specsim.decoder.engine import Engine
from specsim.decoder.options import SamplingParams
from specsim.decoder.slots import EngineRequest, StepOutput
from specsim.decoder.tokenizer import TextStream, Tokenizer
from specsim.errors import SpecSimError
from specsim.serve.metrics import RequestTimes, ServeMetrics


class AnswerText:
    """push() tokens one at a time; `stopped` holds the stop string once one was met."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> None:
        self._stream = TextStream(tokenizer)
        self._stops = tuple(stops)
        self._held = ""
        self.stopped: str | None = None

    def push(self, token: int) -> str:
        """Add a token; the text that may be shown. After a stop string: nothing."""
        return self._feed(self._stream.push((token,)))

    def finish(self) -> str:
        """What was held back, at the end of the answer."""
        text = self._feed(self._stream.finish())
        if self.stopped is None:
            text, self._held = text + self._held, ""
        return text

    def _feed(self, piece: str) -> str:
        if self.stopped is not None:
            return ""
        if not self._stops:
            return piece
        text = self._held + piece
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            # At one place, the longest: it names what was really written.
            at, self.stopped = min(found, key=lambda item: (item[0], -len(item[1])))
            self._held = ""
            return text[:at]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of text that a longer stop string begins with."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-size:]):
            return size
    return 0


# A request lets shorter ones pass that come within so many times what it may run itself.
PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Update:
    """What a step gave one request. num_tokens: generated so far, up to a stop string.

    finish_reason: '' while running, else 'stop' | 'length' | 'abort'. stop_reason: the stop string
    or stop token id, None at the model's own end token. spec_steps: (proposed, accepted) of the
    steps with drafts, in the final update. error: why there is no answer.
    """

    text: str = ""
    num_tokens: int = 0
    finish_reason: str = ""
    stop_reason: str | int | None = None
    spec_steps: tuple[tuple[int, int], ...] = ()
    error: Exception | None = None

    @property
    def final(self) -> bool:
        return bool(self.finish_reason) or self.error is not None


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """A request to run. arrival_s: on the engine's clock. sink: called in the loop's thread."""

    request_id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    stop: tuple[str, ...]
    arrival_s: float
    sink: Callable[[Update], None]


@dataclass(slots=True)
class _Live:
    """A request inside the engine."""

    job: ServedRequest
    text: AnswerText
    num_tokens: int = 0
    first_token_s: float = 0.0
    last_output_s: float = 0.0
    spec_steps: list[tuple[int, int]] = field(default_factory=list)


class EngineThread:
    """Owns the engine. start() once, inside a running event loop.

    on_failure: called in the loop's thread when the engine raised; no request can be served after.
    """

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, model_name: str,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        self.engine = engine
        self.metrics = ServeMetrics(
            model_name, engine.options.num_speculative_tokens, engine.options.max_model_len,
            running=lambda: engine.num_running, waiting=lambda: self.num_waiting,
            cache_usage=lambda: engine.pages.usage,
        )
        self.counts = engine.stats.snapshot()  # at the end of the last step
        self.failure: Exception | None = None
        self.mean_run_s = 1.0  # running mean of a request's time in its slot
        self._token_s = 0.0  # the same for each of its tokens
        self._tokenizer, self._on_failure = tokenizer, on_failure
        # None: stop; a string: cancel that request.
        self._inbox: SimpleQueue[ServedRequest | str | None] = SimpleQueue()
        self._open: dict[str, ServedRequest] = {}
        self._live: dict[str, _Live] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="specsim-engine", daemon=True)

    # ------------------------------------------------------- called in the loop's thread

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self, timeout_s: float = 10.0) -> None:
        """Abort what is left and end the thread, after the step it is in."""
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join, timeout_s)

    @property
    def num_open(self) -> int:
        """Requests without a final update."""
        return len(self._open)

    @property
    def num_waiting(self) -> int:
        return max(0, len(self._open) - self.engine.num_running)

    def submit(self, jobs: list[ServedRequest]) -> None:
        """Queue requests; how many may be open is the caller's rule."""
        for job in jobs:
            self._open[job.request_id] = job
            self._inbox.put(job)

    def cancel(self, request_id: str) -> None:
        """Stop a request if it still runs; its final update says 'abort'."""
        if request_id in self._open:
            self._inbox.put(request_id)

    def cancel_all(self) -> None:
        for request_id in list(self._open):
            self.cancel(request_id)

    def _deliver(self, updates: list[tuple[str, Update]]) -> None:
        for request_id, update in updates:
            job = self._open.get(request_id)
            if job is None:
                continue
            if update.final:
                del self._open[request_id]
            job.sink(update)

    def _failed(self) -> None:
        error = self.failure
        left = [(request_id, Update(error=error)) for request_id in self._open]
        for _ in left:
            self.metrics.finished("error")
        self._deliver(left)
        if self._on_failure is not None:
            self._on_failure()

    # ------------------------------------------------------- the engine's thread

    def _run(self) -> None:
        try:
            while self._take():
                if self.engine.has_work:
                    self._step()
            self._post([self._abort(live) for live in list(self._live.values())])
        except Exception as error:
            self.failure = error
            self._call(self._failed)

    def _call(self, what: Callable[..., None], *args: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(what, *args)
        except RuntimeError:
            return  # the loop has been closed: nobody waits any more

    def _post(self, updates: list[tuple[str, Update]]) -> None:
        if updates:
            self._call(self._deliver, updates)

    def _take(self) -> bool:
        """Take all that came in, waiting when idle; False to stop."""
        updates: list[tuple[str, Update]] = []
        try:
            item = self._inbox.get(block=not self.engine.has_work)
            while item is not None:
                if isinstance(item, ServedRequest):
                    update = self._add(item)
                    if update is not None:
                        updates.append((item.request_id, update))
                elif item in self._live:
                    updates.append(self._abort(self._live[item]))
                item = self._inbox.get_nowait()
            self._post(updates)
            return False
        except Empty:
            self._post(updates)
            return True

    def _add(self, job: ServedRequest) -> Update | None:
        try:
            request = EngineRequest(job.request_id, job.prompt_ids, job.params)
            patience_s = PATIENCE * self._token_s * job.params.max_tokens
            self.engine.add(request, job.arrival_s, job.arrival_s + patience_s)
        except SpecSimError as error:
            self.metrics.finished("error")
            return Update(error=error)
        self._live[job.request_id] = _Live(job, AnswerText(self._tokenizer, job.stop))
        return None

    def _abort(self, live: _Live) -> tuple[str, Update]:
        name = live.job.request_id
        self._close(live)
        self.metrics.finished("abort")
        return name, Update(text=live.text.finish(), num_tokens=live.num_tokens,
                            finish_reason="abort", spec_steps=tuple(live.spec_steps))

    def _close(self, live: _Live) -> None:
        """Forget a request, and stop it if it still runs."""
        name = live.job.request_id
        self.engine.cancel(name)
        self.engine.finished.pop(name, None)
        del self._live[name]

    def _step(self) -> None:
        outputs = self.engine.step()
        before, self.counts = self.counts, self.engine.stats.snapshot()
        now, counted = self.engine.clock(), self.counts.since(before)
        done = counted.num_prompt_tokens + counted.num_generation_tokens
        updates = []
        with self.metrics.lock:
            if done:
                self.metrics.observe("iteration_tokens_total", done)
            for output in outputs:
                live = self._live.get(output.request_id)
                if live is not None:
                    updates.append((output.request_id, self._advance(live, output, now)))
        self._post(updates)

    def _advance(self, live: _Live, output: StepOutput, now: float) -> Update:
        """Tokens of one step as text; ends the request at a stop string."""
        job, text = live.job, live.text
        if output.drafts:
            self.metrics.drafted(len(output.drafts), output.num_accepted)
            live.spec_steps.append((len(output.drafts), output.num_accepted))
        if live.num_tokens == 0:
            live.first_token_s = now
            self.metrics.prompt_tokens.inc(len(job.prompt_ids))
            self.metrics.observe("time_to_first_token_seconds", now - job.arrival_s)
        else:
            self.metrics.observe("inter_token_latency_seconds", now - live.last_output_s)
        live.last_output_s = now
        before, pieces = live.num_tokens, []
        for token in output.token_ids:
            live.num_tokens += 1
            pieces.append(text.push(token))
            if text.stopped is not None:
                break
        if output.finished and text.stopped is None:
            pieces.append(text.finish())
        self.metrics.generation_tokens.inc(live.num_tokens - before)
        reason = output.finish_reason
        stop: str | int | None = None
        if text.stopped is not None:
            reason, stop = "stop", text.stopped
        elif reason == "stop" and output.token_ids[-1] in job.params.stop_token_ids:
            stop = output.token_ids[-1]
        if reason:
            self._finish(live, reason)
        return Update(
            text="".join(pieces), num_tokens=live.num_tokens, finish_reason=reason,
            stop_reason=stop, spec_steps=tuple(live.spec_steps) if reason else (),
        )

    def _finish(self, live: _Live, reason: str) -> None:
        name = live.job.request_id
        self.engine.cancel(name)  # a stop string ends a request that the engine still runs
        result = self.engine.finished[name]
        self._close(live)
        run_s = live.last_output_s - result.admitted_s
        self.mean_run_s += 0.2 * (run_s - self.mean_run_s)
        self._token_s += 0.2 * (run_s / max(1, live.num_tokens) - self._token_s)
        self.metrics.finished(reason, RequestTimes(
            live.job.arrival_s, result.admitted_s, live.first_token_s, live.last_output_s,
            len(live.job.prompt_ids), live.num_tokens, live.job.params.max_tokens,
        ))
