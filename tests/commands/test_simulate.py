"""`specsim simulate`: its JSON, its loads, its files, interruption, and every bad input."""

import csv
import io
import json
import os
import signal
import statistics
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import answer
from typer.testing import CliRunner

from specsim.api.deployment import build_request
from specsim.commands import app, main
from specsim.options.groups import DeploymentOptions as Options
from specsim.sim import compare
from specsim.sim.run import Progress

ROOT = Path(__file__).resolve().parents[2]
LLAMA = ("llama-3.1-8b", "--method", "eagle3", "--k", "3", "--acceptance-length", "2.5")
SHORT = ("--input-len", "200", "--output-len", "50")
FEW = ("--requests", "60")
LATENCIES = ("ttft_s", "tpot_s", "itl_s", "itl_per_token_s", "e2el_s")
FIGURES = (
    *LATENCIES, "stream_tok_s", "output_tok_s", "request_rate", "running_mean", "running_max",
    "waiting_max", "kv_usage_max", "preemptions", "prefix_hit_rate", "acceptance_length", "steps",
    "slo",
)


call = partial(answer, "simulate")


def figures(*arguments: str) -> dict[str, Any]:
    out: dict[str, Any] = json.loads(call(*arguments, "--json"))
    return out


def trace_file(path: Path, *rows: str) -> str:
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    return str(path)


# --- what comes out -------------------------------------------------------------------------------


def test_json_has_every_key_on_both_sides() -> None:
    found = figures(*LLAMA, *SHORT, *FEW, "--rate", "4", "--slo", "ttft_p95=2,stream_tok_s_p10=15")
    for side in (found, found["baseline"]):
        for name in FIGURES:
            assert name in side, name
        for name in LATENCIES:
            assert {"mean", "p50", "p90", "p95", "p99"} <= set(side[name])
            assert 0 <= side[name]["p50"] <= side[name]["p95"] <= side[name]["p99"]
        assert {"p10", "p50"} <= set(side["stream_tok_s"])
        assert side["requests"]["finished"] == 60
        assert side["slo"]["pass"] is True
        gate = side["slo"]["ttft_p95"]
        assert gate["limit"] == 2 and gate["value"] == side["ttft_s"]["p95"] and gate["pass"]
        assert side["slo"]["stream_tok_s_p10"]["value"] == side["stream_tok_s"]["p10"]
    assert found["acceptance_length"] == pytest.approx(2.5, rel=0.1)
    assert found["baseline"]["acceptance_length"] is None
    assert found["seed"] == 0 and found["partial"] is False
    assert found["inputs"]["k"] == 3 and found["inputs"]["load"]["rate"] == 4
    assert isinstance(found["warnings"], list)
    ratio = found["baseline"]["tpot_s"]["mean"] / found["tpot_s"]["mean"]
    # Of several runs the median of their ratios, which is near the ratio of their medians.
    assert found["gain"]["tpot_mean"] == pytest.approx(ratio, rel=0.005) and ratio > 1.2
    alone = figures(*LLAMA, *SHORT, *FEW, "--rate", "4")
    ratio = alone["baseline"]["tpot_s"]["mean"] / alone["tpot_s"]["mean"]
    assert alone["gain"]["tpot_mean"] == pytest.approx(ratio)


def test_tokens_inside_a_chunk_come_at_once() -> None:
    """Per chunk and per token are two views of the same time: the means differ by the tokens per
    chunk, and the median gap per token is 0 once most tokens come in company."""
    found = figures(*LLAMA, *SHORT, *FEW, "--concurrency", "2", "--no-baseline")
    gaps, tokens = found["itl_s"], found["itl_per_token_s"]
    assert tokens["mean"] == pytest.approx(found["tpot_s"]["mean"], rel=0.02)
    assert gaps["mean"] > 2 * tokens["mean"]
    assert tokens["p50"] == 0.0 < gaps["p50"]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_in_another_process() -> None:
    arguments = [*LLAMA, *SHORT, *FEW, "--concurrency", "6", "--range-ratio", "0.4", "--json"]
    first = call(*arguments)
    done = subprocess.run(
        [sys.executable, "cli.py", "simulate", *arguments], cwd=ROOT, capture_output=True,
        text=True, timeout=120, check=True, env={**os.environ, "PYTHONHASHSEED": "77"},
    )
    assert done.stdout == first and done.stderr == ""
    assert call(*arguments, "--seed", "1") != first


def test_without_speculation_the_run_is_its_own_baseline() -> None:
    found = figures("llama-3.1-8b", "--method", "none", *SHORT, *FEW, "--concurrency", "4")
    assert found["baseline"]["tpot_s"] == found["tpot_s"]
    assert found["gain"]["output_tok_s"] == 1.0
    text = call("llama-3.1-8b", "--method", "none", *SHORT, *FEW, "--concurrency", "4")
    assert "no speculation" in text and "gain" not in text


def test_no_baseline_leaves_it_out() -> None:
    found = figures(*LLAMA, *SHORT, *FEW, "--concurrency", "4", "--no-baseline")
    assert found["baseline"] is None and found["gain"] is None


