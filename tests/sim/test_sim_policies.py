"""Policies of speculation: what a policy is told and may say, that a run under one loses nothing,
and that each does what its paper says where the answer is known."""

import itertools
import json
import random
from dataclasses import replace

import pytest
from thinned import examples

from sim_costs import Linear, config, plain_requests
from specsim.errors import UsageError
from specsim.latency.shape import StepShape
from specsim.sim import compiled
from specsim.sim.acceptance import Recorded
from specsim.sim.config import SpeculationRules
from specsim.sim.loads import ClosedLoop, OpenLoop
from specsim.sim.policies.choice import length_rules, parse_policy
from specsim.sim.policies.deciding import MovingAcceptance
from specsim.sim.run import simulate
from specsim.sim.summary import merged_timeline
from specsim.speculation.acceptance import Acceptance
from test_sim_same_bytes import outcome, random_config, use_loops

ALWAYS = """
from specsim.sim.policies.protocol import Policy

class Always(Policy):
    def drafts(self, state):
        return state.longest

class AlwaysEach(Policy):
    per_request = True

    def drafts(self, state):
        return [state.longest] * len(state.requests)

class Mixed(Policy):
    '''Any length for any request, and a drafter that comes and goes.'''
    per_request = True
    unloads = True

    def drafts(self, state):
        self.drafter_wanted = int(state.now_s * 7) % 3 != 0
        if not (self.drafter_wanted and state.drafter_loaded):
            return 0
        return [state.lengths[(r.request_id + r.output_tokens) % len(state.lengths)]
                for r in state.requests]
"""


class Busy:
    """A step that is free up to `free` tokens and then costs time for each."""

    def __init__(self, free: int, base_s: float = 0.010, token_s: float = 1e-4) -> None:
        self.free, self.base_s, self.token_s = free, base_s, token_s

    def seconds(self, shape: StepShape) -> float:
        drafting = 2e-4 * shape.num_drafts
        return self.base_s + max(0, shape.tokens - self.free) * self.token_s + drafting


