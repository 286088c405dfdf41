"""`specsim diagnose` and `specsim watch` as a user calls them: files, pairs, and live servers."""

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from command_line import answer as call
from thinned import slow, some

from diagnose_helpers import GOOD, Counters, serving
from specsim.api import watch as watch_run
from specsim.diagnose.scrape import ScrapeError
from specsim.errors import FormatError, SpecSimError, UsageError
from specsim.options.measured import WatchCommand
from specsim.options.values import parse_duration

DATA = Path(__file__).parents[1] / "formats" / "data"
LLAMA = ("llama-3.1-8b", "--gpu", "h100", "--method", "eagle3")


def found(*words):
    document = json.loads(call("diagnose", *words, "--json"))
    assert document["kind"] == "diagnosis"
    return document


def test_a_file_with_and_without_a_model():
    sample = DATA / "vllm_draftself_k2_c1.json"
    (bare,) = found(sample)["diagnoses"]
    assert bare["predicted"] is None and "prediction" in bare["missing"][0]["what"]
    assert bare["measured"]["acceptance_length"] == pytest.approx(3.0)
    (judged,) = found(sample, "llama-3.1-8b", "--gpu", "h100", "--method", "eagle3")["diagnoses"]
    assert judged["predicted"]["k"] == 2  # from the file
    assert judged["predicted"]["tokens_per_step"] == pytest.approx(3.0)
    rules = {item["rule"] for item in judged["findings"]}
    assert {"trades_well", "prediction_misfit"} <= rules  # it ran on a CPU, not on an H100
    text = " ".join(call("diagnose", sample, *LLAMA).split())
    assert "GOOD: Spare compute" in text and "may describe another server" in text


@pytest.mark.parametrize("path", some(sorted(
    path for path in DATA.rglob("*")
    if path.suffix in (".json", ".jsonl", ".prom", ".csv") and path.stat().st_size < 40_000
    and path.name not in ("validation.json", "run=1.failure.json")
), 10), ids=lambda path: path.name)
def test_every_sample_is_judged_with_and_without_a_model(path):
    for words in ((), LLAMA):
        for item in found(path, *words)["diagnoses"]:
            for finding in item["findings"]:
                assert finding["level"] in ("problem", "good", "notice")
                assert finding["verdict"].endswith(".")
                assert all(fact["source"] for fact in finding["evidence"])


def test_a_pair_of_dumps_counts_only_what_is_between_them(tmp_path):
    server = Counters()
    server.work(500, rates=(0.1, 0.0, 0.0))
    (tmp_path / "a.prom").write_text(server.text())
    server.work(500, rates=GOOD, requests=5)
    (tmp_path / "b.prom").write_text(server.text())
    (item,) = found("--before", tmp_path / "a.prom", "--after", tmp_path / "b.prom", *LLAMA[:3],
                    "--method", "eagle3")["diagnoses"]
    assert item["measured"]["per_position"] == pytest.approx(list(GOOD))
    assert "rejected" not in {f["rule"] for f in item["findings"]}
    with pytest.raises(FormatError, match="falls from"):
        found("--before", tmp_path / "b.prom", "--after", tmp_path / "a.prom")


def test_log_lines_are_judged_by_the_share_of_steps_with_a_draft():
    (item,) = found(DATA / "spec_log.txt", *LLAMA)["diagnoses"]
    assert item["measured"]["draft_share"] < 0.5
    assert item["predicted"]["tokens_per_step"] == pytest.approx(
        item["measured"]["tokens_per_step"], rel=0.01)


@pytest.mark.parametrize("name", ["vllm_base_codeedit_c1.json"])
def test_method_none_names_nothing_to_compare_with(name):
    words = (DATA / name, *LLAMA[:3], "--method", "none")
    (item,) = found(*words)["diagnoses"]
    (off,) = [finding for finding in item["findings"] if finding["rule"] == "switched_off"]
    assert "leave out --method none" in off["next"][0]
    text = " ".join(call("diagnose", *words).split())
    assert "nothing to judge it by" in text and "does not pay" not in text
    (item,) = found(DATA / name, *LLAMA)["diagnoses"]
    assert "would" in next(f for f in item["findings"] if f["rule"] == "switched_off")["verdict"]