def test_text_shows_both_sides_the_gates_and_the_notes() -> None:
    text = call(
        "qwen3.6-27b", "--weights", "fp8", *SHORT, "--requests", "100", "--concurrency", "4",
        "--slo", "ttft_p95=0.000001",
    )
    for words in ("TTFT", "without", "ITL, per chunk", "gain", "FAILS", "speculation pays",
                  "4 clients in a closed loop", "note: acceptance depends on the text"):
        assert words in text, words


def test_csv_is_one_row_per_side() -> None:
    rows = list(csv.DictReader(io.StringIO(call(*LLAMA, *SHORT, *FEW, "--rate", "3", "--csv"))))
    assert [row["speculation"] for row in rows] == ["with", "without"]
    assert float(rows[0]["tpot_s.mean"]) < float(rows[1]["tpot_s.mean"])
    assert rows[0]["steps"].isdigit()


@pytest.mark.slow
def test_replications_give_medians_and_intervals() -> None:
    arguments = (*LLAMA, *SHORT, *FEW, "--rate", "8")
    found = figures(*arguments, "--replications", "4", "--slo", "ttft_p95=2")
    runs = [figures(*arguments, "--seed", str(seed)) for seed in range(4)]
    middle = statistics.median(run["tpot_s"]["mean"] for run in runs)
    assert found["replications"] == 4
    assert found["tpot_s"]["mean"] == pytest.approx(middle, rel=1e-12)
    assert found["running_max"] == max(run["running_max"] for run in runs)
    low, high = found["confidence_95"]["tpot_s.mean"]
    assert low < middle < high and high - low < middle
    assert found["baseline"]["confidence_95"]["tpot_s.mean"]
    low, high = found["gain_confidence_95"]["tpot_mean"]
    ratios = [run["gain"]["tpot_mean"] for run in runs]
    assert low < sum(ratios) / 4 < high
    assert found["slo"]["pass"] is True and found["slo"]["verdict"]["pass_probability"] == 1.0


@pytest.mark.slow
def test_an_slo_is_replicated_until_it_is_sure() -> None:
    arguments = (*LLAMA, *SHORT, *FEW, "--rate", "8", "--no-baseline")
    assert figures(*arguments)["replications"] == 1
    clear = figures(*arguments, "--slo", "ttft_p95=2")
    assert clear["replications"] == 4 and clear["slo"]["verdict"]["sure"]
    limit = clear["ttft_s"]["p95"]  # its own median: half of the runs pass
    close = figures(*arguments, "--slo", f"ttft_p95={limit}")
    verdict = close["slo"]["verdict"]
    assert close["replications"] == verdict["replications"] > 4
    low, high = verdict["pass_probability_95"]
    assert 0 <= low < verdict["pass_probability"] < high <= 1
    text = call(*arguments, "--slo", f"ttft_p95={limit}")
    assert f"passes with probability {verdict['pass_probability']:.2f} (95%:" in text


def test_gates_of_several_runs_are_shown() -> None:
    """The verdict over the runs stands among the gates and is none."""
    words = call(*LLAMA, *SHORT, "--requests", "5", "--rate", "8", "--replications", "2",
                 "--slo", "ttft_p95=2")
    assert "ttft_p95" in words and "\nverdict" not in words


def test_precision_goes_on_until_the_intervals_are_narrow() -> None:
    found = figures(*LLAMA, *SHORT, *FEW, "--rate", "8", "--precision", "0.03")
    assert 3 <= found["replications"] < 64
    for name in ("tpot_s.mean", "ttft_s.mean", "output_tok_s"):
        low, high = found["confidence_95"][name]
        assert (high - low) / (high + low) <= 0.03 + 1e-9


def test_medians_over_runs_keep_what_is_no_number() -> None:
    from specsim.sim.compare import _arm

    def run(p95: float | None, tail: int, partial: bool) -> dict[str, Any]:
        return {
            "ttft_s": {"p95": p95, "censored": 2} if tail else {"p95": p95},
            "running_max": tail, "partial": partial, "slo": None, "window_s": [0.0, 10.0 + tail],
        }

    figures_ = _arm([run(1.0, 3, False), run(None, 0, False)], {}).figures
    assert figures_["ttft_s"] == {"p95": None, "censored": 1.0}
    assert figures_["running_max"] == 3 and figures_["partial"] is False
    assert figures_["slo"] is None and figures_["window_s"] == [0.0, 11.5]


# --- loads ----------------------------------------------------------------------------------------


def test_more_clients_bring_more_tokens_and_longer_waits() -> None:
    few = figures(*LLAMA, *SHORT, "--concurrency", "2", "--requests", "200", "--no-baseline")
    many = figures(*LLAMA, *SHORT, "--concurrency", "64", "--requests", "640", "--no-baseline")
    assert many["output_tok_s"] > 5 * few["output_tok_s"]
    assert many["tpot_s"]["mean"] > few["tpot_s"]["mean"]
    assert few["running_max"] == 2 and many["running_max"] == 64


def test_the_seats_limit_what_runs_and_the_rest_waits() -> None:
    found = figures(
        *LLAMA, *SHORT, "--concurrency", "32", "--requests", "320", "--max-num-seqs", "8"
    )
    for side in (found, found["baseline"]):
        assert side["running_max"] == 8
        assert side["waiting_max"] == 24
        assert side["queue_s"]["mean"] > side["ttft_s"]["mean"] / 2


