"""What goes into the engine and what comes out, the host's view of running requests, and what it
derives from them for a step."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from specsim.decoder.options import SamplingParams
from specsim.decoder.sampling import SamplingMode


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One request. prompt_ids: token ids, at least one."""

    request_id: str
    prompt_ids: Sequence[int]
    params: SamplingParams = field(default_factory=SamplingParams)


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one step gave one request.

    token_ids: new tokens, the accepted drafts first. drafts: what was proposed (to show accepted
    and rejected ones); num_accepted counts accepted drafts before a stop or limit cut the rest,
    as vLLM counts them. finish_reason: '' while running, else 'stop' | 'length' | 'cancelled'.
    """

    request_id: str
    token_ids: tuple[int, ...]
    drafts: tuple[int, ...] = ()
    num_accepted: int = 0
    finish_reason: str = ""

    @property
    def finished(self) -> bool:
        return bool(self.finish_reason)


@dataclass(slots=True)
class RequestResult:
    """A finished request. Times are seconds on the engine's clock.

    token_times_s: when each generated token reached the host; tokens of one step share a time.
    steps: per decode step, (proposed, accepted) drafts.
    """

    request_id: str
    num_prompt_tokens: int
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""
    arrival_s: float = 0.0
    admitted_s: float = 0.0
    first_token_s: float = 0.0
    finished_s: float = 0.0
    token_times_s: list[float] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def ttft_s(self) -> float:
        """Time to first token, from arrival."""
        return self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> float:
        """Mean time per output token after the first; 0 with one token."""
        later = len(self.token_ids) - 1
        return (self.token_times_s[-1] - self.first_token_s) / later if later > 0 else 0.0


@dataclass(slots=True)
class EngineStats:
    """Counters with vLLM's meanings: num_drafts counts steps of a row that proposed something."""

    num_steps: int = 0
    num_prompt_tokens: int = 0
    num_generation_tokens: int = 0
    num_row_steps: int = 0  # decode steps summed over rows
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)

    @property
    def acceptance_length(self) -> float:
        """Mean tokens per verify step that had drafts, bonus included; 1 with no drafts."""
        return 1.0 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else 1.0

    def snapshot(self) -> "EngineStats":
        return replace(self, accepted_per_position=list(self.accepted_per_position))

    def since(self, before: "EngineStats") -> "EngineStats":
        """What has been counted since a snapshot."""
        counts = {f.name: getattr(self, f.name) - getattr(before, f.name)
                  for f in fields(self) if f.name != "accepted_per_position"}
        both = zip(self.accepted_per_position, before.accepted_per_position, strict=True)
        return EngineStats(**counts, accepted_per_position=[now - then for now, then in both])

    def observe(self, proposed: int, accepted: int) -> None:
        """One decode step of one row."""
        self.num_row_steps += 1
        if not proposed:
            return
        self.num_drafts += 1
        self.num_draft_tokens += proposed
        self.num_accepted_tokens += accepted
        for position in range(accepted):
            self.accepted_per_position[position] += 1


@dataclass(slots=True)
class RunningSlot:
    """A running request. epoch: how often this slot had been handed out before.

    prompt_done: prompt tokens computed. known: committed tokens read back so far (the prompt
    included). steps_in_flight: steps launched whose record was not read yet.
    """

    index: int
    epoch: int
    request: EngineRequest
    pages: list[int]
    result: RequestResult
    prompt_done: int = 0
    known: int = 0
    steps_in_flight: int = 0

    @property
    def prompt_len(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def decoding(self) -> bool:
        return self.prompt_done == self.prompt_len

    def most_committed(self, k: int) -> int:
        """Upper bound of tokens committed on the device by now."""
        most = self.known + self.steps_in_flight * (k + 1)
        return min(most, self.prompt_len + self.request.params.max_tokens)


@dataclass(slots=True)
class InFlight:
    """A record on its way to the host: its ticket, and the (slot, epoch) of each of its rows.

    iteration: the engine's step that sent it.
    """

    iteration: int
    ticket: int
    owners: list[tuple[int, int]]
    decode: bool


def sampling_mode(params: Sequence[SamplingParams], may_sync: bool = False) -> SamplingMode:
    """What the rows of a step need computed."""
    greedy = [p.greedy for p in params]
    if all(greedy):
        return SamplingMode()
    drawn = [p for p in params if not p.greedy]
    return SamplingMode(
        greedy=False, mixed=any(greedy), top_k_max=max(p.top_k for p in drawn),
        top_p=any(p.top_p < 1.0 for p in drawn), may_sync=may_sync,
    )


def graph_mode(mode: SamplingMode) -> SamplingMode:
    """The mode rounded up to one of few, so that few graphs are captured."""
    if mode.greedy:
        return mode
    top_k = 0 if mode.top_k_max == 0 else max(64, 1 << (mode.top_k_max - 1).bit_length())
    return SamplingMode(greedy=False, mixed=True, top_k_max=top_k, top_p=mode.top_p)


def seed_for(request_id: str, engine_seed: int) -> int:
    """A seed from the engine's seed and the request's name, the same in every process."""
    value = 1469598103934665603 ^ engine_seed
    for byte in request_id.encode():
        value = ((value ^ byte) * 1099511628211) & ((1 << 62) - 1)  # FNV-1a
    return value


class Readback:
    """Records from the device to the host, without stopping the device.

    On CUDA a ring of pinned buffers, one more than can be in flight, each with an event that says
    its copy is done; a buffer is reused only after its record was received. On the CPU a copy where
    the host reads late, else the tensor itself."""

    def __init__(self, device: torch.device, lag: int) -> None:
        self._cuda = device.type == "cuda"
        self._next = 0
        self._held: dict[int, tuple[Tensor, torch.cuda.Event | None]] = {}
        self._spare: dict[tuple[int, ...], list[Tensor]] = {}
        self._lag = lag

    def send(self, record: Tensor) -> int:
        """Start bringing a record over; the ticket to receive it with."""
        ticket = self._next
        self._next += 1
        if not self._cuda:
            # A runner may write its next record to the same memory before this one is read.
            self._held[ticket] = (record.clone() if self._lag else record, None)
            return ticket
        shape = tuple(record.shape)
        spare = self._spare.setdefault(shape, [])
        buffer = spare.pop() if spare else torch.empty(shape, dtype=record.dtype).pin_memory()
        buffer.copy_(record, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._held[ticket] = (buffer, event)
        return ticket

    def receive(self, ticket: int) -> list[list[int]]:
        """The record's rows; waits for its copy."""
        buffer, event = self._held.pop(ticket)
        if event is not None:
            event.synchronize()
        rows: list[list[int]] = buffer.tolist()
        if event is not None:
            self._spare[tuple(buffer.shape)].append(buffer)
        return rows
