"""What one streamed response means: its chunks, their tokens and times, usage, acceptance.

Chunks are counted as `vllm bench serve` counts them: every event with a choice is one, also an
empty text (a step whose tokens are not yet a whole character); the first gives TTFT, the gaps
between them ITL. A chat server's first event that only names the role is none. Tokens come from
the server's usage: of the last event, and of every chunk where the server knows vLLM's
`stream_options.continuous_usage_stats`.

Of server-sent events only `data` fields matter. An event ends at an empty line; several data lines
of one event are joined by a line feed (the HTML standard, section 9.2.6). Lines end with LF, CRLF
or CR.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from specsim.client.prompts import Prompt
from specsim.errors import ServerError

MAX_EVENT_BYTES = 1_000_000
MAX_RESPONSE_BYTES = 64_000_000


class EventParser:
    """feed(bytes) -> the data of the events that are complete now. ServerError where a server
    sends more than any answer needs."""

    def __init__(
        self, max_event: int = MAX_EVENT_BYTES, max_response: int = MAX_RESPONSE_BYTES
    ) -> None:
        self._max_event, self._max_response = max_event, max_response
        self._rest = b""
        self._data: list[bytes] = []
        self._held = 0  # bytes in _data
        self.received = 0

    def feed(self, chunk: bytes) -> list[str]:
        self.received += len(chunk)
        if self.received > self._max_response:
            raise ServerError(
                f"the server sent more than {self._max_response // 10**6} MB for one answer"
            )
        text = self._rest + chunk
        # A CR at the end may be half of a CRLF.
        held = b"\r" if text.endswith(b"\r") else b""
        lines = text[: len(text) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *whole, rest = lines.split(b"\n")
        self._rest = rest + held
        out: list[str] = []
        for line in whole:
            if not line:
                if self._data:
                    out.append(b"\n".join(self._data).decode("utf-8", "replace"))
                    self._data, self._held = [], 0
            elif line.startswith(b"data:"):
                value = line[5:].removeprefix(b" ")
                self._data.append(value)
                self._held += len(value)
        if len(self._rest) + self._held > self._max_event:
            raise ServerError(
                f"the server sent an event of more than {self._max_event // 1000} kB; "
                "chunks of an answer are far smaller"
            )
        return out


DONE = "[DONE]"
Table = Mapping[str, object]
MAX_TOKENS = 1 << 31
MAX_STEPS = 1_000_000
_SAID = ("content", "reasoning_content", "reasoning", "tool_calls")


@dataclass(frozen=True, slots=True)
class Sampling:
    """What is asked of every request. temperature None: the server's default. token_counts: ask
    for the tokens of every chunk."""

    chat: bool = False
    temperature: float | None = 0.0
    ignore_eos: bool = False
    token_counts: bool = True
    seed: int | None = None


def body_of(prompt: Prompt, model: str, sampling: Sampling) -> dict[str, object]:
    """The JSON body of a streamed request."""
    options: dict[str, object] = {"include_usage": True}
    if sampling.token_counts:
        options["continuous_usage_stats"] = True
    body: dict[str, object] = {
        "model": model, "stream": True, "stream_options": options,
        "max_tokens": prompt.output_tokens,
    }
    if sampling.chat:
        body["messages"] = [{"role": "user", "content": prompt.content}]
    else:
        content = prompt.content
        body["prompt"] = content if isinstance(content, str) else list(content)
    if sampling.temperature is not None:
        body["temperature"] = sampling.temperature
    if sampling.ignore_eos:
        body["ignore_eos"] = True
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    return body


@dataclass(slots=True)
class StreamedAnswer:
    """One response while it comes. times_s: when each chunk came; counts: completion tokens the
    server had counted at each chunk (where it says so). steps_accepted: drafts accepted in each
    step that carried some, where the server sends it."""

    times_s: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    done: bool = False
    spec_steps: int | None = None
    spec_drafted: int | None = None
    spec_accepted: int | None = None
    steps_accepted: tuple[int, ...] = ()
    version: str = ""

    def take(self, data: str, now_s: float) -> None:
        """One event. ServerError for an error object or something that is no completion."""
        if data.strip() == DONE:
            self.done = True
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            raise ServerError(
                f"the server sent an event that is not JSON: {data[:60]!a}"
            ) from None
        if not isinstance(event, dict):
            raise ServerError(f"the server sent an event that is no object: {data[:60]!a}")
        fault = event.get("error")
        if fault:
            text = fault.get("message", fault) if isinstance(fault, dict) else fault
            raise ServerError(f"the server reported an error in its stream: {str(text)[:200]}")
        choices, usage = event.get("choices"), _table(event, "usage")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._choice(choices[0], usage, now_s)
        self._usage(usage)
        self._spec(_table(_table(event, "metrics"), "speculative_decoding"))
        fingerprint = event.get("system_fingerprint")
        if isinstance(fingerprint, str):
            self.version = fingerprint[:100]

    def _choice(self, choice: Table, usage: Table, now_s: float) -> None:
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            self.finish_reason = reason[:40]
        count = _whole(usage.get("completion_tokens"))
        chat = isinstance(choice.get("delta"), dict)
        parts = _table(choice, "delta") if chat else {"content": choice.get("text")}
        if not any(parts.get(name) for name in _SAID):
            if "role" in parts and not reason:
                return  # only names the role
            # An event without text may bring tokens: an end token, half a character.
            grew = (count or 0) > self.counts[-1] if usage and self.counts else not chat
            if reason and self.times_s and not grew:
                return  # only ends the answer
        self.times_s.append(now_s)
        if count:
            self.counts.append(count)

    def _usage(self, usage: Table) -> None:
        self.prompt_tokens = _whole(usage.get("prompt_tokens")) or self.prompt_tokens
        output = _whole(usage.get("completion_tokens"))
        self.output_tokens = self.output_tokens if output is None else output
        cached = _whole(_table(usage, "prompt_tokens_details").get("cached_tokens"))
        self.cached_tokens = self.cached_tokens if cached is None else cached

    def _spec(self, spec: Table) -> None:
        """vLLM's --per-request-spec-decode-metrics, in the last event."""
        if not spec:
            return
        self.spec_steps = _whole(spec.get("num_spec_steps"))
        self.spec_drafted = _whole(spec.get("num_draft_tokens"))
        self.spec_accepted = _whole(spec.get("num_accepted_draft_tokens"))
        steps = spec.get("per_step_accepted")
        if isinstance(steps, list) and len(steps) <= MAX_STEPS:
            found = [_whole(value) for value in steps]
            if all(value is not None for value in found):
                self.steps_accepted = tuple(value or 0 for value in found)

    def chunk_tokens(self) -> tuple[int, ...]:
        """Tokens of each chunk; () where the server did not say."""
        if len(self.counts) != len(self.times_s):
            return ()
        before, out = 0, []
        for count in self.counts:
            out.append(count - before)
            before = count
        return tuple(out) if all(value >= 0 for value in out) else ()


def _table(table: Table, name: str) -> Table:
    """The object in a field, empty where there is none."""
    value = table.get(name)
    return value if isinstance(value, dict) else {}


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_TOKENS:
        return None
    return value
