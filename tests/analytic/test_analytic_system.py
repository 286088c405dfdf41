"""`System.with_`: what changes, and which changes keep prices."""

from dataclasses import replace

import pytest

from specsim.analytic.closed import closed_loop
from specsim.analytic.open import open_loop
from specsim.analytic.prices import KEPT, PriceCache
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.hardware.store import load_profile
from specsim.latency.overheads import Overheads
from specsim.ops.work import UNIFORM, Parallel
from specsim.options.groups import DeploymentOptions as Options
from specsim.speculation.acceptance import Acceptance

CHAT = Workload(1024, 460)


@pytest.fixture
def system() -> System:
    return build_request(Options(model="qwen3.6-27b", weights="fp8", method="mtp")).system


def kernels(system: System) -> object:
    """The memory of priced kernels that a system's latency model reads and writes."""
    return system.latency._kernels


KEEP_KERNELS = {
    "acceptance": {"acceptance": Acceptance.from_rate(0.5, 3)},
    "draft length": {"k": 7},
    "requests": {"max_num_seqs": 17},
    "token budget": {"max_num_batched_tokens": 4096},
    "memory share": {"gpu_memory_utilization": 0.7},
}


@pytest.mark.parametrize("name", sorted(KEEP_KERNELS))
def test_what_no_kernel_depends_on_keeps_the_prices(system: System, name: str) -> None:
    other = system.with_(**KEEP_KERNELS[name])  # type: ignore[arg-type]
    assert other != system
    assert kernels(other) is kernels(system)
    assert kernels(other.plain()) is kernels(system.plain())


def test_overheads_keep_the_kernels_and_not_the_step(system: System) -> None:
    slow = replace(system.engine.overheads, step_s=0.5)
    other = system.with_overheads(slow)
    assert kernels(other) is kernels(system)
    assert closed_loop(other, CHAT, 4).step_s > closed_loop(system, CHAT, 4).step_s + 0.4
    twice = system.with_overheads(system.engine.overheads, kernel_scale=2.0)
    assert kernels(twice) is kernels(system)
    assert kernels(twice.plain()) is kernels(system.plain())
    back = twice.with_overheads(system.engine.overheads, kernel_scale=1.0)
    assert closed_loop(back, CHAT, 4) == closed_loop(system, CHAT, 4)


@pytest.mark.parametrize("field", ["profile", "parallel", "kv_dtype", "routing", "fidelity",
                                   "engine", "spec", "setup"])
def test_what_kernels_depend_on_parts_the_prices(system: System, field: str) -> None:
    changed = {
        "profile": load_profile("h100-sxm"),
        "parallel": Parallel(2),
        "kv_dtype": "fp8",
        "routing": UNIFORM,
        "fidelity": "datasheet",
        "engine": replace(system.engine, graph_max=64),
        "spec": replace(system.spec, vocab=100_000),
        "setup": replace(system.setup, draft_tp=1, parallel_drafting=True),
    }[field]
    other = system.with_(**{field: changed})  # type: ignore[arg-type]
    assert kernels(other) is not kernels(system)
    fresh = replace(other, prices=PriceCache())
    assert closed_loop(other, CHAT, 8) == closed_loop(fresh, CHAT, 8)


def test_memory_follows_the_drafts_and_the_limits_and_nothing_else(system: System) -> None:
    same = system.with_(acceptance=Acceptance.from_rate(0.5, 3), max_num_seqs=9, routing=UNIFORM)
    assert same.memory == system.memory
    assert system.with_overheads(Overheads()).memory == system.memory
    for other in (system.with_(k=7), system.with_(gpu_memory_utilization=0.7),
                  system.with_(max_num_batched_tokens=2048), system.with_(kv_dtype="fp8")):
        assert other.memory != system.memory


def test_a_system_changed_back_is_the_same(system: System) -> None:
    assert system.with_() is system
    assert system.with_(k=system.setup.k) is system
    assert system.with_(k=0) is system.plain() and system.plain().plain() is system.plain()
    assert system.with_(k=7).with_(k=system.setup.k) == system
    tree = system.with_(setup=replace(system.setup, tree_topk=4, tree_tokens=8))
    assert (tree.with_(k=2).setup.tree_topk, tree.with_(k=2).setup.tree_tokens) == (1, 0)


def test_the_cache_forgets_the_oldest(system: System) -> None:
    first = kernels(system)
    for i in range(KEPT + 1):
        _ = system.with_(spec=replace(system.spec, vocab=100_000 + i)).latency
    assert kernels(replace(system)) is not first


def test_what_plain_decoding_found_at_a_load_is_that_systems_alone() -> None:
    """Systems made from one another answer as ones that share nothing, and each otherwise."""
    start = build_request(Options(model="qwen3-30b-a3b", tp=4, ep=4)).system.plain()
    engine, load = start.engine, Workload(4096, 64)
    others = [
        start, start.with_(routing=UNIFORM), start.with_(routing=replace(UNIFORM, evened=True)),
        start.with_(engine=engine.launched(0, None)), start.with_(engine=engine.launched(8, None)),
        start.with_(engine=engine.launched(None, False)), start.with_(max_num_seqs=4),
        start.with_(max_num_batched_tokens=1024), start.with_(gpu_memory_utilization=0.2),
        start.with_(profile=replace(start.profile, mem_bytes_per_s=2e12)),
        start.with_(profile=replace(start.profile, link_bytes_per_s=9e9)),
        start.with_(parallel=Parallel(4)), start.with_(parallel=Parallel(2, 4, 2)),
    ]

    def answers(system: System) -> tuple[float, ...]:
        loop, opened = closed_loop(system, load, 64), open_loop(system, load, 2.0)
        return loop.tpot_s, loop.ttft_s, loop.running, opened.tpot_s, opened.capacity_rate

    found = [answers(other) for other in others]
    alone = [answers(replace(other, prices=PriceCache())) for other in others]
    assert found == alone == [answers(other) for other in others]
    same_routing = found[1] == found[2]  # uniform choice is even already
    assert len(set(found)) == len(found) - same_routing
