"""Simulating what was sent: same requests, same steps; and telling what a gap is made of."""

import dataclasses
import json
import math

import pytest

from specsim.accuracy.explain_gap import Seen, explain, fit_both, fit_constant, fit_scale
from specsim.accuracy.live import Settings, judge
from specsim.accuracy.live_replay import (
    MeasuredLoad,
    Swap,
    figures_of_run,
    load_of,
    planned_times,
    predict,
    replayed_steps,
    requests_of,
)
from specsim.api.deployment import build_request
from specsim.calibrate.fewshot_bench import measured_acceptance
from specsim.errors import FormatError
from specsim.formats.bench.record import BenchAcceptance, BenchLoad, BenchRun, RequestRow
from specsim.options.groups import DeploymentOptions as Options
from specsim.sim.arrivals import bench_serve_times
from specsim.sim.loads import ClosedLoop, LimitedOpenLoop, OpenLoop


def system(**options):
    given = {"model": "smollm2-135m", "gpu": "cpu-generic", "method": "none"} | options
    return build_request(Options(**given)).system


def ngram(length=2.5, share=0.7, **options):
    return system(method="ngram", k=3, acceptance_length=length, draft_share=share, **options)


def rows(count=12, prompt=200, output=40, chunks=(), gap_s=0.1):
    return tuple(
        RequestRow(i * gap_s, prompt + i, output, 0.1, 2.0, chunk_tokens=chunks)
        for i in range(count)
    )


def run(requests=(), **fields):
    load = BenchLoad(math.inf, 4, 1.0, len(requests) or None)
    given = {"source": "s", "format": "f", "load": load}
    return BenchRun(**(given | {"requests": requests} | fields))


def point(name="c=4", requests=None, **fields):
    return MeasuredLoad(name, run(rows() if requests is None else requests, **fields))


