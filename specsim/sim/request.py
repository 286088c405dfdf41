"""A request as a client sends it, and the one record that comes out of it.

Times are seconds on the run's clock, lengths are tokens. `RequestRecord` is the only output of a
simulated request and, written by the live client, of a real one: every latency statistic is
computed from these records.
"""

from dataclasses import asdict, dataclass
from typing import NamedTuple

FINISHED = "finished"
UNFINISHED = "unfinished"  # still running or waiting when the run ended: a censored observation
REJECTED = "rejected"  # can never be served (too long); the record says why
TIMEOUT = "timeout"  # the client gave up
FAILED = "failed"  # its replica failed

STATUSES = (FINISHED, UNFINISHED, REJECTED, TIMEOUT, FAILED)


class Request(NamedTuple):
    """What a client asks for.

    arrival_s: when it is sent (ignored by closed loops, which decide that themselves).
    spans: the content of the prompt's beginning, as (key, tokens) pieces: two prompts share a
        prefix as far as their pieces have equal keys. What lies behind the last piece is unique.
    grows: prompt and answer continue the last piece (a conversation that is sent again).
    session: id of the user or conversation, for routers that keep one at one replica; -1: none.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    spans: tuple[tuple[int, int], ...] = ()
    grows: bool = False
    session: int = -1
    turn: int = 0


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request from the client's side. A time is None when it never came.

    arrival_s: sent. scheduled_s: first tokens scheduled. first_token_s, last_token_s: as the
    client sees them. output_tokens: received, of `requested_tokens`. chunks: pieces the output
    came in (one per engine step that yielded tokens). verify_steps: steps that carried drafts;
    drafted_tokens, accepted_tokens: over those steps, before the cut at the end of the output (as
    vLLM counts). stalls: gaps between chunks longer than the run's stall limit. attempts: 1 + how
    often a gateway sent it again.
    """

    request_id: int
    session: int
    turn: int
    replica: int
    status: str
    arrival_s: float
    scheduled_s: float | None
    first_token_s: float | None
    last_token_s: float | None
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    requested_tokens: int
    chunks: int
    verify_steps: int
    drafted_tokens: int
    accepted_tokens: int
    preemptions: int
    stalls: int
    attempts: int = 1
    end_s: float | None = None
    reason: str = ""

    @property
    def ttft_s(self) -> float | None:
        """Time to first token."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s

    @property
    def e2el_s(self) -> float | None:
        """Arrival to last token, finished requests only."""
        if self.status != FINISHED or self.end_s is None:
            return None
        return self.end_s - self.arrival_s

    @property
    def queue_s(self) -> float | None:
        return None if self.scheduled_s is None else self.scheduled_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """(last token - first token) / (output tokens - 1), finished requests of 2 or more."""
        if self.status != FINISHED or self.output_tokens < 2:
            return None
        assert self.first_token_s is not None and self.last_token_s is not None
        return (self.last_token_s - self.first_token_s) / (self.output_tokens - 1)

    @property
    def stream_tok_s(self) -> float | None:
        """Tokens per second of this stream after its first token: 1 / TPOT."""
        tpot = self.tpot_s
        return None if not tpot else 1.0 / tpot

    @property
    def acceptance_length(self) -> float | None:
        """Mean tokens per verify step, bonus token counted."""
        if not self.verify_steps:
            return None
        return 1.0 + self.accepted_tokens / self.verify_steps

    def to_dict(self) -> dict[str, object]:
        return asdict(self)
