"""StepLatency: the wall time of one engine step and where it goes.

A step is: host work that the device does not hide, one forward pass of the target over every
scheduled token, the output head and sampling of the rows that need a token, and, under
speculation, the passes of the drafter for the next step. Prefill, decode, verify and mixed
steps are the same function of a `StepShape`; nothing here knows about acceptance.

Kernel seconds come from `specsim.roofline`; the engine's own seconds from `EngineProfile`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from specsim.hardware.profile import HardwareProfile
from specsim.latency.draft import LOOKUP, SpecSetup
from specsim.latency.engine import EngineProfile, Overheads
from specsim.latency.graphs import padded_tokens
from specsim.latency.routing import SERVING
from specsim.latency.shape import PrefillChunk, StepShape
from specsim.model.spec import LayerGroup, ModelSpec
from specsim.ops.network import drafter_ops, head_ops, network_ops, target_ops
from specsim.ops.op import OpCost
from specsim.ops.work import Parallel, Routing, Work
from specsim.roofline import KernelTime, op_time

MAX_MEMO = 20_000  # priced shapes kept per model


@dataclass(frozen=True, slots=True)
class OpTime:
    """One row of a breakdown: `seconds` covers all `op.count` calls. phase: 'target' | 'sample' |
    'draft'."""

    op: OpCost
    time: KernelTime
    phase: str

    @property
    def seconds(self) -> float:
        return self.time.seconds * self.op.count


@dataclass(frozen=True, slots=True)
class StepLatency:
    """total_s = target_s + sample_s + draft_s + host_s. Bytes and FLOPs are per GPU.

    target_s: kernels (or eager launches) of the target pass with its output head.
    draft_s: the drafter's passes with the gaps between them. host_s: exposed host time.
    """

    total_s: float
    target_s: float
    sample_s: float
    draft_s: float
    host_s: float
    rows: float
    graphed: bool
    ops: tuple[OpTime, ...]

    @property
    def bytes(self) -> float:
        return sum(t.op.bytes * t.op.count for t in self.ops)

    @property
    def flops(self) -> float:
        return sum(t.op.flops * t.op.count for t in self.ops)

    @property
    def bound(self) -> str:
        """What most of the step waits for: 'memory', 'compute' or 'latency' (floors and host)."""
        by = {"memory": 0.0, "compute": 0.0, "latency": self.host_s}
        for t in self.ops:
            floor = min(t.time.floor_s, t.time.seconds) * t.op.count
            by["latency"] += floor
            by["compute" if t.time.compute_s > t.time.mem_s else "memory"] += t.seconds - floor
        return max(by, key=lambda kind: by[kind])

    def to_dict(self) -> dict[str, Any]:
        return {
            "total_s": self.total_s,
            "target_s": self.target_s,
            "sample_s": self.sample_s,
            "draft_s": self.draft_s,
            "host_s": self.host_s,
            "rows": self.rows,
            "cuda_graph": self.graphed,
            "bytes": self.bytes,
            "flops": self.flops,
            "bound": self.bound,
        }


@dataclass(frozen=True, slots=True)
class _Kernels:
    """A step's kernels, priced, before any overhead of the engine."""

    target_s: float
    sample_s: float
    draft_s: float
    passes: int
    target_launches: float
    draft_launches: float
    rows: float
    graphed: bool
    ops: tuple[OpTime, ...]


