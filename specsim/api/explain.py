"""`specsim.explain`: where the time of one engine step goes, op by op."""

from dataclasses import dataclass
from typing import Any

from specsim.analytic.closed import running_limit
from specsim.analytic.system import System
from specsim.api.deployment import build_request
from specsim.api.functions import python_function
from specsim.api.results import Deployed, Result, flat
from specsim.api.verdicts import deployment_of
from specsim.jsonable import Key, picked
from specsim.latency.breakdown import StepLatency
from specsim.options.analytic import ExplainOptions
from specsim.options.declare import repeat
from specsim.options.values import parse_concurrency
from specsim.rows import rows_at


@dataclass(frozen=True)
class ExplainedStep:
    """One step: 'plain decode step' or 'verify step, k = K'. running: its sequences;
    context_tokens: of each. power_w: mean watts of one GPU. latency: what `to_dict` holds, as
    its own type."""

    step: str
    running: int
    context_tokens: float
    latency: StepLatency
    power_w: float | None

    total_s = target_s = sample_s = draft_s = host_s = pipeline_s = memory_s = Key[float]()
    compute_s = rows = bytes = flops = Key[float]()
    cuda_graph = Key[bool]()
    bound = Key[str]()
    ops = Key[list[dict[str, Any]]]()

    def to_dict(self) -> dict[str, object]:
        ops = [
            {
                **picked(item, "op=op.name phase count=op.count seconds"),
                "share": item.seconds / self.latency.total_s,
                "bytes": item.op.bytes * item.op.count,
                "flops": item.op.flops * item.op.count,
                "bound": item.time.bound,
            }
            for item in self.latency.ops
        ]
        head = {
            "step": self.step, "running": self.running, "context_tokens": self.context_tokens
        }
        return {**head, **self.latency.to_dict(), "power_w": self.power_w, "ops": ops}


@dataclass(frozen=True, repr=False)
class Explanation(Result, Deployed):
    """The steps of a deployment, plain and verifying: `steps`, each with the times of its ops."""

    BLOCKS = "explanation.explained_steps"

    system: System
    steps: tuple[ExplainedStep, ...]
    warnings: tuple[str, ...]
    command: str

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": "explanation",
            **self.system.summary("model", "gpu", "engine", "fidelity"),
            "steps": [step.to_dict() for step in self.steps],
            "warnings": list(self.warnings),
            "command": self.command,
        }

    def to_rows(self) -> list[dict[str, object]]:
        """One row per op of every step."""
        rows = []
        for step in self.steps:
            found = step.to_dict()
            head = {name: found[name] for name in ("step", "running", "context_tokens")}
            rows += [flat({**head, **op}) for op in rows_at(found, "ops")]
        return rows


def run(options: ExplainOptions) -> Explanation:
    """Show where the time of a decode step of `model` goes, at one or several `concurrency`."""
    request = build_request(options, unknown=True)
    system = request.system
    # What a step costs does not wait for what is accepted.
    if request.unknown is not None and deployment_of(options).asks_to_draft:
        system = request.unknown
    batches = parse_concurrency(options.concurrency, (1,))
    limit = running_limit(system, request.workload)
    context = request.workload.mean_context
    sides = [("plain decode step", system.plain())]
    if system.speculative:
        sides.append((f"verify step, k = {system.setup.k}", system))
    steps = []
    for batch in batches:
        running = min(batch, limit)
        for title, side in sides:
            shape, latency = side.decode_shape(running, context), side.latency
            watts = latency.power_w(shape)
            each_w = None if watts is None else watts / side.parallel.all_gpus
            steps.append(ExplainedStep(title, running, context, latency.step(shape), each_w))
    return Explanation(system, tuple(steps), request.warnings, repeat(options))


explain = python_function(ExplainOptions, run)
