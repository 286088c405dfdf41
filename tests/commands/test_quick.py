"""`specsim quick`: what is read, how the server is driven, what is said, and what is refused."""

import asyncio
import json
import os
import shlex
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
from specsim.api import quick as quick_run
from specsim.api.quick_judge import judged_at
from specsim.client import look as looking
from specsim.commands import main
from specsim.diagnose.evidence import Evidence
from specsim.formats.server_command import parse_command
from specsim.formats.server_flags import told_command
from specsim.options.measured import QuickOptions

LLAMA = ("--model", "llama-3.1-8b")
H100 = ("--gpu", "h100-sxm")


@pytest.fixture(autouse=True)
def no_gpu_here(monkeypatch):
    monkeypatch.setattr(quick_run, "local_gpu", lambda: "")


@pytest.fixture
def call(capsys, monkeypatch):
    """(exit code, stdout, stderr) of a command line."""
    return partial(outcome, capsys, monkeypatch, "quick")


@pytest.fixture
def asked(call):
    """The JSON of a look at a server for 0.3 s per load."""

    def run(server, *arguments):
        code, out, err = call(server.url, "--seconds", "0.3", "--json", *arguments)
        assert (code, err) == (0, "")
        return json.loads(out)

    return run


def drafting(**settings):
    return FakeServer(per_chunk=3, k=3, max_tokens=40, **settings).running()


def plain(**settings):
    return FakeServer(max_tokens=40, **settings).running()


