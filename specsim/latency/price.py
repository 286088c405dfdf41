"""Prices of forward passes: kernel by kernel, with what recurs priced once.

Most of a pass depends on its number of rows alone (linears, experts, norms, sums over GPUs); only
attention and recurrent state depend on the sequences. So the former is kept per number of rows,
and dense products per shape: a target and its drafter share them, as do the points of a sweep.
Only sums are kept; a breakdown op by op is made anew when somebody asks for it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple, TypeVar

from specsim.hardware.profile import HardwareProfile
from specsim.latency.breakdown import OpTime
from specsim.latency.collectives import Collectives
from specsim.latency.engine_profile import EngineProfile
from specsim.latency.walks import Walk
from specsim.model.weights import FORMATS, MXFP4_W4A8
from specsim.ops.network import repeat, sequences
from specsim.ops.op import OpCost
from specsim.ops.passes import Pass, pass_ops
from specsim.ops.shapes import (
    AllGather,
    AllReduce,
    AllToAll,
    AttentionDecode,
    AttentionPrefill,
    ExpertExchange,
    Experts,
    Gemm,
)
from specsim.ops.work import Routing, attention_share
from specsim.roofline.device import compute_peak, native
from specsim.roofline.dispatch import op_time
from specsim.roofline.result import KernelTime, datasheet_time, without_launch

K = TypeVar("K")
V = TypeVar("V")
_LINKS = {AllReduce, AllGather, AllToAll, ExpertExchange}  # their bytes are not of device memory
_PRODUCTS = {Gemm, Experts}
MAX_MEMO = 20_000  # sums, products and steps kept in each memory


class Sums(NamedTuple):
    """Seconds of some kernels, of which memory and compute (the rest is latency); launches.
    expert_s: of the seconds, those of routed experts. bytes: to and from device memory; peak_s:
    what the arithmetic would take at the datasheet's peaks."""

    seconds: float = 0.0
    memory_s: float = 0.0
    compute_s: float = 0.0
    launches: float = 0.0
    expert_s: float = 0.0
    bytes: float = 0.0
    peak_s: float = 0.0

    @classmethod
    def added(cls, parts: Iterable[tuple["Sums", int]]) -> "Sums":
        """The sum of parts that occur so many times each."""
        scaled = [[value * times for value in part] for part, times in parts]
        return cls(*map(sum, zip(*scaled, strict=True)))

    def scaled(self, factor: float, expert_factor: float) -> "Sums":
        """All seconds times `factor`, those of routed experts times `expert_factor` besides."""
        if factor == expert_factor == 1.0:
            return self
        whole = self.seconds + (expert_factor - 1) * self.expert_s
        share = factor * whole / self.seconds if self.seconds else 1.0
        return self._replace(
            seconds=factor * whole, memory_s=share * self.memory_s,
            compute_s=share * self.compute_s, expert_s=factor * expert_factor * self.expert_s,
        )


class LooseOps(NamedTuple):
    """Ops outside any pass."""

    phase: str
    ops: Sequence[OpCost]


def keep(memory: dict[K, V], key: K, value: V) -> None:
    """Remember a value; a full memory is emptied rather than left to grow."""
    if len(memory) >= MAX_MEMO:
        memory.clear()
    memory[key] = value


@lru_cache(maxsize=32)
def _products(profile: HardwareProfile, variant: str) -> dict[object, KernelTime]:
    """Priced dense products of one device and engine."""
    return {}


