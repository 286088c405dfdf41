"""Draws of accepted lengths: right marginals, spread and memory, independent of the schedule."""

import numpy as np
import pytest

from sim_costs import Linear, config, plain_requests
from specsim.errors import UsageError
from specsim.sim.acceptance import DRAWS, Recorded, SpreadDraws, splitmix64
from specsim.sim.core import NO_DRAFT
from specsim.sim.loads import ClosedLoop, OpenLoop, requests_of
from specsim.sim.run import draw_source, simulate
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.acceptance_spread import INDEPENDENT, AcceptanceSpread

CURVE = Acceptance.from_unconditional([0.8, 0.55, 0.35])


def blocks(source, requests, count):
    return np.stack(
        [np.concatenate([source.block(i, n) for n in range(count)]) for i in range(requests)]
    )


def test_independent_draws_have_the_given_rates():
    draws = blocks(SpreadDraws(CURVE, k=3, seed=1), 640, 2)
    count = draws.size
    for position, rate in enumerate(CURVE.unconditional, start=1):
        seen = (draws >= position).mean()
        assert abs(seen - rate) < 4 * (rate * (1 - rate) / count) ** 0.5


NGRAM = Acceptance.from_unconditional([0.6, 0.45, 0.4], draft_probability=0.3)
SPREAD = AcceptanceSpread(0.4, 0.8, 0.9)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("acceptance", "acceptance_spread"),
    [(CURVE, INDEPENDENT), (CURVE, SPREAD), (NGRAM, SPREAD), (NGRAM, INDEPENDENT)],
)
def test_pooled_shares_are_kept_over_requests_of_equal_length(acceptance, acceptance_spread, seed):
    requests, tokens_wanted = 1472, 600
    draws = blocks(SpreadDraws(acceptance, acceptance_spread, k=3, seed=seed), requests, 3)
    drafted = draws != NO_DRAFT
    accepted = np.where(drafted, draws, 0)
    before = np.cumsum(accepted + 1, axis=1) - (accepted + 1)
    taken = before < tokens_wanted
    assert (before[:, -1] >= tokens_wanted).all()  # every request ends within the blocks drawn
    drafted_steps = (drafted & taken).sum(axis=1)
    steps = taken.sum(axis=1)
    for position, rate in enumerate(acceptance.unconditional, start=1):
        accepted_at = ((accepted >= position) & taken).sum(axis=1)
        pooled = accepted_at.sum() / drafted_steps.sum()
        # Ratio estimator over requests, which are independent of each other.
        residual = accepted_at - pooled * drafted_steps
        error = residual.std() / requests**0.5 / drafted_steps.mean()
        # 600 tokens per request leave up to 0.5 % of finite-length bias.
        assert abs(pooled - rate) < 4 * error + 0.005 * rate
    share = drafted_steps.sum() / steps.sum()
    error = (drafted_steps - share * steps).std() / requests**0.5 / steps.mean()
    assert abs(share - acceptance.draft_probability) < 4 * error + 0.005


def test_splitmix_gives_the_published_numbers():
    # First two outputs of SplitMix64 seeded with 1234567, as published with its reference code.
    golden = 0x9E3779B97F4A7C15
    seeds = np.array([1234567, (1234567 + golden) % 2**64], dtype=np.uint64)
    assert splitmix64(seeds).tolist() == [6457827717110365317, 3203168211198807973]


def test_easy_and_hard_requests_differ_and_neighbours_resemble_each_other():
    acceptance_spread = AcceptanceSpread(request_sd=0.6, step_sd=0.7, persistence=0.9)
    source = SpreadDraws(CURVE, acceptance_spread, k=3, seed=2)
    draws = blocks(source, 640, 3).astype(float)
    tables = source.tables
    # Requests: their mean per step varies as the tables say. Levels are equally likely; a run of
    # 768 steps still has sampling noise, which widens the spread a little.
    by_level = tables.tokens().mean(axis=1) - 1.0
    spread = draws.mean(axis=1).std()
    assert by_level.std() * 0.85 < spread < by_level.std() * 1.25
    centred = draws - draws.mean(axis=1, keepdims=True)
    for lag in (1, 5):
        seen = (centred[:, lag:] * centred[:, :-lag]).mean()
        expected = float(np.asarray(tables.autocovariance(lag)).mean())
        assert seen == pytest.approx(expected, rel=0.12)


