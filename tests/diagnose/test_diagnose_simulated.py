"""Servers whose trouble is known, because it was simulated: each must be told from the metrics that
such a server would show (the simulator and the rules share prices of steps, nothing else)."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specsim.api.diagnose import diagnose
from specsim.commands import app
from specsim.latency.engine import find_engine

pytest.importorskip("prometheus_client")
STEP = find_engine("vllm").overheads.step_s
LLAMA = ["llama-3.1-8b", "--gpu", "h100", "--method", "eagle3", "--k", "3"]
GOOD = ["--acceptance", "0.8,0.65,0.5"]
POOR = ["--k", "5", "--acceptance", "0.6,0.3,0.15,0.07,0.03"]


def judged(tmp_path, *words, form="prom", **options):
    """(rules found, diagnosis) of a simulated server, by the metrics or the benchmark it gives."""
    path = tmp_path / f"found.{form}"
    flag = "--export-prometheus" if form == "prom" else "--export-vllm-bench"
    result = CliRunner().invoke(app, ["simulate", *words, "--no-baseline", flag, str(path)])
    assert result.exit_code == 0, result.output or result.exception
    given = {"gpu": "h100", "method": "eagle3", **options, "words": [str(path), words[0]]}
    (item,) = diagnose(**given).to_dict()["diagnoses"]
    json.dumps(item, allow_nan=False)
    return {finding["rule"]: finding for finding in item["findings"]}, item


@pytest.mark.parametrize("form", ["prom", "json"])
def test_a_few_clients(tmp_path, form):
    found, item = judged(
        tmp_path, *LLAMA, *GOOD, "--concurrency", "4", "--requests", "60", form=form
    )
    assert "trades_well" in found
    assert not {"competes", "host_gap", "queueing", "memory_pressure", "rejected"} & set(found)
    assert item["measured"]["running"] == pytest.approx(4, rel=0.1)
    # what was simulated takes what is predicted for it
    assert item["predicted"]["itl_s"] == pytest.approx(item["measured"]["step_s"], rel=0.05)


@pytest.mark.slow
def test_a_crowd_with_poor_acceptance_competes(tmp_path):
    """The loss that the simulation has against its own baseline is the one that is diagnosed."""
    load = ("--concurrency", "200", "--requests", "700", "--max-num-seqs", "512", "--input-len",
            "256", "--output-len", "256")
    found, item = judged(tmp_path, *LLAMA[:-2], *POOR, *load, max_num_seqs=512)
    result = CliRunner().invoke(app, ["simulate", *LLAMA[:-2], *POOR, *load, "--json"])
    gain = json.loads(result.stdout)["gain"]["output_tok_s"]
    assert gain < 0.95
    assert found["competes"]["level"] == "problem" and "trades_well" not in found
    assert item["predicted"]["speedup"] == pytest.approx(gain, rel=0.08)


def test_rejected_drafts(tmp_path):
    found, _ = judged(tmp_path, *LLAMA, "--acceptance", "0.2,0.04,0.01", "--concurrency", "4",
                      "--requests", "60")
    assert found["rejected"]["level"] == "problem"
    assert "competes" not in found


def test_too_few_slots_queue(tmp_path):
    found, _ = judged(tmp_path, *LLAMA, *GOOD, "--concurrency", "32", "--requests", "120",
                      "--max-num-seqs", "8", max_num_seqs=8)
    assert "queueing" in found and "memory_pressure" not in found


def test_too_little_memory_preempts(tmp_path):
    found, _ = judged(tmp_path, *LLAMA, *GOOD, "--concurrency", "12", "--requests", "24",
                      "--input-len", "300", "--output-len", "1500",
                      "--gpu-memory-utilization", "0.24", gpu_memory_utilization=0.24)
    assert "memory_pressure" in found


def test_long_prompts_interfere(tmp_path):
    found, _ = judged(tmp_path, *LLAMA, *GOOD, "--concurrency", "16", "--requests", "100",
                      "--input-len", "12000", "--output-len", "100")
    assert "prefill_interference" in found


def test_a_slower_host_is_a_gap(tmp_path):
    """A server whose host takes 10 ms more per step than the engine it is said to be."""
    engine = tmp_path / "slow.toml"
    text = (Path(__file__).parents[2] / "engines" / "vllm-0.25.1.toml").read_text()
    lines = [f"step_s = {STEP + 10e-3}" if line.startswith("step_s") else line
             for line in text.splitlines()]
    engine.write_text("\n".join(lines))
    found, item = judged(tmp_path, *LLAMA, *GOOD, "--concurrency", "4", "--requests", "40",
                         "--engine", str(engine), engine="vllm")
    facts = {fact["what"]: fact["value"] for fact in found["host_gap"]["evidence"]}
    assert facts["unexplained, per step"] == pytest.approx(10e-3, rel=0.1)
    assert item["findings"][0]["rule"] == "host_gap"


def test_lookups_that_rarely_find(tmp_path):
    found, item = judged(tmp_path, "llama-3.1-8b", "--gpu", "h100", "--method", "ngram", "--k", "3",
                         *GOOD, "--draft-share", "0.4", "--concurrency", "4", "--requests", "80",
                         method="ngram")
    assert "rarely_proposes" in found
    assert item["measured"]["draft_share"] == pytest.approx(0.4, abs=0.06)
    assert item["predicted"]["itl_s"] == pytest.approx(item["measured"]["step_s"], rel=0.1)


def test_plain_decoding_is_off(tmp_path):
    found, _ = judged(tmp_path, "llama-3.1-8b", "--gpu", "h100", "--method", "none",
                      "--concurrency", "4", "--requests", "40")
    assert "would pay" in found["switched_off"]["verdict"]
