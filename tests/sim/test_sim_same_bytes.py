"""Three ways to run the same steps give the same bytes: numpy rows, plain loops (what becomes C)
and the compiled loop itself.

Configurations and loads are random: engines, caches short of memory, drafts of every kind, faults,
routers, clients that give up. Every run also checks its own blocks, rows and requests.
"""

import json
import math
import random
from dataclasses import replace

import pytest
from thinned import examples, some

from sim_costs import SGLANG, Linear
from specsim.latency.engine import find_engine
from specsim.latency.launches import Launches
from specsim.latency.shape import StepShape
from specsim.sim import compiled, price, schedule, step
from specsim.sim.acceptance import Recorded
from specsim.sim.behaviour import ChatBehaviour, ToolUse
from specsim.sim.config import (
    RETRIES,
    ROUTERS,
    VLLM,
    Fault,
    SimConfig,
    SpeculationRules,
)
from specsim.sim.humans import Humans
from specsim.sim.lengths import Uniform
from specsim.sim.loads import ClosedLoop, LimitedOpenLoop, OpenLoop
from specsim.sim.request import Request
from specsim.sim.run import simulate
from specsim.sim.summary import merged_timeline
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.acceptance_spread import INDEPENDENT, AcceptanceSpread

TIERS = find_engine("sglang").scheduler.adaptive_tiers


class Launched(Linear):
    """Launches that a plan ahead hides, and steps in the price for which nodes are added."""

    def seconds(self, shape: StepShape) -> float:
        return super().seconds(shape) + 0.001 * (shape.prefill_tokens % 50 > 25)

    def launches(self, shape: StepShape) -> Launches:
        return Launches(0.004 if shape.prefill else 0.0, 0.003)


COST = Launched(0.01, 1e-4, 1e-5, 1e-8, 1e-4)


def random_speculation(draw):
    k = draw.choice([0, 0, 1, 3, 5])
    if not k:
        return SpeculationRules(0), None, None
    spec = SpeculationRules(
        k,
        verify_tokens=draw.choice([0, 0, k + 4]),
        drop_last_cached_block=draw.random() < 0.5,
        per_batch_size=((1, 2, k), (3, 6, max(0, k - 2)), (7, 100, 0))
        if draw.random() < 0.3
        else (),
    )
    if not spec.per_batch_size and draw.random() < 0.3:
        spec = replace(spec, num_speculative_tokens=7, adaptive=TIERS, verify_tokens=0)
        k = 7
    if draw.random() < 0.25:
        steps = [[draw.randint(0, k) for _ in range(draw.randint(1, 50))] for _ in range(5)]
        return spec, None, Recorded(steps, k=k)
    rates = [0.8 * 0.7**i for i in range(k)]
    share = draw.choice([1.0, 1.0, 0.6])
    return spec, Acceptance.from_unconditional(rates, draft_probability=share), None


def random_config(draw, longest):
    spec, acceptance, recorded = random_speculation(draw)
    width = max(1 + spec.num_speculative_tokens, spec.verify_tokens)
    block = draw.choice([1, 4, 16])
    rules = replace(
        draw.choice([VLLM, SGLANG]),
        max_num_seqs=draw.choice([1, 2, 4, 8, 16]),
        max_num_batched_tokens=max(width, draw.choice([16, 64, 256, 2048])),
        block_size=block,
        prefix_caching=draw.random() < 0.6,
        readback_lag_steps=draw.choice([0, 1]),
        plan_ahead=draw.random() < 0.3,
        watermark=draw.choice([0, 0, 0.02]),
        reserve_full_isl=draw.random() < 0.7,
    )
    least = (2 * longest + width + spec.lookahead) // block + 2
    replicas = draw.choice([1, 1, 1, 2, 3])
    duration = draw.choice([math.inf, 3.0])
    return SimConfig(
        num_kv_blocks=draw.choice([least, least * 2, least * 10]),
        rules=rules,
        speculation=spec,
        acceptance=acceptance,
        recorded=recorded,
        acceptance_spread=draw.choice([INDEPENDENT, AcceptanceSpread(0.4, 0.5, 0.9)]),
        request_overhead_s=draw.choice([0, 0, 0.01, 0.3]),
        n_replicas=replicas,
        router=draw.choice(ROUTERS),
        max_concurrent=draw.choice([0, 0, 0, 3]),
        retry=draw.choice(RETRIES),
        faults=(Fault(1, 1.0, 2.0),) if replicas > 1 and draw.random() < 0.5 else (),
        warmup_s=draw.choice([0, 1.0]) if duration < math.inf else 0,
        duration_s=duration,
        request_timeout_s=draw.choice([math.inf, math.inf, 1.0]),
        stall_s=draw.choice([2.0, 0.05]),
        exact_cost=draw.random() < 0.1,
    )