def test_an_idle_server_with_speculation(call, asked, tmp_path, monkeypatch):
    share = tmp_path / "answer.md"
    with drafting() as server:
        found = asked(server, *LLAMA, *H100, "--method", "eagle3")
        code, out, _ = call(server.url, "--seconds", "0.3", *LLAMA, *H100, "--method", "eagle3",
                            "--share", share)
    assert code == 0
    assert [load["clients"] for load in found["loads"]] == [1, 4, 8]
    assert server.most_open == 8
    assert {body["model"] for body in server.bodies} == {"tiny"}
    lead = found["loads"][-1]
    assert lead["measured"]["tokens_per_step"] == pytest.approx(3.0, abs=0.1)  # as it answers
    assert lead["measured"]["num_speculative_tokens"] == 3
    assert lead["predicted"]["method"] == "eagle3" and lead["failed"] == 0
    verdict = found["verdict"]
    assert verdict["decision"] == ("on" if lead["predicted"]["speedup"] > 1 else "off")
    assert len(verdict["loads"]) == 3
    assert found["server"]["told"] == (
        "vllm serve tiny --kv-cache-dtype fp8 --gpu-memory-utilization 0.8")
    assert found["assumed"] == []
    answer = out.split("\n\n")[0]
    assert len(answer.splitlines()) <= 15
    for line in ("is it on: yes: k = 3", "does it pay: ", "which k: k = ", "step time: "):
        assert f"\n{line}" in answer
    (tmp_path / "found.json").write_text(json.dumps(found))
    monkeypatch.setattr(sys, "argv", ["specsim", "report", str(tmp_path / "found.json"), "-o",
                                      str(tmp_path / "page.html")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code and "is it on: yes" in (tmp_path / "page.html").read_text("utf-8")
    text = share.read_text("utf-8")
    assert text.startswith("# Speculative decoding") and "- **is it on**: yes: k = 3" in text


def test_in_a_notebook_whose_thread_has_a_running_loop():
    async def cell(url):
        return specsim.quick(url=url, model="llama-3.1-8b", gpu="h100-sxm", seconds=0.3)

    with plain() as server:
        assert asyncio.run(cell(server.url)).verdict["decision"] == "on"


def test_an_idle_server_without_speculation_is_told_what_to_type(asked):
    with plain() as server:
        found = asked(server, *LLAMA, *H100)
    lead = found["loads"][-1]
    assert lead["predicted"]["k"] == 0 and lead["would"]["k"] == lead["would"]["best_k"] > 0
    assert found["verdict"]["decision"] == "on"
    told = parse_command(found["verdict"]["command"])
    assert json.loads(told.values["speculative_config"])["num_speculative_tokens"] == (
        lead["would"]["best_k"])
    # The flags that the server told hold in what is typed.
    assert told.values["gpu_memory_utilization"] == 0.8 and told.values["kv"] == "fp8"


@pytest.mark.slow
def test_a_gpu_that_nobody_names_is_assumed_and_weighed(asked, monkeypatch):
    with plain() as server:
        server.model = {"id": "fast", "root": "meta-llama/Llama-3.1-8B-Instruct"}
        found = asked(server)
        ours = found["loads"][-1]["would"]
        other = asked(server, "--gpu", "l40s")["loads"][-1]["would"]
        monkeypatch.setattr(quick_run, "local_gpu", lambda: "NVIDIA H100 80GB HBM3")
        named = asked(server)
    assert found["deployment"]["model"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert found["deployment"]["gpu_from"] == ""
    (gpu,) = found["assumed"]
    assert (gpu["what"], gpu["flag"], gpu["value"]) == ("GPU", "--gpu", "h200-sxm")
    changed = {item["value"]: item["best_k"] for item in gpu["changes"]}
    differs = (ours["speedup"] > 1, ours["best_k"]) != (other["speedup"] > 1, other["best_k"])
    assert ("l40s" in changed) == differs
    assert named["deployment"]["gpu"] == "h100-sxm" and named["assumed"] == []


@pytest.mark.slow
def test_the_fewest_gpus_that_hold_the_model(asked):
    with plain() as server:
        found = asked(server, "--model", "llama-3.1-70b")
        typed = asked(server, "--model", "llama-3.1-70b", *H100, "--tp", "4")
    assert found["deployment"]["tp"] == 2  # 141 GB of weights, 141 GB of memory
    assert any("2 GPUs are assumed" in text for text in found["warnings"])
    assert typed["deployment"]["tp"] == 4
    assert not any("are assumed to share" in text for text in typed["warnings"])


def test_an_unknown_model_is_asked_for(call):
    with drafting() as server:
        code, out, _ = call(server.url, "--seconds", "0.3")
    assert code == 0
    assert "is it on: yes: k = 3" in out and "model unknown" in out and "--model" in out
    assert "NOT KNOWN" in out


@pytest.mark.slow
def test_lookups_are_told_from_networks_by_the_steps_without_a_draft(asked):
    with drafting() as server:
        network = asked(server, *LLAMA, *H100)
    assert [item["flag"] for item in network["assumed"]] == ["--method"]
    assert network["loads"][-1]["predicted"]["method"] == "eagle3"
    seen = Evidence("x", num_speculative_tokens=3, running=4, acceptance_length=2.2,
                    tokens_per_step=1.7, draft_share=0.6)
    found = judged_at(QuickOptions(model="llama-3.1-8b", gpu="h100-sxm"), {}, seen, [])
    assert found.about.method == "ngram"


@pytest.mark.parametrize(("running", "waiting", "how", "clients"), [
    (3, 0, "gently", [1]), (3, 2, "watched", [None]),
])
def test_other_people_come_first(asked, running, waiting, how, clients):
    with plain() as server:
        server.others.update(running=running, waiting=waiting)
        found = asked(server, *LLAMA, *H100)
    assert found["drive"]["how"] == how and str(waiting or running) in found["drive"]["why"]
    assert [load.get("clients") for load in found["loads"]] == clients
    assert server.most_open == (1 if how == "gently" else 0)
    assert found["loads"][-1]["measured"]["running"] >= 3


def test_watch_only_sends_nothing(asked, call):
    with plain() as server:
        found = asked(server, *LLAMA, *H100, "--watch-only")
        assert found["drive"]["how"] == "watched" and not server.bodies
    with plain(metrics=False) as server:
        code, _, err = call(server.url, "--watch-only")
        assert code == 2 and "--enable-metrics" in err and not server.bodies


def test_without_metrics_one_client_sees_what_it_can(asked):
    with plain(metrics=False) as server:
        found = asked(server, *LLAMA, *H100)
    assert found["drive"]["how"] == "gently" and server.most_open == 1
    # No sleep is shorter than asked for; how much longer is the machine's.
    assert 0.8 * server.step_s <= found["loads"][-1]["measured"]["step_s"] < 1
    assert "engine" in {item["what"] for item in found["assumed"]}


def test_sglang_tells_its_flags(asked):
    with plain(metrics=False) as server:
        server.server_info = {
            "model_path": "meta-llama/Llama-3.1-8B-Instruct", "tp_size": 2, "version": "0.5.6",
            "api_key": "sk-secret", "speculative_algorithm": "EAGLE3", "speculative_num_steps": 5,
            "speculative_draft_model_path": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
            "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 6,
            "mem_fraction_static": 0.85, "enable_dp_attention": False, "quantization": None,
        }
        found = asked(server, *H100)
    assert found["server"]["engine"] == "sglang"
    assert found["deployment"] == {"model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "h100-sxm",
                                   "tp": 2, "gpu_from": "as given"}
    told = parse_command(found["server"]["told"])
    assert (told.values["method"], told.values["k"], told.values["tp"]) == ("eagle3", 5, 2)
    assert told.values["gpu_memory_utilization"] == 0.85
    assert "sk-secret" not in json.dumps(found)


def test_what_is_told_is_quoted_and_only_what_decides():
    text = told_command("sglang", "a b; rm", {"tp_size": "2; rm", "host": "x", "port": 1,
                                              "enable_dp_attention": True, "dp_size": [1]})
    assert shlex.split(text) == ["sglang", "serve", "--model-path", "a b; rm", "--tp-size", "2; rm",
                                 "--enable-dp-attention"]
    assert told_command("trtllm", "m", {"tp_size": 2}) == ""


@pytest.mark.slow
def test_what_is_said_against_the_server_is_told(asked):
    with plain() as server:
        found = asked(server, *H100, *LLAMA, "--engine", "sglang", "--tp", "1", "--command",
                      "sglang serve --model meta-llama/Llama-3.1-8B-Instruct --tp 2")
    told = " ".join(found["warnings"])
    assert "--engine says sglang, the server that it is vllm==9.9.9; sglang is taken" in told
    assert "--tp 1 is taken, though --command says 2" in told


@pytest.mark.slow
def test_the_command_says_what_the_server_does_not(asked):
    with plain() as server:
        found = asked(server, *H100, "--command",
                      "vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 2 --max-num-seqs 32")
    assert (found["deployment"]["tp"], found["deployment"]["model"]) == (
        2, "meta-llama/Llama-3.1-8B-Instruct")


@pytest.mark.parametrize(("arguments", "words"), [
    (("--model", "no-such-model"), "not in the catalogue"),
    ((*LLAMA, "--gpu", "h900"), "unknown GPU"),
    ((*LLAMA, "--tp", "3"), "tp"),
    (("--command", "ls -l"), "--command"),
    (("--engine", "vllm", "--command", "sglang serve --model a"), "--engine 'vllm' contradicts"),
    (("--share", "/proc/nowhere/x.md"), "--share"),
    (("--seconds", "0"), "--seconds"),
    (("--api-key-env", "SPECSIM_NO_SUCH_KEY"), "--api-key-env"),
])
def test_mistakes_are_refused_before_anything_is_sent(call, arguments, words):
    with plain() as server:
        code, out, err = call(server.url, *arguments)
        assert (code, out) == (2, "") and words in err and err.count("\n") == 1
        assert not server.bodies


@pytest.mark.slow
def test_the_usual_ports(call, monkeypatch):
    with plain() as server:
        port = int(server.url.rpartition(":")[2])
        monkeypatch.setattr(looking, "PORTS", {1: "nobody", port: "ours"})
        code, out, _ = call("--seconds", "0.2", *LLAMA, *H100)
        assert code == 0 and server.url in out
        short = server.url.removeprefix("http://")
        assert call(short, "--seconds", "0.2", *LLAMA, *H100)[0] == 0
    code, out, err = call()
    assert (code, out) == (2, "")
    assert "1 (nobody)" in err and "specsim quick http://HOST:PORT" in err


def test_a_server_that_fails_ends_it_at_once(call):
    with plain(fault="500", faults_from=1) as server:
        code, out, err = call(server.url, "--seconds", "20", *LLAMA)
        assert (code, out) == (2, "") and "none of 1 requests was answered" in err
        assert len(server.bodies) == 2  # warm-up and one
    with plain(fault="500", faults_from=6, step_s=0.01) as server:
        code, out, err = call(server.url, "--seconds", "20", *LLAMA, *H100)
        assert code == 1 and "ended early" in err and "1 failed" in out
        assert len(server.bodies) == 7


def test_ctrl_c_keeps_what_was_finished(call):
    with plain(step_s=0.005) as server:
        def stop():
            while server.finished < 3:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=stop)
        thread.start()
        code, out, err = call(server.url, *LLAMA, *H100, "--json")
        thread.join()
    assert code == 130 and "interrupted" in err
    found = json.loads(out)
    assert found["drive"]["partial"] and len(found["loads"]) == 1


def test_names_from_a_server_stay_text(call, tmp_path):
    share = tmp_path / "answer.md"
    with plain() as server:
        server.model = {"id": "a\x1b[31m`<img src=x>`[b](http://evil)", "root": 7, "owned_by": []}
        code, out, _ = call(server.url, "--seconds", "0.2", "--share", share)
    assert code == 0 and "\x1b" not in out
    text = share.read_text("utf-8")
    assert "<img" not in text.replace("\\<img", "") and "](http" not in text.replace("\\](", "")