class LatencyModel:
    """Prices engine steps of one model on one device under one engine. Implements `StepCost`.

    kv_dtype: dtype of the KV cache. setup: the speculative method (its k is the default number
    of drafts). routing: how the traffic chooses experts. fidelity: 'calibrated' (kernel
    efficiencies of the profile, engine overheads) or 'datasheet' (plain max of bytes/bandwidth
    and FLOPs/peak, no overheads).
    """

    def __init__(
        self,
        spec: ModelSpec,
        profile: HardwareProfile,
        engine: EngineProfile,
        *,
        parallel: Parallel | None = None,
        kv_dtype: str = "bf16",
        setup: SpecSetup | None = None,
        routing: Routing = SERVING,
        fidelity: str = "calibrated",
    ) -> None:
        self.spec = spec
        self.profile = profile
        self.engine = engine
        self.parallel = parallel or Parallel()
        self.kv_dtype = kv_dtype
        self.setup = setup or SpecSetup()
        self.routing = routing
        self.fidelity = fidelity
        profile.require_link(self.parallel.gpus)
        self._graph_limit = engine.graph_limit(profile.arch)
        self._unsplit = (
            fidelity != "datasheet" and spec.family in engine.unsplit_verify_families
        )
        self._kernels: dict[StepShape, _Kernels] = {}

    def plain(self) -> "LatencyModel":
        """The same system without speculation: the baseline of every speedup."""
        return LatencyModel(
            self.spec, self.profile, self.engine, parallel=self.parallel, kv_dtype=self.kv_dtype,
            routing=self.routing, fidelity=self.fidelity,
        )

    def seconds(self, shape: StepShape) -> float:
        """Wall seconds of the step (the `StepCost` protocol)."""
        return self.step(shape).total_s

    def parts(self, shape: StepShape) -> dict[str, float]:
        """Seconds by phase; a mixed step gives prefill what it costs beyond its decode part."""
        whole = self.step(shape)
        parts = {"draft": whole.draft_s, "host": whole.host_s, "prefill": 0.0}
        forward = whole.target_s + whole.sample_s
        if shape.prefill:
            alone = 0.0
            if shape.decode_seqs:
                bare = self.step(replace(shape, prefill=()))
                alone = bare.target_s + bare.sample_s
            parts["prefill"] = max(0.0, forward - alone)
        parts["verify"] = forward - parts["prefill"]
        return parts

    def step(self, shape: StepShape) -> StepLatency:
        """The priced step with its breakdown; ops are filled, one entry per kind of call."""
        kernels = self._kernels.get(shape)
        if kernels is None:
            kernels = self._price(shape)
            if len(self._kernels) > MAX_MEMO:
                self._kernels.clear()
            self._kernels[shape] = kernels
        target_s, draft_s, host_s = kernels.target_s, kernels.draft_s, 0.0
        setup = self.setup
        if self.fidelity != "datasheet":
            over = self.engine.overheads
            seqs = shape.decode_seqs
            target_s += over.layer_s * self.spec.n_layers
            if not kernels.graphed:
                target_s = max(target_s, over.eager_kernel_s * kernels.target_launches)
            if kernels.passes:
                per_pass = over.draft_pass_s
                if setup.tree_topk > 1:
                    per_pass += over.tree_pass_s
                draft_s += per_pass * kernels.passes
                if setup.method in self.engine.eager_drafters:
                    draft_s = max(draft_s, over.eager_kernel_s * kernels.draft_launches)
            host_s = over.step_s + over.seq_s * seqs
            if setup.method != "none":
                host_s += over.spec_step_s + over.spec_seq_s * seqs
                if setup.method in LOOKUP:
                    host_s += over.ngram_seq_s * seqs
            if shape.prefill and seqs:
                host_s += over.mixed_step_s
            # The host prepares the next step while the device runs this one.
            device_s = target_s + kernels.sample_s + draft_s
            host_s = max(host_s, over.host_step_s - device_s)
        total = target_s + kernels.sample_s + draft_s + host_s
        return StepLatency(
            total, target_s, kernels.sample_s, draft_s, host_s, kernels.rows, kernels.graphed,
            kernels.ops,
        )

    def with_overheads(self, overheads: Overheads) -> "LatencyModel":
        """The same system with other engine overheads; kernel prices are shared, not recomputed."""
        other = LatencyModel(
            self.spec, self.profile, replace(self.engine, overheads=overheads),
            parallel=self.parallel, kv_dtype=self.kv_dtype, setup=self.setup,
            routing=self.routing, fidelity=self.fidelity,
        )
        other._kernels = self._kernels
        return other

    def _price(self, shape: StepShape) -> "_Kernels":
        """Everything about a step that does not depend on the engine's overheads."""
        q = shape.decode_q_len
        rows, graphed = self._rows(shape, q)
        seqs = float(shape.decode_seqs)
        ctx = shape.decode_context_tokens / seqs if seqs else 0.0
        chunks = tuple((c.new_tokens, c.cached_tokens) for c in shape.prefill)
        finishing = sum(1 for c in shape.prefill if c.last)
        head_rows = seqs * q + finishing
        work = Work(seqs, q, ctx, chunks, rows, head_rows)
        copies = self.engine.state_copies if q > 1 else 0.0
        ops = target_ops(
            self.spec, work, self.parallel, self.kv_dtype, self.routing, copies
        )
        timed = [self._time(op, "target") for op in ops]
        sampled = self._time(_sample_op(head_rows, self.spec.vocab), "sample")
        draft_ops, passes = self._draft(shape, ctx, chunks, finishing)
        drafted = [self._time(op, "draft") for op in draft_ops]
        return _Kernels(
            target_s=sum(t.seconds for t in timed),
            sample_s=sampled.seconds,
            draft_s=sum(t.seconds for t in drafted),
            passes=passes,
            target_launches=sum(op.count for op in ops),
            draft_launches=sum(op.count for op in draft_ops),
            rows=rows,
            graphed=graphed,
            ops=(*timed, sampled, *drafted),
        )

    def _rows(self, shape: StepShape, q_len: int) -> tuple[float, bool]:
        tokens = float(shape.tokens)
        if self.fidelity == "datasheet" or not tokens:
            return max(tokens, 1.0), True
        if self.engine.graph_unit == "requests":
            graphed = shape.decode_seqs <= self._graph_limit and not shape.prefill
            if not graphed:
                return tokens, False
            seqs = padded_tokens(shape.decode_seqs, 1, self._graph_limit)
            return seqs * q_len, True
        if tokens > self._graph_limit:
            return tokens, False
        return padded_tokens(tokens, q_len, self._graph_limit), True

    def _time(self, op: OpCost, phase: str) -> OpTime:
        found = op_time(op, self.profile, self.fidelity, self.engine.kernel_variant)
        if op.kind == "attn_decode" and op.dims["q_len"] > 1 and self._unsplit:
            # One block walks the whole context of a sequence, however few there are.
            walk_s = op.dims["ctx"] * self.engine.unsplit_verify_s_per_token
            if walk_s > found.seconds:
                found = found._replace(seconds=walk_s, floor_s=walk_s, bound="latency")
        return OpTime(op, found, phase)

    def _draft(
        self,
        shape: StepShape,
        ctx: float,
        chunks: tuple[tuple[int, int], ...],
        finishing: int,
    ) -> tuple[list[OpCost], int]:
        """Ops of all draft passes of a step, and how many passes they are."""
        setup = self.setup
        if setup.method == "none" or setup.method in LOOKUP:
            return [], 0
        k = shape.num_drafts
        seqs = float(shape.decode_seqs)
        par = replace(self.parallel, tp=setup.draft_tp, ep=1) if setup.draft_tp else self.parallel
        _, further = replace(setup, k=k).passes() if k else (0, 0)
        branches = max(1, setup.tree_topk)
        proposing = seqs + finishing
        ops: list[OpCost] = []
        # Prompts pass through the drafter too, to fill its cache. With k = 0 in a step the wide
        # pass still runs for the same reason, without its head.
        first_rows = replace(setup, k=max(k, 1)).first_rows() if k else shape.decode_q_len
        wide = seqs * first_rows + sum(new for new, _ in chunks)
        if setup.method in ("medusa", "early-exit"):
            wide = seqs * first_rows
            chunks = ()
        if wide <= 0:
            return [], 0
        head_rows = proposing if k else 0.0
        if setup.method in ("dflash", "dspark"):
            head_rows = proposing * k
        ops += self._pass_ops(Work(seqs, first_rows, ctx, chunks, wide, head_rows), par)
        if k and further > 0:
            rows = proposing * branches
            one = Work(rows, 1, ctx + k / 2, (), padded_tokens(rows, 1, self._graph_limit), rows)
            ops += [_repeat(op, further) for op in self._pass_ops(one, par)]
        return ops, 1 + max(0, further)

    def _pass_ops(self, work: Work, par: Parallel) -> list[OpCost]:
        setup, spec = self.setup, self.spec
        if setup.method == "early-exit":
            share = setup.exit_layers / spec.n_layers
            layers = [replace_count(group, group.count * share) for group in spec.layers]
            ops = network_ops(
                spec.hidden, layers, work, par, self.kv_dtype, self.routing, 0.0, "draft."
            )
            return ops + head_ops(
                spec.hidden, spec.vocab, work.head_rows, spec.head_weight, par, "draft."
            )
        if setup.drafter is None:
            return []
        return drafter_ops(setup.drafter, work, par, self.kv_dtype, self.routing)


