"""What is simulated: the engine's scheduling rules, speculation, memory, cluster and run length.

Names and defaults are vLLM's where it has them. Times are seconds, memory is counted in KV blocks
of `block_size` tokens. Ranges of single values are those of the options and engine profiles that
they come from; what must fit together is checked here, with a `UsageError` (`CapacityError` where
memory is short) that names the value and the way out.
"""

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING

from specsim.errors import CapacityError, UsageError
from specsim.jsonable import jsonable
from specsim.sim.engine_rules import VLLM, BlockCosts, EngineRules, PrefillPool, whole
from specsim.sim.policies.adaptive import Tiers
from specsim.sim.policies.choice import PolicyChoice
from specsim.sim.policies.table import BatchTable, drafts_by_batch
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.acceptance_spread import INDEPENDENT, AcceptanceSpread

if TYPE_CHECKING:
    from specsim.sim.acceptance import Recorded

ROUTERS = ("round_robin", "least_loaded", "power_of_two", "prefix_affinity", "cache_aware")
# Settings that `SimConfig.to_dict` writes in a form of their own, or not at all.
_NOT_PLAIN = ("acceptance", "acceptance_spread", "recorded", "rules", "speculation", "prefill")
RETRIES = ("unstarted", "all", "none")


@dataclass(frozen=True, slots=True)
class SpeculationRules:
    """What speculation asks of the scheduler; acceptance is given apart.

    num_speculative_tokens: longest draft k; 0: no speculation.
    verify_tokens: tokens verified per request, root included (trees); 0: 1 + drafts.
    num_lookahead_tokens: slots reserved behind them; None: k (vLLM: eagle, mtp, draft models).
    drop_last_cached_block: prefix hits leave out their last block, whose hidden states the
        drafter needs (vLLM: eagle, mtp).
    per_batch_size: vLLM's num_speculative_tokens_per_batch_size, ((first, last, k), ...), counted
        in scheduled requests, prompts included; gaps and what follows keep the k before.
    adaptive: SGLang's tiers, ((lowest batch, (k, ...)), ...).
    policy: one that is asked at every step (`policies`), up to num_speculative_tokens.
    """

    num_speculative_tokens: int = 0
    verify_tokens: int = 0
    num_lookahead_tokens: int | None = None
    drop_last_cached_block: bool = True
    per_batch_size: BatchTable = ()
    adaptive: Tiers = ()
    policy: PolicyChoice | None = None

    def __post_init__(self) -> None:
        k = self.num_speculative_tokens
        whole("num_speculative_tokens", k, 0, 64)
        whole("verify_tokens", self.verify_tokens, 0, 4096)
        if self.verify_tokens and (k == 0 or self.verify_tokens < 2):
            raise UsageError(
                f"verify_tokens is {self.verify_tokens}, but a verify step needs the root and "
                "at least one draft; leave it out without speculation"
            )
        lowest = 0
        for batch, lengths in self.adaptive:
            if batch <= lowest or (lowest == 0 and batch != 1) or not lengths:
                raise UsageError(
                    f"adaptive tier from batch {batch} is out of order or empty; tiers start at "
                    "batch 1 and rise, each with at least one draft length"
                )
            if list(lengths) != sorted(set(lengths)) or lengths[0] < 0:
                raise UsageError(f"adaptive draft lengths {lengths} must rise and be 0 or more")
            lowest = batch
        if self.verify_tokens and self.policy is not None and self.policy.per_request:
            raise UsageError(
                f"policy {self.policy.text} gives lengths by request, but trees are verified "
                "whole; use chains (leave out the tree) or another policy"
            )

    def step_width(self, drafts: int) -> int:
        """Tokens that a decoding request takes part with when it verifies `drafts`."""
        return self.verify_tokens if drafts and self.verify_tokens else drafts + 1

    @property
    def lookahead(self) -> int:
        given = self.num_lookahead_tokens
        return self.num_speculative_tokens if given is None else given

    def draft_lengths(self, max_num_seqs: int) -> list[int]:
        """All draft lengths a run may use, with 0 for steps of prompts alone."""
        k = self.num_speculative_tokens
        used = {0, *drafts_by_batch(self.per_batch_size, k, max_num_seqs)}
        if self.policy is not None:
            used = set(range(k + 1))
        if self.adaptive:
            used = {0} | {k for _, lengths in self.adaptive for k in lengths}
        return sorted(used)


@dataclass(frozen=True, slots=True)
class Fault:
    """Replica `replica` fails at fail_s with all it holds, and is back, empty, at return_s."""

    replica: int
    fail_s: float
    return_s: float = math.inf

    def __post_init__(self) -> None:
        if not self.fail_s >= 0:
            raise UsageError(f"fail_s is {self.fail_s!r}; it must be seconds, 0 or more")
        if not self.return_s > self.fail_s:
            raise UsageError(
                f"a replica that fails at {self.fail_s} s cannot be back at {self.return_s} s; "
                "return_s must be later"
            )


