"""StepLatency: the wall time of one engine step and where it goes.

A step is: host work that the device does not hide, one forward pass of the target over every
scheduled token, the output head and sampling of the rows that need a token, and, under
speculation, the passes of the drafter for the next step. Prefill, decode, verify and mixed
steps are the same function of a `StepShape`; nothing here knows about acceptance.

Kernel seconds come from `specsim.roofline`; the engine's own seconds from `EngineProfile`.
"""

from collections import Counter
from dataclasses import replace
from operator import attrgetter

from specsim.errors import UsageError
from specsim.latency.breakdown import OpTime, StepLatency
from specsim.latency.collectives import Collectives, waits
from specsim.latency.engine_profile import EngineProfile
from specsim.latency.graphs import padded_tokens
from specsim.latency.instance import Instance
from specsim.latency.launches import Launches
from specsim.latency.overheads import Overheads
from specsim.latency.pipeline import Trip, crossings, round_of, stage_share, trip
from specsim.latency.planned import Kernels, Plan
from specsim.latency.power import KernelDemand, board_watts, demand
from specsim.latency.price import LooseOps, Pricer, keep
from specsim.latency.routing import routing_of
from specsim.latency.shape import StepShape
from specsim.latency.walks import walk_of
from specsim.methods.base import SpecSetup
from specsim.ops.network import context_kv_ops, handover, markov_ops
from specsim.ops.op import OpCost
from specsim.ops.passes import Pass, drafter_pass, early_exit_pass, target_pass
from specsim.ops.shapes import Sample
from specsim.ops.work import UNIFORM, Parallel, Routing, Work, attention_share, split_fault

_SPAN = attrgetter("new_tokens", "cached_tokens")
_LAST = attrgetter("last")


