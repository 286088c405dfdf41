"""How an engine schedules: the rules of one replica that do not change during a run."""

from dataclasses import dataclass

from specsim.errors import UsageError
from specsim.sim.limits import whole


@dataclass(frozen=True, slots=True)
class EngineRules:
    """How an engine schedules. Defaults: vLLM 0.25 to 0.33 as a server on an 80 GB device.

    watermark: share of the blocks that admission leaves free.
    reserve_full_isl: admit a prompt only if all of it fits now.
    long_prefill_token_threshold: longest chunk of one prompt in one step; 0: no limit.
    readback_lag_steps: 1 with asynchronous scheduling: a finished request takes part in one more
        step, because that step is planned before its end is known.
    plan_ahead: the next step is planned when the one before it starts (asynchronous scheduling
        with two batches in flight), so a request that arrives during a step waits for the whole
        next one too. An engine with nothing else to do takes it at once.
    prefill_first: prompts run alone and before decoding (SGLang); else mixed with it.
    victim: 'last' (admitted last, vLLM) or 'fewest_tokens' (SGLang).
    output_reserve: share of the tokens that running requests may still write for which admission
        keeps blocks free; falls to output_reserve_min over output_reserve_steps decode steps.
    spec_max_num_seqs: running requests with speculation on and nothing asked for; 0: no change.
    """

    name: str = "vllm"
    max_num_seqs: int = 1024
    max_num_batched_tokens: int = 8192
    block_size: int = 16
    prefix_caching: bool = True
    chunked_prefill: bool = True
    prefill_first: bool = False
    watermark: float = 0.0
    reserve_full_isl: bool = True
    long_prefill_token_threshold: int = 0
    readback_lag_steps: int = 1
    plan_ahead: bool = False
    victim: str = "last"
    output_reserve: float = 0.0
    output_reserve_min: float = 0.0
    output_reserve_steps: int = 600
    spec_max_num_seqs: int = 0

    def __post_init__(self) -> None:
        whole("max_num_seqs", self.max_num_seqs, 1, 65536)
        whole("max_num_batched_tokens", self.max_num_batched_tokens, 1, 1 << 30)
        whole("block_size", self.block_size, 1, 1 << 20)
        whole("long_prefill_token_threshold", self.long_prefill_token_threshold, 0)
        whole("readback_lag_steps", self.readback_lag_steps, 0, 1)
        whole("output_reserve_steps", self.output_reserve_steps, 1)
        whole("spec_max_num_seqs", self.spec_max_num_seqs, 0, 65536)
        for name in ("watermark", "output_reserve", "output_reserve_min"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise UsageError(f"{name} is {value!r}; it must be a share from 0 to 1")
        if self.victim not in ("last", "fewest_tokens"):
            raise UsageError(f"victim is {self.victim!r}; it must be 'last' or 'fewest_tokens'")


VLLM = EngineRules()
