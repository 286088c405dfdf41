"""`specsim validate live` and `bench` as commands: output, exit codes, bad input."""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="the client needs aiohttp")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "client"))

from functools import partial

from command_line import outcome

import specsim
from fake_server import FakeServer

DATA = Path(__file__).resolve().parents[1] / "formats" / "data"
CPU = ("--gpu", "cpu-generic")
NGRAM = ("--method", "ngram", "--k", "3")
C4 = str(DATA / "vllm_ngram3_codeedit_c4.json")


@pytest.fixture
def call(capsys, monkeypatch):
    """(exit code, stdout, stderr) of a command line."""
    return partial(outcome, capsys, monkeypatch, "validate")


def live(server, *arguments):
    return ("live", "smollm2-135m", "--url", server.url, *CPU, "--requests", "6", "--output-len",
            "10", "--sample-every", "0.05", *arguments)


def test_live_writes_a_whole_record_and_bench_files(call, tmp_path):
    record = tmp_path / "r.json"
    with FakeServer(per_chunk=3, max_tokens=10).running() as server:
        code, out, err = call(*live(
            server, "--concurrency", "1,2", "--repeats", "2", *NGRAM, "--json", "--out", record,
            "--save-bench", tmp_path / "bench"))
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found == json.loads(record.read_text())
    assert (found["kind"], found["what"]) == ("validation", "live")
    assert {row["name"] for row in found["rows"]} == {"c=1", "c=2"}
    assert all(point["steps_replayed"] for point in found["provenance"]["points"])
    steps = [r for r in found["rows"] if r["metric"] == "tokens_per_step"]
    assert steps and all(r["error"] == pytest.approx(0, abs=1e-9) for r in steps)
    assert all(r["spread"] is not None for r in steps)
    assert len(found["provenance"]["runs"]) == 4
    assert len(found["provenance"]["runs"][0]["requests"]) == 6
    files = sorted(path.name for path in (tmp_path / "bench").iterdir())
    assert files == ["c=1.0.json", "c=1.1.json", "c=2.0.json", "c=2.1.json"]
    # The same points through the other command.
    code, out, err = call("bench", tmp_path / "bench" / "c=2.0.json", "--model", "smollm2-135m",
                          *CPU, *NGRAM, "--json")
    assert code == 0, err
    again = json.loads(out)
    assert all(point["steps_replayed"] for point in again["provenance"]["points"])


def test_live_in_a_notebook_whose_thread_has_a_running_loop():
    async def cell(url):
        return specsim.validate_live(
            model="smollm2-135m", url=url, gpu="cpu-generic", method="none", requests=6,
            output_len=10, concurrency="2")

    with FakeServer(max_tokens=10).running() as server:
        assert asyncio.run(cell(server.url)).rows


def test_live_text_and_exit_code(call):
    with FakeServer(metrics=False).running() as server:
        code, out, err = call(*live(server, "--rate", "40", "--method", "none", "--max-error",
                                    "0.000001"))
    assert code == 1 and "median error above 1e-06" in err
    assert "TTFT mean" in out and "what explains the gap" in out
    assert "no engine metrics" in out


def test_live_traces_and_random_tokens(call, tmp_path):
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,20,5\n0.05,30,4\n0.1,10,6\n")
    with FakeServer().running() as server:
        code, out, _ = call(*live(server, "--trace", trace, "--method", "none", "--json"))
        assert code == 0
        assert [len(b["prompt"]) for b in server.bodies[1:]] == [20, 30, 10]
        code, out, _ = call(*live(server, "--random", "16,4", "--concurrency", "2", "--method",
                                  "none", "--json"))
    assert code == 0 and any("random tokens" in w for w in json.loads(out)["warnings"])


def test_live_refuses_drafts_it_was_told_nothing_about(call):
    with FakeServer(per_chunk=2).running() as server:
        code, _, err = call(*live(server, "--concurrency", "1", "--method", "none"))
    assert code == 2 and "drafts 3 tokens per step" in err
    assert not server.bodies  # before anything was sent


def test_live_keeps_the_points_before_a_failure(call):
    with FakeServer("500", faults_from=8).running() as server:
        code, out, err = call(*live(server, "--concurrency", "1,2", "--method", "none"))
    assert code == 1 and "ended early: c=2" in err and "c=1" in out


