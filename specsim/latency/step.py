"""StepLatency: the wall time of one engine step and where it goes.

A step is: host work that the device does not hide, one forward pass of the target over every
scheduled token, the output head and sampling of the rows that need a token, and, under
speculation, the passes of the drafter for the next step. Prefill, decode, verify and mixed
steps are the same function of a `StepShape`; nothing here knows about acceptance.

Kernel seconds come from `specsim.roofline`; the engine's own seconds from `EngineProfile`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from specsim.errors import UsageError
from specsim.hardware.profile import HardwareProfile
from specsim.latency.draft import LOOKUP, SpecSetup
from specsim.latency.engine import EngineProfile, Overheads
from specsim.latency.graphs import padded_tokens
from specsim.latency.routing import SERVING
from specsim.latency.shape import PrefillChunk, StepShape
from specsim.model.spec import LayerGroup, ModelSpec
from specsim.ops.network import (
    context_kv_ops,
    drafter_ends,
    group_context,
    group_rows,
    head_ops,
    markov_ops,
    repeat,
    sequences,
    target_ends,
    target_head,
)
from specsim.ops.op import OpCost
from specsim.ops.work import (
    UNIFORM,
    Parallel,
    Routing,
    Work,
    attention_share,
    split_fault,
)
from specsim.roofline import KernelTime, compute_peak, op_time
from specsim.roofline.result import datasheet_time

MAX_MEMO = 20_000  # priced shapes, products and passes kept in each of a model's memories


class OpTime(NamedTuple):
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
    memory_s, compute_s: parts of the total in which kernels stream memory or multiply.
    """

    total_s: float
    target_s: float
    sample_s: float
    draft_s: float
    host_s: float
    memory_s: float
    compute_s: float
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
        """What most of the step waits for: 'memory', 'compute' or 'latency' (kernel floors, gaps
        between kernels, host)."""
        latency_s = self.total_s - self.memory_s - self.compute_s
        if latency_s > max(self.memory_s, self.compute_s):
            return "latency"
        return "compute" if self.compute_s > self.memory_s else "memory"

    def to_dict(self) -> dict[str, Any]:
        return {
            "total_s": self.total_s,
            "target_s": self.target_s,
            "sample_s": self.sample_s,
            "draft_s": self.draft_s,
            "host_s": self.host_s,
            "memory_s": self.memory_s,
            "compute_s": self.compute_s,
            "rows": self.rows,
            "cuda_graph": self.graphed,
            "bytes": self.bytes,
            "flops": self.flops,
            "bound": self.bound,
        }


class _Part(NamedTuple):
    """Priced ops with their sums: all calls' seconds, of which memory and compute; launches."""

    ops: tuple[OpTime, ...]
    seconds: float
    memory_s: float
    compute_s: float
    launches: float


class _Layers(NamedTuple):
    """The ops of a pass that depend on its number of rows alone: before and after the core of
    each group, and all of them summed."""

    groups: tuple[tuple[LayerGroup, tuple[OpTime, ...], tuple[OpTime, ...]], ...]
    first: tuple[OpTime, ...]
    last: tuple[OpTime, ...]
    total: _Part


def _sum(timed: Sequence[OpTime]) -> _Part:
    seconds = memory_s = compute_s = launches = 0.0
    for op, time, _ in timed:
        spent, count = time.seconds, op.count
        seconds += spent * count
        launches += count
        busy = (spent - min(time.floor_s, spent)) * count
        if time.compute_s > time.mem_s:
            compute_s += busy
        else:
            memory_s += busy
    return _Part(tuple(timed), seconds, memory_s, compute_s, launches)


@dataclass(frozen=True, slots=True)
class _Kernels:
    """A step's kernels, priced, before any overhead of the engine."""

    target: _Part
    sample: _Part
    draft: _Part
    passes: int
    rows: float
    graphed: bool


@lru_cache(maxsize=32)
def _products(profile: HardwareProfile, variant: str, fidelity: str) -> dict[Any, KernelTime]:
    """Priced dense products of one device and engine. They recur: a target and its drafter share
    shapes, and so do all systems of a sweep."""
    return {}


