"""Expected: what the analytic model says about the measured batch, with the measured acceptance.

`Predictor` holds one deployment and prices it at any batch, acceptance and draft length; prices of
kernels do not depend on acceptance and are kept, so that a watched server is judged anew every
few seconds at little cost. `alone` is the same system with one client: what speculation is worth
before a batch competes for the device.
"""

from dataclasses import asdict, dataclass, replace

from specsim.analytic.closed import closed_loop, running_limit
from specsim.analytic.intervals import interval_of
from specsim.analytic.predict import (
    LONGEST_CANDIDATE,
    break_even,
    candidate_k,
    throughputs,
)
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.diagnose.evidence import Evidence
from specsim.jsonable import taken
from specsim.latency.shape import StepShape
from specsim.model.feedforward import MoE
from specsim.speculation.acceptance import Acceptance

SAME_ROOM = 0.97  # of the requests that fit without speculation: no less to speak of
FULL_SHARE = 0.95  # of the steps with a draft: beyond it the rest are ends of answers
LINKS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
RARELY = 0.7  # of the steps with a draft: below it the proposer rests, or finds nothing


@dataclass(frozen=True, slots=True)
class DraftingCost:
    """What drafts cost beyond the usual in one batch: experts that a tree wakes, links that a split
    drafter waits for, a drafter that rests. None where the deployment has no such cost.

    expert_bytes: read by a verify step of the tree, by one of a chain of the same depth, and by a
    plain step. link_s: of draft_s, for collectives between the GPUs; one_gpu_step_s: a verify step
    with the drafter on one GPU. rest_step_s: a step at k = 0 with the drafter kept up to date."""

    tree_tokens: int = 0
    tree_expert_bytes: float | None = None
    chain_expert_bytes: float | None = None
    plain_expert_bytes: float | None = None
    gpus: int = 1
    link_s: float | None = None
    draft_s: float | None = None
    step_s: float | None = None
    one_gpu_step_s: float | None = None
    rest_step_s: float | None = None
    plain_step_s: float | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """Predictions at `batch` running sequences. Times in seconds, bytes per GPU.

    load: clients that the gain is judged at: the batch, with those that wait where memory holds
    them out, as plain decoding may hold more. step_s: decode step without prompts; itl_s: mean time
    between outputs with the prompts of others in the steps. speedup: output tokens per second
    against plain decoding at the load, speedup_interval: its 90 % interval; *_in_batch: at the
    batch; *_alone: at one client; speedup_if_all: if every draft were accepted. itl_interval: 90 %
    interval of itl_s. best_k: draft length with the highest throughput at the load (0: none), its
    speedup in best_speedup.
    """

    batch: int
    load: int
    method: str
    k: int
    tokens_per_step: float
    acceptance_source: str
    step_s: float
    itl_s: float
    draft_s: float
    verify_s: float
    host_s: float
    plain_step_s: float
    step_cost_ratio: float
    speedup: float
    speedup_interval: tuple[float, float] | None
    speedup_in_batch: float
    step_cost_ratio_alone: float
    speedup_alone: float
    speedup_if_all: float
    bound: str
    plain_bound: str
    mixed_share: float
    best_k: int | None
    best_speedup: float
    break_even: int | None
    itl_interval: tuple[float, float] | None
    drafter_bytes: float
    pool_bytes: float
    max_requests: int
    plain_max_requests: int
    input_len: int
    output_len: int
    cost: DraftingCost

    @property
    def displaces(self) -> bool:
        """Whether speculation leaves room for fewer requests."""
        return self.max_requests < SAME_ROOM * self.plain_max_requests

    def to_dict(self) -> dict[str, object]:
        out = asdict(self)
        for name in ("itl_interval", "speedup_interval"):
            out[name] = list(out[name]) if out[name] else None
        out["cost"] = {name: value for name, value in asdict(self.cost).items() if value}
        return out


