"""Pareto at one speed: settings against every batch tried, frontiers and costs by hand, outputs."""

import json
import math

import pytest
from command_line import typing
from thinned import slow

from specsim.analytic.closed import closed_loop
from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.api.pareto import builder
from specsim.errors import UsageError
from specsim.options.groups import DeploymentOptions as Options
from specsim.options.values import parse_speeds
from specsim.planning.pareto import Axes, ParetoFigures, ParetoPoint, pareto
from specsim.planning.pareto_at import best_at, followed, with_speeds
from specsim.report.paretos import pareto_rows

GIVEN = Options(
    model="llama-3.1-8b", gpu="h100-sxm", method="eagle3", k=3, acceptance_length=2.8
)
BASE = build_request(GIVEN).system
LOAD = Workload(1024, 256)
AXES = Axes((0, 2, 3), (1, 2), ("bf16",), ("bf16",), (1, 4, 16, 64, 128), (8192,))


@pytest.fixture(scope="module")
def study() -> ParetoFigures:
    return pareto(BASE, LOAD, AXES, builder(GIVEN))


@pytest.mark.parametrize(("given", "speeds"), [
    ("50tok/s", [50]), ("20ms", [50]), ("0.02s", [50]), (50, [50]), ("20ms, 10 tok/s", [10, 50]),
    (["100", "50tok/s", "20ms"], [50, 100]), ("1e2", [100]),
])
def test_speeds_are_read(given: str, speeds: list[float]) -> None:
    assert parse_speeds(given) == speeds


@pytest.mark.parametrize("given", [
    "", "x", "0", "-5tok/s", "0ms", "nan", "inf", "1e9", "50 tok", "20us", "50tok/s,", "1e-9", "e",
    ",".join(["5"] * 17),
])
def test_what_is_no_speed_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="--at has"):
        parse_speeds(given)


@pytest.mark.parametrize("speed", [slow(40.0), 100.0, 150.0])
def test_the_best_setting_is_that_of_trying_every_batch(
    study: ParetoFigures, speed: float
) -> None:
    for drafts in (True, False):
        own = [point for point in study.points if bool(point.k) is drafts]
        best = best_at(own, LOAD, speed, AXES.max_num_seqs)
        tried = [
            (state.output_tok_s / point.gpus, point.k, point.tp, count)
            for point in own if point.max_num_seqs == 1
            for count in range(1, 129)
            if (state := closed_loop(
                point.system.with_(max_num_seqs=count), LOAD, count)).stream_tok_s >= speed
        ]
        assert (best is None) is (not tried)
        if best is not None:
            assert best.stream_tok_s >= speed
            # Fewer requests that serve more, below a step of a tile, may have been missed.
            assert 0.97 * max(tried)[0] <= best.gpu_tok_s <= max(tried)[0] * (1 + 1e-9)
            assert (best.gpu_tok_s, best.k, best.tp, best.max_num_seqs) in [
                (pytest.approx(rate), *rest) for rate, *rest in tried
            ]


def point(stream: float, gpu: float, k: int = 0) -> ParetoPoint:
    return ParetoPoint(BASE, k, 1, 1, "bf16", "bf16", 1, 1, stream, gpu, 0.0, 0.0)


def test_a_frontier_is_followed_straight_in_logarithms() -> None:
    front = [point(100, 10), point(50, 40)]
    assert followed(front, 100) == 10 and followed(front, 50) == pytest.approx(40)
    assert followed(front, 100 / math.sqrt(2)) == pytest.approx(20)  # half way in logarithms
    assert followed(front, 20) == 40 and followed(front, 101) == followed([], 5) == 0.0


def test_both_sides_ratio_interval_and_cost(study: ParetoFigures) -> None:
    beyond = 1.05 * study.plain[0].stream_tok_s
    found = with_speeds(study, [60.0, 100.0, beyond, 1e4], price=3.0).at
    slow, middle, fast, never = found
    for item in (slow, middle):
        ours, plain = item.speculative, item.plain
        assert ours is not None and plain is not None and item.ratio_90 is not None
        assert ours.point.k and not plain.point.k
        assert item.ratio == ours.point.gpu_tok_s / plain.point.gpu_tok_s
        low, high = item.ratio_90
        assert low < item.ratio < (math.inf if high is None else high)
        # 3 per hour buy 3600 s of so many tokens.
        tokens = ours.point.gpu_tok_s * 3600
        assert ours.cost.per_million_tokens == pytest.approx(3.0 / tokens * 1e6)
        assert ours.cost.output_tok_s == ours.point.gpu_tok_s * ours.point.gpus
    assert middle.ratio is not None and slow.ratio is not None and middle.ratio > slow.ratio
    assert fast.speculative is not None and fast.plain is None and fast.ratio is None
    assert never.speculative is never.plain is None


def test_the_interval_has_no_end_where_plain_decoding_may_not_get_there(
    study: ParetoFigures,
) -> None:
    fastest = study.plain[0].stream_tok_s
    item = with_speeds(study, [0.97 * fastest]).at[0]
    assert item.ratio_90 is not None and item.ratio_90[1] is None


# --- the command -----------------------------------------------------------------------------

WORDS = ("llama-3.1-8b", "--gpu", "h100-sxm", "--tps", "1", "--ks", "0,3", "--no-plot")


command = typing("pareto")


def test_text_and_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    asked = (*WORDS, "--at", "50tok/s,10ms", "--price-per-gpu-hour", "2")
    text = command(capsys, monkeypatch, *asked)
    assert "at 50 tok/s for each user a GPU serves" in text and "per Mtok" in text
    table = text.split("the best setting of each side")[1].split("what to type")[0]
    assert max(map(len, table.splitlines())) <= 80
    found = json.loads(command(capsys, monkeypatch, *asked, "--json"))
    assert [item["stream_tok_s"] for item in found["at"]] == [50, 100]
    side = found["at"][0]["speculative"]
    assert side["command"].startswith("vllm serve") and side["point"]["k"] == 3
    assert f"--max-num-seqs {side['point']['max_num_seqs']}" in side["command"]
    assert side["cost"]["per_million_output_tokens"] > 0
    assert json.loads(command(capsys, monkeypatch, *WORDS, "--json"))["at"] == []


def test_csv_says_which_points_are_on_a_frontier(study: ParetoFigures) -> None:
    rows = pareto_rows(study)
    assert sum(bool(row["on_frontier"]) for row in rows) == len(study.frontier)
    assert sum(bool(row["on_frontier_of_side"]) for row in rows) == len(
        study.speculative) + len(study.plain)


@pytest.mark.parametrize(("words", "message"), [
    (("--at", "fast"), "--at has 'fast'"),
    (("--at", "50tok/s", "--price-per-gpu-hour", "0"), "above 0"),
    (("--price-per-gpu-hour", "2"), "give --at, too"),
    (("--at", "50tok/s", "--stream-floor", "60"), "--stream-floor leaves out"),
    (("--at", "50tok/s", "--max-ttft", "1e-9"), "none of the"),
])
def test_bad_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...],
    message: str,
) -> None:
    assert message in command(capsys, monkeypatch, *WORDS, *words, code=2)
