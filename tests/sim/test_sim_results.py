"""Figures of a run, censoring, objectives, files, streaming, replications, interruption."""

import csv
import json
import math
import statistics

import numpy as np
import pytest

from sim_costs import Linear, config, plain_requests
from specsim.errors import UsageError
from specsim.report.export_rows import write_rows
from specsim.sim import distributions
from specsim.sim.arrivals import gamma_times
from specsim.sim.compare import middle_of
from specsim.sim.distributions import LogHistogram
from specsim.sim.export import write_chrome_trace
from specsim.sim.figures import Figures
from specsim.sim.intervals import mean_of_runs, median_interval
from specsim.sim.lengths import Uniform
from specsim.sim.loads import ClosedLoop, OpenLoop, requests_of
from specsim.sim.passing import worst_gate
from specsim.sim.run import simulate
from specsim.sim.slo import AT_LEAST, COMPUTED, RATES, TOTALS, canonical, judge, parse_slo
from specsim.sim.summary import merged_timeline
from specsim.speculation.acceptance import Acceptance


def load(rate=20.0, count=200, seed=1):
    return OpenLoop(
        requests_of(gamma_times(rate, seed), Uniform(5, 300), Uniform(1, 80), seed, limit=count),
        total=count,
    )


SPECULATING = {"k": 3, "acceptance": Acceptance.from_rate(0.7, 3)}


def test_summary_has_every_figure_and_plain_types():
    summary = simulate(config(**SPECULATING), load(), Linear()).summary()
    for name in ("ttft_s", "tpot_s", "itl_s", "itl_per_token_s", "e2el_s"):
        assert list(summary[name]) == ["mean", "p50", "p90", "p95", "p99"]
    for name in (
        "stream_tok_s", "output_tok_s", "request_rate", "running_mean", "running_max",
        "waiting_max", "kv_usage_max", "preemptions", "prefix_hit_rate", "acceptance_length",
        "steps", "slo",
    ):
        assert name in summary
    assert json.loads(json.dumps(summary)) == summary
    # Goodput comes with objectives; what several runs make of the trends is `stationarity`.
    assert set(summary) == Figures.__required_keys__ | {"trend"}


def test_per_chunk_and_per_token_gaps_are_two_views_of_the_same_time():
    """The mean gap per token is the mean over all tokens behind the first: total stream time over
    tokens. Per chunk it is larger by the tokens per chunk. The 0 s gaps inside chunks are real."""
    result = simulate(config(**SPECULATING), load(), Linear())
    summary = result.summary()
    records = result.records
    tokens = records.ints("output_tokens")
    chunks = records.ints("chunks")
    stream = (records.times("last_token_s") - records.times("first_token_s")).sum()
    assert summary["itl_s"]["mean"] == pytest.approx(stream / (chunks - 1).sum(), rel=1e-9)
    assert summary["itl_per_token_s"]["mean"] == pytest.approx(
        stream / (tokens - 1).sum(), rel=1e-9
    )
    assert summary["itl_per_token_s"]["p50"] == 0.0
    assert summary["itl_s"]["p50"] > 0.0


def test_percentiles_of_records_are_numpys():
    result = simulate(config(), load(), Linear())
    records = result.records
    ttft = records.times("first_token_s") - records.times("arrival_s")
    summary = result.summary()
    assert summary["ttft_s"]["p95"] == pytest.approx(np.percentile(ttft, 95), rel=1e-12)
    assert summary["ttft_s"]["mean"] == pytest.approx(ttft.mean(), rel=1e-12)
    assert summary["output_tok_s"] == pytest.approx(
        records.ints("output_tokens").sum() / records.times("end_s").max(), rel=1e-12
    )


def test_conservation_in_a_run_that_is_cut():
    """Arrived = finished + unfinished; tokens out = sum of what clients received."""
    cfg = config(max_num_seqs=4, duration_s=3.0, **SPECULATING)
    result = simulate(cfg, load(40.0, 1000), Linear(0.02))
    requests = result.summary()["requests"]
    assert requests["arrived"] == requests["finished"] + requests["unfinished"] == len(
        result.records
    )
    assert requests["unfinished"] > 10
    assert result.cluster.tokens == result.records.ints("output_tokens").sum()
    assert result.window.end_s == 3.0