class Predictor:
    """One deployment at any measured acceptance and batch. workload: lengths where the
    evidence has none; `fixed_lengths` of it hold over what was measured. asked_plain: the options
    say that nothing drafts."""

    def __init__(
        self, system: System, workload: Workload, fixed_lengths: bool = False,
        asked_plain: bool = False,
    ) -> None:
        self.system = system
        self.workload = workload
        self.asked_plain = asked_plain
        self._fixed = fixed_lengths

    def at(self, k: int) -> "Predictor":
        """The same with another draft length."""
        return Predictor(self.system.with_(k=k), self.workload, self._fixed, self.asked_plain)

    def expect(self, evidence: Evidence) -> Expected | None:
        """None when the evidence holds no batch, or the system has no room for one request."""
        if evidence.running is None:
            return None
        system = self.measured_system(evidence)
        workload = self._lengths(evidence)
        plain = system.plain()
        batch = max(1, round(evidence.running))
        batch = min(batch, running_limit(system, workload))
        tokens = workload.input_len + workload.output_len
        fits = system.memory.max_requests(tokens)
        load = batch
        if evidence.waiting and evidence.cache_full(fits):
            load = max(batch, round(evidence.running + evidence.waiting))
        state, base = closed_loop(system, workload, batch), closed_loop(plain, workload, batch)
        loaded_tok_s, plain_tok_s = (
            closed_loop(side, workload, load).output_tok_s for side in (system, plain)
        )
        speedup = loaded_tok_s / plain_tok_s
        one, base_one = closed_loop(system, workload, 1), closed_loop(plain, workload, 1)
        shape = system.decode_shape(batch, workload.mean_context)
        parts = system.latency.parts(shape)
        # a table that keeps drafts short at this batch: longer ones were not seen
        longest = system.setup.k if evidence.undrafted_positions else LONGEST_CANDIDATE
        best_k, best_speedup = self._best(system, workload, load, longest)
        return Expected(
            batch=batch,
            load=load,
            **taken(system, "method=setup.method k=setup.k tokens_per_step "
                            "drafter_bytes=memory.drafter_bytes pool_bytes=memory.pool_bytes"),
            **taken(state, "step_s itl_s bound mixed_share"),
            acceptance_source=system.acceptance.source if system.acceptance else "",
            draft_s=parts["draft"],
            verify_s=parts["verify"],
            host_s=parts["host"],
            plain_step_s=base.step_s,
            step_cost_ratio=state.step_s / base.step_s,
            speedup=speedup,
            speedup_interval=interval_of(system, "speedup", speedup),
            speedup_in_batch=state.output_tok_s / base.output_tok_s,
            step_cost_ratio_alone=one.step_s / base_one.step_s,
            speedup_alone=one.output_tok_s / base_one.output_tok_s,
            speedup_if_all=self._if_all(system, workload, load) / plain_tok_s,
            plain_bound=base.bound,
            best_k=best_k,
            best_speedup=best_speedup,
            break_even=break_even(system, workload, resolution=1 / 16)
            if system.speculative else None,
            itl_interval=interval_of(system, "tpot", state.itl_s),
            max_requests=fits,
            plain_max_requests=plain.memory.max_requests(tokens),
            input_len=workload.input_len,
            output_len=workload.output_len,
            cost=drafting_cost(system, evidence, batch, workload.mean_context),
        )

    def measured_system(self, evidence: Evidence) -> System:
        """The deployment with the acceptance that was measured, where it was."""
        system = self.system
        if not system.speculative or evidence.speculates is False:
            return system if evidence.speculates is not False else system.plain()
        found = measured_acceptance(evidence, system.setup.k)
        if found is None:
            return system
        share = evidence.draft_share
        if share and share < FULL_SHARE:
            # lookups that find nothing, or an engine that rests its drafter: the price of a step
            # and its tokens follow the share of sequences with a draft
            setup = replace(system.setup, draft_share=max(0.01, round(share, 2)))
            found = replace(found, draft_probability=share)
            return system.with_(setup=setup, acceptance=found)
        return system.with_(acceptance=found)

    def _lengths(self, evidence: Evidence) -> Workload:
        given = self.workload
        if self._fixed or not evidence.input_len or not evidence.output_len:
            return given
        cached = evidence.prefix_cache_hit_rate or 0.0
        return replace(
            given, input_len=max(1, round(evidence.input_len)),
            output_len=max(2, round(evidence.output_len)), cached_share=min(0.99, max(0.0, cached)),
            name="measured",
        )

    def _best(
        self, system: System, workload: Workload, batch: int, longest: int
    ) -> tuple[int | None, float]:
        candidates = [k for k in candidate_k(system) if k <= longest]
        rates = throughputs(system, workload, batch, candidates or [system.setup.k])
        best = max(rates, key=lambda k: (rates[k], -k))
        if candidates:
            return best, rates[best] / rates[0]
        return None, rates[system.setup.k] / rates[0]

    def _if_all(self, system: System, workload: Workload, batch: int) -> float:
        if system.acceptance is None:
            return closed_loop(system, workload, batch).output_tok_s
        k = max(1, system.setup.k)
        full = replace(system.acceptance, unconditional=(1.0,) * k, measured_positions=k)
        return closed_loop(system.with_(acceptance=full), workload, batch).output_tok_s


def measured_acceptance(evidence: Evidence, k: int) -> Acceptance | None:
    """What was measured, at least k positions long; None when the evidence holds none."""
    width, source = evidence.num_speculative_tokens or k, f"measured: {evidence.source}"[:200]
    found = Acceptance.counted(evidence.per_position, evidence.length_at(width), width, source)
    return found and found.at(max(k, found.positions))


def drafting_cost(system: System, evidence: Evidence, batch: int, context: float) -> DraftingCost:
    """Priced at the batch and context, with the deployment's own setup."""
    found = DraftingCost()
    if not system.speculative:
        return found
    setup, plain = system.setup, system.plain()
    shape = system.decode_shape(batch, context)
    routed = any(isinstance(part, MoE) for group in system.spec.layers for part in group.branches)
    if routed and setup.verify_tokens > setup.k + 1:
        chain = system.with_(setup=replace(setup, tree_tokens=0, tree_topk=1))
        found = replace(
            found, tree_tokens=setup.verify_tokens, tree_expert_bytes=_expert_bytes(system, shape),
            chain_expert_bytes=_expert_bytes(chain, chain.decode_shape(batch, context)),
            plain_expert_bytes=_expert_bytes(plain, plain.decode_shape(batch, context)),
        )
    gpus = setup.draft_tp or system.parallel.tp
    if setup.drafter is not None and setup.drafting.runs_passes and gpus > 1:
        step = system.latency.step(shape)
        alone = system.with_(setup=replace(setup, draft_tp=1))
        found = replace(
            found, gpus=gpus,
            link_s=sum(t.seconds for t in step.ops if t.phase == "draft" and t.op.kind in LINKS),
            draft_s=step.draft_s, step_s=step.total_s, one_gpu_step_s=alone.latency.seconds(shape),
        )
    share = evidence.draft_share
    if setup.drafter is not None and share is not None and share < RARELY:
        found = replace(
            found, rest_step_s=system.latency.seconds(shape.bare()),
            plain_step_s=plain.latency.seconds(plain.decode_shape(batch, context)),
        )
    return found


def _expert_bytes(system: System, shape: StepShape) -> float:
    """Bytes that the target's routed experts read in one step."""
    return sum(
        t.op.bytes * t.op.count for t in system.latency.step(shape).ops
        if t.phase == "target" and t.op.name.endswith("moe.experts")
    )