def test_duration_ends_a_run_and_counts_what_still_waits() -> None:
    found = figures(*LLAMA, *SHORT, "--rate", "20", "--duration", "10", "--warmup", "2")
    assert found["window_s"] == [2.0, 10.0]
    counts = found["requests"]
    assert counts["measured"] == counts["finished"] + counts["unfinished"]
    assert counts["measured"] == pytest.approx(160, abs=60)


def test_bursts_lengthen_the_tail() -> None:
    smooth = figures(*LLAMA, "--rate", "4", "--requests", "300", "--burstiness", "inf",
                     "--no-baseline")
    bursty = figures(*LLAMA, "--rate", "4", "--requests", "300", "--burstiness", "0.2",
                     "--no-baseline")
    assert bursty["ttft_s"]["p99"] > 2 * smooth["ttft_s"]["p99"]
    assert bursty["running_max"] > smooth["running_max"]


def test_a_rate_beyond_capacity_says_so() -> None:
    found = figures(*LLAMA, "--rate", "200", "--requests", "300", "--max-num-seqs", "16")
    words = " ".join(found["warnings"])
    assert "beyond the capacity (about" in words and "without speculation" in words
    assert found["waiting_max"] > 100
    assert not any("capacity" in text for text in figures(
        *LLAMA, *SHORT, *FEW, "--rate", "1")["warnings"])


def test_a_shared_prefix_is_found_in_the_cache() -> None:
    found = figures(*LLAMA, "--input-len", "1600", "--output-len", "20", "--cached-share", "0.5",
                    "--concurrency", "4", "--requests", "200")
    # 800 of 1600 tokens; the first prompts still compute them, and EAGLE leaves out a block.
    assert found["prefix_hit_rate"] == pytest.approx(0.49, abs=0.02)
    assert found["baseline"]["prefix_hit_rate"] > found["prefix_hit_rate"]
    off = figures(*LLAMA, "--input-len", "1600", "--output-len", "20", "--cached-share", "0.5",
                  "--concurrency", "4", "--requests", "200", "--no-prefix-caching")
    assert off["prefix_hit_rate"] == 0.0
    assert off["ttft_s"]["mean"] > found["ttft_s"]["mean"]


def test_a_trace_is_sent_at_its_own_times_or_at_another_pace(tmp_path: Path) -> None:
    path = trace_file(tmp_path / "mine.csv", "5,100,20", "15,300,10", "25,50,30")
    own = figures(*LLAMA, "--trace", path)
    assert own["requests"]["finished"] == 3
    assert own["inputs"]["load"]["format"] == "requests"
    assert 20.0 < own["window_s"][1] < 21.0  # the first at 0 s, the last 20 s later
    faster = figures(*LLAMA, "--trace", path, "--rate", "1.5")
    assert 2.0 < faster["window_s"][1] < 3.0  # 3 requests at 1.5/s
    closed = figures(*LLAMA, "--trace", path, "--concurrency", "1", "--requests", "2")
    assert closed["requests"]["measured"] == 2 and closed["running_max"] == 1
    sent = tmp_path / "sent.jsonl"
    figures(*LLAMA, "--trace", path, "--rate", "1.5", "--burstiness", "1", "--records", str(sent))
    records = sorted(map(json.loads, sent.read_text().splitlines()), key=lambda r: r["request_id"])
    assert [record["prompt_tokens"] for record in records] == [100, 300, 50]
    # `vllm bench serve` also waits before the first request, and sends the last at n / rate.
    assert records[0]["arrival_s"] > 0.0
    assert records[2]["arrival_s"] == pytest.approx(2.0)


def test_a_trace_without_times_needs_a_pace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("num_prefill_tokens,num_decode_tokens\n100,20\n200,10\n")
    refused(capsys, monkeypatch, "holds no times", *LLAMA, "--trace", str(path))
    found = figures(*LLAMA, "--trace", str(path), "--rate", "2")
    assert found["requests"]["finished"] == 2


def test_requests_too_long_for_the_model_are_refused_and_counted(tmp_path: Path) -> None:
    path = trace_file(tmp_path / "long.csv", "0,100,20", "1,5000,20")
    found = figures(*LLAMA, "--trace", path, "--max-model-len", "4096")
    assert found["requests"]["rejected"] == 1 and found["error_rate"] == 0.5
    assert any("refused: too long" in text for text in found["warnings"])


def test_people_chat_on_any_model() -> None:
    found = figures(*LLAMA, "--users", "20", "--duration", "120", "--warmup", "20")
    load = found["inputs"]["load"]
    assert load["users"] == 20 and load["scenario"] == "mindrouter-chat"
    assert found["inputs"]["model"] == "Llama-3.1-8B" and found["slo"] is None
    assert found["prefix_hit_rate"] > 0.2
    assert found["window_s"] == [20.0, 120.0]