def random_load(draw, longest):
    requests, now_s = [], 0.0
    rate = draw.choice([20, 60, 200, 1e4])
    for _ in range(draw.choice([20, 60, 120])):
        now_s += draw.expovariate(rate)
        spans = ()
        if draw.random() < 0.5:
            spans = tuple((draw.randint(0, 3), draw.randint(1, longest)) for _ in range(2))
        output = draw.choice([0, 1, 2, 5, draw.randint(1, longest), draw.randint(1, longest)])
        grows = bool(spans) and draw.random() < 0.5
        requests.append(Request(now_s, draw.randint(1, longest), output, spans, grows))
    kind = draw.choice(["open", "closed", "limited", "humans"])
    clients = draw.choice([1, 4, 12])
    if kind == "closed":
        return ClosedLoop(requests, clients)
    if kind == "limited":
        return LimitedOpenLoop(requests, clients)
    if kind == "humans":
        few = Uniform(1, max(2, longest // 10))
        tools = ToolUse(Uniform(1, 4), few, few, Uniform(0, 0.3), Uniform(1, 3))
        habits = ChatBehaviour(
            Uniform(1, longest // 4), few, Uniform(1, longest // 4), Uniform(0, 0.5), 5, 0.7, 4,
            system_prompts=draw.choice([0, 2]),
            context_limit=draw.choice([None, longest]),
            summary_tokens=Uniform(1, 10),
            tools=draw.choice([None, tools]),
        )
        return Humans(habits, clients, thinking=draw.random() < 0.7)
    return OpenLoop(requests)


def outcome(seed, monkeypatch=None, **settings):
    """Everything that comes out of the run with this number, as text."""
    draw = random.Random(seed)
    longest = draw.choice([30, 100, 300])
    cfg = replace(random_config(draw, longest), **settings)
    load = random_load(draw, longest)
    if isinstance(load, Humans) and math.isinf(cfg.duration_s):
        cfg = replace(cfg, duration_s=5.0)
    result = simulate(cfg, load, COST, seed=seed)
    for record in result.records:
        if record.status == "finished":
            assert record.output_tokens == record.requested_tokens
            assert record.chunks <= max(record.output_tokens, 1)
            stamps = [record.arrival_s, record.scheduled_s, record.end_s]
            if record.output_tokens:
                stamps[2:2] = [record.first_token_s, record.last_token_s]
            assert stamps == sorted(stamps)
    summary = {**result.summary(), "cost_surface": None}
    records = sorted((r.to_dict() for r in result.records), key=lambda r: r["request_id"])
    return json.dumps([summary, records, merged_timeline(result.cluster).area.tolist()])


def use_loops(monkeypatch):
    """What is translated to C, run as Python."""
    for plain, loop in compiled.instead().items():
        for module in (step, schedule, price):
            if getattr(module, plain.__name__, None) is plain:
                monkeypatch.setattr(module, plain.__name__, loop)


@pytest.mark.parametrize("seed", some(range(25), 4))
def test_rows_and_loops_agree(seed, monkeypatch):
    rows = outcome(seed, compiled=False)
    use_loops(monkeypatch)
    assert outcome(seed, compiled=False) == rows


@pytest.mark.skipif(not compiled.available(), reason="there is no C compiler")
def test_compiled_steps_agree():
    for seed in range(examples(40)):
        assert outcome(seed, compiled=True) == outcome(seed, compiled=False), seed


def test_same_seed_same_bytes_other_seed_other_bytes():
    assert outcome(101) == outcome(101)
    chatty = [seed for seed in range(100, 110) if outcome(seed) != outcome(seed + 1)]
    assert chatty


def test_structures_hold_every_field_and_share_the_memory():
    """What is written through a structure is read at its address, for numbers, structures in
    arrays and arrays; `kind_of` knows every field."""
    import ctypes

    import numpy as np

    from specsim.sim import core, structs

    plain = core.Ring([1, 2, 3], head=1, count=2)
    ring = structs.as_struct(plain)
    address = structs.address_of(ring, core.Ring)
    core.push(ring, 9)
    seen = structs.struct_of(core.Ring).from_address(address)
    assert (seen.head, seen.count, list(seen.slots_shape)) == (1, 3, [3])
    assert ctypes.c_int64.from_address(seen.slots_at).value == 9
    core.push(plain, 9)
    assert (plain.slots, plain.head, plain.count) == (ring.slots.tolist(), ring.head, ring.count)

    slots = structs._structs(core.Slot, [core.Slot(), core.Slot()])
    slots[1].remaining, slots[1].end_s = 7, 2.5
    table = structs.table_of(slots, core.Slot)
    assert table["remaining"].tolist() == [0, 7] and table["end_s"].tolist() == [-1.0, 2.5]
    grown = structs.longer(slots, 3, core.Slot())
    assert [slot.remaining for slot in grown] == [0, 7, 0]
    for cls in (core.Core, core.Rows, core.Prices, core.PrefixCache):
        assert list(structs.kinds(cls)) == list(cls.__dataclass_fields__)
    assert structs.kinds(core.Prices)["tier"] == structs.Kind(int, 2)
    assert structs.kinds(core.Prices)["by_seqs_s"] == structs.Kind(np.float64, 4)
