"""`specsim tune --plan` and `--from`: the plan, runs that decide, the script, what is refused."""

import json
import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from thinned import slow
from typer.testing import CliRunner

import specsim
from specsim.analytic.closed import closed_loop
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.tune_plan import UNKNOWNS
from specsim.calibrate.fewshot import SCALES
from specsim.calibrate.fewshot_priors import PRIORS
from specsim.commands import app
from specsim.errors import UsageError
from specsim.options.tuning import TuneOptions
from specsim.planning.run_plan import setting_name

ASK: dict[str, Any] = {"weights": "fp8", "method": "mtp", "concurrency": 16, "max_k": 5}
WORDS = ["tune", "qwen3.6-27b", "--weights", "fp8", "--method", "mtp", "--concurrency", "16",
         "--max-k", "5"]


def planned(**options: Any) -> dict[str, Any]:
    found = specsim.tune("qwen3.6-27b", **{**ASK, "plan": True, **options}).to_dict()["plan"]
    assert isinstance(found, dict)
    return found


def result(folder: Path, name: str, system: System, clients: int, **changes: Any) -> Path:
    """A file as `vllm bench serve` writes it, of a server that does as `system` is predicted."""
    state = closed_loop(system, Workload(1024, 460), clients)
    found: dict[str, Any] = {
        "max_concurrency": clients, "request_rate": "inf", "completed": 100,
        "total_input_tokens": 102_400, "total_output_tokens": 46_000,
        "duration": 46_000 / state.output_tok_s, "output_throughput": state.output_tok_s,
        "mean_tpot_ms": 1e3 * state.tpot_s, "mean_ttft_ms": 1e3 * state.ttft_s,
    }
    if system.speculative and system.acceptance is not None:
        rates = system.acceptance.probabilities(system.setup.k)
        found |= {"spec_decode_acceptance_length": 1 + sum(rates),
                  "spec_decode_per_position_acceptance_rates": list(rates),
                  "spec_decode_num_drafts": 10_000}
    path = folder / f"{name}-c{clients}.json"
    path.write_text(json.dumps(found | changes), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def server() -> System:
    """Whose drafts cost more and are accepted less often than is believed."""
    from specsim.api.deployment import build_request
    from specsim.options.groups import DeploymentOptions as Options

    base = build_request(Options(model="qwen3.6-27b", weights="fp8", method="mtp", k=5,
                                 acceptance_conditional=[0.8, 0.65, 0.5, 0.4, 0.3])).system
    return base.with_overheads(replace(base.engine.overheads, draft_pass_s=0.5e-3))


# --- the plan -----------------------------------------------------------------------------------


def test_a_plan_says_what_to_run_and_what_that_leaves() -> None:
    plan = planned()
    (decision,) = plan["decisions"]
    assert decision["name"] == f"{decision['method']}-k{decision['k']}"
    assert 0 < decision["probability"] < 1
    regrets = [plan["regret"], *(run["regret"] for run in plan["runs"])]
    assert 1 <= len(plan["runs"]) <= 5
    assert regrets == sorted(regrets, reverse=True)
    assert all("vllm serve" in run["command"] for run in plan["runs"])
    assert len({run["name"] for run in plan["runs"]}) == len(plan["runs"])
    worth = [unknown["worth"] for unknown in plan["unknowns"]]
    assert worth == sorted(worth, reverse=True)
    assert all(worth_ <= plan["regret"] and left["left"] == 1.0
               for worth_, left in zip(worth, plan["unknowns"], strict=True))


def test_every_cause_has_a_name_in_the_report() -> None:
    named = [cause for members in UNKNOWNS.values() for cause in members]
    assert sorted(named) == sorted(name for name in PRIORS.widths if name != "acceptance")
    assert set(SCALES) <= set(named)


def test_no_plan_without_being_asked_for() -> None:
    found = specsim.tune("qwen3.6-27b", **ASK)
    assert found.plan is None
    assert found.to_dict()["plan"] is None


# --- runs ---------------------------------------------------------------------------------------


def test_runs_decide_for_the_best_of_the_server_they_are_of(server: System, tmp_path: Path) -> None:
    """Plan, run, plan again, as the command says, on a server that differs from the profile."""
    speeds = {
        setting_name(system): closed_loop(system, Workload(1024, 460), 16).output_tok_s
        for system in (server.with_(k=k) for k in range(6))
    }
    first = planned()
    plan, runs = first, 0
    while not plan["settled"] and plan["runs"]:
        name = plan["runs"][0]["name"]
        k = 0 if name == "plain" else int(name.rpartition("k")[2])
        result(tmp_path, name, server.with_(k=k), 16)
        plan, runs = planned(from_=str(tmp_path)), runs + 1
    assert 1 <= runs <= 5
    assert len(plan["measured"]) == runs
    chosen = plan["decisions"][0]["name"]
    assert speeds[chosen] >= 0.98 * max(speeds.values())
    assert speeds[first["decisions"][0]["name"]] < max(speeds.values())


def test_a_run_as_predicted_is_no_news_whatever_its_lengths(server: System, tmp_path: Path) -> None:
    from specsim.api.deployment import build_request
    from specsim.options.groups import DeploymentOptions as Options

    believed = build_request(Options(model="qwen3.6-27b", weights="fp8", method="mtp")).system
    state = closed_loop(believed, Workload(512, 200), 16)
    result(tmp_path, "mtp-k3", believed, 16, total_input_tokens=51_200, total_output_tokens=20_000,
           output_throughput=state.output_tok_s, mean_tpot_ms=1e3 * state.tpot_s)
    (measured,) = planned(from_=str(tmp_path))["measured"]
    assert measured["off"] == pytest.approx(0.0, abs=1e-6)
    assert measured["acceptance_length"] == pytest.approx(believed.acceptance_length)


def test_a_run_at_another_load_counts_too(server: System, tmp_path: Path) -> None:
    result(tmp_path, "mtp-k5", server, 48)
    plan = planned(from_=str(tmp_path))
    assert plan["measured"][0]["concurrency"] == 48
    assert plan["regret"] != planned()["regret"]
    assert all(unknown["left"] != 1.0 for unknown in plan["unknowns"])


def test_what_a_file_was_of_is_told_by_it_or_by_its_name(server: System, tmp_path: Path) -> None:
    result(tmp_path, "first", server.with_(k=4), 16, method="mtp")
    result(tmp_path, "SERVE--mtp-k2-BENCH--x", server.with_(k=2), 16)
    result(tmp_path, "plain", server.plain(), 16)
    names = {m["name"] for m in planned(from_=str(tmp_path))["measured"]}
    assert names == {"mtp-k4", "mtp-k2", "plain"}


@pytest.mark.slow
def test_settled_says_so(server: System, tmp_path: Path) -> None:
    for k in range(6):
        result(tmp_path, f"mtp-k{k}" if k else "plain", server.with_(k=k), 16)
    done = CliRunner().invoke(app, [*WORDS, "--from", str(tmp_path)], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    head, _, rest = done.output.partition("as predicted, without these runs")
    assert head.startswith("SETTLED after these runs: choosing mtp-k")
    assert "to type, vLLM 0.25.1:" in head
    assert "to type" not in rest
    assert max(map(len, head.splitlines())) <= 80
    document = specsim.tune("qwen3.6-27b", **ASK, from_=str(tmp_path)).to_dict()
    assert document["verdict"] is None  # what runs decide stands in the plan


# --- the script ---------------------------------------------------------------------------------


def test_the_script_runs_servers_and_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    script = tmp_path / "runs.sh"
    done = CliRunner().invoke(app, [*WORDS, "--plan", "--script", str(script), "--json"])
    assert done.exit_code == 0, done.output
    names = [run["name"] for run in json.loads(done.stdout)["plan"]["runs"]]
    tools = tmp_path / "bin"
    tools.mkdir()
    log = tmp_path / "log"
    for name, body in (
        # a server that runs until it is stopped; a client that writes what it was asked for
        ("vllm", f'echo "$@" >> {log}\n'
                 f'if [ "$1" = serve ]; then touch {tmp_path}/up; exec sleep 60; fi\n'
                 'while [ $# -gt 0 ]; do case $1 in --result-dir) d=$2;; --result-filename) f=$2;; '
                 'esac; shift; done; echo "{}" > "$d/$f"'),
        ("curl", f"rm {tmp_path}/up"),  # answered once the server has told of itself
    ):
        path = tools / name
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PROMPTS": "mine.jsonl"}

    def run() -> str:
        return subprocess.run(["bash", str(script)], cwd=tmp_path, env=env, timeout=120, text=True,
                              check=True, capture_output=True).stdout

    run()
    files = sorted(path.name for path in (tmp_path / "results").glob("*.json"))
    assert files == sorted(f"{name}-c16.json" for name in names)
    lines = log.read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("serve ") for line in lines) == len(names)
    assert all("mine.jsonl" in line for line in lines if line.startswith("bench "))
    (tmp_path / "results" / files[0]).unlink()
    log.write_text("", encoding="utf-8")
    assert run().count("is measured") == len(names) - 1
    assert log.read_text(encoding="utf-8").count("bench ") == 1


def test_the_script_wants_prompts(tmp_path: Path) -> None:
    script = tmp_path / "runs.sh"
    planned(script=str(script))
    env = {name: value for name, value in os.environ.items() if name != "PROMPTS"}
    done = subprocess.run(["bash", str(script)], cwd=tmp_path, env=env, check=False, text=True,
                          capture_output=True, timeout=60)
    assert done.returncode != 0
    assert "your own prompts" in done.stderr


def test_sglang_has_a_script_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "runs.sh"
    plan = planned(engine="sglang", script=str(script))
    text = script.read_text(encoding="utf-8")
    assert "sglang.bench_serving" in text
    assert all(f"run {run['name']} " in text for run in plan["runs"])
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=60)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "words"), [
    ({"script": "x.sh"}, "--script is of a plan"),
    ({"runs": 3}, "--runs is of a plan"),
    ({"plan": True, "concurrency": None, "rate": 2}, "--concurrency instead of --rate"),
    ({"plan": True, "fidelity": "datasheet"}, "no intervals"),
    ({"plan": True, "runs": 0}, "from 1 to 20"),
    ({"plan": True, "by": "batch"}, "a map instead of a plan"),
    ({"plan": True, "script": "/dev/null/x.sh"}, "no folder"),
    ({"plan": True, "slo": "ttft_mean=0.000001"}, "nothing to choose from"),
    ({"from_": "/nowhere"}, "nowhere"),
    slow({"plan": True, "concurrency": ",".join(map(str, range(1, 60)))}, "name fewer loads"),
    ({"plan": True, "methods": "none", "method": None}, "nothing to choose from"),
])
def test_mistakes_are_named(options: dict[str, Any], words: str) -> None:
    given = {name: value for name, value in {**ASK, **options}.items() if value is not None}
    with pytest.raises(specsim.SpecSimError, match=words):
        specsim.tune("qwen3.6-27b", **given)


def test_a_file_of_nothing_that_is_compared(server: System, tmp_path: Path) -> None:
    result(tmp_path, "mine", server, 16, method="eagle3")
    with pytest.raises(UsageError, match="does not tell which of the choices"):
        planned(from_=str(tmp_path))


def test_a_file_that_tells_nothing_is_not_taken_for_plain(server: System, tmp_path: Path) -> None:
    result(tmp_path, "mine", server.plain(), 16)
    with pytest.raises(UsageError, match="does not tell which of the choices"):
        planned(from_=str(tmp_path))


def test_options_of_a_plan_stand_in_the_repeated_command() -> None:
    from specsim.options.declare import repeat

    found = repeat(TuneOptions(model="qwen3.6-27b", plan=True, from_=["a.json", "b"]))
    assert found.endswith("--plan --from a.json --from b")
    assert "--plan" not in repeat(TuneOptions(model="qwen3.6-27b", plan=False))