@pytest.mark.slow
def test_the_built_in_scenario_brings_its_system_and_flags_override_it() -> None:
    short = ("--users", "10", "--duration", "60", "--warmup", "10")
    found = figures("--scenario", "mindrouter-chat", *short)
    inputs = found["inputs"]
    assert (inputs["model"], inputs["gpu"], inputs["k"]) == ("Gemma-4-31B", "h200-sxm", 4)
    assert inputs["engine"] == "vllm" and inputs["engine_version"] == "0.25.1"
    assert inputs["draft"] == "Gemma-4-31B-it-assistant"
    assert inputs["weights"].startswith("fp8") and inputs["kv_dtype"] == "fp8"
    assert inputs["acceptance_length"] == pytest.approx(1 + 4 * 0.52)
    assert inputs["config"]["rules"]["max_num_seqs"] == 48
    # 262,144 tokens are allowed; the pool in blocks of whole tokens holds somewhat less.
    assert 220_000 < inputs["config"]["max_model_len"] <= 262_144
    assert found["slo"]["stream_tok_s_p10"]["limit"] == 15
    assert found["baseline"]["slo"]["ttft_p95"]["value"] > 0

    other = figures("--scenario", "mindrouter-chat", *short, "--k", "2", "--max-num-seqs", "7",
                    "--slo", "ttft_p50=1", "--gpu", "h100", "--no-baseline")
    assert other["inputs"]["k"] == 2 and other["inputs"]["gpu"].startswith("h100")
    assert other["inputs"]["acceptance_length"] == pytest.approx(1 + 2 * 0.52)
    assert other["inputs"]["config"]["rules"]["max_num_seqs"] == 7
    assert set(other["slo"]) == {"pass", "ttft_p50", "verdict"}


def test_another_model_puts_aside_the_scenarios_drafter() -> None:
    found = figures("qwen3.6-27b", "--scenario", "mindrouter-chat", "--users", "5", "--duration",
                    "40", "--warmup", "5", "--no-baseline")
    assert found["inputs"]["method"] == "mtp"
    assert found["inputs"]["config"]["max_model_len"] is None
    none = figures("--scenario", "mindrouter-chat", "--users", "5", "--duration", "40", "--warmup",
                   "5", "--method", "none", "--no-baseline")
    assert none["inputs"]["k"] == 0 and none["inputs"]["model"] == "Gemma-4-31B"


@pytest.mark.slow
def test_streams_that_never_pause_saturate() -> None:
    found = figures("--scenario", "mindrouter-chat", "--concurrency", "12", "--duration", "60",
                    "--warmup", "30", "--no-baseline")
    assert found["inputs"]["load"]["streams"] == 12
    assert 11 < found["running_mean"] <= 12.01


def test_a_scenario_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\n[system]\nmodel = "llama-3.1-8b"\nmethod = "eagle3"\n'
        "num_speculative_tokens = 2\nacceptance = [0.7, 0.4]\ntp = 2\nrouter = 'least_loaded'\n"
        "replicas = 2\n"
        "[users]\ncount = 4\nopener_tokens = 100\nfollowup_tokens = 20\noutput_tokens = 30\n"
        "compose_s = 1\n[stage]\nduration_s = 30\nwarmup_s = 3\n"
    )
    found = figures("--scenario", str(path))
    inputs = found["inputs"]
    assert (inputs["tp"], inputs["k"], inputs["load"]["users"]) == (2, 2, 4)
    assert inputs["acceptance_length"] == pytest.approx(2.1)
    assert inputs["config"]["n_replicas"] == 2 and inputs["config"]["router"] == "least_loaded"
    assert found["window_s"] == [3.0, 30.0] and found["slo"] is None


@pytest.mark.slow
def test_replicas_share_the_load_and_one_may_fail() -> None:
    arguments = (*LLAMA, "--rate", "6", "--requests", "200", "--no-baseline")
    one = figures(*arguments)
    two = figures(*arguments, "--replicas", "2", "--router", "power-of-two")
    assert two["ttft_s"]["mean"] < one["ttft_s"]["mean"]
    broken = figures(*arguments, "--replicas", "2", "--router", "least_loaded", "--fail", "1:5:15")
    counts = broken["requests"]
    assert counts["failed"] > 0 and counts["finished"] + counts["failed"] == 200
    assert any("lost with a failed replica" in text for text in broken["warnings"])
    away = figures(*arguments, "--replicas", "2", "--fail", "0:1")  # and never back
    assert away["inputs"]["config"]["faults"] == [[0, 1.0, None]]
    gate = figures(*arguments, "--max-concurrent", "2")
    assert gate["running_max"] <= 3 and gate["gateway_queue_max"] > 0


def test_impatient_clients_give_up() -> None:
    found = figures(*LLAMA, "--rate", "50", "--requests", "200", "--max-num-seqs", "4",
                    "--request-timeout", "2", "--no-baseline")
    assert found["requests"]["timeout"] > 50
    assert any("given up by their clients" in text for text in found["warnings"])


# --- speculation that depends on the load ---------------------------------------------------------