def test_blocks_continue_where_the_last_one_ended():
    """Memory goes across blocks: the last draw of a block and the first of the next correlate."""
    source = SpreadDraws(CURVE, AcceptanceSpread(0.0, 2.0, 0.98), k=3, seed=3)
    draws = blocks(source, 3000, 2).astype(float)
    edge = np.corrcoef(draws[:, DRAWS - 1], draws[:, DRAWS])[0, 1]
    inside = np.corrcoef(draws[:, 100], draws[:, 101])[0, 1]
    assert inside > 0.2
    assert edge == pytest.approx(inside, abs=0.08)


def test_draws_do_not_depend_on_the_order_of_asking():
    acceptance_spread = AcceptanceSpread(0.5, 0.5, 0.9)
    forward = SpreadDraws(CURVE, acceptance_spread, k=3, seed=4)
    backward = SpreadDraws(CURVE, acceptance_spread, k=3, seed=4)
    ids = [(i, n) for i in (0, 63, 64, 5000) for n in (0, 1, 4)]
    first = {place: forward.block(*place).copy() for place in ids}
    for place in reversed(ids):
        assert (backward.block(*place) == first[place]).all()
    # Also after so many others that blocks had to be forgotten and drawn again.
    for i in range(0, 64 * 300, 64):
        forward.block(i, 0)
    assert (forward.block(63, 4) == first[63, 4]).all()


def test_missing_drafts_are_marked():
    acceptance = Acceptance.from_unconditional([0.5, 0.4], draft_probability=0.3)
    draws = blocks(SpreadDraws(acceptance, k=2, seed=5), 640, 1)
    share = (draws != NO_DRAFT).mean()
    assert share == pytest.approx(0.3, abs=0.01)
    assert (draws[draws != NO_DRAFT] >= 1).mean() == pytest.approx(0.5, abs=0.015)


def summary_of(cfg, load):
    return simulate(cfg, load, Linear(0.01)).summary()


def test_run_reports_vllms_acceptance_length():
    """Over steps that carry drafts, before the cut at the end of an output."""
    cfg = config(k=3, acceptance=CURVE)
    requests = requests_of(iter(np.zeros(400)), 10, 300, 0, limit=400)
    summary = summary_of(cfg, OpenLoop(requests))
    assert summary["acceptance_length"] == pytest.approx(1 + sum(CURVE.unconditional), abs=0.02)
    assert summary["acceptance_rate"] == pytest.approx(sum(CURVE.unconditional) / 3, abs=0.01)


def test_missing_drafts_yield_one_token_and_are_not_counted():
    acceptance = Acceptance.from_unconditional([0.9, 0.9], draft_probability=0.25)
    cfg = config(k=2, acceptance=acceptance)
    requests = list(requests_of(iter(np.zeros(300)), 10, 400, 0, limit=300))
    summary = summary_of(cfg, OpenLoop(requests))
    assert summary["acceptance_length"] == pytest.approx(2.8, abs=0.03)
    assert summary["tokens_per_chunk"] == pytest.approx(1 + 0.25 * 1.8, abs=0.02)


def test_same_request_has_the_same_luck_in_another_batch():
    """Common random numbers: a request's accepted tokens are the same with 1 slot and with 64."""
    requests = list(requests_of(iter(np.zeros(40)), 10, 120, 0, limit=40))

    def accepted(slots):
        spread = AcceptanceSpread(0.5, 0.5, 0.9)
        cfg = config(k=3, acceptance=CURVE, max_num_seqs=slots, acceptance_spread=spread)
        records = simulate(cfg, ClosedLoop(requests, 40), Linear(0.01, row=0.001)).records
        return sorted((r.request_id, r.verify_steps, r.accepted_tokens) for r in records)

    assert accepted(1) == accepted(64)


def test_long_outputs_draw_further_blocks():
    cfg = config(k=3, acceptance=CURVE, num_kv_blocks=100_000)
    (record,) = simulate(
        cfg, OpenLoop(plain_requests((0.0, 1, 20_000))), Linear(0.001)
    ).records
    assert record.verify_steps > 20 * DRAWS
    assert record.acceptance_length == pytest.approx(2.7, abs=0.05)


def test_record_that_fits_nothing_is_refused():
    with pytest.raises(UsageError, match="accepted length of 4"):
        Recorded([[1, 4]], k=3)
    with pytest.raises(UsageError, match="is empty"):
        Recorded([[1], []], k=3)
    with pytest.raises(UsageError, match="goes up to k = 2, but 3"):
        draw_source(config(k=3, recorded=Recorded([[1]], k=2)), 0)
