"""Short versions of the checks against measured serving runs, with wide bars.

The full ones are `python validation/scripts/simulate_mindrouter.py` and `simulate_e2e.py`; what
they found is in validation/reports/serving.md.
"""

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from specsim import simulate
from specsim.sim.config import SimConfig
from specsim.sim.run import SimResult
from specsim.sim.run import simulate as run_once

FOLDER = Path(__file__).resolve().parents[2] / "validation" / "reports"


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


# --- MindRouter -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_chat_with_144_people_and_48_streams() -> None:
    found = script("simulate_mindrouter").stages(1, only=("chat 144", "saturation 48"))
    chat, streams = found
    for stage, figure, bar in (
        (chat, "agg_tok_s", 0.12),
        (chat, "turns", 0.12),
        (chat, "streams_avg", 0.25),
        (chat, "ttft_p50_s", 0.40),
        (chat, "ttft_p95_s", 0.60),
        (chat, "tok_s_p10", 0.40),
        (streams, "agg_tok_s", 0.12),
        (streams, "tok_s_p10", 0.15),
        (streams, "ttft_p95_s", 0.40),
        (streams, "kv_max", 0.10),
    ):
        worst = max(map(abs, stage.errors(figure)))
        assert worst < bar, (stage.name, figure, stage.simulated[figure])
    assert chat.verdict.ok and streams.verdict.ok


@pytest.mark.slow
def test_the_cache_thrashes_and_the_slots_run_out_beyond_capacity() -> None:
    (full,) = script("simulate_mindrouter").stages(1, only=("chat 216",))
    assert not full.verdict.ok
    assert full.mean("ttft_p95_s") > 4.0
    # 60 % without load; most of the history is gone before it is asked for again.
    assert 0.05 < full.mean("hit_rate") < 0.16
    assert max(map(abs, full.errors("agg_tok_s"))) < 0.12


# --- LLMServingSim --------------------------------------------------------------------------------


@pytest.mark.slow
def test_1200_requests_replayed() -> None:
    e2e = script("simulate_e2e")
    found = {run.key: e2e.replay(run) for run in e2e.REPLAYS}
    assert sum(len(each["e2e"]) for each in found.values()) == 1200
    for key, each in found.items():
        for name, bar in (("e2e", 0.35), ("itl", 0.32)):
            error = each[f"sim_{name}"].mean() / each[name].mean() - 1
            assert abs(error) < bar, (key, name, error)


def test_servers_that_did_not_speculate_are_simulated_without() -> None:
    """Models with a known drafter get one where the method is left open: it made the replays 30
    to 50 % too fast."""
    e2e = script("simulate_e2e")
    for run in e2e.REPLAYS:
        options = {"engine": e2e.REPLAYED, **run.options}
        system = e2e.served(options, [(0.0, 100, 5), (0.1, 100, 5)]).deployment.system
        assert not system.speculative


def test_a_replay_is_what_the_command_gives(tmp_path: Path) -> None:
    e2e = script("simulate_e2e")
    run = e2e.REPLAYS[0]
    ours = e2e.replay(run, 40)
    rows = sorted(
        (row for row in e2e.read("llmservingsim_vllm_requests.csv.gz")
         if (row["gpu"], row["model"]) == run.key), key=lambda row: float(row["arrival_s"]),
    )[:40]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(
        json.dumps({"timestamp": 1e3 * float(row["arrival_s"]),
                    "input_length": int(row["input_tokens"]),
                    "output_length": int(row["output_tokens"]), "hash_ids": []}) + "\n"
        for row in rows
    ), encoding="utf-8")
    told = simulate(trace=trace, engine=e2e.REPLAYED, method="none", **run.options)
    figures = told.comparison.main.figures
    assert figures["ttft_s"]["mean"] == pytest.approx(ours["sim_ttft"].mean() / 1e3, rel=0.01)
    assert figures["e2el_s"]["mean"] == pytest.approx(ours["sim_e2e"].mean() / 1e3, rel=0.01)


# --- H100 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["Llama-2-7b-hf", "CodeLlama-34b-Instruct-hf"])
def test_stages_on_h100(model: str) -> None:
    e2e = script("simulate_e2e")
    stages = next(
        stages for stages in e2e.h100_runs().values()
        if stages[0]["model"].endswith(model) and stages[0]["workload"] == "codegen"
    )
    figures, _ = e2e.h100_run(stages, scale=0.1)
    for row, simulated in zip(stages, figures, strict=True):
        measured = e2e.h100_measured(row)
        for name, bar in (("ttft", 0.25), ("itl", 0.15), ("e2e", 0.15)):
            assert simulated[name] == pytest.approx(measured[name], rel=bar), name


def test_first_tokens_wait_for_the_step_that_was_planned_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    e2e = script("simulate_e2e")
    stages = next(
        stages for stages in e2e.h100_runs().values()
        if stages[0]["model"].endswith("Llama-2-70b-hf") and stages[0]["workload"] == "codegen"
    )[:1]
    measured = e2e.h100_measured(stages[0])
    (ahead,), _ = e2e.h100_run(stages, scale=0.1)
    def at_once(config: SimConfig, *rest: Any, **named: Any) -> SimResult:
        rules = replace(config.rules, plan_ahead=False)
        return run_once(replace(config, rules=rules), *rest, **named)

    monkeypatch.setattr("specsim.sim.compare.simulate", at_once)
    (without,), _ = e2e.h100_run(stages, scale=0.1)
    assert ahead["ttft"] == pytest.approx(measured["ttft"], rel=0.15)
    assert without["ttft"] < 0.8 * measured["ttft"]
    assert without["itl"] == pytest.approx(ahead["itl"], rel=0.02)


# --- the report -----------------------------------------------------------------------------------


def test_the_report_is_whole_and_its_parts_agree() -> None:
    found = json.loads((FOLDER / "serving.json").read_text(encoding="utf-8"))
    text = (FOLDER / "serving.md").read_text(encoding="utf-8")
    for section in ("mindrouter", "e2e"):
        for line in found[section]["lines"]:
            assert line in text
    judged = found["mindrouter"]["data"]["judged"]
    assert len(judged) >= 14
    for one in judged:
        assert one["held"] == (abs(one["error"]) <= one["bar"])
    e2e = found["e2e"]["data"]
    assert len(e2e["replays"]) == 4 and len(e2e["stages"]) == 24
    assert sum(stage["overload"] for stage in e2e["stages"]) == 4


def test_a_section_is_replaced_without_touching_the_other(tmp_path: Path) -> None:
    report = script("serving_report")
    report.update("e2e", {"x": 1}, ["## Two", "b"], tmp_path)
    report.update("mindrouter", {"y": 2}, ["## One", "a"], tmp_path)
    report.update("e2e", {"x": 3}, ["## Two", "c"], tmp_path)
    text = (tmp_path / "serving.md").read_text(encoding="utf-8")
    assert text.index("## One") < text.index("## Two") and "\nb\n" not in text and "\nc\n" in text
    assert json.loads((tmp_path / "serving.json").read_text())["e2e"]["data"] == {"x": 3}
    assert report.number(1234.5) == "1,234" and report.number(0.01234) == "0.0123"
    assert report.signed(None) == "" and report.signed(-0.054) == "-5.4%"