def test_draft_lengths_by_batch_size_follow_vllms_table() -> None:
    config = {"method": "eagle3", "num_speculative_tokens": 3,
              "num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 1024, 0]],
              "synthetic_acceptance_length": 2.5}
    arguments = ("llama-3.1-8b", *SHORT, "--speculative-config", json.dumps(config))
    few = figures(*arguments, "--concurrency", "4", "--requests", "100")
    many = figures(*arguments, "--concurrency", "64", "--requests", "640")
    assert few["tokens_per_chunk"] > 2
    # Beyond eight requests nothing is drafted, except while the last ones finish.
    assert many["tokens_per_chunk"] < 1.3
    assert few["inputs"]["num_speculative_tokens_per_batch_size"] == [[1, 8, 3], [9, 1024, 0]]
    assert not any("per_batch_size" in text for text in few["warnings"])


def test_sglang_drafts_less_as_the_batch_grows() -> None:
    arguments = ("llama-3.1-8b", "--engine", "sglang", "--method", "eagle3", "--k", "5",
                 "--acceptance-rate", "0.8", *SHORT, "--adaptive", "--max-num-seqs", "128",
                 "--no-baseline")
    few = figures(*arguments, "--concurrency", "2", "--requests", "100")
    many = figures(*arguments, "--concurrency", "100", "--requests", "500")
    assert few["tokens_per_chunk"] > 2.2 > many["tokens_per_chunk"]


def test_a_policy_decides_and_is_named_in_the_result(tmp_path: Path) -> None:
    arguments = (*LLAMA, *SHORT, *FEW, "--concurrency", "4", "--no-baseline")
    path = tmp_path / "mine.py"
    path.write_text("from specsim.sim.policies.protocol import Policy\n"
                    "class Mine(Policy):\n"
                    "    def __init__(self, k=2):\n        self.k = k\n"
                    "    def drafts(self, state):\n        return min(self.k, state.longest)\n")
    mine = figures(*arguments, "--policy", f"{path}:Mine,k=1")
    fixed = figures(*arguments, "--policy", "static,k=1")
    assert fixed["inputs"]["policy"] == "static,k=1"
    for found in (mine, fixed):
        for name in ("inputs", "command", "cost_surface"):
            del found[name]
    assert mine == fixed
    assert "draft lengths by policy: goodput, up to k" in call(*arguments, "--policy", "goodput")


def test_files_of_settings_run_no_policy_of_their_own(tmp_path: Path, monkeypatch: Any) -> None:
    """Only who types FILE.py:CLASS runs it."""
    (tmp_path / "mine.py").write_text("raise SystemExit('the file was run')")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specsim.toml").write_text('[simulate]\npolicy = "./mine.py:Mine"\n')
    found = CliRunner().invoke(app, ["simulate", *LLAMA, "--concurrency", "2"])
    assert "is run only where it is typed" in str(found.exception) + found.output
    (tmp_path / "specsim.toml").unlink()
    (tmp_path / "grid.toml").write_text(
        '[fixed]\nmodel = "llama-3.1-8b"\nconcurrency = 2\n[grid]\npolicy = ["./mine.py:Mine"]\n'
    )
    found = CliRunner().invoke(app, ["sweep", "grid.toml"])
    assert "is run only where it is typed" in str(found.exception) + found.output


def test_lookups_without_a_draft_bring_one_token() -> None:
    found = figures("llama-3.1-8b", "--method", "ngram", "--k", "4", "--acceptance-length", "3",
                    "--draft-share", "0.5", *SHORT, "--concurrency", "4", "--requests", "200",
                    "--no-baseline")
    assert found["acceptance_length"] == pytest.approx(3.0, rel=0.08)  # over steps with a draft
    assert found["tokens_per_chunk"] == pytest.approx(2.0, rel=0.08)  # over all steps


def test_independent_steps_spread_the_streams_less() -> None:
    arguments = (*LLAMA, "--concurrency", "8", "--requests", "300", "--no-baseline")
    fitted = figures(*arguments)
    even = figures(*arguments, "--easiness", "none")

    def spread(found: dict[str, Any]) -> float:
        return float(found["stream_tok_s"]["p90"] / found["stream_tok_s"]["p10"])

    assert spread(fitted) > spread(even) + 0.05
    assert even["inputs"]["easiness"] == "independent steps"


# --- agreement with predict -----------------------------------------------------------------------


def test_simulate_and_predict_answer_alike() -> None:
    chosen = (*LLAMA, "--concurrency", "16")
    simulated = figures(*chosen, "--requests", "400")
    predicted = CliRunner().invoke(app, ["predict", *chosen, "--json"])
    point = json.loads(predicted.stdout)["points"][0]
    assert simulated["output_tok_s"] == pytest.approx(point["output_tok_s"], rel=0.1)
    assert simulated["tpot_s"]["mean"] == pytest.approx(point["tpot_s"], rel=0.1)
    assert simulated["gain"]["output_tok_s"] == pytest.approx(point["speedup"], rel=0.1)


# --- files and interruption -----------------------------------------------------------------------