def test_live_interrupted_keeps_what_was_finished(call, tmp_path):
    record = tmp_path / "r.json"
    with FakeServer(step_s=0.01).running() as server:
        def stop():
            while server.finished < 10:  # a warm-up and 6 requests each: in a second or later run
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=stop)
        thread.start()
        code, out, err = call(*live(server, "--concurrency", "1,2", "--repeats", "9", "--method",
                                    "none", "--json", "--out", record))
        thread.join()
    assert code == 130 and "interrupted" in err
    runs = json.loads(out)["provenance"]["runs"]
    assert json.loads(record.read_text())["provenance"]["runs"] == runs
    partial = [run["partial"] for run in runs]
    assert len(partial) > 1 and partial == [False] * (len(partial) - 1) + [True]


def test_live_interrupted_in_a_later_warm_up_keeps_the_points_before(call):
    """16 requests and one warm-up of the first point, then the second one's warm-up stalls."""
    with FakeServer("stall", faults_from=17).running() as server:
        def stop():
            while len(server.bodies) < 18:
                time.sleep(0.01)
            time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=stop)
        thread.start()
        code, out, err = call(*live(server, "--concurrency", "1,2", "--requests", "16", "--method",
                                    "none", "--json"))
        thread.join()
    assert code == 130 and err.startswith("specsim: interrupted")
    (kept,) = json.loads(out)["provenance"]["runs"]
    assert kept["name"] == "c=1" and not kept["partial"]


@pytest.mark.parametrize("arguments, words", [
    (("--concurrency", "0"), "from 1 to"), ((), "no load is given"),
    (("--rate", "1", "--concurrency", "1,2"), "give one concurrency"),
    (("--concurrency", "1", "--trace", "x"), "own send times"),
    (("--concurrency", "1", "--prompts", "/nowhere"), "cannot be read"),
    (("--concurrency", "1", "--random", "5"), "PROMPT,OUTPUT"),
    (("--concurrency", "1", "--random", "5,5", "--chat"), "not token ids"),
    (("--concurrency", "1", "--requests", "0"), "--requests is 0"),
    (("--concurrency", "1", "--max-error", "0"), "above 0"),
    (("--concurrency", "1", "--fitted", "c=9"), "which is no point"),
    (("--concurrency", "1", "--served-model-name", "other"), "not in the catalogue|serves"),
    (("--concurrency", "1", "--burstiness", "0"), "above 0"),
    (("--concurrency", "1", "--temperature", "99"), "at most 10"),
])
def test_live_bad_input(call, arguments, words):
    with FakeServer().running() as server:
        given = [a for a in live(server, "--method", "none") if a not in ("--requests", "6")]
        code, out, err = call(*given, *arguments)
    assert (code, out) == (2, "") and err.startswith("specsim: ") and err.count("\n") == 1
    assert any(word in err for word in words.split("|")), err
    assert not server.bodies


def test_live_without_a_server(call):
    code, _, err = call("live", "smollm2-135m", "--url", "http://127.0.0.1:9", "--concurrency", "1")
    assert code == 2 and "cannot reach http://127.0.0.1:9" in err


def test_bench_simulates_a_result_file(call):
    code, out, err = call("bench", C4, *CPU, *NGRAM, "--model", "smollm2-135m", "--no-explain",
                          "--no-prefix-caching")
    assert code == 0, err
    assert "c=4" in out and "tokens per step" in out
    code, out, _ = call("bench", C4, *CPU, *NGRAM, "--model", "smollm2-135m", "--json",
                        "--no-explain", "--max-error", "0.0001")
    found = json.loads(out)
    assert code == 1 and found["what"] == "bench" and found["reasons"] == []
    used = found["provenance"]["points"][0]["acceptance_used"]
    assert used["draft_probability"] < 0.9  # steps without a draft are known


@pytest.mark.slow
def test_bench_with_an_assumed_acceptance_blames_it(call):
    code, out, err = call("bench", C4, *CPU, *NGRAM, "--model", "smollm2-135m", "--json",
                          "--acceptance-length", "1.1")
    assert code == 0, err
    causes = [reason["cause"] for reason in json.loads(out)["reasons"]]
    assert "acceptance" in causes


def test_bench_says_when_a_file_shows_no_drafts(call):
    file = DATA / "llmperf" / "model_100_20_summary.json"
    code, out, err = call("bench", file, *CPU, *NGRAM, "--model", "smollm2-135m", "--no-explain")
    assert code == 0, err
    assert "shows no drafts" in " ".join(out.split())
    code, out, err = call("bench", file, *CPU, *NGRAM, "--model", "smollm2-135m", "--no-explain",
                          "--acceptance-length", "2")
    assert code == 0 and "shows no drafts" not in " ".join(out.split())