def test_warm_up_is_served_but_not_measured():
    full = simulate(config(duration_s=10.0), load(20.0, 400), Linear())
    late = simulate(config(duration_s=10.0, warmup_s=4.0), load(20.0, 400), Linear())
    assert [r.end_s for r in full.records] == [r.end_s for r in late.records]
    measured = late.summary()["requests"]["measured"]
    assert measured == sum(record.arrival_s >= 4.0 for record in full.records)
    tokens = sum(
        1 for r in full.records if r.output_tokens and (r.last_token_s or 0) >= 4.0
    )
    assert tokens > 0
    assert late.window.seconds == 6.0
    # Every token is given out either before or after the warm-up.
    early = full.cluster.tokens - late.window.tokens
    assert 0 < early < full.cluster.tokens


def test_waiting_requests_are_censored_not_dropped():
    """One slot, requests of 1 s, ten at once: at 3.5 s three have ended, the fourth has its first
    token, six wait. Dropping them would give a median TTFT of about 1 s."""
    cfg = config(max_num_seqs=1, duration_s=3.5)
    requests = plain_requests(*[(0.0, 1, 100)] * 10)
    summary = simulate(cfg, OpenLoop(requests), Linear(0.010)).summary()
    assert summary["ttft_s"]["censored"] == 6
    assert summary["ttft_s"]["p50"] is None  # more than half had waited longer than all we saw
    assert summary["queue_s"]["censored"] == 6
    assert summary["requests"]["unfinished"] == 7


def test_product_limit_estimate_by_hand():
    """Observed 1, 3, 4; censored at 2 and 5. S(1) = 4/5; at 3 three are at risk: 4/5 x 2/3; at 4
    two: x 1/2."""
    observed, censored = np.array([1.0, 3.0, 4.0]), np.array([2.0, 5.0])
    times, lasting = distributions.survival_curve(observed, censored)
    assert times.tolist() == [1.0, 3.0, 4.0]
    assert lasting == pytest.approx([0.8, 0.8 * 2 / 3, 0.8 * 2 / 3 / 2])
    assert distributions.percentile(observed, censored, 20) == 1.0
    assert distributions.percentile(observed, censored, 50) == 4.0
    assert distributions.percentile(observed, censored, 90) is None
    area = 1 * 1.0 + 2 * 0.8 + 1 * 0.8 * 2 / 3 + 1 * 0.8 / 3
    assert distributions.mean(observed, censored) == pytest.approx(area)
    assert distributions.mean(np.empty(0), np.empty(0)) is None


def test_histogram_percentiles_are_within_a_thousandth():
    generator = np.random.default_rng(3)
    values = generator.lognormal(-3, 1.5, size=50_000)
    histogram = LogHistogram()
    histogram.add_many(values[:30_000])
    histogram.add_many(values[30_000:30_100])
    other = LogHistogram()
    other.add_many(values[30_100:], np.ones(len(values) - 30_100, dtype=np.int64))
    histogram.merge(other)
    for percent in (10, 50, 95, 99.9):
        exact = np.percentile(values, percent, method="inverted_cdf")
        assert histogram.percentile(percent) == pytest.approx(exact, rel=1e-3)
    assert histogram.mean() == pytest.approx(values.mean(), rel=1e-9)
    assert histogram.percentile(40, zeros=50_000) == 0.0
    assert LogHistogram().percentile(50) is None


def test_stalls_are_gaps_beyond_the_limit():
    """B is preempted from 50 to 90 ms: with a stall limit of 30 ms that is one stall, of B."""
    cfg = config(num_kv_blocks=5, block_size=4, stall_s=0.03)
    result = simulate(cfg, OpenLoop(plain_requests((0.0, 4, 8), (0.0, 4, 8))), Linear())
    a, b = sorted(result.records, key=lambda record: record.request_id)
    assert (a.stalls, b.stalls) == (0, 1)
    assert result.summary()["stall_rate"] == 0.5


def test_slow_steps_stall_every_stream_in_them():
    """A prompt of 4,000 tokens takes 4 s in one step: the stream beside it stalls once."""
    cfg = config(max_num_batched_tokens=8192)
    requests = plain_requests((0.0, 10, 300), (1.0, 4000, 2))
    result = simulate(cfg, OpenLoop(requests), Linear(0.010, token=0.001))
    stream, _ = sorted(result.records, key=lambda record: record.request_id)
    assert stream.stalls == 1
    assert result.summary()["itl_s"]["p99"] < 0.02


