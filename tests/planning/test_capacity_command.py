"""`specsim capacity` end to end, on loads small enough for a test."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import answer
from typer.testing import CliRunner

from specsim.analytic.system import System
from specsim.commands import app
from specsim.errors import SpecSimError
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.model.catalogue import find_model
from specsim.planning.capacity import find_capacity
from specsim.planning.capacity_loads import People
from specsim.planning.capacity_result import Wishes
from specsim.planning.capacity_runs import Study, Trial
from specsim.sim.scenario import find_scenario

SCENARIO = """
name = "desk"
[system]
model = "llama-3.1-8b"
gpu = "h100-sxm"
engine = "vllm"
engine_version = "0.25.1"
max_num_seqs = 4
method = "none"
[users]
count = 20
system_tokens = 50
output_tokens = { dist = "lognormal", mean = 120, sigma = 0.4, low = 1, high = 400 }
opener_tokens = { dist = "uniform", low = 50, high = 300 }
followup_tokens = 20
another_turn = 0.5
max_turns = 4
read_tok_s = 60
read_max_s = 5
compose_s = 3
start_s = { dist = "uniform", low = 0, high = 5 }
[stage]
duration_s = 40
warmup_s = 8
ladder = [6, 10, 200]
[slo]
ttft_p95 = 0.4
"""
FAST = ["--jobs", "1", "--replications", "6", "--resolution", "0.2"]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("scenario") / "desk.toml"
    path.write_text(SCENARIO)
    return str(path)


run = partial(answer, "capacity")


def as_json(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*words, "--json"))
    return found


@pytest.fixture(scope="module")
def people(desk: str) -> dict[str, Any]:
    return as_json("--scenario", desk, "--users", "400", "--no-stream-floor", *FAST)


def test_people_are_bracketed_and_the_queue_is_named(people: dict[str, Any]) -> None:
    assert people["kind"] == "capacity" and people["unit"] == "users"
    assert people["sure_pass"] <= people["capacity"] < people["smallest_failing"]
    assert people["binding_limit"]["name"] == "admission queue"
    assert "4 of 4 request slots" in " ".join(people["binding_limit"]["evidence"])
    loads = [trial["load"] for trial in people["trials"]]
    assert loads == sorted(loads) and {6, 10} <= set(loads)
    assert people["ladder_capacity"] == 10
    assert people["baseline"] is None and people["gain"] is None


def test_the_operating_point_and_the_replicas_follow(people: dict[str, Any]) -> None:
    point = people["operating_point"]
    assert point["load"] == int(0.8 * people["capacity"])
    assert point["pass"] and point["figures"]["ttft_s.p95"] < 0.4
    demand = people["demand"]
    assert demand["replicas"] >= 400 / (0.8 * people["capacity"])
    assert demand["load_per_replica_after_a_failure"] <= people["capacity"]
    assert people["cost"]["joules_per_output_token_at_most"] > 0


@pytest.mark.slow
def test_twice_the_seats_relieve_the_queue(people: dict[str, Any], desk: str) -> None:
    relieved = people["failing_load_with_twice_the_slots"]
    assert relieved["pass"]
    more = as_json(
        "--scenario", desk, "--max-num-seqs", "8", "--ladder", "10,24", "--no-stream-floor", *FAST
    )
    assert more["ladder_capacity"] >= people["ladder_capacity"]


@pytest.mark.slow
def test_simulate_and_capacity_say_the_same_of_a_load(desk: str) -> None:
    """Same seeds, same rule, same figures: what one prints of a load the other prints too."""
    result = CliRunner().invoke(
        app, ["simulate", "--scenario", desk, "--users", "16", "--json"], catch_exceptions=False
    )
    one = json.loads(result.stdout)
    other = as_json("--scenario", desk, "--ladder", "16", "--jobs", "1", "--no-stream-floor")
    assert one["slo"]["verdict"] == {
        key: value for key, value in other["trials"][0].items() if key != "load"
    }
    assert one["slo"]["verdict"]["replications"] > 4
    point = other["at_capacity"]
    for path, value in point["figures"].items():
        name, _, statistic = path.partition(".")
        assert (one[name][statistic] if statistic else one[name]) == value, path
    for path, pair in point["confidence_95"].items():
        assert one["confidence_95"][path] == pair, path
    assert point["stationarity"] == one["stationarity"]


@pytest.mark.slow
def test_both_questions_are_answered_and_the_verdict_rests_on_the_one_asked(
    people: dict[str, Any], desk: str
) -> None:
    assert people["load"]["settled"] is False and people["other_question"]["settled"] is True
    settled = as_json("--scenario", desk, "--settled", "--no-stream-floor", "--ladder", "10,24",
                      "--jobs", "1")
    assert settled["load"]["settled"] is True and settled["other_question"]["settled"] is False
    assert [trial["load"] for trial in settled["other_question"]["trials"]] == [10, 24]
    text = run("--scenario", desk, "--no-stream-floor", "--ladder", "10", "--jobs", "1")
    assert "settled service" in text and "all beginning together" in text


def test_a_quick_answer_brackets_the_full_one(people: dict[str, Any], desk: str) -> None:
    quick = as_json("--scenario", desk, "--users", "400", "--quick", "--jobs", "1")
    assert quick["quick"] and quick["runs"] <= 16 and quick["other_question"] is None
    assert quick["sure_pass"] <= people["capacity"] < quick["sure_fail"]
    assert {trial["decided_by"] for trial in quick["trials"]} <= {"rough", "close"}


@pytest.mark.slow
def test_results_do_not_depend_on_processes(desk: str) -> None:
    words = ["--scenario", desk, "--ladder", "10,200", "--replications", "2"]
    one, two = (as_json(*words, "--jobs", jobs) for jobs in "12")
    assert one.pop("command") != two.pop("command")
    assert one == two


@pytest.mark.slow
def test_rates_with_speculation_beside_plain() -> None:
    found = as_json(
        "llama-3.1-8b", "--gpu", "h100-sxm", "--rate", "30", "--slo", "ttft_p95=0.5,tpot_p95=0.03",
        "--input-len", "256", "--output-len", "64", "--duration", "12", "--warmup", "3",
        "--max-num-seqs", "16", "--stream-floor", "40", "--price-per-gpu-hour", "2", *FAST,
    )
    assert found["unit"] == "requests/s"
    assert found["method"] == "eagle3" and found["baseline"]["capacity"] > 0
    assert found["gain"] == pytest.approx(found["capacity"] / found["baseline"]["capacity"])
    assert found["cost"]["per_million_output_tokens"] > 0
    floor = found["stream_floor"]
    assert found["recommended_max_num_seqs"] == floor["max_num_seqs"] > 0
    kept = [t for t in floor["trials"] if t["pass"]]
    assert max(t["max_num_seqs"] for t in kept) == floor["max_num_seqs"]
    assert all(t["stream_tok_s_p10"] >= 40 for t in kept)


@pytest.mark.slow
def test_text_and_csv(desk: str) -> None:
    words = ["--scenario", desk, "--ladder", "6,40", "--no-stream-floor", *FAST]
    text = run(*words)
    assert "6 users (40 fails)" in text and "admission queue" in text
    rows = run(*words, "--csv").splitlines()
    assert rows[0].startswith("side,max_num_seqs,unit,load,pass") and len(rows) == 3


def test_a_load_that_nothing_serves_is_said() -> None:
    found = as_json(
        "llama-3.1-8b", "--gpu", "h100-sxm", "--unit", "rate", "--slo", "ttft_p95=0.0001",
        "--input-len", "256", "--output-len", "8", "--duration", "5", "--warmup", "1",
        "--no-baseline", *FAST,
    )
    assert found["capacity"] == 0 and found["demand"] is None
    assert found["binding_limit"]["gate"] == "ttft_p95"
    assert any("no load" in text for text in found["warnings"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "--slo"),
        (["--slo", "ttft_p95=2"], "MODEL"),
        (["llama-3.1-8b", "--slo", ""], "--slo is empty"),
        (["llama-3.1-8b", "--slo", "output_tok_s=10"], "easier to meet"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--users", "0"], "--users"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--rate", "inf"], "--rate"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--users", "9", "--rate", "1"], "one of them"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--users", "9", "--input-len", "5"],
         "--input-len"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--unit", "cars"], "users or rate"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--unit", "rate", "--scenario",
          "mindrouter-chat"], "scenario"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--ladder", "1:2"], "FROM:TO:STEP"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--ladder", "1.5"], "whole numbers"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--ladder", "nan"], "--ladder"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--operating-share", "1.2"], "--operating-share"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--resolution", "0"], "--resolution"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--replications", "1"], "--replications"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--jobs", "0"], "--jobs"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--price-per-gpu-hour", "-1"], "price"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--stream-floor", "0"], "--stream-floor"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--demand", "/nowhere.csv"], "does not exist"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--duration", "10", "--warmup", "10"],
         "--warmup"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--json", "--csv"], "one output"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--easiness", "hard"], "acceptance spread"),
        (["llama-3.1-8b", "--slo", "ttft_p95=2", "--unit", "rate", "--burstiness", "0"],
         "--burstiness"),
    ],
)
def test_mistakes_are_one_clear_error(words: list[str], expected: str) -> None:
    with pytest.raises(SpecSimError, match=r".") as caught:
        CliRunner().invoke(app, ["capacity", *words], catch_exceptions=False)
    assert expected in str(caught.value)


def test_demand_file_over_a_day(desk: str, tmp_path: Path) -> None:
    day = tmp_path / "day.csv"
    day.write_text("hour,users\n" + "".join(f"{h},{10 + h}\n" for h in range(24)))
    found = as_json(
        "--scenario", desk, "--demand", str(day), "--ladder", "10", "--no-stream-floor", *FAST
    )
    assert found["demand"]["peak"] == 33 and found["demand"]["points"] == 24
    assert 1 <= found["demand"]["replicas_if_scaled_mean"] <= found["demand"]["replicas"]


@pytest.mark.slow
def test_mindrouter_ladder() -> None:
    """The report: 144 people pass, 216 fail, with 48 running requests at most. The 180 between
    them are too close to call (reports/serving.md); that takes every replication there is."""
    found = as_json(
        "--scenario", "mindrouter-chat", "--ladder", "144,216", "--no-baseline",
        "--no-stream-floor",
    )
    verdicts = {trial["load"]: trial for trial in found["trials"]}
    assert found["ladder_capacity"] == found["sure_pass"] == 144 and found["sure_fail"] == 216
    assert found["binding_limit"]["name"] == "admission queue"
    assert verdicts[144]["sure"] and verdicts[144]["pass"]
    assert verdicts[216]["sure"] and not verdicts[216]["pass"]


def test_an_interrupted_study_keeps_what_was_tried() -> None:
    scenario = find_scenario("mindrouter-chat")
    system = System(
        find_model("llama-3.1-8b"), load_profile("h100-sxm"), find_engine("vllm"), max_num_seqs=4
    )
    study = Study(system, (People(scenario.behaviour, 90.0, 45.0),), {"ttft_p95": 2.0})
    done = 0

    def heard(trial: Trial, summary: dict[str, Any]) -> None:
        nonlocal done
        done += 1
        if done == 6:
            raise KeyboardInterrupt

    wishes = Wishes(replications=6, ladder=(10.0, 400.0))
    found = find_capacity(study, wishes, heard=heard)
    assert found.partial and found.main.capacity == 10
    assert any("interrupted" in text for text in found.warnings)
    with pytest.raises(KeyboardInterrupt):
        done = 5
        find_capacity(study, wishes, heard=heard)