@pytest.mark.parametrize("arguments, words", [
    ((C4, *CPU, "--method", "none", "--model", "smollm2-135m"), "drafts 3 tokens per step"),
    ((C4, *CPU), "drafts 3 tokens per step"), ((str(DATA / "spec_log.txt"),), "lacks a load"),
    (("/nowhere.json",), "not a file"),
    ((C4, *CPU, *NGRAM, "--model", "smollm2-135m", "--fitted", "x"), "which is no point"),
])
def test_bench_bad_input(call, arguments, words):
    code, out, err = call("bench", *arguments)
    assert (code, out) == (2, "") and words in err and err.count("\n") == 1


# --- pinned -------------------------------------------------------------------------------------


def test_a_pinned_acceptance_leaves_the_cost_of_steps(call):
    """The server yields three tokens a step, and says so; the prediction is told the same."""
    with FakeServer(per_chunk=3, max_tokens=31).running() as server:
        code, out, err = call(*live(server, "--concurrency", "1", "--pinned", "3", *NGRAM,
                                    "--output-len", "31", "--json"))
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["pinned"]["length"] == 3
    assert found["pinned"]["points"] == [{"name": "c=1", "acceptance_length": 3.0}]
    (split,) = found["split"]
    assert split["acceptance"] == pytest.approx(1, abs=0.02)
    assert split["tpot"] == pytest.approx(split["step_cost"] * split["acceptance"])
    (tpot,) = [row for row in found["rows"] if row["metric"] == "tpot_mean_s"]
    assert tpot["predicted"] / tpot["measured"] == pytest.approx(split["tpot"])


def test_what_is_not_pinned_is_refused_with_what_to_type(call):
    with FakeServer(per_chunk=3, max_tokens=31).running() as server:
        arguments = live(server, "--concurrency", "1", "--pinned", "2.5", *NGRAM, "--output-len",
                         "31")
        code, _, err = call(*arguments)
        sent = len(server.bodies)
        assert code == 2 and "not the 2.5 of --pinned" in err
        assert '"synthetic_acceptance_length": 2.5' in err and "vllm serve" in err
        code, _, err = call(*arguments)  # its counters now say so at once
        assert code == 2 and "so far" in err and len(server.bodies) == sent


def test_without_a_server_it_says_how_to_start_one(call):
    code, _, err = call("live", "llama-3.1-8b", "--url", "http://127.0.0.1:9", "--method", "eagle3",
                        "--k", "3", "--pinned", "2.5", "--concurrency", "1", "--engine", "sglang")
    assert code == 2 and "SGLANG_SIMULATE_ACC_LEN=2.5 python -m sglang.launch_server" in err


@pytest.mark.parametrize("arguments, words", [
    (("--pinned", "5", *NGRAM), "at most k + 1 = 4"),
    (("--pinned", "0.5", *NGRAM), "from 1 to k + 1"),
    (("--pinned", "2", "--method", "none"), "nothing drafts"),
    (("--pinned", "2", "--acceptance-length", "2", *NGRAM), "both say what is accepted"),
])
def test_odd_pins(call, arguments, words):
    with FakeServer().running() as server:
        code, _, err = call(*live(server, "--concurrency", "1", *arguments))
    assert code == 2 and words in err, err
    assert not server.bodies


def test_without_pins_the_gap_is_split_by_what_was_given(call):
    with FakeServer(per_chunk=3, max_tokens=31).running() as server:
        code, out, _ = call(*live(server, "--concurrency", "1", *NGRAM, "--acceptance-length", "2",
                                  "--output-len", "31"))
        assert code == 0 and "step cost x acceptance" in out and "of 3.00" in out


@pytest.mark.slow
def test_the_parts_of_a_gap_are_drawn(call, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "gap.svg"
    code, _, err = call("bench", C4, "--model", "smollm2-135m", *CPU, *NGRAM, "--plot", path)
    assert code == 0, err
    assert "+ acceptance" in path.read_text() and "c=4" in path.read_text()
    code, _, err = call("bench", C4, "--model", "smollm2-135m", *CPU, *NGRAM, "--plot", "x.pdf")
    assert code == 2 and ".svg or .png" in err
