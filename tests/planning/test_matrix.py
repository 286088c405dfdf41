"""`specsim matrix`: operating points, widths, marks and errors."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from specsim.analytic.closed import closed_loop
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.commands import app
from specsim.errors import SpecSimError
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.model.catalogue import find_model


def run(*words: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["matrix", *words, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return run(
        "--models", "llama-3.1-8b,llama-3.3-70b,qwen3.6-27b:fp8", "--gpus", "h200-sxm,rtx-4090",
        "--stream-floor", "25",
    )


def cell(found: dict[str, Any], model: str, gpu: str) -> dict[str, Any]:
    return next(
        c for c in found["cells"] if model in c["model"].lower() and c["gpu"] == gpu
    )


def test_cells_are_in_order_and_complete(found: dict[str, Any]) -> None:
    assert found["kind"] == "matrix" and len(found["cells"]) == 6
    assert [c["gpu"] for c in found["cells"]] == ["h200-sxm", "rtx-4090"] * 3


def test_the_smallest_width_that_fits_is_taken(found: dict[str, Any]) -> None:
    assert cell(found, "llama-3.1-8b", "h200-sxm")["tp"] == 1
    assert cell(found, "llama-3.3-70b", "h200-sxm")["tp"] == 2
    (misfit,) = run("--models", "llama-3.3-70b", "--gpus", "rtx-3080")["cells"]
    assert not misfit["fits"] and "GB" in misfit["reason"] and misfit["plain"] is None


def test_the_operating_point_is_the_last_that_keeps_the_floor(found: dict[str, Any]) -> None:
    system = System(
        find_model("llama-3.1-8b"), load_profile("h200-sxm"), find_engine("vllm")
    )
    side = cell(found, "llama-3.1-8b", "h200-sxm")["plain"]
    workload = Workload(1024, 460)
    at = side["concurrency"]
    assert closed_loop(system, workload, at).stream_tok_s >= 25
    assert closed_loop(system, workload, at + 1).stream_tok_s < 25
    state = closed_loop(system, workload, at)
    assert side["tok_s_per_gpu"] == pytest.approx(state.output_tok_s)
    # Little: users = requests/s x (think + answer).
    answer_s = state.ttft_s + 459 * state.tpot_s
    assert side["users_per_gpu"] == pytest.approx(state.request_rate * (45 + answer_s))


def test_per_gpu_figures_divide_by_the_width(found: dict[str, Any]) -> None:
    one = run("--models", "llama-3.3-70b", "--gpus", "h200-sxm", "--concurrency", "16")
    side = one["cells"][0]["plain"]
    four = run(
        "--models", "llama-3.3-70b", "--gpus", "h200-sxm", "--concurrency", "16", "--tp", "4"
    )
    assert four["cells"][0]["tp"] == 4
    wide = four["cells"][0]["plain"]
    assert wide["concurrency"] == side["concurrency"] == 16
    assert wide["tok_s_per_gpu"] < side["tok_s_per_gpu"]
    assert wide["stream_tok_s"] > side["stream_tok_s"]


def test_assumed_efficiencies_are_marked(found: dict[str, Any]) -> None:
    assert not cell(found, "llama-3.1-8b", "h200-sxm")["efficiencies_assumed"]
    assert cell(found, "llama-3.1-8b", "rtx-4090")["efficiencies_assumed"]


def test_speculation_stands_beside_plain(found: dict[str, Any]) -> None:
    pair = cell(found, "qwen3.6-27b", "h200-sxm")
    assert pair["method"] == "mtp" and pair["speculative"]["stream_tok_s"] >= 25
    assert pair["gain"] == pytest.approx(
        pair["speculative"]["tok_s_per_gpu"] / pair["plain"]["tok_s_per_gpu"]
    )


def test_points_out_of_reach_are_said() -> None:
    cell = run("--models", "llama-3.3-70b", "--stream-floor", "5000")["cells"][0]
    assert cell["fits"] and cell["plain"] is None and "not reached" in cell["reason"]


def test_text_and_csv() -> None:
    words = ["matrix", "--models", "llama-3.1-8b,deepseek-v3", "--gpus", "rtx-4090"]
    text = CliRunner().invoke(app, words, catch_exceptions=False).stdout
    assert "does not fit" in text and "assumed" in text
    rows = CliRunner().invoke(app, [*words, "--csv"], catch_exceptions=False).stdout.splitlines()
    assert len(rows) == 3 and "plain_tok_s_per_gpu" in rows[0]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--models", ""], "--models"),
        (["--models", "nothing-like-it"], "nothing-like-it"),
        (["--models", "llama-3.1-8b", "--gpus", "h2000"], "h2000"),
        (["--models", "llama-3.1-8b", "--concurrency", "4", "--stream-floor", "3"], "give one"),
        (["--models", "llama-3.1-8b", "--concurrency", "0"], "--concurrency"),
        (["--models", "llama-3.1-8b", "--stream-floor", "-3"], "--stream-floor"),
        (["--models", "llama-3.1-8b", "--ttft", "0"], "--ttft"),
        (["--models", "llama-3.1-8b", "--think", "-1"], "--think"),
        (["--models", "llama-3.1-8b", "--tp", "-1"], "--tp"),
        (["--models", "llama-3.1-8b:fp9"], "fp9"),
        (["--models", "llama-3.1-8b", "--json", "--csv"], "one output"),
    ],
)
def test_mistakes_are_one_clear_error(words: list[str], expected: str) -> None:
    with pytest.raises(SpecSimError, match=r".") as caught:
        CliRunner().invoke(app, ["matrix", *words], catch_exceptions=False)
    assert expected in str(caught.value)
