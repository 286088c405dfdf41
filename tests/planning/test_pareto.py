"""Pareto: frontiers against brute force, feasibility by reason, shared prices, its outputs."""

import csv
import io
import json
import time
from pathlib import Path

import pytest
from command_line import typing
from hypothesis import given
from hypothesis import strategies as st

from specsim.analytic.closed import closed_loop
from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.api.pareto import builder
from specsim.errors import CapacityError, UsageError
from specsim.options.groups import DeploymentOptions as Options
from specsim.planning.pareto import Axes, ParetoFigures, ParetoPoint, frontier, pareto

QWEN = Options(model="qwen3.6-27b")
BASE = build_request(QWEN).system
LOAD = Workload(1024, 256)
AXES = Axes((0, 1, 3), (1, 2), ("bf16", "fp8"), ("bf16", "fp8"), (1, 16, 64, 512), (2048, 8192))


def run(axes: Axes = AXES, options: Options = QWEN, **more: float) -> ParetoFigures:
    base = build_request(options).system
    return pareto(base, LOAD, axes, builder(options), **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found() -> ParetoFigures:
    return run()


def test_every_combination_is_counted_once(found: ParetoFigures) -> None:
    assert len(found.points) + sum(found.infeasible.values()) == AXES.count == 192
    assert set(found.examples) == set(found.infeasible)


def test_points_are_closed_loops_of_the_deployment_they_name(found: ParetoFigures) -> None:
    for point in found.points[:: len(found.points) // 12]:
        options = Options(
            model="qwen3.6-27b", tp=point.tp, weights=point.weights, kv=point.kv_dtype,
            method="mtp" if point.k else "none", k=point.k or None,
            max_num_seqs=point.max_num_seqs, max_num_batched_tokens=point.max_num_batched_tokens,
        )
        alone = build_request(options).system
        state = closed_loop(alone, LOAD, point.max_num_seqs)
        assert point.gpu_tok_s == pytest.approx(state.output_tok_s / point.tp, rel=1e-9)
        assert point.stream_tok_s == pytest.approx(state.stream_tok_s, rel=1e-9)


def test_pipeline_stages_are_varied_as_a_deployment_has_them() -> None:
    axes = Axes((0, 3), (1, 2), ("bf16",), ("bf16",), (1, 16), (8192,), pp=(1, 2))
    found = run(axes)
    assert axes.count == 16 and {(p.tp, p.pp) for p in found.points} == {
        (1, 1), (1, 2), (2, 1), (2, 2)
    }
    for point in found.points:
        alone = build_request(Options(
            model="qwen3.6-27b", tp=point.tp, pp=point.pp, kv="bf16",
            method="mtp" if point.k else "none", k=point.k or None,
            max_num_seqs=point.max_num_seqs, max_num_batched_tokens=8192,
        )).system
        state = closed_loop(alone, LOAD, point.max_num_seqs)
        assert point.gpu_tok_s == pytest.approx(state.output_tok_s / (point.tp * point.pp))


def test_nobody_beats_the_frontier(found: ParetoFigures) -> None:
    front = found.frontier
    speeds = [p.stream_tok_s for p in front]
    rates = [p.gpu_tok_s for p in front]
    assert speeds == sorted(speeds, reverse=True) and rates == sorted(rates)
    for point in found.points:
        assert any(
            f.stream_tok_s >= point.stream_tok_s and f.gpu_tok_s >= point.gpu_tok_s for f in front
        )
    assert all(p.k for p in found.speculative) and not any(p.k for p in found.plain)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=30))
def test_frontier_is_what_brute_force_finds(pairs: list[tuple[int, int]]) -> None:
    points = [
        ParetoPoint(BASE, 0, 1, 1, "bf16", "bf16", 1, 1, float(a), float(b), 0.0, 0.0)
        for a, b in pairs
    ]
    best = {
        (a, b) for a, b in pairs
        if not any(c >= a and d >= b and (c, d) != (a, b) for c, d in pairs)
    }
    assert [(p.stream_tok_s, p.gpu_tok_s) for p in frontier(points)] == sorted(best, reverse=True)


def test_speculation_is_faster_for_one_user(found: ParetoFigures) -> None:
    assert found.speculative[0].stream_tok_s > 1.5 * found.plain[0].stream_tok_s


def test_reasons_name_what_is_in_the_way() -> None:
    tight = Axes((0, 3), (1, 3), ("bf16",), ("bf16",), (1, 512), (2, 8192))
    reasons = run(tight).infeasible
    assert reasons["the cache holds fewer requests than max_num_seqs"] > 0
    assert reasons["the token budget is below one request's tokens"] > 0
    assert reasons["the model cannot be split over this tp"] == 8
    small = Options(model="qwen3.6-27b", gpu="l40s", weights="fp8")
    axes = Axes((0,), (1,), ("bf16", "fp8"), ("bf16",), (1,), (8192,))
    assert run(axes, small).infeasible == {"the weights do not fit": 1}


def test_limits_of_the_user_leave_points_out(found: ParetoFigures) -> None:
    kept = run(max_ttft_s=0.1, stream_floor_tok_s=60.0)
    assert 0 < len(kept.points) < len(found.points)
    assert all(p.ttft_s <= 0.1 and p.stream_tok_s >= 60 for p in kept.points)
    assert {"TTFT is above --max-ttft", "a stream is slower than --stream-floor"} <= set(
        kept.infeasible
    )
    with pytest.raises(CapacityError, match="none of the 192 combinations"):
        run(stream_floor_tok_s=1e6)