def replace_count(group: LayerGroup, count: float) -> LayerGroup:
    """The group with another (possibly fractional) number of layers: for cost sums only."""
    return replace(group, count=count)  # type: ignore[arg-type]


def _repeat(op: OpCost, times: int) -> OpCost:
    return replace(op, count=op.count * times)


def _sample_op(rows: float, vocab: int) -> OpCost:
    return OpCost(
        "sample", "sample", act_bytes=4.0 * rows * vocab, dims={"rows": rows, "vocab": vocab}
    )


def decode_shape(seqs: int, context_tokens: float, setup: SpecSetup | None = None) -> StepShape:
    """A pure decode (or verify) step of `seqs` sequences with `context_tokens` cached each."""
    if setup is None or setup.method == "none" or setup.k == 0:
        return StepShape(seqs, 1, seqs * context_tokens)
    return StepShape(seqs, setup.verify_tokens, seqs * context_tokens, num_drafts=setup.k)


def prefill_chunks(prompts: Iterable[int], budget: int) -> list[list[PrefillChunk]]:
    """Splits prompts into steps of at most `budget` new tokens, first come first served."""
    steps: list[list[PrefillChunk]] = [[]]
    left = budget
    for prompt in prompts:
        done = 0
        while done < prompt:
            if left == 0:
                steps.append([])
                left = budget
            take = min(left, prompt - done)
            steps[-1].append(PrefillChunk(take, done, last=done + take == prompt))
            done += take
            left -= take
    return [step for step in steps if step] or [[]]