class LatencyModel:
    """Prices engine steps of one model on one device under one engine. Implements `StepCost`.

    kv_dtype: dtype of the KV cache. setup: the speculative method (its k is the default number
    of drafts). routing: how the traffic chooses experts (None: as served traffic does, or
    uniformly under 'datasheet'). fidelity: 'calibrated' (kernel efficiencies of the profile,
    engine overheads) or 'datasheet' (for each op the greater of bytes/bandwidth and FLOPs/peak,
    no overheads, no padding).
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
        routing: Routing | None = None,
        fidelity: str = "calibrated",
    ) -> None:
        self.spec = spec
        self.profile = profile
        self.engine = engine
        self.parallel = parallel or Parallel()
        self.kv_dtype = kv_dtype
        self.setup = setup or SpecSetup()
        self.fidelity = fidelity
        self._datasheet = fidelity == "datasheet"
        self.routing = routing or (UNIFORM if self._datasheet else SERVING)
        profile.require_link(self.parallel.gpus)
        fault = split_fault(spec.layers, self.parallel.tp)
        if fault:
            raise UsageError(f"tp is {self.parallel.tp}, but {spec.name} cannot be split so: "
                             f"{fault}; choose another tp")
        self._graph_limit = engine.graph_limit(profile.arch)
        # Sums over the GPUs of a step: one after a mixer, one after a feed-forward part.
        after_mixer, after_ffn = self.parallel.tp > 1, self.parallel.gpus > 1
        self._syncs = sum(
            g.count * ((g.mixer is not None and after_mixer) + (g.ffn is not None and after_ffn))
            for g in spec.layers
        )
        self._unsplit = (
            fidelity != "datasheet" and spec.family in engine.unsplit_verify_families
        )
        self._kernels: dict[StepShape, _Kernels] = {}
        self._layers: dict[tuple[Any, ...], _Layers] = {}
        self._gemms = _products(profile, engine.kernel_variant, fidelity)
        self._early_layers = tuple(
            replace_count(group, group.count * self.setup.exit_layers / spec.n_layers)
            for group in spec.layers
        )

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
            _keep(self._kernels, shape, kernels)
        sample_s = kernels.sample.seconds
        target_s, draft_s, host_s = kernels.target.seconds, kernels.draft.seconds, 0.0
        setup = self.setup
        if self.fidelity != "datasheet":
            over = self.engine.overheads
            seqs = shape.decode_seqs
            target_s += over.layer_s * self.spec.n_layers + over.sync_s * self._syncs
            if not kernels.graphed:
                target_s = max(target_s, over.eager_kernel_s * kernels.target.launches)
            if kernels.passes:
                per_pass = over.draft_pass_s
                if setup.tree_topk > 1:
                    per_pass += over.tree_pass_s
                draft_s += per_pass * kernels.passes
                if setup.method in self.engine.eager_drafters:
                    draft_s = max(draft_s, over.eager_kernel_s * kernels.draft.launches)
            host_s = over.step_s + over.seq_s * seqs
            if setup.method != "none":
                host_s += over.spec_step_s + over.spec_seq_s * seqs
                if setup.method in LOOKUP:
                    host_s += over.ngram_seq_s * seqs
            if shape.prefill and seqs:
                host_s += over.mixed_step_s
            # The host prepares the next step while the device runs this one.
            device_s = target_s + sample_s + draft_s
            host_s = max(host_s, over.host_step_s - device_s)
        parts = (kernels.target, kernels.sample, kernels.draft)
        return StepLatency(
            total_s=target_s + sample_s + draft_s + host_s,
            target_s=target_s,
            sample_s=sample_s,
            draft_s=draft_s,
            host_s=host_s,
            memory_s=sum(part.memory_s for part in parts),
            compute_s=sum(part.compute_s for part in parts),
            rows=kernels.rows,
            graphed=kernels.graphed,
            ops=kernels.target.ops + kernels.sample.ops + kernels.draft.ops,
        )

    def with_overheads(self, overheads: Overheads) -> "LatencyModel":
        """The same system with other engine overheads; kernel prices are shared, not recomputed."""
        other = LatencyModel(
            self.spec, self.profile, replace(self.engine, overheads=overheads),
            parallel=self.parallel, kv_dtype=self.kv_dtype, setup=self.setup,
            routing=self.routing, fidelity=self.fidelity,
        )
        other._kernels, other._layers = self._kernels, self._layers
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
        spec, par = self.spec, self.parallel
        target = self._pass(
            "", "target", spec.layers, spec.hidden, work, par, copies,
            lambda share: target_ends(spec, share.rows, share.head_rows, par),
        )
        sampled = _sum([self._time(_sample_op(head_rows / par.attention_dp, spec.vocab), "sample")])
        drafted, passes = self._draft(shape, work, finishing)
        return _Kernels(target, sampled, drafted, passes, rows, graphed)

    def _pass(
        self,
        name: str,
        phase: str,
        layers: Sequence[LayerGroup],
        hidden: int,
        work: Work,
        par: Parallel,
        state_copies: float,
        ends: Callable[[Work], tuple[list[OpCost], list[OpCost]]],
        later: bool = False,
    ) -> _Part:
        """One pass through a network, priced. What depends on the rows alone is priced once."""
        share, seqs = attention_share(work, par), sequences(work)
        key = (name, later, work.rows, share.rows, share.head_rows, seqs)
        plan = self._layers.get(key)
        if plan is None:
            first, last = ends(share)
            groups = []
            for group in layers:
                early, late = group_rows(
                    group, hidden, work.rows, share.rows, seqs, par, self.routing, name
                )
                groups.append((group, self._times(early, phase), self._times(late, phase)))
            begin, end = self._times(first, phase), self._times(last, phase)
            inner = [op for _, before, after in groups for op in (*before, *after)]
            plan = _Layers(tuple(groups), begin, end, _sum([*begin, *inner, *end]))
            _keep(self._layers, key, plan)
        ops: list[OpTime] = list(plan.first)
        core: list[OpTime] = []
        for group, before, after in plan.groups:
            ops += before
            if group.mixer is not None:
                timed = self._times(
                    group_context(group, share, par, self.kv_dtype, state_copies, name), phase
                )
                core += timed
                ops += timed
            ops += after
        ops += plan.last
        own, shared = _sum(core), plan.total
        return _Part(
            tuple(ops),
            own.seconds + shared.seconds,
            own.memory_s + shared.memory_s,
            own.compute_s + shared.compute_s,
            own.launches + shared.launches,
        )

    def _rows(self, shape: StepShape, q_len: int) -> tuple[float, bool]:
        tokens = float(shape.tokens)
        if self._datasheet or not tokens:
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

    def _times(self, ops: Iterable[OpCost], phase: str) -> tuple[OpTime, ...]:
        return tuple(self._time(op, phase) for op in ops)

    def _time(self, op: OpCost, phase: str) -> OpTime:
        if self._datasheet:
            return OpTime(op, plain_roofline(op, self.profile), phase)
        if op.kind == "gemm":
            d = op.dims
            key = (d["m"], d["n"], d["k"], op.fmt, op.weight_bytes)
            priced = self._gemms.get(key)
            if priced is None:
                priced = op_time(op, self.profile, self.fidelity, self.engine.kernel_variant)
                _keep(self._gemms, key, priced)
            return OpTime(op, priced, phase)
        if op.kind == "moe" and op.fmt in self.engine.whole_expert_formats:
            op = _whole_experts(op)
        found = op_time(op, self.profile, self.fidelity, self.engine.kernel_variant)
        if self._unsplit and op.kind == "attn_decode" and op.dims["q_len"] > 1:
            # One block walks the whole context of a sequence, however few there are.
            walk_s = op.dims["ctx"] * self.engine.unsplit_verify_s_per_token
            if walk_s > found.seconds:
                found = found._replace(seconds=walk_s, floor_s=walk_s, bound="latency")
        return OpTime(op, found, phase)

    def _draft(self, shape: StepShape, target: Work, finishing: int) -> tuple[_Part, int]:
        """All draft passes of a step, and how many passes they are (see `latency.draft`)."""
        setup, k = self.setup, shape.num_drafts
        seqs, chunks = target.seqs, target.prefill
        if setup.method == "none" or setup.method in LOOKUP:
            return NOTHING, 0
        par = replace(self.parallel, tp=setup.draft_tp, ep=1) if setup.draft_tp else self.parallel
        block = setup.method in ("dflash", "dspark")
        drafter = setup.drafter
        proposing = seqs + finishing
        ended = sum(c.new_tokens + c.cached_tokens for c in shape.prefill if c.last)
        ctx = (shape.decode_context_tokens + ended) / proposing if proposing else 0.0
        parts: list[_Part] = []
        if block and drafter is not None:
            # Verified rows and prompts become keys and values that the next block attends to.
            seen = seqs * shape.decode_q_len + target.prefill_tokens
            ops = context_kv_ops(drafter, seen / par.attention_dp, par)
            parts.append(_sum(self._times(ops, "draft")))
        if k == 0:
            # No drafts are wanted, but the drafter's cache must keep up with the target's.
            if setup.fills_cache and not block:
                rows = seqs * shape.decode_q_len + target.prefill_tokens
                work = Work(seqs, shape.decode_q_len, target.ctx, chunks, rows, 0.0)
                parts.append(self._draft_pass(work, par))
            return _join(parts), len(parts)
        setup = replace(setup, k=k)
        q, (_, further) = setup.first_rows(), setup.passes()
        heads = proposing * (k if block or setup.parallel_drafting else 1)
        if setup.fills_cache and not block:
            extra = finishing * (q - 1) if setup.parallel_drafting else 0
            rows = seqs * q + target.prefill_tokens + extra
            work = Work(seqs, q, target.ctx, chunks, self._padded(rows, q, chunks), heads)
        else:
            work = Work(proposing, q, ctx, (), self._padded(proposing * q, q, ()), heads)
        if work.rows <= 0:
            return NOTHING, 0
        parts.append(self._draft_pass(work, par))
        if block and drafter is not None:
            ops = markov_ops(drafter, proposing / par.attention_dp, k)
            parts.append(_sum(self._times(ops, "draft")))
        if further > 0 and proposing > 0:
            rows = proposing * max(1, setup.tree_topk)
            one = Work(rows, 1, ctx + k / 2, (), self._padded(rows, 1, ()), rows)
            parts.append(_repeated(self._draft_pass(one, par, later=True), further))
        return _join(parts), 1 + further

    def _padded(self, rows: float, q_len: int, chunks: tuple[tuple[int, int], ...]) -> float:
        """Rows of a draft pass in its CUDA graph."""
        eager = self.setup.method in self.engine.eager_drafters
        if self._datasheet or eager or chunks or rows > self._graph_limit:
            return rows
        return padded_tokens(rows, q_len, self._graph_limit)

    def _draft_pass(self, work: Work, par: Parallel, later: bool = False) -> _Part:
        """One pass through whatever drafts: the first layers of the target, or a drafter."""
        spec, drafter, name = self.spec, self.setup.drafter, "draft."
        if self.setup.method == "early-exit":
            return self._pass(
                name, "draft", self._early_layers, spec.hidden, work, par, 0.0,
                lambda share: ([], head_ops(
                    spec.hidden, spec.vocab, share.head_rows, target_head(spec), par, name
                )),
            )
        if drafter is None:
            return NOTHING
        return self._pass(
            name, "draft", drafter.layers, drafter.hidden, work, par, 0.0,
            lambda share: drafter_ends(
                drafter, share.rows, share.head_rows, par, name, later=later
            ),
            later,
        )


NOTHING = _Part((), 0.0, 0.0, 0.0, 0.0)


def _keep(memory: dict[Any, Any], key: Any, value: Any) -> None:
    """Remember a value; a full memory is emptied rather than left to grow."""
    if len(memory) >= MAX_MEMO:
        memory.clear()
    memory[key] = value


def _join(parts: Sequence[_Part]) -> _Part:
    if not parts:
        return NOTHING
    ops, *sums = zip(*parts, strict=True)
    return _Part(tuple(op for some in ops for op in some), *(sum(values) for values in sums))


def _repeated(part: _Part, times: int) -> _Part:
    ops = tuple(OpTime(repeat(op, times), time, phase) for op, time, phase in part.ops)
    return _Part(ops, *(value * times for value in part[1:]))


def plain_roofline(op: OpCost, profile: HardwareProfile) -> KernelTime:
    """The datasheet's bound of one call: every byte once at full bandwidth, every FLOP at the
    peak, whichever takes longer."""
    if op.kind in ("all_reduce", "all_gather", "all_to_all"):
        return op_time(op, profile, "datasheet")
    fmt = op.fmt if op.kind in ("gemm", "moe") else "bf16"
    return datasheet_time(op.bytes / profile.mem_bytes_per_s, op.flops / compute_peak(profile, fmt))


def replace_count(group: LayerGroup, count: float) -> LayerGroup:
    """The group with another (possibly fractional) number of layers: for cost sums only."""
    return replace(group, count=count)  # type: ignore[arg-type]


def _whole_experts(op: OpCost) -> OpCost:
    """The same experts by a kernel that streams every expert of the GPU, chosen or not."""
    d = op.dims
    dims = {**d, "tokens": max(d["tokens"], d["experts"] / d["top_k"]), "balanced": 1}
    return replace(op, weight_bytes=op.weight_bytes * d["local_experts"] / d["hit"], dims=dims)


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
