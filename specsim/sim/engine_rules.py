"""What a replica is: how its engine schedules, what requests take of its cache, and which replicas
compute prompts where others decode.

Replicas are numbered first to last, prefill replicas before decode replicas: `Fault.replica` and
`RequestRecord.replica` count so.
"""

from dataclasses import asdict, dataclass

from specsim.errors import UsageError
from specsim.jsonable import jsonable
from specsim.latency.kv_link import KVLink

MAX_BLOCKS = 1 << 40


def whole(name: str, value: object, low: int, high: int = MAX_BLOCKS) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UsageError(f"{name} is {value!r}; it must be a whole number from {low} to {high}")


@dataclass(frozen=True, slots=True)
class BlockCosts:
    """What a request takes of the cache's blocks, which are all of one size.

    full_blocks: per `block_size` tokens, for layers that keep everything. window_blocks: for layers
        that see the last window_tokens. state_blocks: per running request, whatever its length.
    keeps_last_window: of the layers with a window only what the end of a prompt needs is kept for
        those that come after; else all that was computed, until others take it.
    """

    full_blocks: int = 1
    window_blocks: int = 0
    window_tokens: int = 0
    state_blocks: int = 0
    keeps_last_window: bool = False

    def window_units(self, step_tokens: int, block_size: int) -> int:
        """Units of `block_size` tokens of a window that a request holds at most: vLLM's cap, the
        window before a step and the step's prompt tokens."""
        tokens = self.window_tokens - 1 + step_tokens
        return -(-tokens // block_size) + 1

    def longest(self, blocks: int, step_tokens: int, block_size: int) -> int:
        """Tokens of the longest request for which `blocks` are enough."""
        left = blocks - self.state_blocks
        units = left // max(1, self.full_blocks + self.window_blocks)
        windows = self.window_units(step_tokens, block_size)
        if self.window_blocks and units > windows and self.full_blocks:
            units = (left - windows * self.window_blocks) // self.full_blocks
        if not self.full_blocks and left >= windows * self.window_blocks:
            units = MAX_BLOCKS // block_size
        return units * block_size


@dataclass(frozen=True, slots=True)
class EngineRules:
    """How an engine schedules. Defaults: vLLM 0.25 to 0.33 as a server on an 80 GB device.

    watermark: share of the blocks that admission leaves free.
    reserve_full_isl: admit a prompt only if all of it fits now.
    readback_lag_steps: 1 with asynchronous scheduling: a finished request takes part in one more
        step, because that step is planned before its end is known.
    plan_ahead: the next step is planned when the one before it starts (asynchronous scheduling
        with two batches in flight), so a request that arrives during a step waits for the whole
        next one too. An engine with nothing else to do takes it at once.
    prefill_first: prompts run alone and before decoding (SGLang); else mixed with it.
    groups: attention groups among which sequences are dealt out; a prompt is computed in one, in an
        equal part of max_num_batched_tokens.
    victim: 'last' (admitted last, vLLM) or 'fewest_tokens' (SGLang).
    output_reserve: share of the tokens that running requests may still write for which admission
        keeps blocks free; falls to output_reserve_min over output_reserve_steps decode steps.
    """

    name: str = "vllm"
    max_num_seqs: int = 1024
    max_num_batched_tokens: int = 8192
    block_size: int = 16
    prefix_caching: bool = True
    chunked_prefill: bool = True
    prefill_first: bool = False
    groups: int = 1
    watermark: float = 0.0
    reserve_full_isl: bool = True
    readback_lag_steps: int = 1
    plan_ahead: bool = False
    victim: str = "last"
    output_reserve: float = 0.0
    output_reserve_min: float = 0.0
    output_reserve_steps: int = 600

    def __post_init__(self) -> None:
        whole("max_num_seqs", self.max_num_seqs, 1, 65536)


VLLM = EngineRules()


@dataclass(frozen=True, slots=True)
class PrefillPool:
    """Replicas that compute prompts and their first token, and send the cache to those that decode.

    They hold the blocks of a prompt until it is sent. rules: how their engine schedules (None: as
    the decode replicas'). num_kv_blocks, block_costs: of each (0, None: as the
    decode replicas')."""

    n_replicas: int = 1
    link: KVLink = KVLink()
    rules: EngineRules | None = None
    num_kv_blocks: int = 0
    block_costs: BlockCosts | None = None

    def to_dict(self) -> dict[str, object]:
        """Plain settings, for the record beside a result."""
        return {
            "n_replicas": self.n_replicas, "num_kv_blocks": self.num_kv_blocks or None,
            "link": jsonable(asdict(self.link)),
        }