def test_time_shares_sum_to_one():
    cost = Linear(0.004, 1e-4, 1e-5, 0, 1e-3)
    summary = simulate(config(**SPECULATING), load(), cost).summary()
    shares = summary["time_share"]
    assert set(shares) == {"verify", "decode", "prefill", "idle"} or set(shares) == {
        "verify", "prefill", "idle"
    }
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("duration", [0.35, 1.0, 2.5, math.inf])
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_step_in_progress_at_the_end_counts_up_to_it(duration, replicas):
    """Steps of 0.3 s and more: shares sum to 1, and means lie within their extremes."""
    cfg = config(n_replicas=replicas, duration_s=duration, num_kv_blocks=200, **SPECULATING)
    summary = simulate(cfg, load(rate=200.0, count=60), Linear(0.3, 1e-3, 1e-3)).summary()
    assert sum(summary["time_share"].values()) == pytest.approx(1.0, abs=1e-9)
    for what in ("running", "waiting", "kv_usage"):
        assert 0 <= summary[f"{what}_mean"] <= summary[f"{what}_max"] * (1 + 1e-9)
    assert summary["kv_usage_max"] <= 1


def test_time_shares_follow_the_parts_of_the_cost():
    class Split(Linear):
        def parts(self, shape):
            whole = self.seconds(shape)
            draft = self.draft * shape.num_drafts
            prefill = self.token * shape.prefill_tokens
            return {"draft": draft, "prefill": prefill, "verify": whole - draft - prefill}

    cost = Split(0.004, 1e-4, 1e-5, 0.0, 1e-3)
    result = simulate(config(**SPECULATING), load(), cost)
    summary = result.summary()
    busy = 1.0 - summary["time_share"]["idle"]
    # Three drafts in (nearly) every step: 3 ms of each.
    expected = 0.003 * summary["steps"] / result.window.seconds
    assert summary["time_share"]["draft"] == pytest.approx(expected, rel=0.05)
    parts = sum(summary["time_share"][name] for name in ("draft", "prefill", "verify"))
    assert parts == pytest.approx(busy, rel=1e-9)


def test_scaling_all_times_scales_all_figures():
    requests = list(
        requests_of(gamma_times(20.0, 4), Uniform(5, 200), Uniform(2, 60), 4, limit=150)
    )
    slow = [request._replace(arrival_s=request.arrival_s * 8) for request in requests]
    cost = Linear(0.005, 1e-4, 1e-5)
    cost8 = Linear(0.040, 8e-4, 8e-5)
    one = simulate(config(max_num_seqs=8), OpenLoop(requests), cost).summary()
    eight = simulate(config(max_num_seqs=8), OpenLoop(slow), cost8).summary()
    for name in ("ttft_s", "tpot_s", "e2el_s", "queue_s"):
        assert eight[name]["p95"] == pytest.approx(8 * one[name]["p95"], rel=1e-9)
    assert eight["output_tok_s"] == pytest.approx(one["output_tok_s"] / 8, rel=1e-9)
    assert eight["steps"] == one["steps"]


def test_timeline_adds_up_to_the_run():
    result = simulate(config(n_replicas=2), load(), Linear())
    timeline = merged_timeline(result.cluster)
    sums = dict(zip(timeline.FIELDS, timeline.area.sum(axis=1), strict=True))
    assert sums["tokens"] == pytest.approx(result.cluster.tokens)
    busy = sum(replica.stats.busy_s for replica in result.cluster.replicas)
    assert sums["busy"] == pytest.approx(busy, rel=1e-9)
    running = result.summary()["running_mean"] * result.window.seconds
    assert sums["running"] == pytest.approx(running, rel=1e-9)


def test_timeline_halves_its_resolution_on_long_runs():
    requests = plain_requests(*[(50.0 * i, 5, 5) for i in range(200)])
    result = simulate(config(), OpenLoop(requests), Linear())
    timeline = merged_timeline(result.cluster)
    assert timeline.width_s == 16.0
    assert timeline.area[timeline.FIELDS.index("tokens")].sum() == pytest.approx(1000)


# --- objectives -------------------------------------------------------------------------------


def test_gates_are_judged_with_value_and_limit():
    gates = parse_slo("ttft_p95=2, stream_tok_s_p10=15, e2e_p95=0.001, error_rate=0.01")
    summary = simulate(config(slo=gates), load(), Linear()).summary()
    verdict = summary["slo"]
    assert verdict["ttft_p95"]["pass"] and verdict["stream_tok_s_p10"]["pass"]
    assert verdict["e2el_p95"] == {
        "value": summary["e2el_s"]["p95"], "limit": 0.001, "pass": False
    }
    assert verdict["pass"] is False
    assert summary["goodput"] == 0.0


