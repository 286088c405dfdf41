"""The sampler: its law, its documented algorithm to the byte, and replay of records."""

import math

import numpy as np
import pytest
from scipy.stats import chisquare

from specsim.errors import UsageError
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.easiness import INDEPENDENT, Easiness
from specsim.speculation.sampling import AcceptanceSampler, Replay

CHAT = Acceptance.from_unconditional([0.622, 0.381, 0.252])
NGRAM = Acceptance.from_unconditional([0.6, 0.45, 0.4], draft_probability=0.3)
SPREAD = Easiness(0.4, 0.8, 0.9)
BOTH = [(CHAT, INDEPENDENT), (CHAT, SPREAD), (NGRAM, SPREAD), (NGRAM, INDEPENDENT)]
SEEDS = [1, 2, 3]
GOLDEN, MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


@pytest.mark.parametrize("seed", SEEDS)
def test_independent_draws_follow_the_pmf(seed: int) -> None:
    sampler = AcceptanceSampler(CHAT, seed=seed)
    rows = np.arange(200)
    sampler.new_requests(rows, rows)
    counts = np.zeros(4)
    for _ in range(500):
        counts += np.bincount(sampler.draw(rows), minlength=4)
    assert counts.min() >= 1000
    assert chisquare(counts, np.array(CHAT.pmf()) * counts.sum()).pvalue > 1e-4


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("acceptance", "easiness"), BOTH)
def test_pooled_shares_are_kept_over_requests_of_equal_length(
    acceptance: Acceptance, easiness: Easiness, seed: int
) -> None:
    requests, tokens_wanted = 1500, 600
    sampler = AcceptanceSampler(acceptance, easiness, seed=seed, rows=requests)
    rows = np.arange(requests)
    sampler.new_requests(rows, rows)
    left = np.full(requests, tokens_wanted)
    steps = np.zeros(requests)
    drafted_steps = np.zeros(requests)
    accepted_at = np.zeros((requests, 3))
    while len(rows):
        drafted = sampler.drafted(rows)
        accepted = sampler.draw(rows)
        if drafted is None:
            drafted = np.ones(len(rows), dtype=bool)
        assert not accepted[~drafted].any()
        steps[rows] += 1
        drafted_steps[rows] += drafted
        for i in range(3):
            accepted_at[rows, i] += accepted > i
        left[rows] -= accepted + 1
        rows = rows[left[rows] > 0]
    for i, rate in enumerate(acceptance.unconditional):
        pooled = accepted_at[:, i].sum() / drafted_steps.sum()
        # Ratio estimator over requests, which are independent of each other.
        residual = accepted_at[:, i] - pooled * drafted_steps
        error = residual.std() / math.sqrt(requests) / drafted_steps.mean()
        # 600 tokens per request leave up to 0.5 % of finite-length bias.
        assert abs(pooled - rate) < 4 * error + 0.005 * rate
    share = drafted_steps.sum() / steps.sum()
    error = (drafted_steps - share * steps).std() / math.sqrt(requests) / steps.mean()
    assert abs(share - acceptance.draft_probability) < 4 * error + 0.005


def mix(value: int) -> int:
    """SplitMix64 in Python integers."""
    z = (value + GOLDEN) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_splitmix_known_values() -> None:
    # First two outputs of SplitMix64 seeded with 1234567, as published with its reference code.
    assert mix(1234567) == 6457827717110365317
    assert mix((1234567 + GOLDEN) & MASK) == 3203168211198807973


@pytest.mark.parametrize(("acceptance", "easiness"), BOTH)
def test_the_documented_algorithm_gives_the_same_bytes(
    acceptance: Acceptance, easiness: Easiness
) -> None:
    """The module's docstring, in plain Python floats and integers."""
    seed, ids = 42, [7, 0, 123456789012, 3, 99]
    sampler = AcceptanceSampler(acceptance, easiness, seed=seed, rows=2)
    rows = np.array([4, 0, 3, 1, 2])
    sampler.new_requests(rows, ids)

    tables, levels = sampler.tables, sampler.tables.step_levels
    accept, draft = tables.accept.tolist(), tables.draft.tolist()
    state, has_draft = [0] * 5, [True] * 5
    skips = acceptance.draft_probability < 1.0
    for row, request in zip(rows.tolist(), ids, strict=True):
        h = mix((seed * GOLDEN + request) & MASK)
        a, b = h >> 32, h & 0xFFFFFFFF
        state[row] = ((a * tables.request_levels) >> 32) * levels + ((b * levels) >> 32)
        if skips:
            has_draft[row] = (mix(h) >> 11) * 2.0**-53 < draft[state[row]]
    generator = np.random.default_rng(seed)
    columns = 1 + (levels > 1) + skips
    steps = 400
    block = generator.random(steps * columns * 5).tolist()
    for step in range(steps):
        u = block[step * columns * 5 : (step + 1) * columns * 5]
        expected, drafted_now = [], list(has_draft)
        for i, row in enumerate(rows.tolist()):
            s = state[row]
            count = sum(u[i] < accept[j][s] for j in range(3)) if has_draft[row] else 0
            expected.append(count)
            if levels > 1:
                z = math.floor(u[5 + i] * (levels / (1.0 - tables.persistence)))
                if z < levels:
                    s = s - s % levels + z
            state[row] = s
            if skips:
                has_draft[row] = u[(columns - 1) * 5 + i] < draft[s]
        seen = sampler.drafted(rows)
        assert seen is None or seen.tolist() == [drafted_now[r] for r in rows.tolist()]
        assert sampler.draw(rows).tolist() == expected
    assert sampler.state[:5].tolist() == state