def test_too_many_combinations_are_refused() -> None:
    many = Axes(tuple(range(20)), (1,), ("bf16",), ("bf16",), tuple(range(1, 20_000)), (8192,))
    with pytest.raises(UsageError, match="at most 200000"):
        run(many)


@pytest.mark.slow
def test_thousands_of_points_take_seconds() -> None:
    wide = Axes(
        (0, 1, 2, 3), (1, 2), ("bf16", "fp8"), ("bf16", "fp8"), tuple(range(8, 80, 8)),
        (2048, 4096, 8192),
    )
    start = time.process_time()
    result = run(wide)
    spent_s = time.process_time() - start
    assert len(result.points) > 700
    assert len(result.points) / spent_s > 150, "points per CPU second"


# --- the command ---------------------------------------------------------------------------


command = typing("pareto")


WORDS = ("qwen3.6-27b", "--ks", "0,3", "--tps", "1,2", "--max-num-seqs", "1,16,64,512",
         "--max-num-batched-tokens", "8192")


def test_text_has_the_frontier_commands_and_a_plot(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = command(capsys, monkeypatch, *WORDS)
    assert "vllm serve" in text and "--speculative-config" in text
    assert "with speculation one user gets up to" in text
    assert "cannot run" in text and "the cache holds fewer requests" in text
    assert "Speed for one user against throughput" in text


def test_json_and_csv(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = json.loads(command(capsys, monkeypatch, *WORDS, "--json"))
    assert next(iter(found)) == "kind" and found["kind"] == "pareto"
    assert found["feasible"] + sum(found["infeasible"].values()) == found["combinations"]
    first = found["frontier"][0]
    assert first["command"].startswith("vllm serve") and first["no_command"] is None
    assert f"--max-num-seqs {first['max_num_seqs']}" in first["command"]
    assert "points" not in found
    every = json.loads(command(capsys, monkeypatch, *WORDS, "--json", "--all"))
    assert len(every["points"]) == found["feasible"]
    rows = list(csv.DictReader(io.StringIO(command(capsys, monkeypatch, *WORDS, "--csv"))))
    assert len(rows) == found["feasible"]
    assert sum(row["on_frontier"] == "True" for row in rows) == len(found["frontier"])


def test_one_picture_holds_both_sides(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    svg = tmp_path / "p.svg"
    assert f"plot: {svg}" in command(capsys, monkeypatch, *WORDS, "--plot", str(svg))
    drawn = svg.read_text()
    assert "with speculation" in drawn and ">without<" in drawn


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "a MODEL is needed"),
        (("qwen3.6-27b", "--ks", "1,x"), "--ks has 'x'"),
        (("qwen3.6-27b", "--ks", "-1"), "--ks has -1"),
        (("qwen3.6-27b", "--tps", "0"), "--tps has 0"),
        (("qwen3.6-27b", "--weights", "fp9"), "fp9"),
        (("qwen3.6-27b", "--weights", "bf16,"), "names separated by commas"),
        (("qwen3.6-27b", "--kv", "fp3"), "fp3"),
        (("qwen3.6-27b", "--max-num-seqs", "0"), "--max-num-seqs has 0"),
        (("qwen3.6-27b", "--max-ttft", "0"), "above 0"),
        (("qwen3.6-27b", "--stream-floor", "inf"), "finite"),
        (("qwen3.6-27b", "--plot", "x.gif"), "must end in"),
        (("qwen3.6-27b", "--json", "--csv"), "choose one output"),
        (("qwen3.6-27b", "--all"), "belongs to --json"),
        (("qwen3.6-27b", "--method", "none", "--ks", "0,2"), "no speculation to vary"),
        (("llama-3.1-405b", "--gpu", "l4"), "does not fit"),
    ],
)
def test_bad_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...],
    message: str,
) -> None:
    found = command(capsys, monkeypatch, *words, code=2)
    if message != "does not fit":
        assert message in found


def test_plain_models_have_one_side(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("llama-3.1-8b", "--method", "none", "--tps", "1", "--max-num-seqs", "1,8")
    found = json.loads(command(capsys, monkeypatch, *words, "--json"))
    assert found["axes"]["k"] == [0] and found["frontier_speculative"] == []


def test_another_weight_format_keeps_drafter_and_acceptance() -> None:
    build = builder(Options.of_values({"model": "qwen3-32b"}))
    full, narrow = (build(2, 1, weights, "bf16", 3) for weights in ("bf16", "fp8"))
    assert full.setup == narrow.setup and full.acceptance == narrow.acceptance
    assert not build(2, 1, "fp8", "bf16", 0).speculative


@pytest.mark.slow
def test_stages_are_shown_where_they_are_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("qwen3.6-27b", "--tps", "1,2", "--ks", "0,3", "--max-num-seqs", "1,16", "--no-plot")
    assert " pp " not in command(capsys, monkeypatch, *words)
    out = command(capsys, monkeypatch, *words, "--pps", "1,2")
    assert "pp 1,2" in out and " pp " in out
    command(capsys, monkeypatch, *words, "--pps", "0", code=2)