def test_goodput_counts_requests_that_meet_every_limit():
    gates = {"ttft_p95": 0.030}
    result = simulate(config(max_num_seqs=4, slo=gates), load(30.0), Linear(0.010, 1e-3))
    good = sum((record.ttft_s or 9) <= 0.030 for record in result.records)
    assert 0 < good < 200
    assert result.summary()["goodput"] == pytest.approx(good / result.window.seconds)


def test_rates_are_of_one_population():
    """What the warm-up sent and the measured time finishes counts in the rate and the goodput."""
    gates = {"ttft_p95": 1e6, "tpot_p95": 1e6, "e2el_p95": 1e6, "queue_p95": 1e6}
    # twelve requests of two seconds each: of those sent before 3 s some finish after it
    requests = plain_requests(*[(0.5 * i, 5, 200) for i in range(12)])
    summary = simulate(
        config(slo=gates, warmup_s=3.0), OpenLoop(requests), Linear(0.010, 0.0)
    ).summary()
    late = summary["requests"]["finished"] / (summary["window_s"][1] - summary["window_s"][0])
    assert summary["goodput"] == summary["request_rate"] > 1.2 * late


def test_every_gate_that_is_accepted_is_computed():
    names = [f"{m}_{s}" for m, some in COMPUTED.items() for s in some] + [*RATES, *TOTALS]
    easy = {name: 0.0 if name.startswith(AT_LEAST) else 1e6 for name in names}
    judged = simulate(config(slo=easy), load(), Linear()).summary()["slo"]
    assert judged["pass"] is True and len(judged) == len(names) + 1 == 34
    assert all(isinstance(judged[name]["value"], float) for name in names)
    # and none besides: whatever else looks like a gate is refused where it is written
    every = {f"p{q}" for q in range(100)} | {"mean", "min", "max"}
    for metric, some in COMPUTED.items():
        for other in every - set(some):
            with pytest.raises(UsageError, match="is not known"):
                canonical(f"{metric}_{other}")


def test_answers_of_one_token_have_no_pace_to_fall_short_of():
    gates = {"tpot_p95": 0.1, "itl_p99": 0.1, "stream_tok_s_p10": 20.0}
    one = OpenLoop(plain_requests(*[(float(i), 5, 1) for i in range(20)]))
    summary = simulate(config(slo=gates), one, Linear()).summary()
    assert summary["slo"]["pass"] is True and summary["goodput"] == summary["request_rate"] > 0
    assert summary["slo"]["tpot_p95"] == {"value": None, "limit": 0.1, "pass": True}
    assert worst_gate(summary["slo"])[1] > 0
    # where nothing finished, nobody knows of a pace
    none = {"tpot_s": {"p95": None}, "requests": {"finished": 0}}
    assert judge({"tpot_p95": 0.1}, none)["pass"] is False


def test_a_figure_out_of_reach_fails_its_gate():
    summary = {"ttft_s": {"p95": None}, "error_rate": 0.0}
    assert judge({"ttft_p95": 5.0}, summary)["pass"] is False


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ttft_p95", "has no limit"),
        ("ttft_p95=fast", "is not a number"),
        ("tftt_p95=1", "did you mean 'ttft_p95'"),
        ("ttft_p42=1", "is not known"),
        ("ttft_p10=1", "ttft has mean, p50, p90, p95, p99"),
        ("stream_tok_s_p99=1", "stream_tok_s has mean, p10, p50, p90"),
        ("ttft_p95=-1", "must be a number, 0 or more"),
    ],
)
def test_broken_gates_are_named(text, words):
    with pytest.raises(UsageError, match=words):
        parse_slo(text)


@pytest.mark.parametrize(("bare", "meant"), [
    ("ttft", "ttft_p95"), ("itl_s", "itl_p95"), ("stream_tok_s", "stream_tok_s_p10"),
])
def test_a_bare_metric_is_answered_with_the_statistic_of_most_requests(bare, meant):
    with pytest.raises(UsageError, match=f"did you mean '{meant}'"):
        canonical(bare)


def test_gates_have_one_spelling():
    assert canonical("ttft_s_p95") == canonical("ttft_p95") == "ttft_p95"
    assert canonical("e2e_p95") == canonical("e2el_s_p95") == "e2el_p95"
    assert canonical("stream_tok_s_p10") == canonical("tok_s_p10") == "stream_tok_s_p10"


# --- files ------------------------------------------------------------------------------------