class Pricer:
    """Prices passes on one device under one engine, without the engine's overheads.

    datasheet: the plain bound of each op in place of the kernel model. walk: of attention on a
    kernel that does not split the cache (see `latency.walks`; None: it does). collectives: which
    kernel sums over GPUs (None: one GPU).
    """

    def __init__(
        self,
        profile: HardwareProfile,
        engine: EngineProfile,
        kv_dtype: str,
        routing: Routing,
        *,
        datasheet: bool,
        walk: Walk | None = None,
        collectives: Collectives | None = None,
    ) -> None:
        self.profile = profile
        self.engine = engine
        self.kv_dtype = kv_dtype
        self.routing = routing
        self.datasheet = datasheet
        self.walk = walk
        self._collectives = collectives
        self._rows: dict[object, Sums] = {}
        self._peaks = {fmt: compute_peak(profile, fmt) for fmt in FORMATS}
        # Weights of four bits in groups of 32 are all that a unit takes beside 8-bit activations.
        self._narrow = engine.eight_bit_experts if native(profile, MXFP4_W4A8.name) else ()
        self._as_planned = datasheet or not (
            collectives or engine.whole_expert_formats or self._narrow
        )
        # By kind of shape, as shapes of two kinds may hold the same numbers.
        self._times: defaultdict[type, dict[object, KernelTime]] = defaultdict(dict)
        if not datasheet:  # whose bounds are not kept
            self._times[Gemm] = _products(profile, engine.kernel_variant)

    def total(self, parts: Iterable[Pass | LooseOps]) -> Sums:
        """Seconds of all parts together."""
        totals = [0.0] * len(Sums._fields)
        for part in parts:
            if isinstance(part, LooseOps):
                self._add(part.ops, totals, 1)
                continue
            share = attention_share(part.work, part.parallel)
            key = (
                part.name, part.later, part.parallel, part.work.rows, share.rows, share.head_rows,
                sequences(part.work),
            )
            found = self._rows.get(key)
            if found is None:
                one = [0.0] * len(Sums._fields)
                for ends in part.ends(share):
                    self._add(ends, one, 1)
                for group in part.layers:
                    for ops in part.rows_of(group, share, self.routing):
                        self._add(ops, one, 1)
                found = Sums(*one)
                keep(self._rows, key, found)
            for i, value in enumerate(found):
                totals[i] += value * part.times
            for group in part.layers:
                if group.mixer is not None:
                    context = part.context_of(group, share, self.kv_dtype)
                    self._add(self._beside(context), totals, part.times)
        return Sums(*totals)

    def breakdown(self, parts: Iterable[Pass | LooseOps]) -> list[OpTime]:
        """The same op by op, in the order of execution."""
        rows: list[OpTime] = []
        for part in parts:
            if isinstance(part, LooseOps):
                rows += [self._timed(op, part.phase, 1) for op in part.ops]
                continue
            ops = self._beside(pass_ops(part, self.kv_dtype, self.routing))
            rows += [self._timed(op, part.phase, part.times) for op in ops]
        return rows

    def _add(self, ops: Iterable[OpCost], totals: list[float], times: int) -> None:
        as_planned, known = self._as_planned, self._times
        for planned in ops:
            op = planned if as_planned or type(planned.shape) is Gemm else self._as_run(planned)
            shape = op.shape
            kind = type(shape)
            # What is priced already is looked up without a call: this is where steps spend time.
            time = None if op.beside_experts else known[kind].get(shape)
            if time is None:
                time = self.time(op)
            spent, count = time.seconds, op.count * times
            totals[0] += spent * count
            floor_s = time.floor_s
            if floor_s < spent:
                if time.compute_s > time.mem_s:
                    totals[2] += (spent - floor_s) * count
                else:
                    totals[1] += (spent - floor_s) * count
            if not getattr(shape, "shared_launch", False):
                totals[3] += count * getattr(shape, "launches", 1)
            if isinstance(shape, Experts):
                totals[4] += spent * count
            if kind not in _LINKS:
                moved = op.weight_bytes + op.kv_bytes + op.state_bytes + op.act_bytes
                totals[5] += moved * count
                if op.flops:  # attention multiplies in 16 bits
                    fmt = op.fmt if kind in _PRODUCTS else "bf16"
                    peak = self._peaks.get(fmt) or compute_peak(self.profile, fmt)
                    totals[6] += op.flops * count / peak

    def _beside(self, ops: list[OpCost]) -> list[OpCost]:
        """The ops, with what the prompts take in calls that walk decoding sequences as well."""
        if self.walk is None:
            return ops
        found = list(ops)
        for i, op in enumerate(ops):
            if isinstance(op.shape, AttentionDecode) and op.shape.beside_prompts:
                prompts = takewhile(lambda o: isinstance(o.shape, AttentionPrefill), ops[i + 1 :])
                prompt_s = sum(self.time(one).seconds * one.count for one in prompts) / op.count
                found[i] = op.called(op.shape._replace(prompt_s=prompt_s), op.count)
        return found

    def _timed(self, op: OpCost, phase: str, times: int) -> OpTime:
        run = self._as_run(op)
        return OpTime(repeat(run, times) if times > 1 else run, self.time(run), phase)

    def _as_run(self, op: OpCost) -> OpCost:
        """The op as this engine runs it."""
        if self.datasheet:
            return op
        if self._collectives:
            op = self._collectives.as_run(op)
        if isinstance(op.shape, Experts):
            if op.shape.fmt in self.engine.whole_expert_formats:
                return _whole_experts(op, op.shape)
            if op.shape.fmt in self._narrow:
                return replace(op, shape=op.shape._replace(fmt=MXFP4_W4A8.name))
        return op

    def time(self, op: OpCost) -> KernelTime:
        """One call of an op."""
        if self.datasheet:
            return plain_roofline(op, self.profile)
        if 0 < op.beside_experts <= self.engine.second_stream_tokens:
            # It waits for no launch of its own, but its bytes share the memory's bandwidth.
            return without_launch(self._time(op))
        return self._time(op)

    def _time(self, op: OpCost) -> KernelTime:
        known = self._times[type(op.shape)]
        found = known.get(op.shape)
        if found is None:
            found = self._time_of_one(op)
            keep(known, op.shape, found)
        return found

    def _time_of_one(self, op: OpCost) -> KernelTime:
        found = op_time(op, self.profile, "calibrated", self.engine.kernel_variant)
        if self.walk is not None:
            walk_s = self.walk(op)
            if walk_s > found.seconds:
                found = found._replace(seconds=walk_s, floor_s=walk_s, bound="latency")
        return found


def plain_roofline(op: OpCost, profile: HardwareProfile) -> KernelTime:
    """The datasheet's bound of one call: every byte once at full bandwidth, every FLOP at the
    peak, whichever takes longer."""
    if op.kind in ("all_reduce", "all_gather", "all_to_all"):
        return op_time(op, profile, "datasheet")
    fmt = op.fmt if op.kind in ("gemm", "moe") else "bf16"
    return datasheet_time(op.bytes / profile.mem_bytes_per_s, op.flops / compute_peak(profile, fmt))


def _whole_experts(op: OpCost, some: Experts) -> OpCost:
    """The same experts by a kernel that streams every expert of the GPU, chosen or not."""
    tokens = max(some.tokens, some.experts / some.top_k)  # tokens that choose every expert
    whole = some._replace(tokens=tokens, distribution="balanced", distinct=0.0)
    return replace(op, shape=whole, weight_bytes=op.weight_bytes * some.experts / some.distinct)
