"""Crossover: its limits against direct evaluation, utilisation against hand counts, its outputs."""

import csv
import io
import json
from itertools import pairwise
from pathlib import Path

import pytest
from command_line import typing

from specsim.analytic.closed import closed_loop
from specsim.analytic.predict import break_even, predict
from specsim.analytic.system import System
from specsim.analytic.utilisation import served_utilisation, step_utilisation
from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.errors import CapacityError, UsageError
from specsim.model.counts import weight_bytes
from specsim.options.groups import DeploymentOptions as Options
from specsim.options.values import parse_contexts
from specsim.planning.crossover import CrossoverFigures, crossover, grid_to

LOAD = Workload(1024, 256)


def system(model: str = "llama-3.1-8b", **more: object) -> System:
    given = {"method": "eagle3", "k": 3, "acceptance_length": 2.5, **more}
    return build_request(Options(model=model, **given)).system  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found() -> CrossoverFigures:
    return crossover(system(), LOAD, [1024, 8192])


# --- the curves ----------------------------------------------------------------------------


def test_both_sides_are_the_closed_loops_of_predict(found: CrossoverFigures) -> None:
    point = next(p for p in found.curves[0].points if p.concurrency == 64)
    expected = predict(found.system, LOAD, [64]).points[0]
    assert point.speedup == expected.speedup
    assert point.step_cost_ratio == pytest.approx(expected.step_cost_ratio, rel=1e-12)
    assert point.speculative.itl_s == expected.itl_s
    assert point.plain.tpot_s == point.plain.itl_s == expected.baseline_tpot_s
    assert list(point.speedup_90 or ()) == (expected.interval_90["speedup"] or [])
    state = closed_loop(found.system, LOAD, 64)
    # A request runs as long as clients divided by their rate.
    assert point.speculative.e2el_s == pytest.approx(64 / state.request_rate, rel=0.02)


def test_break_even_is_that_of_predict_and_lies_in_its_interval(found: CrossoverFigures) -> None:
    for curve in found.curves:
        load = Workload(curve.context, LOAD.output_len)
        assert curve.break_even_concurrency == break_even(found.system, load, curve.max_concurrency)
        assert curve.break_even_90 is not None
        low, high = (c or 10**9 for c in curve.break_even_90)
        assert low <= (curve.break_even_concurrency or 10**9) <= high


def test_cheap_end_is_where_the_ratio_passes_the_share(found: CrossoverFigures) -> None:
    curve = found.curves[0]
    by_concurrency = {p.concurrency: p.step_cost_ratio for p in curve.points}
    end = curve.cheap_until
    assert end is not None
    for concurrency, ratio in by_concurrency.items():
        if concurrency < end:
            assert ratio <= 1 + found.cheap_share
    later = crossover(found.system, LOAD, [1024], cheap_share=found.cheap_share * 2).curves[0]
    assert later.cheap_until is None or later.cheap_until >= end


def test_verify_leaves_the_memory_bound_region_before_plain_decoding_does(
    found: CrossoverFigures,
) -> None:
    assert found.curves[0].ridge is not None
    for curve in found.curves:
        if curve.ridge is None:
            # Long contexts: reading the cache outweighs the products at any batch.
            assert curve.plain_ridge is None and curve.context > 1024
            continue
        assert curve.plain_ridge is None or curve.ridge <= curve.plain_ridge
        load = Workload(curve.context, LOAD.output_len)
        for concurrency, above in ((curve.ridge - 1, False), (curve.ridge, True)):
            if concurrency:
                shape = found.system.decode_shape(concurrency, load.mean_context)
                step = found.system.latency.step(shape)
                assert (step.compute_s > step.memory_s) is above


def test_free_speculation_never_stops_paying_and_useless_one_never_starts() -> None:
    good = crossover(system(acceptance_length=4.0), Workload(1024, 256), [1024], 8).curves[0]
    assert good.break_even_concurrency is None and good.points[0].speedup > 1.5
    bad = crossover(system(acceptance_length=1.0), Workload(1024, 256), [1024], 8).curves[0]
    assert bad.break_even_concurrency == 1


def test_a_context_that_does_not_fit_is_told_and_the_others_stay() -> None:
    short = system(gpu="l4", weights="fp8")
    result = crossover(short, Workload(512, 128), [512, 4_000_000])
    assert result.curves[0].points and result.curves[0].error is None
    assert not result.curves[1].points and "GB of cache" in (result.curves[1].error or "")
    with pytest.raises(CapacityError):
        crossover(short, Workload(512, 128), [4_000_000])


def test_no_speculation_is_refused() -> None:
    plain = build_request(Options(model="llama-3.1-8b", method="none")).system
    with pytest.raises(UsageError, match="no speculation"):
        crossover(plain, LOAD, [1024])


@pytest.mark.parametrize("limit", [1, 2, 3, 48, 1000])
def test_the_grid_has_both_ends_and_no_gaps(limit: int) -> None:
    grid = grid_to(limit)
    assert grid[0] == 1 and grid[-1] == limit and grid == sorted(set(grid))
    assert all(b / a <= 2 for a, b in pairwise(grid))


# --- utilisation ---------------------------------------------------------------------------