def test_records_and_trace_are_written(tmp_path: Path) -> None:
    lines, table, trace = tmp_path / "r.jsonl", tmp_path / "r.csv", tmp_path / "t.json"
    arguments = (*LLAMA, *SHORT, *FEW, "--rate", "5")
    found = figures(*arguments, "--records", str(lines), "--trace-out", str(trace))
    records = [json.loads(line) for line in lines.read_text().splitlines()]
    assert len(records) == 60 and {r["status"] for r in records} == {"finished"}
    ttft = sorted(r["first_token_s"] - r["arrival_s"] for r in records)
    assert sum(ttft) / 60 == pytest.approx(found["ttft_s"]["mean"], rel=1e-9)
    events = json.loads(trace.read_text())["traceEvents"]
    assert {"prefill", "decode"} <= {event["name"] for event in events}
    figures(*arguments, "--records", str(table))
    assert len(list(csv.DictReader(io.StringIO(table.read_text())))) == 60


def cut_short(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[str, str]:
    """Both streams of `simulate --json` in this process, which sent itself SIGINT meanwhile."""
    monkeypatch.setattr(sys, "argv", ["specsim", "simulate", *LLAMA, *arguments, "--json"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130
    out, err = capsys.readouterr()
    return out, err


def test_ctrl_c_prints_what_was_simulated_and_says_partial(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGINT once the run tells of a request that has ended."""
    real = compare.simulate

    def heard(state: Progress) -> None:
        if state.ended:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(compare, "simulate", lambda *args, **kwargs: real(
        *args, **{**kwargs, "progress": heard}
    ))
    out, err = cut_short(monkeypatch, capsys, "--rate", "2", "--duration", "10000000")
    found = json.loads(out)
    assert found["partial"] is True and found["baseline"] is None
    assert "partial" in err and err.count("\n") == 1
    assert found["requests"]["finished"] > 0 and found["tpot_s"]["mean"] > 0
    assert "the baseline was not reached" in " ".join(found["warnings"])


@pytest.mark.parametrize(
    ("at", "replications", "baseline", "words"),
    [
        (1, 0, False, ""),
        (2, 1, False, "before the baseline"),
        (3, 1, True, "medians of 1 finished run"),
        (5, 2, True, "medians of 2 finished runs"),
    ],
)
def test_an_interruption_between_runs_loses_nothing_that_was_finished(
    at: int,
    replications: int,
    baseline: bool,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SIGINT as run `at` begins: nothing, one side, one whole pair, or two are there."""
    calls = 0
    real = compare.simulate

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            signal.raise_signal(signal.SIGINT)
        return real(*args, **kwargs)

    monkeypatch.setattr(compare, "simulate", counted)
    out, _ = cut_short(
        monkeypatch, capsys, *SHORT, *FEW, "--rate", "20", "--replications", "1000"
    )
    if not replications:
        assert out == ""
        return
    found = json.loads(out)
    assert found["partial"] is True and found["replications"] == replications
    assert found["requests"]["finished"] == 60
    if baseline:
        assert found["baseline"]["requests"]["finished"] == 60
    else:
        assert found["baseline"] is None
    assert words in " ".join(found["warnings"])


def test_simulating_needs_no_torch_and_no_typer_in_the_core() -> None:
    code = (
        "import sys\n"
        "from specsim.sim import build, compare, result, run\n"
        "assert not {'torch', 'typer', 'rich', 'scipy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


# --- what is refused ------------------------------------------------------------------------------


def refused(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    message: str,
    *arguments: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["specsim", "simulate", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    assert stop.value.code == 2, (out[:300], err)
    assert out == ""
    assert err.startswith("specsim: ") and err.count("\n") == 1 and len(err) < 1100, err
    assert message in err


ONE = ("llama-3.1-8b", "--concurrency", "2")
RATE = ("llama-3.1-8b", "--rate", "2")
BAD: list[tuple[str, tuple[str, ...]]] = [
    # the load
    ("no load is given", ()),
    ("no load is given", ("llama-3.1-8b",)),
    ("a MODEL is needed", ("--concurrency", "2")),
    ("different loads", (*ONE, "--rate", "2")),
    ("different loads", (*ONE, "--users", "2")),
    ("different loads", (*RATE, "--users", "2")),
    ("different loads", (*RATE, "--scenario", "mindrouter-chat")),
    ("different loads", (*RATE, "--concurrency", "2", "--trace", "x")),
    ("different loads", ("llama-3.1-8b", "--users", "2", "--trace", "x")),
    ("--rate is -1", ("llama-3.1-8b", "--rate", "-1")),
    ("--rate is 0", ("llama-3.1-8b", "--rate", "0")),
    ("--rate is nan", ("llama-3.1-8b", "--rate", "nan")),
    ("--rate is 'abc'", ("llama-3.1-8b", "--rate", "abc")),
    ("--concurrency is 0", ("llama-3.1-8b", "--concurrency", "0")),
    ("--concurrency is '2.5'", ("llama-3.1-8b", "--concurrency", "2.5")),
    ("--concurrency is 1000000000", ("llama-3.1-8b", "--concurrency", "1000000000")),
    ("--users is -3", ("llama-3.1-8b", "--users", "-3")),
    ("--requests is 0", (*RATE, "--requests", "0")),
    ("--requests is 99999999999", (*RATE, "--requests", "99999999999")),
    ("--duration is inf", (*ONE, "--duration", "inf")),
    ("--duration is -5", (*ONE, "--duration", "-5")),
    ("--duration is 1e+300; it must be seconds, above 0 and at", (*ONE, "--duration", "1e300")),
    ("sends 10,000,000,000 requests; at most",
     ("llama-3.1-8b", "--rate", "500", "--duration", "2e7")),
    ("--warmup is -1", (*ONE, "--warmup", "-1")),
    ("--warmup is nan", (*ONE, "--warmup", "nan")),
    ("leaves nothing of the 5 s", (*ONE, "--duration", "5", "--warmup", "5")),
    ("--burstiness belongs to --rate", (*ONE, "--burstiness", "1")),
    ("--burstiness is 0", (*RATE, "--burstiness", "0")),
    ("--burstiness is nan", (*RATE, "--burstiness", "nan")),
    ("--range-ratio is 1", (*RATE, "--range-ratio", "1")),
    ("--cached-share needs prompts of one length",
     (*RATE, "--range-ratio", "0.1", "--cached-share", "0.5")),
    ("say how many with --requests",
     ("llama-3.1-8b", "--rate", "inf", "--duration", "5")),
    ("lengths of the requests come from simulated users",
     ("llama-3.1-8b", "--users", "2", "--input-len", "5")),
    ("--requests does not limit", ("llama-3.1-8b", "--users", "2", "--requests", "5")),
    ("--sort-trace belongs to --trace", (*RATE, "--sort-trace")),
    ("input_len is -5", (*RATE, "--input-len", "-5")),
    ("output_len is 0", (*RATE, "--output-len", "0")),
    # gates
    ("did you mean 'ttft_p95'", (*ONE, "--slo", "tfft_p95=2")),
    ("has no limit", (*ONE, "--slo", "ttft_p95")),
    ("is not a number", (*ONE, "--slo", "ttft_p95=fast")),
    ("must be a number, 0 or more", (*ONE, "--slo", "ttft_p95=-1")),
    ("--slo is empty", (*ONE, "--slo", "")),
    # the system
    ("is not in the catalogue", ("nosuchmodel", "--concurrency", "2")),
    ("near matches", (*ONE, "--gpu", "h2000")),
    ("smallest tp that fits", ("llama-3.1-70b", "--rate", "1", "--weights", "bf16", "--gpu", "l4")),
    ("all would be refused", (*ONE, "--max-model-len", "1000")),
    ("does not fit", (*ONE, "--input-len", "5000000")),
    ("--max-model-len is 0", (*ONE, "--max-model-len", "0")),
    ("max_num_seqs is 100000", (*ONE, "--max-num-seqs", "100000")),
    ("verifies 4 tokens per step",
     (*LLAMA, "--concurrency", "2", "--max-num-batched-tokens", "3")),
    ("is SGLang's", (*LLAMA, "--concurrency", "2", "--adaptive")),
    ("--adaptive needs eagle",
     ("llama-3.1-8b", "--method", "ngram", "--k", "3", "--acceptance-length", "2", "--engine",
      "sglang", "--concurrency", "2", "--adaptive")),
    ("policy 'godput' is not known; did you mean 'goodput'?", (*ONE, "--policy", "godput")),
    ("there is no Python file", (*ONE, "--policy", "./no_such_file.py:Mine")),
    ("--adaptive is --policy adaptive", (*ONE, "--policy", "goodput", "--adaptive")),
    ("exclude each other",
     ("llama-3.1-8b", "--concurrency", "2", "--policy", "goodput", "--speculative-config",
      json.dumps({"method": "eagle3", "num_speculative_tokens": 3,
                  "num_speculative_tokens_per_batch_size": [[1, 8, 3]],
                  "synthetic_acceptance_length": 2.5}))),
    ("the method is 'none'", ("llama-3.1-8b", "--method", "none", "--concurrency", "2",
                              "--policy", "goodput")),
    ("keeps none in memory",
     ("llama-3.1-8b", "--method", "ngram", "--k", "3", "--acceptance-length", "2",
      "--concurrency", "2", "--policy", "unload")),
    ("acceptance spread 'eagle-sharegp' is not known; did you mean 'eagle-sharegpt'?",
     (*ONE, "--easiness", "eagle-sharegp")),
    # the cluster
    ("--replicas is 0", (*ONE, "--replicas", "0")),
    ("did you mean 'round_robin'", (*ONE, "--router", "round-robbin")),
    ("--max-concurrent is -1", (*ONE, "--max-concurrent", "-1")),
    ("they are 0 to 0", (*ONE, "--fail", "1:5:6")),
    ("return_s must be later", (*ONE, "--fail", "0:5:4")),
    ("write REPLICA:FROM_S", (*ONE, "--fail", "now")),
    ("write REPLICA:FROM_S", (*ONE, "--fail", "0:a:b")),
    ("fail_s is nan", (*ONE, "--fail", "0:nan")),
    ("--request-timeout is 0", (*ONE, "--request-timeout", "0")),
    # the run
    ("--seed is -1", (*ONE, "--seed", "-1")),
    ("--replications is 0", (*ONE, "--replications", "0")),
    ("--precision is 0", (*ONE, "--precision", "0")),
    ("--precision is nan", (*ONE, "--precision", "nan")),
    ("--json and --csv are both given", (*ONE, "--json", "--csv")),
    # files
    ("is not a file", ("llama-3.1-8b", "--trace", "/nonexistent.csv")),
    ("is not a file", ("llama-3.1-8b", "--trace", "")),
    ("is a folder", (*ONE, "--records", ".")),
    ("cannot be written", (*ONE, "--records", "/proc/r.jsonl")),
    ("it must end in .json", (*ONE, "--records", "r.txt")),
    ("--trace-out is empty", (*ONE, "--trace-out", "")),
    ("did you mean 'mindrouter-chat'", ("--scenario", "mindrouter-chatt")),
    ("does not exist", ("--scenario", "/nonexistent.toml")),
    ("scenario '' is not known", ("--scenario", "")),
]


@pytest.mark.parametrize(("message", "arguments"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_bad_input_is_one_line_and_exit_code_two(
    message: str,
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused(capsys, monkeypatch, message, *arguments)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1 is no known trace header"),
        ("arrival_s,prompt_tokens,output_tokens\n", "holds no request"),
        ("arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,x,5\n", "line 3: prompt_tokens is 'x'"),
        ("arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,10\n", "line 3 has another number"),
        ("arrival_s,prompt_tokens,output_tokens\n9,10,5\n1,10,5\n",
         "line 3 has the arrival_s 1, earlier than the 9 of line 2"),
        ("arrival_s,prompt_tokens,output_tokens\n0,10,5\nnan,10,5\n", "line 3: arrival_s"),
        ("arrival_s,prompt_tokens,output_tokens\n0,-1,5\n", "line 2: prompt_tokens is '-1'"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 5}\n{"timestamp":\n', "line 2"),
        ('{"timestamp": 0, "input_length": 5}\n', "line 1 lacks 'output_length'"),
        ("\x00\x01\x02", "line 1 is no known trace header"),
    ],
)
def test_a_broken_trace_is_refused_with_its_line_before_the_run(
    content: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "broken.csv"
    path.write_text(content)
    refused(capsys, monkeypatch, message, *LLAMA, "--trace", str(path))


@pytest.mark.parametrize(
    ("system", "message"),
    [
        ("tp = 'two'", "[system] tp is 'two'; it must be a whole number"),
        ("tp = true", "it must be a whole number"),
        ("model = 5", "it must be text"),
        ("acceptance = 'x'", "must be numbers separated by commas"),
        ("acceptance = [true]", "must be a list of numbers"),
        ("acceptance_length = 'long'", "it must be a number"),
        ("engine = 3", "engine and engine_version must be text"),
        ("modell = 'x'", "did you mean 'model'"),
        ("router = 'random'", "router 'random' is not known"),
        ("acceptance_length = 2.0\nacceptance_rate = 0.5", "both say what is accepted"),
    ],
)
def test_a_scenario_with_a_wrong_system_is_refused(
    system: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head = "" if system.startswith("model =") else 'model = "llama-3.1-8b"\nmethod = "eagle3"\n'
    path = tmp_path / "wrong.toml"
    path.write_text(
        f"[system]\n{head}{system}\n"
        "[users]\ncount = 4\nopener_tokens = 100\nfollowup_tokens = 20\noutput_tokens = 30\n"
    )
    refused(capsys, monkeypatch, message, "--scenario", str(path))


def test_every_key_is_documented() -> None:
    text = (ROOT / "docs" / "simulate.md").read_text(encoding="utf-8")
    found = figures(*LLAMA, *SHORT, *FEW, "--rate", "5", "--slo", "ttft_p95=2", "--replications",
                    "2")
    names = {*found, *found["baseline"], *found["requests"], *found["gain"], *found["time_share"]}
    missing = sorted(name for name in names if f"`{name}`" not in text)
    assert not missing
    options = CliRunner().invoke(app, ["simulate", "--help"], env={"COLUMNS": "200"}).stdout
    for option in ("--rate", "--range-ratio", "--fail", "--easiness", "--precision", "--records"):
        assert option in options and f"{option}" in text


def test_the_documented_scenario_is_a_scenario() -> None:
    from specsim.sim.scenario import scenario_from

    text = (ROOT / "docs" / "simulate.md").read_text(encoding="utf-8")
    block = text.split("```toml\n", 1)[1].split("```", 1)[0]
    scenario = scenario_from(tomllib.loads(block), "docs")
    assert scenario.users == 180 and scenario.system["num_speculative_tokens"] == 4
    assert scenario.slo == {"ttft_p95": 2.0, "stream_tok_s_p10": 15}


def test_flags_reach_the_system_as_in_predict() -> None:
    found = figures("llama-3.1-8b", "--gpu", "h100", "--tp", "2", "--kv", "fp8", "--engine",
                    "sglang", "--method", "none", *SHORT, *FEW, "--concurrency", "2")
    options = Options(model="llama-3.1-8b", gpu="h100", tp=2, kv="fp8", engine="sglang",
                      method="none")
    system = build_request(options).system
    inputs = found["inputs"]
    assert inputs["gpu"] == system.profile.name and inputs["tp"] == 2
    assert inputs["kv_dtype"] == "fp8" and inputs["engine"] == "sglang"
