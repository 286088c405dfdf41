"""What goes into the engine and what comes out."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from specsim.decoder.options import SamplingParams


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
