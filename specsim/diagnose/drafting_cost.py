"""What drafts cost beyond the usual: experts that a tree wakes, links that a split drafter waits
for, a drafter that rests. Each is priced only where the deployment has it. Bytes are per GPU."""

from dataclasses import dataclass, replace

from specsim.analytic.system import System
from specsim.diagnose.evidence import Evidence
from specsim.latency.shape import StepShape
from specsim.model.feedforward import MoE

LINKS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
RARELY = 0.7  # of the steps with a draft: below it the proposer rests, or finds nothing


@dataclass(frozen=True, slots=True)
class DraftingCost:
    """Of one batch; None where the deployment has no such cost.

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
            found,
            tree_tokens=setup.verify_tokens,
            tree_expert_bytes=_expert_bytes(system, shape),
            chain_expert_bytes=_expert_bytes(chain, chain.decode_shape(batch, context)),
            plain_expert_bytes=_expert_bytes(plain, plain.decode_shape(batch, context)),
        )
    gpus = setup.draft_tp or system.parallel.tp
    if setup.drafter is not None and setup.drafting.runs_passes and gpus > 1:
        step = system.latency.step(shape)
        alone = system.with_(setup=replace(setup, draft_tp=1))
        found = replace(
            found,
            gpus=gpus,
            link_s=sum(t.seconds for t in step.ops if t.phase == "draft" and t.op.kind in LINKS),
            draft_s=step.draft_s,
            step_s=step.total_s,
            one_gpu_step_s=alone.latency.seconds(shape),
        )
    share = evidence.draft_share
    if setup.drafter is not None and share is not None and share < RARELY:
        found = replace(
            found,
            rest_step_s=system.latency.seconds(shape.bare()),
            plain_step_s=plain.latency.seconds(plain.decode_shape(batch, context)),
        )
    return found


def _expert_bytes(system: System, shape: StepShape) -> float:
    """Bytes that the target's routed experts read in one step."""
    return sum(
        t.op.bytes * t.op.count for t in system.latency.step(shape).ops
        if t.phase == "target" and t.op.name.endswith("moe.experts")
    )
