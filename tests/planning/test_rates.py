"""Crossover over rates: both sides against predict, crossings against direct evaluation, reasons
against deployments that really lack the part, its outputs."""

import csv
import io
import json
from pathlib import Path

import pytest
from command_line import typing

from specsim.analytic.compare import compared
from specsim.analytic.open import open_loop
from specsim.analytic.predict import predict
from specsim.analytic.swapped import swapped
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.errors import CapacityError, UsageError
from specsim.options.groups import DeploymentOptions as Options
from specsim.planning.crossover import CrossoverFigures
from specsim.planning.rates import MEASURES, STEPS, RateCurve, crossover_rates

LOAD = Workload(1024, 460)


def system(model: str = "llama-3.1-8b", **more: object) -> System:
    given = {"method": "eagle3", "k": 3, "acceptance_length": 2.8, "engine": "sglang", **more}
    return build_request(Options(model=model, **given)).system  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found() -> CrossoverFigures:
    """SGLang runs 48 requests at a time once it speculates, and hundreds else."""
    return crossover_rates(system(), LOAD, [1024], [2.0, 8.0, 16.0])


def curve_of(one: System, load: Workload = LOAD) -> RateCurve:
    return crossover_rates(one, load, [load.input_len], [1.0]).rates[0]


# --- parts exchanged -------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_system_with_all_parts_of_another_is_the_other(engine: str) -> None:
    one = system(engine=engine)
    plain = one.plain()
    for rate in (1.0, 9.0, 30.0):
        assert open_loop(swapped(one), LOAD, rate) == open_loop(one, LOAD, rate)
        mixed = swapped(plain, room=plain, prompts=plain)
        assert open_loop(mixed, LOAD, rate) == open_loop(plain, LOAD, rate)


def test_room_of_the_plain_side_is_what_more_slots_give() -> None:
    """All 682 that the cache of the plain side holds, against a server told to run 600."""
    one = system()
    roomy = open_loop(swapped(one, room=one.plain()), LOAD, 1.0).capacity_rate
    told = open_loop(system(max_num_seqs=600), LOAD, 1.0).capacity_rate
    assert roomy == pytest.approx(told, rel=0.03) and roomy > 1.2 * 14.7


def test_slower_steps_lengthen_decoding_alone() -> None:
    one = system()
    slow, fast = (open_loop(swapped(one, slower=by), LOAD, 0.01) for by in (2.0, 1.0))
    assert slow.tpot_s == pytest.approx(2 * fast.tpot_s, rel=0.02)
    assert slow.ttft_s == pytest.approx(fast.ttft_s, rel=0.02)


# --- curves ----------------------------------------------------------------------------------


def test_points_are_those_of_predict(found: CrossoverFigures) -> None:
    expected = predict(found.system, LOAD, rates=[2.0, 8.0]).points
    for point, other in zip(found.rates[0].points, expected, strict=False):
        assert point.rate == other.request_rate and point.tpot_gain == other.speedup
        assert point.speculative.ttft_s == other.ttft_s
        assert point.plain.ttft_s == other.baseline_ttft_s
        assert point.step_cost_ratio == pytest.approx(other.step_cost_ratio, rel=1e-3)
        # Little's law: requests that run are as many as come while one is served.
        served_s = point.speculative.e2el_s - point.speculative.queue_s
        assert point.speculative.running == pytest.approx(point.rate * served_s, rel=1e-6)
        assert point.speculative.waiting == point.rate * point.speculative.queue_s


def test_beyond_its_capacity_a_side_serves_what_it_can(found: CrossoverFigures) -> None:
    point = found.rates[0].points[-1]
    assert not point.speculative.sustained and point.plain.sustained
    assert point.tpot_gain is point.ttft_gain is None
    assert point.throughput_gain == pytest.approx(found.rates[0].capacity / 16.0)
    assert point.throughput_gain < 0.95


def test_a_crossing_is_where_direct_evaluation_has_it(found: CrossoverFigures) -> None:
    curve = found.rates[0]
    step = curve.plain_capacity / STEPS
    for measure in ("tpot", "ttft", "e2el"):
        rate = curve.crossing(measure).pays_below  # type: ignore[arg-type]
        assert rate is not None
        for at, lost in ((rate - 1.01 * step, False), (rate + 0.01 * step, True)):
            pair = compared(found.system, LOAD, rate=at)
            ours, plain = ({
                "tpot": side.tpot_s, "ttft": side.ttft_s / (1.1 if side is pair.found else 1),
                "e2el": side.ttft_s + 459 * side.tpot_s,
            }[measure] for side in (pair.found, pair.base))
            beyond = at >= curve.capacity
            assert (ours > plain or beyond) is lost, (measure, at)
    assert curve.crossing("capacity").pays_below == curve.capacity < curve.plain_capacity