def test_the_same_load_without_speculation_measures_the_gain():
    spec, plain = DATA / "vllm_ngram3_codeedit_c1.json", DATA / "vllm_base_codeedit_c1.json"
    (item,) = found(spec, "--plain", plain)["diagnoses"]
    by_rule = {finding["rule"]: finding for finding in item["findings"]}
    facts = {fact["what"]: fact for finding in by_rule.values() for fact in finding["evidence"]}
    assert facts["speedup"]["source"].startswith("measured")
    with pytest.raises(UsageError, match="measured with speculation"):
        found(spec, "--plain", spec)


@pytest.mark.parametrize(("words", "message"), [
    ((), "nothing to diagnose"),
    (("--before", "a"), "belong together"),
    (("--url", "http://a", "--before", "a", "--after", "b"), "choose one source"),
    (("a", "b", "c"), "3 arguments given"),
    (("--url", "http://a", "m", "n"), "2 arguments given"),
    (("a", "--gpu", "h100"), "--gpu describes the deployment"),
    (("a", "--interval", "5"), "--interval goes with --url"),
    (("--url", "http://a", "--interval", "0"), "--interval is 0"),
    (("none.json",), "not a file"),
    (("--url", "ftp://a"), "not an http"),
])
def test_misuse_is_one_clear_line(words, message):
    with pytest.raises(SpecSimError, match=message) as caught:
        call("diagnose", *words)
    assert "\n" not in str(caught.value)


class Busy:
    """Counters that move with every scrape, as a server at work."""

    def __init__(self, **work):
        self.server, self.work = Counters(), work
        self.server.work(10)

    def __call__(self):
        self.server.work(50, **self.work)
        return self.server.text()


def test_diagnose_reads_a_live_server():
    with serving(Busy(batch=6, requests=2)) as (url, seen):
        (item,) = found("--url", url, "--interval", "0.5", *LLAMA)["diagnoses"]
    assert {method for method, _ in seen} == {"GET"} and len(seen) >= 2
    assert item["measured"]["live"] and item["measured"]["running"] == pytest.approx(6.04, abs=0.1)
    assert "trades_well" in {finding["rule"] for finding in item["findings"]}
    idle = Counters()
    with serving(idle.text) as (url, _):
        (item,) = found("--url", url, "--interval", "0.5")["diagnoses"]
    assert item["missing"][0]["what"] == "any output token"


class Clock:
    """Time that passes only while somebody sleeps."""

    strftime = staticmethod(time.strftime)

    def __init__(self):
        self.now_s = 0.0

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds


def test_watch_once_and_as_json_lines(monkeypatch):
    monkeypatch.setattr(watch_run, "time", Clock())
    with serving(Busy(batch=6, requests=2)) as (url, _):
        line = call("watch", "--url", url, *LLAMA, "--once", "--interval", "0.2")
        assert len(line.splitlines()) == 1
        for words in ("running 6", "[0.80 0.65 0.52]", "predicted", "speculation pays"):
            assert words in line
        lines = call("watch", "--url", url, *LLAMA, "--for", "0.7", "--interval", "0.2", "--json")
    documents = [json.loads(text) for text in lines.splitlines()]
    assert len(documents) == 4 and documents[0]["state"] == "first"
    assert all(item["kind"] == "watch" and item["pays"] for item in documents[1:])
    assert documents[1]["predicted"]["batch"] == 6


def test_watch_lives_through_restarts_and_outages(monkeypatch):
    monkeypatch.setattr(watch_run, "time", Clock())
    busy = Busy(batch=6, requests=2)
    script = iter([None, None, "gone", "gone", "restart"] + [None] * 50)

    def answer():
        what = next(script)
        if what == "gone":
            return 503, {}, b"starting"
        if what == "restart":
            busy.server.restart()
        return busy()

    with serving(answer) as (url, _):
        lines = call("watch", "--url", url, "--for", "1.4", "--interval", "0.2", "--json")
    states = [json.loads(text)["state"] for text in lines.splitlines()]
    assert states[:6] == ["first", "ok", "unreachable", "unreachable", "restarted", "ok"]
    events = [json.loads(text)["event"] for text in lines.splitlines()]
    assert events[2:5] == ["unreachable", None, "restarted"]


def test_ctrl_c_ends_it_in_peace(monkeypatch):
    shown = []

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(watch_run.time, "sleep", interrupt)
    with serving(Busy()) as (url, _):
        watch_run.watch(WatchCommand(url=url, interval=1.0), nullcontext(shown.append))
    assert len(shown) == 1