class LatencyModel:
    """Prices engine steps of one model on one device under one engine. Implements `StepCost`.

    budget: tokens of a microbatch where layers are split over stages (0: the engine's). routing:
    how the traffic chooses experts (None: as text does among those of this model, or uniformly
    under 'datasheet'). fidelity: 'calibrated' (kernel efficiencies of the profile, engine
    overheads) or 'datasheet' (for each op the greater of bytes/bandwidth and FLOPs/peak, no
    overheads, no padding).
    """

    def __init__(
        self,
        instance: Instance,
        *,
        routing: Routing | None = None,
        fidelity: str = "calibrated",
        budget: int = 0,
    ) -> None:
        spec, profile, engine = instance.spec, instance.profile, instance.engine
        self.spec, self.profile, self.engine = spec, profile, engine
        self.parallel = instance.parallel
        self.kv_dtype = instance.kv_dtype
        self.setup = instance.setup
        self.fidelity = fidelity
        self._datasheet = fidelity == "datasheet"
        self.routing = routing or (UNIFORM if self._datasheet else routing_of(spec))
        profile.require_link(self.parallel.all_gpus)
        if self.parallel.pp > spec.n_layers:
            raise UsageError(
                f"pp is {self.parallel.pp}, but {spec.name} has {spec.n_layers} layers; choose at "
                "most one stage per layer"
            )
        self._budget = budget or engine.max_num_batched_tokens
        fault = split_fault(spec.layers, self.parallel.tp)
        if fault:
            fits = [str(n) for n in (1, 2, 4, 8, 16) if not split_fault(spec.layers, n)]
            raise UsageError(
                f"tp is {self.parallel.tp}, but {spec.name} cannot be split so: {fault}; use --tp "
                f"{' or '.join(fits)}"
            )
        self._graph_limit = engine.graph_limit(profile.arch)
        drafter = self.setup.drafter
        self._waits = waits(spec.layers, self.parallel)
        self._draft_waits = (
            0.0 if drafter is None or self.setup.draft_tp == 1
            else waits(drafter.layers, self.parallel)
        )
        self._draft_graphs = engine.draft_graphs(self.setup, spec)
        self._ahead = engine.plans_ahead(self.setup.method, spec, profile.kind)
        walk = None if self._datasheet else walk_of(engine, spec, profile, self.kv_dtype)
        split = self.parallel.all_gpus > 1
        collectives = Collectives.of(engine.all_reduce, profile, spec) if split else None
        self._pricer = Pricer(
            profile, engine, self.kv_dtype, self.routing, datasheet=self._datasheet,
            walk=walk, collectives=collectives,
        )
        self._kernels: dict[StepShape, Kernels] = {}
        self._rounds: dict[StepShape, StepLatency] = {}
        self._setups = {self.setup.k: self.setup}  # the setup at each draft length asked for
        self._early_layers = tuple(
            replace(group, count=group.count * self.setup.exit_layers / spec.n_layers)  # type: ignore[arg-type]
            for group in spec.layers  # possibly a fraction: for cost sums only
        )

    def seconds(self, shape: StepShape) -> float:
        """Wall seconds of the step (the `StepCost` protocol)."""
        return self.step(shape).total_s

    def launches(self, shape: StepShape) -> Launches:
        """What of the step's launches a plan ahead can hide, and what it leaves the next one."""
        step = self.step(shape)
        if shape.prefill and step.launch_s and self.parallel.pp == 1:
            return Launches(step.idle_s, step.target_s - step.launch_s)
        return Launches(0.0, step.total_s - step.launch_s)

    def parts(self, shape: StepShape) -> dict[str, float]:
        """Seconds by phase; a mixed step gives prefill what it costs beyond its decode part."""
        whole = self.step(shape)
        parts = {"draft": whole.draft_s, "host": whole.host_s, "prefill": 0.0}
        if self.parallel.pp > 1:
            parts["pipeline"] = whole.pipeline_s
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
        """The priced step; its `ops` break it down, one entry per kind of call. With stages: the
        round in which all of it takes part once (`latency.pipeline`)."""
        found, stages = self._rounds.get(shape), self.parallel.pp
        if found is None:
            found = self._step(shape) if stages == 1 else round_of(
                shape, stages, self._budget, self._trip)
            keep(self._rounds, shape, found)
        return found

    def demand(self, shape: StepShape) -> KernelDemand:
        """What the kernels of a step ask of one GPU."""
        return demand(self.step(shape), stage_share(shape, self.parallel.pp, self._budget))

    def power_w(self, shape: StepShape | None) -> float | None:
        """Mean watts of all GPUs in a step, or idle (None); None where they are not known."""
        asked = KernelDemand() if shape is None else self.demand(shape)
        return board_watts(self.profile, self.parallel.all_gpus, asked)

    def _trip(self, shape: StepShape) -> Trip:
        """One microbatch alone."""
        par, spec = self.parallel, self.spec
        step, target = self._step(shape), self._plan(shape).target
        first, last = target.ends(attention_share(target.work, par))
        ends = self._pricer.total([LooseOps("target", first + last)]).scaled(self._scales[0], 1.0)
        passed = spec.hidden, step.rows / par.attention_dp, par.tp
        nodes = crossings(par, self.profile.gpus_per_node)
        hops_s = sum(
            count * self._pricer.total([LooseOps("target", handover(*passed, n))]).seconds
            for n, count in ((1, par.pp - 1 - nodes), (2, nodes))
        )
        waits_s = 0.0  # for the tokens, without which the microbatch cannot go on
        if not self._datasheet and self._ahead:
            waits_s = self.engine.overheads.lockstep_s
        return trip(step, ends.seconds, hops_s / (par.pp - 1), waits_s, spec.n_layers, par.pp)

    def _step(self, shape: StepShape) -> StepLatency:
        """The step of the whole model on the GPUs of one stage."""
        kernels = self._kernels.get(shape)
        if kernels is None:
            kernels = self._price(shape)
            keep(self._kernels, shape, kernels)
        scale, drafter_scale, expert_scale = self._scales
        sample = kernels.sample.scaled(scale, 1.0)
        target = kernels.target.scaled(scale, expert_scale)
        draft = kernels.draft.scaled(drafter_scale, 1.0)
        sample_s, target_s, draft_s, host_s = sample.seconds, target.seconds, draft.seconds, 0.0
        idle_s = launch_s = 0.0
        setup = self.setup
        if self.fidelity != "datasheet":
            over = self.engine.overheads
            # Each attention group has a scheduler of its own.
            seqs = -(-shape.decode_seqs // self.parallel.attention_dp)
            per_layer = over.layer_s
            if seqs and shape.decode_q_len > 1:
                per_layer += over.wide_layer_s + over.tree_layer_s * (setup.tree_topk > 1)
            target_s += per_layer * self.spec.n_layers + over.sync_s * self._waits
            eager, each_s = not self.engine.graph_max, over.eager_kernel_s
            if shape.prefill or eager:
                # Decode steps beyond the largest graph were never seen to cost that much.
                by_arch = self.engine.prompt_op_by_arch.get(self.profile.arch, 1.0)
                per_op_s = max(over.prompt_op_s, over.eager_op_s * eager)
                each_s = max(each_s, per_op_s * by_arch)
            if not kernels.graphed:
                launch_s = each_s * kernels.target.launches
                idle_s = max(0.0, launch_s - target_s)
                target_s += idle_s
            launching_s = 0.0  # the host's time for draft passes that no single graph holds
            if kernels.passes:
                per_pass = over.draft_pass_s + over.sync_s * self._draft_waits
                if setup.tree_topk > 1:
                    per_pass += over.tree_pass_s
                draft_s += per_pass * kernels.passes
                if self._draft_graphs != "whole":
                    launching_s = over.host_pass_s * kernels.passes
                if self._draft_graphs == "none":
                    kernel_s = each_s if eager else over.eager_kernel_s
                    launching_s += kernel_s * kernels.draft.launches
                if not self._ahead:
                    draft_s = max(draft_s, launching_s)
            host_s = over.step_s + over.seq_s * seqs + (0.0 if self._ahead else over.lockstep_s)
            if setup.speculates and shape.drafter:
                host_s += over.spec_step_s + over.spec_seq_s * seqs
                if setup.drafting.lookup:
                    searched = shape.decode_context_tokens * setup.drafting.scans_context
                    host_s += over.ngram_seq_s * seqs + over.ngram_token_s * searched
            if shape.prefill and seqs:
                host_s += over.mixed_step_s
            # The host prepares the next step while the device runs this one; drafts launched ahead
            # of the device are part of that.
            device_s = target_s + sample_s + draft_s
            if not shape.prefill:  # launches of prompts: `latency.launches`
                launching_s += launch_s
            host_s = max(host_s, over.host_step_s + launching_s * self._ahead - device_s)
        sums = (target, sample, draft)
        return StepLatency(
            total_s=target_s + sample_s + draft_s + host_s,
            target_s=target_s,
            sample_s=sample_s,
            draft_s=draft_s,
            host_s=host_s,
            memory_s=sum(part.memory_s for part in sums),
            compute_s=sum(part.compute_s for part in sums),
            rows=kernels.rows,
            graphed=kernels.graphed,
            idle_s=idle_s,
            launch_s=launch_s,
            breakdown=lambda: self._ops(shape),
            kernel_s=sum(part.seconds for part in sums),
            moved_bytes=sum(part.bytes for part in sums),
            peak_s=sum(part.peak_s for part in sums),
        )

    @property
    def _scales(self) -> tuple[float, float, float]:
        """Factors on the kernel seconds of the target, of the drafter, and further on those of
        the target's routed experts."""
        if self._datasheet:
            return 1.0, 1.0, 1.0
        engine = self.engine
        return engine.kernel_scale, engine.drafter_scale, engine.expert_scale

    def under(self, engine: EngineProfile) -> "LatencyModel":
        """The same steps where `engine` differs in overheads and factors on kernels alone: prices
        of kernels are shared, not computed again."""
        instance = Instance(
            self.spec, self.profile, engine, self.parallel, self.kv_dtype, self.setup
        )
        other = LatencyModel(
            instance, routing=self.routing, fidelity=self.fidelity, budget=self._budget
        )
        other._kernels, other._pricer = self._kernels, self._pricer
        return other

    def with_overheads(self, overheads: Overheads, **scales: float) -> "LatencyModel":
        """The same under other engine overheads and `kernel_scale`, `drafter_scale`,
        `expert_scale` (not given: the same)."""
        engine = replace(self.engine, overheads=overheads, **scales)  # type: ignore[arg-type]
        return self.under(engine)

    def _price(self, shape: StepShape) -> Kernels:
        """Everything about a step that does not depend on the engine's overheads."""
        runs = self._apart(shape)
        if len(runs) == 1:
            return self._priced(self._plan(runs[0]))
        return Kernels.added([
            (self._priced(self._plan(part)), times) for part, times in Counter(runs).items()
        ])

    def _priced(self, plan: Plan) -> Kernels:
        total = self._pricer.total
        return Kernels(
            total([plan.target]), total([plan.sample]), total(plan.draft),
            plan.passes, plan.rows, plan.graphed,
        )

    def _apart(self, shape: StepShape) -> tuple[StepShape, ...]:
        """The step as the engine runs it: whole, or decoding and every prompt chunk apart."""
        if self._datasheet or not (self.engine.separate_passes and shape.prefill):
            return (shape,)
        chunks = tuple(StepShape(prefill=(chunk,)) for chunk in shape.prefill)
        return (replace(shape, prefill=()), *chunks) if shape.decode_seqs else chunks

    def _ops(self, shape: StepShape) -> tuple[OpTime, ...]:
        plans = [self._plan(part) for part in self._apart(shape)]
        parts = [part for plan in plans for part in (plan.target, plan.sample, *plan.draft)]
        scale, drafter_scale, expert_scale = self._scales
        rows = self._pricer.breakdown(parts)
        if scale == drafter_scale == expert_scale == 1:
            return tuple(rows)
        target = {"moe": scale * expert_scale}
        return tuple(
            row.scaled(drafter_scale if row.phase == "draft" else target.get(row.op.kind, scale))
            for row in rows
        )

    def _plan(self, shape: StepShape) -> Plan:
        """The passes of a step."""
        q = shape.decode_q_len
        rows, graphed = self._rows(shape, q)
        seqs = float(shape.decode_seqs)
        ctx = shape.decode_context_tokens / seqs if seqs else 0.0
        chunks = tuple(map(_SPAN, shape.prefill))
        finishing = sum(map(_LAST, shape.prefill))
        head_rows = seqs * q + finishing
        work = Work(seqs, q, ctx, chunks, rows, head_rows, shape.context_variation)
        spec, par = self.spec, self.parallel
        target = target_pass(spec, work, par, self.engine.state_copies if q > 1 else 0.0)
        logits = Sample(head_rows / par.attention_dp, spec.vocab)
        moved = 4.0 * logits.rows * logits.vocab
        sample = LooseOps("sample", (OpCost("sample", logits, act_bytes=moved),))
        draft, passes = self._draft(shape, work, finishing)
        return Plan(target, sample, draft, passes, rows, graphed)

    def _rows(self, shape: StepShape, q_len: int) -> tuple[float, bool]:
        tokens = float(shape.tokens)
        if self._datasheet or not tokens:
            return max(tokens, 1.0), True
        # Each attention group that has any replays a graph of its own.
        groups = max(1, min(self.parallel.attention_dp, shape.decode_seqs))
        seqs = -(-shape.decode_seqs // groups)
        if self.engine.graph_unit == "requests":
            if seqs > self._graph_limit or shape.prefill:
                return tokens, False
            return padded_tokens(seqs, 1, self._graph_limit) * groups * q_len, True
        if shape.prefill and groups > 1:
            return tokens, False
        each = seqs * q_len if groups > 1 else tokens
        if each > self._graph_limit:
            return tokens, False
        return padded_tokens(each, q_len, self._graph_limit) * groups, True

    def _draft(
        self, shape: StepShape, target: Work, finishing: int
    ) -> tuple[list[Pass | LooseOps], int]:
        """All draft passes of a step, and how many they are (see `specsim.methods`)."""
        k, seqs, chunks = shape.num_drafts, target.seqs, target.prefill
        if not (self.setup.drafting.runs_passes and shape.drafter):
            return [], 0
        setup = self._setup_at(k) if k else self.setup
        par = replace(self.parallel, tp=setup.draft_tp, ep=1) if setup.draft_tp else self.parallel
        block, drafter = setup.drafting.block, setup.drafter
        proposing = seqs + finishing
        ended = sum(c.new_tokens + c.cached_tokens for c in shape.prefill if c.last)
        ctx = (shape.decode_context_tokens + ended) / proposing if proposing else 0.0
        parts: list[Pass | LooseOps] = []
        if block and drafter is not None:
            # Verified rows and prompts become keys and values that the next block attends to.
            seen = seqs * shape.decode_q_len + target.prefill_tokens
            parts.append(LooseOps("draft", context_kv_ops(drafter, seen / par.attention_dp, par)))
        if k == 0:
            # No drafts are wanted, but the drafter's cache must keep up with the target's.
            if setup.fills_cache and not block:
                rows = seqs * shape.decode_q_len + target.prefill_tokens
                work = replace(target, rows=rows, head_rows=0.0)
                parts.append(self._draft_pass(work, par))
            return parts, len(parts)
        q, (_, further) = setup.first_rows(self.engine), setup.passes()
        heads = proposing * (k if block or setup.parallel_drafting else 1)
        if setup.takes_batch and not block:
            extra = finishing * (q - 1) if setup.parallel_drafting else 0
            rows = seqs * q + target.prefill_tokens + extra
            padded = self._padded(rows, q, chunks)
            work = replace(target, q_len=q, rows=padded, head_rows=heads)
        else:
            padded = self._padded(proposing * q, q, ())
            work = Work(proposing, q, ctx, (), padded, heads, target.variation)
        if work.rows <= 0:
            return [], 0
        parts.append(self._draft_pass(work, par))
        if block and drafter is not None:
            parts.append(LooseOps("draft", markov_ops(drafter, proposing / par.attention_dp, k)))
        if further > 0 and proposing > 0:
            rows = proposing * max(1, setup.tree_topk)
            padded = self._padded(rows, 1, ())
            one = Work(rows, 1, ctx + k / 2, (), padded, rows, target.variation)
            parts.append(self._draft_pass(one, par, later=True, times=further))
        return parts, 1 + further

    def _setup_at(self, k: int) -> SpecSetup:
        found = self._setups.get(k)
        if found is None:
            found = self._setups[k] = replace(self.setup, k=k)
        return found

    def _padded(self, rows: float, q_len: int, chunks: tuple[tuple[int, int], ...]) -> float:
        """Rows of a draft pass in its CUDA graph."""
        eager = self._draft_graphs == "none"
        if self._datasheet or eager or chunks or rows > self._graph_limit:
            return rows
        return padded_tokens(rows, q_len, self._graph_limit)

    def _draft_pass(
        self, work: Work, par: Parallel, later: bool = False, times: int = 1
    ) -> Pass:
        """A pass through whatever drafts: the first layers of the target, or a drafter."""
        drafter = self.setup.drafter
        if drafter is not None:
            return drafter_pass(drafter, work, par, later=later, times=times)
        return early_exit_pass(
            self.spec, self._early_layers, work, par, later=later, times=times
        )
