"""The host's view of running requests, and what it derives from them for a step."""

from collections.abc import Sequence
from dataclasses import dataclass

from specsim.decoder.options import SamplingParams
from specsim.decoder.requests import EngineRequest, RequestResult
from specsim.decoder.sampling import SamplingMode


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
        greedy=False,
        mixed=any(greedy),
        top_k_max=max(p.top_k for p in drawn),
        top_p=any(p.top_p < 1.0 for p in drawn),
        may_sync=may_sync,
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