@pytest.mark.parametrize("how", [slow("reader leaves"), "Ctrl-C"])
def test_the_process_ends_with_its_reader_and_on_ctrl_c(how):
    with serving(Busy(batch=6)) as (url, _):
        process = subprocess.Popen(
            [sys.executable, "-c", "from specsim.commands import main; main()", "watch", "--url",
             url, "--interval", "0.2", "--for", "20s"],
            cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert "running" in process.stdout.readline()
            if how == "Ctrl-C":
                process.send_signal(signal.SIGINT)
            process.stdout.close()
            code, said = process.wait(15), process.stderr.read()
        finally:
            process.kill()
            process.wait()
            process.stderr.close()
    assert (code, said) == (0, "")


@pytest.mark.parametrize(("words", "message"), [
    (("--interval", "0"), "--interval is 0"), (("--interval", "nan"), "--interval is nan"),
    (("--for", "soon"), "a time above 0"), (("--for", "0"), "a time above 0"),
    (("--once", "--for", "5s"), "both say when"), (("--window", "1"), "--window is 1"),
    (("--tp", "2"), "--tp describes"), (("nonsense",), "not in the catalogue"),
    (("llama-3.1-8b", "--gpu", "abacus"), "abacus"),
])
def test_watch_refuses_before_it_asks_the_server(words, message):
    with pytest.raises(SpecSimError, match=message):
        call("watch", "--url", "http://127.0.0.1:9", *words)


@pytest.mark.parametrize(("text", "seconds"), [("60", 60), ("60s", 60), ("1.5m", 90), ("2h", 7200)])
def test_durations(text, seconds):
    assert parse_duration(text, "--for") == seconds


def test_a_server_that_is_not_there_or_no_engine_is_an_error_at_once():
    with pytest.raises(ScrapeError, match="cannot reach"):
        call("watch", "--url", "http://127.0.0.1:9")
    with (
        serving(lambda: "up 1\n") as (url, _),
        pytest.raises(FormatError, match="none of vLLM, SGLang"),
    ):
        call("watch", "--url", url)


def test_the_screen_shows_what_was_measured():
    from specsim.report.watch_view import watch_screen

    with serving(Busy(batch=6, requests=2)) as (url, _):
        lines = call("watch", "--url", url, *LLAMA, "--for", "0.5", "--interval", "0.2", "--json")
    screen = watch_screen([json.loads(text) for text in lines.splitlines()], url, "12:00:00")
    for words in ("running", "draft 3", "0.52", "predicted", "plain", "vllm m", "█"):
        assert words in screen
    assert max(len(line) for line in screen.splitlines()) < 110


@pytest.mark.slow
def test_it_reads_specsims_own_server():
    """The real metrics of the bundled server, over a real socket."""
    pytest.importorskip("torch")
    uvicorn = pytest.importorskip("uvicorn")
    helpers = _serve_helpers()
    import tempfile

    from specsim.decoder.models import load_model
    from specsim.decoder.tokenizer import Tokenizer
    from specsim.serve.app import create_app

    with tempfile.TemporaryDirectory() as name:
        folder = helpers.write_model(Path(name))
        model = load_model(folder, dtype="fp32").model
        service = helpers.make_service(
            helpers.make_engine(model, k=3, max_num_seqs=2), Tokenizer(folder))
        server = uvicorn.Server(uvicorn.Config(create_app(service), host="127.0.0.1", port=0,
                                               log_level="error"))
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            until = time.monotonic() + 300
            while not server.started and time.monotonic() < until:
                time.sleep(0.02)
            port = server.servers[0].sockets[0].getsockname()[1]
            url = f"http://127.0.0.1:{port}"
            stop = threading.Event()
            client = threading.Thread(target=_keep_asking, args=(port, stop))
            client.start()
            try:
                (item,) = found("--url", url, "--interval", "0.7")["diagnoses"]
                line = call("watch", "--url", url, "--once", "--interval", "0.5")
            finally:
                stop.set()
                client.join(20)
        finally:
            server.should_exit = True
            thread.join(20)
    measured = item["measured"]
    assert measured["engine"] == "vllm" and measured["model"] == "tiny"
    assert measured["output_tokens"] > 0 and measured["step_s"] > 0
    assert 0.5 <= measured["running"] <= 2.01
    assert "tokens/step" in line


def _keep_asking(port, stop):
    import http.client

    body = json.dumps({"model": "tiny", "prompt": "abababababab", "max_tokens": 60,
                       "ignore_eos": True})
    while not stop.is_set():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        connection.getresponse().read()
        connection.close()


def _serve_helpers():
    import importlib.util

    path = Path(__file__).parents[1] / "serve" / "serve_helpers.py"
    spec = importlib.util.spec_from_file_location("serve_helpers_for_diagnose", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