@dataclass(frozen=True, slots=True)
class SimConfig:
    """A run: what serves, for how long, and what is measured.

    acceptance, acceptance_spread: how drafts fare; needed with speculation. recorded: replay
        accepted lengths instead (see `acceptance.Recorded`).
    num_kv_blocks: blocks of every replica; block_costs: what takes them. drafter_blocks: more of
        them while a policy has unloaded the drafter.
    max_model_len: longest prompt + output; a request's output is cut there; None: what the memory
        holds.
    request_overhead_s: from the client to the scheduler (HTTP, tokeniser), part of TTFT.
    n_replicas; router; max_concurrent: requests a gateway lets into
        one backend at a time (0: no limit), the others wait in the gateway. prefill: replicas that
        compute prompts; the n_replicas then only decode. None: each does both.
    retry: which requests of a failed replica the gateway sends again: those without a token yet
        ('unstarted'), 'all' or 'none'.
    warmup_s: requests sent before it are served but not measured. duration_s: when the run stops;
        infinite: when all requests are served. request_timeout_s: clients give up.
    stall_s: a gap between chunks longer than this is a stall.
    compiled: run the step loop as machine code (None: where there is a C compiler or it was made
        before).
    exact_cost: ask the cost function at every step instead of the interpolated surface.
    """

    num_kv_blocks: int
    block_costs: BlockCosts = BlockCosts()
    rules: EngineRules = VLLM
    speculation: SpeculationRules = SpeculationRules()
    acceptance: Acceptance | None = None
    acceptance_spread: AcceptanceSpread = INDEPENDENT
    recorded: "Recorded | None" = None
    max_model_len: int | None = None
    request_overhead_s: float = 0.0
    n_replicas: int = 1
    prefill: PrefillPool | None = None
    router: str = "round_robin"
    max_concurrent: int = 0
    retry: str = "unstarted"
    faults: tuple[Fault, ...] = ()
    warmup_s: float = 0.0
    duration_s: float = math.inf
    request_timeout_s: float = math.inf
    stall_s: float = 2.0
    compiled: bool | None = None
    exact_cost: bool = False
    drafter_blocks: int = 0
    slo: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.warmup_s >= self.duration_s:
            raise UsageError(
                f"warmup_s {self.warmup_s:g} leaves nothing of the {self.duration_s:g} s to "
                "measure; make the run longer or the warm-up shorter"
            )
        if self.prefill is not None and self.max_concurrent:
            raise UsageError(
                f"max_concurrent is {self.max_concurrent}, but prompts and decoding are apart and "
                "no replica holds a request all the time; leave it out"
            )
        k = self.speculation.num_speculative_tokens
        if k and self.acceptance is None and self.recorded is None:
            raise UsageError(
                f"num_speculative_tokens is {k} but no acceptance is given; there is no default: "
                "give rates, a mean length or recorded steps"
            )
        self._check_memory()

    def _check_memory(self) -> None:
        rules, width, room = self.rules, self.step_width, self.longest_request
        if rules.max_num_batched_tokens < width:
            raise UsageError(
                f"max_num_batched_tokens is {rules.max_num_batched_tokens}, but one request "
                f"verifies {width} tokens per step; raise it or lower num_speculative_tokens"
            )
        if room < 1:
            raise CapacityError(
                f"{self.num_kv_blocks} blocks of {rules.block_size} tokens do not hold one "
                f"token beside the {width + self.speculation.lookahead} of a verify step; give "
                "more num_kv_blocks"
            )
        if self.max_model_len is not None and room < self.max_model_len:
            raise CapacityError(
                f"max_model_len is {self.max_model_len} tokens, but the cache of "
                f"{self.num_kv_blocks} blocks x {rules.block_size} holds one request of at "
                f"most {room}; lower max_model_len or give more memory"
            )

    @property
    def all_replicas(self) -> int:
        """Replicas of both kinds."""
        return self.n_replicas + (self.prefill.n_replicas if self.prefill else 0)

    @property
    def of_prefill(self) -> "SimConfig":
        """The configuration of the prefill replicas alone."""
        pool = self.prefill
        assert pool is not None
        return replace(
            self, prefill=None, faults=(), max_model_len=None, n_replicas=pool.n_replicas,
            rules=pool.rules or self.rules, drafter_blocks=0,
            num_kv_blocks=pool.num_kv_blocks or self.num_kv_blocks,
            block_costs=pool.block_costs or self.block_costs,
            # Nothing is drafted there: no policy has anything to decide.
            speculation=replace(self.speculation, policy=None, per_batch_size=(), adaptive=()),
        )

    @property
    def step_width(self) -> int:
        """Most tokens that one decoding request takes part with in a step."""
        spec = self.speculation
        return max(1 + spec.num_speculative_tokens, spec.verify_tokens)

    @property
    def most_kv_blocks(self) -> int:
        """Blocks of a replica, those of an unloaded drafter included."""
        return self.num_kv_blocks + self.drafter_blocks

    @property
    def longest_request(self) -> int:
        """Most tokens (prompt + output) of a request that a replica can serve alone."""
        slots = self.block_costs.longest(
            self.num_kv_blocks, self.rules.max_num_batched_tokens, self.rules.block_size
        )
        return slots - self.step_width - self.speculation.lookahead

    def to_dict(self) -> dict[str, object]:
        """Plain settings, for the record beside a result."""
        names = [item.name for item in fields(self) if item.name not in _NOT_PLAIN]
        out = {name: jsonable(getattr(self, name)) for name in names}
        if not self.drafter_blocks:
            del out["drafter_blocks"]
        if self.prefill is not None:
            out["prefill"] = self.prefill.to_dict()
        return out | {
            "block_costs": asdict(self.block_costs),
            "faults": [[x.replica, x.fail_s, x.return_s] for x in self.faults],
            "rules": asdict(self.rules),
            "num_speculative_tokens": self.speculation.num_speculative_tokens,
            "acceptance": jsonable(self.acceptance),
        }
