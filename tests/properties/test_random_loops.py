"""Plain and compiled loops give the same bytes on random deployments with a policy of speculation,
with prefill and decoding apart, and with pipeline stages."""

import json
import random
from collections import Counter
from dataclasses import replace

import pytest
import simulate_properties

from specsim.api.simulate_run import CheckedLoad, checked_load
from specsim.errors import SpecSimError
from specsim.options.serving import SimulateOptions
from specsim.sim import compiled
from specsim.sim.run import simulate

POLICIES = ("off-above", "adaptive", "goodput", "utility", "per-request", "unload")


def drawn(number: int) -> tuple[str, CheckedLoad]:
    """What the deployment of this number has besides, and its load."""
    draw = random.Random(number)
    options = simulate_properties.options(draw)
    kind = draw.choice(["policy", "pools", "pp"])
    if kind == "policy":
        options["policy"] = draw.choice(POLICIES)
    elif kind == "pools":
        options |= {"prefill_replicas": draw.choice([1, 2]), "decode_replicas": draw.choice([1, 2])}
        options = {key: options[key] for key in options if key not in ("replicas", "fail")}
    else:
        options["pp"] = draw.choice([2, 4])
    return kind, checked_load(SimulateOptions(**options))


def told(load: CheckedLoad, in_c: bool) -> str:
    """Everything that comes out of the run, as text."""
    side = load.deployment
    result = simulate(
        replace(side.config, compiled=in_c), load.plan.make(3), side.cost, 3,
        prefill_cost=side.prefill_cost,
    )
    records = sorted((r.to_dict() for r in result.records), key=lambda r: str(r["request_id"]))
    return json.dumps([{**result.summary(), "cost_surface": None}, records])


def agree(first: int, systems: int) -> None:
    """On so many systems that run, of all kinds, from a number on."""
    kinds: Counter[str] = Counter()
    for number in range(first, first + 10 * systems):
        try:
            kind, load = drawn(number)
            plain = told(load, False)
        except SpecSimError:
            continue
        assert told(load, True) == plain, number
        kinds[kind] += 1
        if sum(kinds.values()) == systems:
            break
    assert min(kinds[kind] for kind in ("policy", "pools", "pp")) > systems // 20, kinds


@pytest.mark.slow
@pytest.mark.skipif(not compiled.available(), reason="there is no C compiler")
def test_many_agree() -> None:
    agree(10_000, 50)