def test_intervals_hold_their_rate(found: CrossoverFigures) -> None:
    for measure in MEASURES:
        crossing = found.rates[0].crossing(measure)
        assert crossing.pays_below_90 is not None
        low, high = (1e9 if end is None else end for end in crossing.pays_below_90)
        assert low <= (crossing.pays_below or 1e9) <= high


# --- reasons ---------------------------------------------------------------------------------


def test_few_slots_are_the_reason_where_the_engine_keeps_few(found: CrossoverFigures) -> None:
    for measure in ("tpot", "e2el", "capacity"):
        crossing = found.rates[0].crossing(measure)  # type: ignore[arg-type]
        assert crossing.because == "memory"
        assert crossing.without is not None and crossing.without["memory"] is None
    # Told to run more, the same server pays at all rates.
    assert curve_of(system(max_num_seqs=600)).crossing("capacity").pays_below is None


def test_steps_are_the_reason_where_they_cost_more_than_they_yield() -> None:
    useless = curve_of(system(acceptance_length=1.05, max_num_seqs=200))
    for measure in ("tpot", "e2el", "capacity"):
        crossing = useless.crossing(measure)  # type: ignore[arg-type]
        assert crossing.because == "steps", measure
    assert useless.crossing("tpot").pays_below == 0.0


def test_prompts_are_the_reason_where_nearly_all_is_prompt() -> None:
    """Two output tokens, a drafter that reads 8,000 prompt tokens as well."""
    load = Workload(8000, 8)
    crossing = curve_of(system(max_num_seqs=8), load).crossing("capacity")
    assert crossing.because == "prompts"
    lookup = system(method="ngram", max_num_seqs=8)  # which reads none
    other = curve_of(lookup, load).crossing("capacity")
    assert other.pays_below is None or other.because != "prompts"


@pytest.mark.slow
def test_simulated_queues_grow_between_both_capacities() -> None:
    import specsim

    run = specsim.simulate(
        "llama-3.1-8b", engine="sglang", rate=16.0, requests=2000, method="eagle3", k=3,
        acceptance_length=2.8,
    ).to_dict()
    capacity = curve_of(system()).capacity  # of formulas alone
    assert run["request_rate"] == pytest.approx(capacity, rel=0.02)
    gain = run["gain"]
    assert isinstance(gain, dict) and gain["ttft_p95"] < 0.1, gain


# --- the command -----------------------------------------------------------------------------

WORDS = ("llama-3.1-8b", "--engine", "sglang", "--no-plot")


command = typing("crossover")


def test_text_json_and_csv(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = command(capsys, monkeypatch, *WORDS, "--rates", "auto")
    assert "memory: fewer requests run" in text and "grows" in text
    table = text.split("because of: ")[0].split("prompts of 1024")[1]
    assert max(map(len, table.splitlines())) <= 80
    document = json.loads(command(capsys, monkeypatch, *WORDS, "--rates", "1,16", "--json"))
    assert document["kind"] == "crossover" and document["curves"] == []
    assert document["verdict"]["unit"] == "requests/s"
    curve = document["rates"][0]
    assert [c["measure"] for c in curve["crossings"]] == list(MEASURES)
    assert curve["points"][1]["speculative"]["ttft_s"] is None  # the queue grows without end
    rows = list(csv.DictReader(io.StringIO(
        command(capsys, monkeypatch, *WORDS, "--rates", "1,16", "--csv"))))
    assert [row["rate"] for row in rows] == ["1.0", "16.0"]
    assert rows[1]["speculative_sustained"] == "False"


@pytest.mark.slow
def test_a_plot_has_the_queues(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    svg = tmp_path / "a.svg"
    command(capsys, monkeypatch, *WORDS, "--rates", "1,9,16", "--plot", str(svg))
    assert "Time to first token, queue included" in svg.read_text()


@pytest.mark.parametrize(("words", "message"), [
    (("--rates", "0"), "above 0 requests per second"),
    (("--rates", "auto,1"), "--rates has 'auto'"),
    (("--rates", "nan"), "finite numbers"),
    (("--rates", "1", "--max-concurrency", "4"), "give one of them"),
    (("--rates", "1", "--ttft-slack", "-1"), "from 0 to 100"),
    (("--rates", "1", "--method", "none"), "no speculation to compare"),
    (("--rates", "1", "--contexts", "99999k"), "--contexts has"),
])
def test_bad_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...],
    message: str,
) -> None:
    assert message in command(capsys, monkeypatch, *WORDS, *words, code=2)


def test_a_length_that_does_not_fit_is_told_and_the_others_stay() -> None:
    result = crossover_rates(system(), LOAD, [1024, 9_000_000], [1.0])
    assert result.rates[0].points and "GB of cache" in (result.rates[1].error or "")
    with pytest.raises(CapacityError):
        crossover_rates(system(), LOAD, [9_000_000])
    with pytest.raises(UsageError, match="contexts are given"):
        crossover_rates(system(), LOAD, [])