def test_same_seed_same_bytes_and_seeds_differ() -> None:
    def run(seed: int) -> bytes:
        sampler = AcceptanceSampler(NGRAM, SPREAD, seed=seed)
        rows = np.arange(64)
        sampler.new_requests(rows, rows)
        return b"".join(sampler.draw(rows).tobytes() for _ in range(50))

    assert run(5) == run(5)
    assert run(5) != run(6)


def test_a_request_has_its_easiness_wherever_it_runs() -> None:
    easiness = Easiness(1.5, 0.0, 0.0)
    one = AcceptanceSampler(CHAT, easiness, seed=9)
    other = AcceptanceSampler(CHAT, easiness, seed=9)
    one.new_requests([0, 1, 2], [10, 11, 12])
    other.new_requests(5, 12)
    other.new_requests([9, 0], [10, 11])
    assert one.state[[0, 1, 2]].tolist() == other.state[[9, 0, 5]].tolist()


def test_levels_are_equally_likely() -> None:
    sampler = AcceptanceSampler(CHAT, SPREAD, rows=40_000)
    rows = np.arange(40_000)
    sampler.new_requests(rows, rows)
    assert chisquare(np.bincount(sampler.state, minlength=256)).pvalue > 1e-4
    # One step later they still are: the kernel keeps its stationary law.
    sampler.draw(rows)
    assert chisquare(np.bincount(sampler.state, minlength=256)).pvalue > 1e-4


def test_shorter_drafts_are_cut_from_longer_ones() -> None:
    rows = np.arange(50)
    results = []
    for k in (None, 2, np.arange(50) % 4, 0):
        sampler = AcceptanceSampler(CHAT, SPREAD, seed=3)
        sampler.new_requests(rows, rows)
        results.append(sampler.draw(rows, k))
    assert results[1].tolist() == np.minimum(results[0], 2).tolist()
    assert results[2].tolist() == np.minimum(results[0], np.arange(50) % 4).tolist()
    assert not results[3].any()
    assert results[0].max() == 3


def test_certain_and_impossible_acceptance() -> None:
    rows = np.arange(10)
    for rates, value in (((1.0, 1.0), 2), ((0.0, 0.0), 0)):
        sampler = AcceptanceSampler(Acceptance.from_unconditional(rates), SPREAD)
        sampler.new_requests(rows, rows)
        for _ in range(20):
            assert sampler.draw(rows).tolist() == [value] * 10


def test_rows_grow_and_no_rows_draw_nothing() -> None:
    sampler = AcceptanceSampler(CHAT, SPREAD, rows=2)
    sampler.new_requests([], [])
    sampler.new_requests(1000, 1)
    assert sampler.draw(np.array([1000])).shape == (1,)
    assert sampler.draw(np.array([], dtype=np.int64)).shape == (0,)
    with pytest.raises(UsageError, match="2 rows for 1 requests"):
        sampler.new_requests([0, 1], [5])


def test_replay_by_step() -> None:
    replay = Replay({7: [3, 0, 2], 8: [1]}, k=3)
    replay.new_requests([0, 1], [7, 8])
    rows = np.array([0, 1])
    drawn = [replay.draw(rows).tolist() for _ in range(4)]
    assert drawn == [[3, 1], [0, 1], [2, 1], [3, 1]]
    assert replay.drafted(rows) is None
    replay.new_requests(0, 7)
    assert replay.draw(np.array([0]), 1).tolist() == [1]


def test_replay_by_position_moves_on_by_the_tokens_of_the_step() -> None:
    # From position 0 three drafts would be accepted, from 4 none, from 5 one, ...
    record = [3, 2, 1, 0, 0, 1, 0, 5]
    full = Replay({1: record}, k=8, by="position")
    full.new_requests(0, 1)
    row = np.array([0])
    assert [int(full.draw(row)[0]) for _ in range(4)] == [3, 0, 1, 5]
    short = Replay({1: record}, k=1, by="position")
    short.new_requests(0, 1)
    # k = 1: one draft of three, so the next step starts at position 2.
    assert [int(short.draw(row)[0]) for _ in range(4)] == [1, 1, 0, 1]


def test_replay_of_steps_without_drafts() -> None:
    replay = Replay({1: [0, 2, 0]}, k=4, proposed={1: [0, 4, 3]})
    replay.new_requests(300, 1)
    row = np.array([300])
    seen = []
    for _ in range(3):
        drafted = replay.drafted(row)
        assert drafted is not None
        seen.append((bool(drafted[0]), int(replay.draw(row)[0])))
    assert seen == [(False, 0), (True, 2), (True, 0)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Replay({}, k=3), "no recorded request"),
        (lambda: Replay({1: []}, k=3), "request 1 is empty"),
        (lambda: Replay({1: [4]}, k=3), "accepted length of 4"),
        (lambda: Replay({1: [-1]}, k=3, by="position"), "accepted length of -1"),
        (lambda: Replay({1: [1]}, k=3, by="token"), "'step' or 'position'"),
        (lambda: Replay({1: [1]}, k=3, proposed={1: [1, 2]}), "1 accepted and 2"),
        (lambda: Replay({1: [1]}, k=3).new_requests(0, 2), "request 2 has no recorded"),
        (lambda: Replay({1: [1]}, k=3).new_requests([0, 1], [1]), "2 rows for 1"),
    ],
)
def test_bad_replay(call, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=words):
        call()
