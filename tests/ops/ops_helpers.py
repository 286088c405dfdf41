"""Every call of a whole pass, with experts chosen uniformly and a bf16 cache."""

from specsim.model.spec import Drafter, ModelSpec
from specsim.ops.op import OpCost
from specsim.ops.passes import drafter_pass, pass_ops, target_pass
from specsim.ops.work import UNIFORM, Parallel, Work


def target_ops(spec: ModelSpec, work: Work, parallel: Parallel) -> list[OpCost]:
    return pass_ops(target_pass(spec, work, parallel), "bf16", UNIFORM)


def drafter_ops(drafter: Drafter, work: Work, parallel: Parallel) -> list[OpCost]:
    return pass_ops(drafter_pass(drafter, work, parallel), "bf16", UNIFORM)