# --- requests and loads ---------------------------------------------------------------------------
def test_requests_keep_their_order_lengths_and_times():
    mixed = (RequestRow(0.5, 10, 3, 0.1, 0.2), RequestRow(0.1, 20, 4, 0.1, 0.2),
             RequestRow(0.3, 30, 0, None, None, success=False))
    found = requests_of(point(requests=mixed))
    assert [(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in found] == [
        (0.1, 20, 4), (0.5, 10, 3)]


def test_loads_by_kind():
    closed = point()
    assert isinstance(load_of(closed, requests_of(closed)), ClosedLoop)
    open_ = point(load=BenchLoad(2.0, None, 1.0, 12))
    assert type(load_of(open_, requests_of(open_))) is OpenLoop
    held = point(load=BenchLoad(2.0, 3, 1.0, 12))
    limited = load_of(held, requests_of(held))
    assert isinstance(limited, LimitedOpenLoop) and limited.max_concurrency == 3
    sent = [r.arrival_s for r in limited.requests]
    assert sent == pytest.approx(list(bench_serve_times(12, 2.0)))
    unknown = MeasuredLoad("?", run((), completed=3, input_tokens_mean=9.0, output_tokens_mean=9.0,
                             load=BenchLoad()))
    with pytest.raises(FormatError, match="neither a rate nor a concurrency"):
        load_of(unknown, requests_of(unknown))


def test_files_without_requests_are_simulated_with_their_means():
    found = requests_of(MeasuredLoad("r", run(
        (), completed=5, input_tokens_mean=99.6, output_tokens_mean=10.2,
        load=BenchLoad(4.0, None, 1.0, 5))))
    assert {(r.prompt_tokens, r.output_tokens) for r in found} == {(100, 10)}
    assert [r.arrival_s for r in found] == pytest.approx(list(bench_serve_times(5, 4.0)))
    with pytest.raises(FormatError, match="lengths"):
        requests_of(MeasuredLoad("r", run((), completed=5)))


def test_send_times_are_those_of_numpys_legacy_generator():
    # numpy.random.seed(0); numpy.random.gamma(1, 0.5) four times, added up, the last one moved to
    # 4 / rate: computed with numpy's own global generator.
    import numpy as np

    np.random.seed(0)
    gaps = [np.random.gamma(shape=1.0, scale=0.5) for _ in range(4)]
    total, times = 0.0, []
    for gap in gaps:
        total += gap
        times.append(total)
    known = [t * (4 / 2.0 / times[-1]) for t in times]
    planned = planned_times(run(load=BenchLoad(2.0, None, 1.0, 4)), 4)
    assert planned == pytest.approx(known, abs=1e-12)
    assert known == pytest.approx([0.42308663, 1.09073901, 1.58152413, 2.0], abs=1e-7)


# --- acceptance -----------------------------------------------------------------------------------
def test_chunks_become_steps_and_merged_chunks_are_parted():
    found = replayed_steps(point(requests=rows(2, chunks=(1, 4, 1, 9, 0, 2))), 3)
    assert found is not None
    assert found.block(0, 0)[:6].tolist() == [3, 0, 3, 3, 0, 1]
    assert replayed_steps(point(), 3) is None
    assert replayed_steps(point(requests=(*rows(1, chunks=(1, 2)), *rows(1))), 3) is None


def test_replayed_steps_yield_exactly_what_was_measured():
    # 40 tokens: 1 + 39 in 15 chunks.
    chunks = (1, 4, 4, 4, 4, 4, 4, 4, 1, 1, 1, 2, 3, 1, 1, 1)
    assert sum(chunks) == 40
    found = predict(point(requests=rows(chunks=chunks)), ngram())
    assert found.exact_acceptance
    assert found.figures["tokens_per_step"] == pytest.approx(39 / 15)
    drawn = predict(point(requests=rows(chunks=chunks)), ngram(), replay=False, seeds=3)
    once = predict(point(requests=rows(chunks=chunks)), ngram(), replay=False)
    assert not drawn.exact_acceptance and drawn.figures != once.figures  # a mean over seeds
    assert drawn.figures["tokens_per_step"] == pytest.approx(1 + 0.7 * 1.5, rel=0.15)


def test_acceptance_from_counters_knows_steps_without_drafts():
    counted = BenchAcceptance(2.5, 0.5, (0.7, 0.5, 0.3), 100, 300, 150)
    measured = run(acceptance=counted, draft_share=0.6)
    found = measured_acceptance(measured, 3, "ngram")
    assert found.unconditional == (0.7, 0.5, 0.3) and found.draft_probability == 0.6
    assert found.tokens_per_step(3) == pytest.approx(1.9)
    assert measured_acceptance(measured, 3, "eagle3").draft_probability == 1.0
    assert measured_acceptance(run(), 3, "ngram") is None
    rising = run(acceptance=BenchAcceptance(2.5, None, (0.5, 0.6), 10))
    assert measured_acceptance(rising, 2, "eagle3").unconditional == (0.5, 0.5)
    only = run(acceptance=BenchAcceptance(2.0))
    assert measured_acceptance(only, 3, "eagle3").expected_tokens(3) == pytest.approx(2.0)


# --- causes ---------------------------------------------------------------------------------------
def world(truth, swap, predicted, points):
    """Points whose measured figures are the simulation's on `truth` with `swap`."""
    seen = []
    for item in points:
        measured = dict(predict(item, truth, swap=swap).figures)
        seen.append(Seen(item, measured, predict(item, predicted)))
    return seen


def reasons(truth, predicted, points, swap=None):
    def again(item, change, measured):
        return predict(item, truth if measured else predicted, swap=change)

    return explain(world(truth, swap or Swap(), predicted, points), again)


POINTS = [
    point(f"c={c}", rows(3 * c, 150, 60), load=BenchLoad(math.inf, c, 1.0, 3 * c))
    for c in (1, 4)
]


def test_without_a_gap_nothing_is_blamed():
    same = system()
    assert [r["cause"] for r in reasons(same, same, POINTS)] == ["none"]


def test_slow_steps_are_found():
    same = system()
    found = reasons(same, same, POINTS, Swap(step_scale=1.6, step_add_s=0.004))
    kept = [r["cause"] for r in found if r.get("explains")]
    assert len(kept) == 1 and kept[0] in ("step cost", "host gap", "step cost and host gap")
    assert found[-1]["cause"] == "unexplained"
    assert found[-1]["share"] < 0.1


def test_wrong_acceptance_is_found():
    found = reasons(ngram(1.4, 0.5), ngram(3.4, 0.95), POINTS)
    assert found[0]["cause"] == "acceptance" and found[0]["share"] > 0.6
    assert "measured" in found[0]["evidence"]


def test_slow_prompts_are_found():
    same = system()
    long = [point(f"c={c}", rows(3 * c, 900, 6), load=BenchLoad(math.inf, c, 1.0, 3 * c))
            for c in (1, 4)]
    found = reasons(same, same, long, Swap(prefill_scale=3.0))
    assert found[0]["cause"] == "prefill" and found[0]["share"] > 0.8


def test_queueing_is_found():
    short = [point("c=8", rows(32, 150, 60), load=BenchLoad(math.inf, 8, 1.0, 32))]
    found = reasons(system(max_num_seqs=2), system(), short)
    assert any(r["cause"] == "queueing" and "wait for admission" in r["evidence"] for r in found)


@pytest.mark.parametrize("scale, gap_s", [(1.0, 0.005), (1.7, 0.0), (0.6, 0.02)])
def test_a_constant_and_a_scale_are_told_apart(scale, gap_s):
    pairs = [(p, scale * p + gap_s) for p in (0.01, 0.015, 0.03, 0.08)]
    assert fit_both(pairs) == pytest.approx((scale, gap_s), abs=1e-9)


def test_points_too_alike_give_a_scale_only():
    alike = [(0.010, 0.020), (0.011, 0.022)]
    assert fit_both(alike) is None and fit_both(alike[:1]) is None
    assert fit_scale(alike) == pytest.approx(2.0)
    assert fit_constant([(0.01, 0.03), (0.05, 0.07)]) == pytest.approx(0.02)
    # A constant so large that the scale would be negative is not believed.
    assert fit_both([(0.01, 0.05), (0.02, 0.03)]) is None


# --- the comparison -------------------------------------------------------------------------------
def test_judge_puts_everything_into_one_record():
    measured = run(
        rows(), completed=12, failed=0, output_tok_s=50.0, request_rate_achieved=1.25,
        concurrency_mean=3.5, input_tokens_mean=205.5, output_tokens_mean=40.0,
    )
    from specsim.formats.bench.stats import total
    sums = total(measured.requests, "")
    measured = dataclasses.replace(
        measured, ttft_s=sums.ttft_s, tpot_s=sums.tpot_s, e2el_s=sums.e2el_s)
    again = dataclasses.replace(measured, output_tok_s=60.0)
    found = judge("bench", "t", [MeasuredLoad("c=4", measured), MeasuredLoad("c=4", again)],
                  lambda item, counted: system(), Settings(), {"x": 1})
    names = {row.metric for row in found.rows}
    assert {"output_tok_s", "ttft_mean_s", "ttft_p95_s", "tpot_mean_s", "e2el_p95_s"} <= names
    row = next(row for row in found.rows if row.metric == "output_tok_s")
    assert row.spread == pytest.approx(math.sqrt(50) / 55)
    assert row.low is not None and row.low < row.predicted < row.high
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["kind"] == "validation" and len(record["provenance"]["points"]) == 2
    assert found.reasons[-1]["cause"] in ("unexplained", "none")
    fitted = judge("bench", "t", [MeasuredLoad("c=4", measured)], lambda item, counted: system(),
                   Settings(fitted=("c=4",), causes=False), {})
    assert {row.split for row in fitted.rows} == {"fitted"} and fitted.summary() == {}
    assert fitted.reasons == ()


def test_figures_leave_out_what_was_not_measured():
    assert figures_of_run(run()) == {}
