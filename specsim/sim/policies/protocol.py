"""What a policy of speculation is: state in, draft lengths out.

    class Mine(Policy):
        def drafts(self, state: PolicyState) -> int | Sequence[int]: ...

An object is made per engine and run; what it remembers is its own. It is asked at every step that
proposes drafts, when the step is planned; what it says is drafted in that step and verified in the
next. Times in seconds, lengths in tokens, memory in cache blocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from pydantic import ConfigDict

STRICT = ConfigDict(extra="forbid")  # of the settings of a policy


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """A step that ended. seconds: its duration. requests: that decoded. drafts, proposed: verified
    in it, and drafted for the next one, per request (the most of any). tokens: output given out."""

    seconds: float
    requests: int
    drafts: int
    proposed: int
    tokens: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class RequestState:
    """A request that drafts in the planned step; counts since it began to decode."""

    request_id: int
    prompt_tokens: int
    output_tokens: int
    verify_steps: int
    drafted_tokens: int
    accepted_tokens: int


@dataclass(frozen=True)
class PolicyState:
    """What a policy is told.

    lengths: the draft lengths it may choose from, shortest first; drafts: the one in force.
    batch: requests in the planned step, those in prefill included; waiting: in the queue.
    context_tokens: cached per decoding request, mean. acceptance: share of steps in which draft
    1, 2, ... of a request is accepted, a moving average over what was verified; positions not tried
    yet count as the last that was (at first: as certain). last: the step before, None if none
    proposed drafts. drafter_loaded, drafter_blocks: whether its weights are in memory, and cache
    blocks that unloading gives.
    """

    now_s: float
    lengths: tuple[int, ...]
    drafts: int
    batch: int
    waiting: int
    prompt_tokens: int
    context_tokens: float
    free_blocks: int
    num_kv_blocks: int
    acceptance: tuple[float, ...]
    last: DecodeStep | None
    drafter_loaded: bool
    drafter_blocks: int
    price: Callable[[int, int], float] = field(repr=False)
    find_requests: Callable[[], tuple[RequestState, ...]] = field(repr=False)

    @property
    def longest(self) -> int:
        return self.lengths[-1]

    @cached_property
    def requests(self) -> tuple[RequestState, ...]:
        """Those that draft in this step: decoding ones, oldest first, then finished prompts."""
        return self.find_requests()

    def step_s(self, drafts: int, proposed: int | None = None) -> float:
        """Predicted seconds of a decode step of this batch that verifies `drafts` of each request
        and proposes as many (or `proposed`)."""
        return self.price(drafts, drafts if proposed is None else proposed)

    def tokens(self, drafts: int) -> float:
        """Expected tokens of a request and step that verifies `drafts`, bonus token included."""
        return 1.0 + sum(self.acceptance[:drafts])


class Policy:
    """Base of all policies.

    per_request: it gives a length for each of `state.requests` instead of one for all.
    unloads: it may take the drafter out of memory, by setting `drafter_wanted`. The engine gives
    its blocks to the cache, and drafts nothing until they are free again and the drafter back.
    """

    per_request: ClassVar[bool] = False
    unloads: ClassVar[bool] = False
    drafter_wanted: bool = True

    def drafts(self, state: PolicyState) -> int | Sequence[int]:
        """Tokens to draft in the planned step, from `state.lengths`."""
        raise NotImplementedError