@pytest.fixture
def always(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(ALWAYS)
    return path


def under(policy: str, k: int = 4, **settings):
    chances = settings.pop("rates", [0.8 * 0.8**i for i in range(k)])
    if "recorded" not in settings:
        settings["acceptance"] = Acceptance.from_unconditional(chances)
    verify = settings.pop("verify_tokens", 0)
    spec = SpeculationRules(k, **length_rules(parse_policy(policy), k), verify_tokens=verify)
    return config(k=k, speculation=spec, **settings)


def everything(result) -> str:
    summary = {**result.summary(), "cost_surface": None}
    area = merged_timeline(result.cluster).area.tolist()
    return json.dumps([summary, [r.to_dict() for r in result.records], area])


def widths(result) -> list[int]:
    (log,) = result.cluster.replicas[0].stats.trace
    return log.width[log.rows > 0].tolist()


# --- the same bytes, and nothing lost ---------------------------------------------------------


def speculating(first: int, count: int) -> list[int]:
    """Seeds of random configurations that speculate by chains, without tables of their own."""
    found = []
    seed = first
    while len(found) < count:
        draw = random.Random(seed)
        spec = random_config(draw, draw.choice([30, 100, 300])).speculation
        if spec.num_speculative_tokens and not spec.verify_tokens:
            found.append(seed)
        seed += 1
    return found


def outcome_under(seed: int, policy: str | None, **settings) -> str:
    """`outcome` of a random configuration with this policy; None: with a fixed length."""
    draw = random.Random(seed)
    spec = random_config(draw, draw.choice([30, 100, 300])).speculation
    choice = None if policy is None else parse_policy(policy)
    fixed = replace(spec, adaptive=(), per_batch_size=(), policy=choice)
    return outcome(seed, speculation=fixed, **settings)


@pytest.mark.parametrize("name", ["Always", "AlwaysEach"])
def test_a_policy_that_always_says_k_is_static_k_to_the_byte(name, always):
    for seed in speculating(0, examples(6, 3)):
        assert outcome_under(seed, f"{always}:{name}") == outcome_under(seed, None), seed


@pytest.mark.parametrize("policy", ["goodput", "utility,hold=8", "per-request", "Mixed"])
def test_rows_and_loops_agree_and_no_request_or_block_is_lost(policy, always, monkeypatch):
    """Each run also checks its blocks, rows and requests."""
    name = f"{always}:Mixed" if policy == "Mixed" else policy
    extra = {"drafter_blocks": 7} if policy == "Mixed" else {}
    seeds = speculating(40, examples(4, 2))
    extra["compiled"] = False
    rows = [outcome_under(seed, name, **extra) for seed in seeds]
    assert rows == [outcome_under(seed, name, **extra) for seed in seeds]
    use_loops(monkeypatch)
    assert rows == [outcome_under(seed, name, **extra) for seed in seeds]


@pytest.mark.slow
@pytest.mark.skipif(not compiled.available(), reason="there is no C compiler")
def test_compiled_runs_ask_the_same_policies(always):
    for seed in speculating(100, examples(10, 3)):
        for name in ("Always", "AlwaysEach", "Mixed"):
            extra = {"drafter_blocks": 7} if name == "Mixed" else {}
            plain = outcome_under(seed, f"{always}:{name}", compiled=False, **extra)
            assert outcome_under(seed, f"{always}:{name}", compiled=True, **extra) == plain
        assert outcome_under(seed, f"{always}:Always", compiled=True) == outcome_under(
            seed, None, compiled=True
        )


def test_tables_are_data_of_the_loop():
    """`off-above` and `table` are rows of the table of vLLM, and equal where they mean the same."""
    assert parse_policy("static").make().table(4) == ()
    assert parse_policy("static,k=3").make().table(4) == ((1, 65536, 3),)
    assert parse_policy("off-above,batch=8").make().table(4) == ((1, 8, 4), (9, 65536, 0))
    assert parse_policy("table,1=4,9=0").make().table(4) == ((1, 8, 4), (9, 65536, 0))


@pytest.mark.parametrize("policy", ["goodput", "per-request", "unload,below=0.5"])
def test_littles_law_holds_under_a_policy(policy):
    """Mean number in the system (running, waiting) times the length of the run is the sum of the
    times that requests spent in it."""
    generator = random.Random(4)
    requests = plain_requests(
        *[(0.0, generator.randint(1, 40), generator.randint(2, 60)) for _ in range(120)]
    )
    cfg = replace(under(policy, num_kv_blocks=40, max_num_seqs=10), drafter_blocks=10)
    result = simulate(cfg, OpenLoop(requests), Linear(0.01, 1e-3, 1e-4))
    figures = result.summary()
    records = result.records
    assert len(records) == 120 and {r.status for r in records} == {"finished"}
    start_s, end_s = figures["window_s"]
    inside = (figures["running_mean"] + figures["waiting_mean"]) * (end_s - start_s)
    sojourn = (records.times("end_s") - records.times("arrival_s")).sum()
    assert inside == pytest.approx(float(sojourn), rel=1e-9)


# --- the acceptance that a policy sees --------------------------------------------------------


def test_moving_acceptance_is_that_of_the_draws():
    """Conditional rates 0.9 and 0.5: marginals 0.9 and 0.45, seen from steps of any length; a
    position that is never tried counts as the last that was."""
    import numpy as np

    generator = np.random.default_rng(5)
    moving = MovingAcceptance(3)
    assert moving.rates() == (1.0, 1.0, 1.0)
    for _ in range(150):
        lengths = generator.integers(0, 3, size=1000)
        chances = generator.random((1000, 2)) < [0.9, 0.5]
        got = np.minimum(chances.cumprod(axis=1).sum(axis=1), lengths)
        moving.observe(
            np.bincount(got, minlength=4), np.bincount(got[got == lengths], minlength=4))
    assert moving.rates() == pytest.approx((0.9, 0.45, 0.225), rel=0.03)


# --- what each policy does --------------------------------------------------------------------


def test_goodput_drafts_long_at_low_load_and_nothing_at_saturation():
    """Up to 24 tokens a step is free: one request drafts all it may. 64 requests pay for every
    draft 1e-4 s of 14 ms, and of a draft that is accepted 3 times in 10 they gain less than
    that."""
    low = simulate(under("goodput", rates=[0.9, 0.8, 0.7, 0.6]),
                   ClosedLoop(plain_requests(*[(0.0, 8, 200)] * 2), 1), Busy(24), keep_trace=True)
    assert widths(low).count(5) > 0.95 * len(widths(low))
    full = simulate(under("goodput", rates=[0.3, 0.1, 0.03, 0.01]),
                    ClosedLoop(plain_requests(*[(0.0, 8, 300)] * 64), 64), Busy(24),
                    keep_trace=True)
    seen = widths(full)
    assert seen[0] == 5  # nothing is known yet
    assert seen[20:].count(1) > 0.95 * len(seen[20:])


def test_goodput_tries_again_from_time_to_time():
    cfg = under("goodput,probe=10", recorded=Recorded([[0]], k=4))
    seen = widths(simulate(cfg, ClosedLoop(plain_requests((0.0, 8, 90)), 1), Busy(0),
                           keep_trace=True))
    assert seen.count(2) >= 5 and seen.count(1) > 8 * seen.count(2)


def test_utility_turns_off_where_speculation_loses_and_stays_on_where_it_pays():
    """As on routed models: every verified token costs as much as the step without drafts."""
    requests = [(0.0, 8, 600)] * 4
    dear = simulate(under("utility"), ClosedLoop(plain_requests(*requests), 4),
                    Busy(4, token_s=2.5e-3), keep_trace=True)
    seen = widths(dear)
    assert seen.count(1) > 0.85 * len(seen)
    cheap = simulate(under("utility", rates=[0.9, 0.8, 0.7, 0.6]),
                     ClosedLoop(plain_requests(*requests), 4), Busy(24), keep_trace=True)
    seen = widths(cheap)
    assert seen.count(4) + seen.count(5) > 0.8 * len(seen)
    assert cheap.summary()["output_tok_s"] > 1.5 * dear.summary()["output_tok_s"]


def test_utility_tests_less_often_while_nothing_pays():
    cfg = under("utility,hold=16", recorded=Recorded([[0]], k=4))
    result = simulate(cfg, ClosedLoop(plain_requests((0.0, 8, 700)), 1), Busy(0), keep_trace=True)
    seen = widths(result)
    drafting = [i for i, width in enumerate(seen) if width > 1]
    gaps = [b - a for a, b in itertools.pairwise(drafting) if b - a > 10]
    assert gaps == sorted(gaps) and gaps[-1] > 4 * gaps[0]


def test_per_request_drafts_long_for_the_easy_and_nothing_for_the_hard():
    """Two recorded requests, one always right and one always wrong, at a price per token."""
    cfg = under("per-request", recorded=Recorded([[4], [0]], k=4))
    result = simulate(cfg, ClosedLoop(plain_requests((0.0, 8, 400), (0.0, 8, 150)), 2),
                      Busy(0, token_s=2e-3))
    easy, hard = sorted(result.records, key=lambda record: record.request_id)
    assert easy.acceptance_length > 4.5
    assert hard.drafted_tokens < 0.35 * hard.output_tokens
    fixed = simulate(under("static", recorded=Recorded([[4], [0]], k=4)),
                     ClosedLoop(plain_requests((0.0, 8, 400), (0.0, 8, 150)), 2),
                     Busy(0, token_s=2e-3))
    assert result.summary()["output_tok_s"] > fixed.summary()["output_tok_s"]


def test_unequal_drafts_cost_what_their_tokens_cost(always):
    """Requests 0 and 1 with 4 and 0 drafts: 6 tokens, between the 4 and 6 ... of equal drafts; the
    cost is linear, so exactly."""
    path = always.parent / "two.py"
    path.write_text(
        "from specsim.sim.policies.protocol import Policy\n"
        "class Two(Policy):\n"
        "    per_request = True\n"
        "    def drafts(self, state):\n"
        "        return [4 if r.request_id == 0 else 1 for r in state.requests]\n"
    )
    for exact in (False, True):
        cfg = under(f"{path}:Two", recorded=Recorded([[0]], k=4), exact_cost=exact)
        result = simulate(cfg, ClosedLoop(plain_requests((0.0, 8, 40), (0.0, 8, 40)), 2),
                          Busy(0, base_s=0.0, token_s=1e-3), keep_trace=True)
        (log,) = result.cluster.replicas[0].stats.trace
        both = (log.rows == 2) & (log.next_drafts == 4)
        seconds = (log.end_s - log.start_s)[both]
        assert seconds == pytest.approx(7e-3 + 4 * 2e-4, rel=1e-12)
        first, second = sorted(result.records, key=lambda record: record.request_id)
        assert first.drafted_tokens == 4 * first.verify_steps
        assert second.drafted_tokens == second.verify_steps


def test_unloading_gives_its_blocks_to_the_cache_and_takes_them_back():
    """Six requests of 100 slots and a cache for four: without the drafter all six run. Later, when
    one is left, the drafter comes back, `reload_s` after."""
    requests = plain_requests(*[(0.0, 8, 84)] * 5, (0.0, 8, 300))
    cfg = replace(under("unload,below=0.2,above=0.4,reload_s=0.5", num_kv_blocks=30),
                  drafter_blocks=20)

    class Drafting(Linear):
        def seconds(self, shape: StepShape) -> float:
            return super().seconds(shape) + 0.002 * shape.drafter

    result = simulate(cfg, OpenLoop(requests), Drafting(), keep_trace=True)
    (log,) = result.cluster.replicas[0].stats.trace
    assert log.held.max() > 30
    decode = log.rows > 0
    without = (log.next_drafts == 5) & decode  # one more than the longest: no drafter in memory
    seconds = log.end_s - log.start_s
    assert seconds[without] == pytest.approx(0.010) and without.sum() > 20
    assert seconds[~without & decode] == pytest.approx(0.012)
    drafting = log.width[decode] > 1
    assert drafting[0] and not drafting[20] and drafting[-1]
    assert result.summary()["kv_usage_max"] <= 1.0
    fixed = simulate(under("static", num_kv_blocks=30), OpenLoop(requests), Linear())
    assert fixed.summary()["preemptions"] > result.summary()["preemptions"]
    assert all(record.status == "finished" for record in result.records)


# --- policies that are wrong ------------------------------------------------------------------


@pytest.mark.parametrize(("text", "words"), [
    ("godput", "did you mean 'goodput'"),
    ("goodput,probe", "key=value"),
    ("goodput,probe=-1", "probe is -1; input should be greater than or equal to 0"),
    ("goodput,speed=2", "no setting speed"),
    ("static,k=9", "at most 4 are drafted"),
    ("table", "table has no rows"),
    ("table,1=x", "by_batch"),
    ("table,1=99", "table has 1=99; .* to the longest, 4"),
    ("table,1=-3", "table has 1=-3"),
    ("table,0=3", "table has 0=3; batch sizes are 1 to"),
    ("unload,reload_s=inf", "reload_s is inf"),
    ("adaptive,k=2", "adaptive has no settings"),
    ("nowhere.py:Mine", "there is no Python file"),
    ("mine.py", "FILE.py:CLASS"),
])
def test_policies_that_cannot_be_are_refused(text, words):
    with pytest.raises(UsageError, match=words):
        length_rules(parse_policy(text), 4)


@pytest.mark.parametrize(("body", "words"), [
    ("return 5", "answered 5 at .*must be one of 0, 1, 2, 3, 4"),
    ("return True", "answered True"),
    ("return None", "answered None"),
    ("return [1]", "per_request = True"),
    ("return 1 // 0", r"line 4: ZeroDivisionError"),
    ("return state.nothing", r"line 4: AttributeError"),
])
def test_a_users_policy_that_fails_is_told_in_one_line(body, words, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from specsim.sim.policies.protocol import Policy\nclass Mine(Policy):\n"
                    f"    def drafts(self, state):\n        {body}\n")
    with pytest.raises(UsageError, match=words) as caught:
        simulate(under(f"{path}:Mine"), OpenLoop(plain_requests((0.0, 8, 8))), Linear())
    assert "\n" not in str(caught.value) and "Mine" in str(caught.value)


@pytest.mark.parametrize(("text", "words"), [
    ("x = (", r"line 1: "),
    ("import no_such_module", "ModuleNotFoundError"),
    ("class Mine:\n    pass", "has no policy Mine"),
    ("from specsim.sim.policies.protocol import Policy\nclass Other(Policy):\n    pass",
     "it has Other"),
])
def test_a_file_without_the_policy_is_refused(text, words, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        parse_policy(f"{path}:Mine")


def test_a_policy_may_be_a_dataclass_with_postponed_annotations(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from __future__ import annotations\nfrom dataclasses import dataclass\n"
                    "from specsim.sim.policies.protocol import Policy\n@dataclass\n"
                    "class Mine(Policy):\n    every: int = 8\n")
    assert parse_policy(f"{path}:Mine,every=3").make().every == 3


def test_lengths_by_request_and_trees_exclude_each_other():
    with pytest.raises(UsageError, match="trees are verified whole"):
        under("per-request", verify_tokens=8)
    tree = simulate(under("goodput", verify_tokens=8), OpenLoop(plain_requests((0.0, 8, 40))),
                    Linear(), keep_trace=True)
    assert set(widths(tree)) <= {1, 8}