def test_records_to_json_lines_and_csv(tmp_path):
    result = simulate(config(**SPECULATING), load(count=30), Linear())
    write_rows((record.to_dict() for record in result.records), tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows == [record.to_dict() for record in result.records]
    write_rows((record.to_dict() for record in result.records), tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == 30
    assert float(table[3]["first_token_s"]) == result.records[3].first_token_s


def test_chrome_trace_holds_every_step_and_request(tmp_path):
    result = simulate(config(**SPECULATING), load(count=30), Linear(), keep_trace=True)
    write_chrome_trace(result.cluster, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    steps = [e for e in events if e["ph"] == "X" and e["tid"] == 0]
    assert len(steps) == result.summary()["steps"]
    assert sum(e["args"]["tokens_out"] for e in steps) == result.cluster.tokens
    assert sum(e.get("cat") == "decode" for e in events) == 30
    ends = [e["ts"] + e["dur"] for e in steps]
    assert all(e["ts"] >= end - 1e-6 for end, e in zip(ends, steps[1:], strict=False))


def test_trace_needs_a_run_that_kept_its_steps(tmp_path):
    result = simulate(config(), load(count=3), Linear())
    with pytest.raises(UsageError, match="keep_trace"):
        write_chrome_trace(result.cluster, tmp_path / "trace.json")


# --- progress, interruption, intervals -----------------------------------------------------


def test_interrupted_run_gives_what_there_is(monkeypatch):
    class Impatient:
        calls = 0

        def seconds(self, shape):
            Impatient.calls += 1
            if Impatient.calls == 200:
                raise KeyboardInterrupt
            return 0.01

    result = simulate(config(exact_cost=True), load(), Impatient())
    summary = result.summary()
    assert result.partial and summary["partial"] is True
    assert summary["requests"]["finished"] > 0
    assert summary["requests"]["unfinished"] > 0


def test_progress_is_reported(monkeypatch):
    from specsim.sim import run

    monkeypatch.setattr(run, "PROGRESS_EVERY_S", 0.0)
    seen = []
    simulate(config(), load(count=300), Linear(), progress=seen.append)
    shares = [progress.share for progress in seen]
    assert shares == sorted(shares) and 0.0 < shares[0] < shares[-1] <= 1.0
    assert seen[-1].now_s > 1.0


def test_mean_of_runs_has_the_t_interval():
    """1, 2, 3: mean 2, s = 1, t(0.975, 2) = 4.30265."""
    found = mean_of_runs([1.0, 2.0, 3.0])
    assert found.half_width == pytest.approx(4.30265 / math.sqrt(3), rel=1e-4)
    assert mean_of_runs([5.0]).half_width == math.inf


@pytest.mark.parametrize("values", [[0.1, 3.0], [0.0, 0.0, 5.0], [1.0, 1.0, 1.0, 1.0, 90.0],
                                    [0.9, 0.2, 0.9, 0.1]])
def test_intervals_hold_the_median_and_stay_in_the_range_of_the_figure(values):
    low, high = median_interval(values)
    assert 0 <= low <= statistics.median(values) <= high
    assert median_interval([-1.0, *values])[0] < 0
    shares = [value / 100 for value in values]
    assert median_interval(shares, 1.0)[1] <= 1


def test_parts_of_several_runs_sum_to_one():
    runs = [simulate(config(**SPECULATING), load(seed=i), Linear(0.004, 1e-4, 1e-5, 0, 1e-3)
                     ).summary() for i in range(4)]
    assert sum(middle_of(runs)["time_share"].values()) == pytest.approx(1.0, abs=1e-9)


def test_closed_loop_speedup_is_tokens_per_step_over_cost_ratio():
    """At a fixed batch, throughput rises by AL / r: 2.53 tokens per step for 1.6 times the time."""
    requests = list(requests_of(iter(np.zeros(200)), 1, 400, 0, limit=200))
    spec = config(max_num_seqs=16, **SPECULATING)
    fast = simulate(spec, ClosedLoop(requests, 16), Linear(0.010, draft=0.002)).summary()
    slow = simulate(
        config(max_num_seqs=16), ClosedLoop(requests, 16), Linear(0.010)
    ).summary()
    expected = (1 + 0.7 + 0.49 + 0.343) / 1.6
    assert fast["output_tok_s"] / slow["output_tok_s"] == pytest.approx(expected, rel=0.02)


def test_the_calendar_of_outside_events_does_not_grow():
    """Loops that listen never ask what comes next; what is past is forgotten all the same."""
    from specsim.sim.clock import Clock

    clock = Clock()
    for i in range(1000):
        clock.call_at(0.001 * i, lambda: None)
        clock.step()
    assert len(clock._calendar) <= 2
    assert clock.next_outside_s() == math.inf