def test_a_small_decode_step_moves_its_weights_once() -> None:
    plain = system(fidelity="datasheet").plain()
    shape = plain.decode_shape(1, 100.0)
    asked = plain.latency.demand(shape)
    spec = plain.spec
    embedding = spec.vocab * spec.hidden * 2  # looked up, not streamed
    weights = weight_bytes(spec).text - embedding
    assert asked.bytes == pytest.approx(weights, rel=0.01)
    flops = 2 * weights / 2  # a multiply-add per weight of two bytes
    assert asked.peak_s * plain.profile.flops["bf16"] == pytest.approx(flops, rel=0.02)
    shares = step_utilisation(plain, shape)
    # The plain roofline has no losses: almost all of the step streams.
    assert 0.97 < shares.bandwidth <= 1.0
    assert shares.compute == pytest.approx(asked.peak_s / plain.latency.seconds(shape))


def test_long_answers_use_the_device_as_their_decode_steps_do() -> None:
    loaded = system()
    load = Workload(16, 4096)
    state = closed_loop(loaded, load, 16)
    served = served_utilisation(loaded, load, state)
    step = step_utilisation(loaded, loaded.decode_shape(16, load.mean_context))
    assert served.bandwidth == pytest.approx(step.bandwidth, rel=0.02)
    assert served.compute == pytest.approx(step.compute, rel=0.03)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("concurrency", [1, 16, 256])
@pytest.mark.parametrize("prompt", [64, 20_000])
def test_shares_stay_within_the_device(engine: str, concurrency: int, prompt: int) -> None:
    loaded = system(engine=engine)
    load = Workload(prompt, 64)
    for side in (loaded, loaded.plain()):
        shares = served_utilisation(side, load, closed_loop(side, load, concurrency))
        assert 0 < shares.bandwidth < 1 and 0 < shares.compute < 1


def test_prompts_raise_the_share_of_arithmetic_and_batches_too() -> None:
    plain = system().plain()

    def compute(prompt: int, concurrency: int) -> float:
        load = Workload(prompt, 128)
        return served_utilisation(plain, load, closed_loop(plain, load, concurrency)).compute

    assert compute(8192, 8) > compute(64, 8)
    assert compute(64, 64) > compute(64, 8)


# --- the command ---------------------------------------------------------------------------


command = typing("crossover")


QWEN = ("qwen3.6-27b", "--contexts", "1k,8k")


def test_text_has_answers_tables_and_a_plot(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = command(capsys, monkeypatch, *QWEN)
    assert "pays below" in text and "prompts of 8192 tokens" in text
    assert "What speculation gains" in text and "break-even" in text
    assert max(map(len, text.split("What speculation gains")[1].splitlines())) <= 110
    assert "What speculation gains" not in command(capsys, monkeypatch, *QWEN, "--no-plot")


def test_json_and_csv(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = json.loads(command(capsys, monkeypatch, *QWEN, "--json"))
    assert next(iter(found)) == "kind" and found["kind"] == "crossover"
    assert [curve["context"] for curve in found["curves"]] == [1024, 8192]
    point = found["curves"][0]["points"][0]
    assert {"speedup", "accepted_share", "speculative", "plain"} <= set(point)
    assert {"itl_s", "e2el_s", "output_tok_s", "bandwidth_share"} <= set(point["plain"])
    assert found["command"].startswith("specsim crossover qwen3.6-27b")
    rows = list(csv.DictReader(io.StringIO(command(capsys, monkeypatch, *QWEN, "--csv"))))
    assert len(rows) == sum(len(curve["points"]) for curve in found["curves"])
    assert float(rows[0]["plain_itl_s"]) == point["plain"]["itl_s"]


@pytest.mark.slow
def test_a_plot_holds_all_panels(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    svg = tmp_path / "a.svg"
    assert f"plot: {svg}" in command(capsys, monkeypatch, *QWEN, "--plot", str(svg))
    drawn = svg.read_text()
    for words in ("What speculation gains", "What a step costs", "End-to-end latency", "8k, plain"):
        assert words in drawn


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("qwen3.6-27b", "--contexts", "1k,x"), "--contexts has 'x'"),
        (("qwen3.6-27b", "--contexts", ""), "--contexts has ''"),
        (("qwen3.6-27b", "--contexts", "0"), "from 1 to"),
        (("qwen3.6-27b", "--contexts", "1.5"), "token counts"),
        (("qwen3.6-27b", "--contexts", "1k", "--input-len", "5"), "give one of them"),
        (("qwen3.6-27b", "--max-concurrency", "0"), "from 1 to 100000"),
        (("qwen3.6-27b", "--cheap-share", "0"), "above 0"),
        (("qwen3.6-27b", "--cheap-share", "nan"), "above 0"),
        (("qwen3.6-27b", "--plot", "x.pdf"), "must end in .svg or .png"),
        (("qwen3.6-27b", "--plot", "/dev/null/x.svg"), "which is no folder"),
        (("qwen3.6-27b", "--json", "--csv"), "choose one output"),
        (("qwen3.6-27b", "--method", "none"), "no speculation"),
        ((), "a MODEL is needed"),
    ],
)
def test_bad_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...],
    message: str,
) -> None:
    assert message in command(capsys, monkeypatch, *words, code=2)


def test_contexts_are_read_as_tokens() -> None:
    assert parse_contexts("8k, 512,0.5k") == [512, 8192]
