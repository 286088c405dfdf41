"""Limits of a server. Sizes in bytes, lengths in tokens, times in seconds."""

from collections.abc import Callable
from dataclasses import dataclass

from specsim.errors import require

# A body may hold text or token ids; both stay far below 64 bytes per token of context.
LEAST_BODY_BYTES, BODY_BYTES_PER_TOKEN = 1 << 20, 64
# Sequences (prompts times n) one HTTP request may start.
MAX_SEQUENCES = 128


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """model_name: what /v1/models lists. max_queue: requests that may wait beyond the max_num_seqs
    running ones; more are refused with 429. header_timeout_s, body_timeout_s: for a request's head
    and body to arrive. write_timeout_s: for a client to read what is ready. max_connections: open
    at once; None: far more than requests that can be open.
    shutdown_timeout_s: for running requests to finish after a signal. spec_metrics: what each
    response says about its own speculation (vLLM's --per-request-spec-decode-metrics).
    allowed_hosts: Host header names that are served, None for any. log: takes vLLM's periodic log
    lines, one every log_interval_s while there is work."""

    model_name: str
    max_queue: int = 256
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    write_timeout_s: float = 30.0
    max_connections: int | None = None
    shutdown_timeout_s: float = 60.0
    spec_metrics: str = "none"
    allowed_hosts: tuple[str, ...] | None = None
    log: Callable[[str], None] | None = None
    log_interval_s: float = 10.0

    def __post_init__(self) -> None:
        require(
            (bool(self.model_name.strip()), "the served model name is empty; give one"),
            *((getattr(self, name) > 0, f"{name} {getattr(self, name)} must be above 0")
              for name in ("header_timeout_s", "body_timeout_s", "write_timeout_s")),
        )


def body_limit(max_model_len: int) -> int:
    """Largest request body in bytes for a context of that many tokens."""
    return max(LEAST_BODY_BYTES, BODY_BYTES_PER_TOKEN * max_model_len)
