"""The real command in a process of its own, over a real socket."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specsim.commands import app
from specsim.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-c", "from specsim.commands import main; main()"]


@contextmanager
def server(folder, *options):
    """(process, host, port, lines of stderr so far) of a running `specsim serve`."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--model", str(folder), "--port", "0", "--threads", "1",
         "--dtype", "fp32", *options],
        cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    lines, found = [], threading.Event()

    def read():
        for line in process.stderr:
            lines.append(line)
            if "http://" in line:
                found.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert found.wait(120), lines
        host, port = re.search(r"http://([\d.]+):(\d+)", "".join(lines)).groups()
        yield process, host, int(port), lines
    finally:
        process.kill()
        process.wait()
        reader.join(10)
        process.stderr.close()


def post(host, port, body):
    connection = http.client.HTTPConnection(host, port, timeout=30)
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    return connection, connection.getresponse()


@pytest.mark.slow
def test_serve_streams_counts_and_stops_gracefully(folder):
    with server(folder, "--draft", "ngram", "--k", "3", "--served-model-name", "tiny",
                "--max-model-len", "500", "--log-interval", "0") as (process, host, port, lines):
        assert host == "127.0.0.1"
        connection, reply = post(host, port, {"prompt": "ab ab", "max_tokens": 30,
                                              "temperature": 0, "model": "tiny"})
        body = json.loads(reply.read())
        assert body["usage"]["completion_tokens"] == 30
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        drafts = re.search(r"spec_decode_num_drafts_total\{.*\} (\d+)", text)
        assert int(drafts[1]) > 0
        connection.close()

        # A client that goes away in the middle of a stream frees its slot.
        connection, reply = post(host, port, {"prompt": "ab", "max_tokens": 490, "stream": True,
                                              "ignore_eos": True})
        assert reply.readline().startswith(b"data: ")
        reply.close()
        connection.close()
        deadline = time.monotonic() + 120
        while 'finished_reason="abort",model_name="tiny"} 1.0' not in text:
            assert time.monotonic() < deadline, text
            connection = http.client.HTTPConnection(host, port, timeout=30)
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            connection.close()

        # After a signal: what runs is finished, what is new is refused, and the exit code is 0.
        connection, reply = post(host, port, {"prompt": "ab", "max_tokens": 490, "stream": True,
                                              "ignore_eos": True})
        first = reply.readline()
        process.send_signal(signal.SIGTERM)
        rest = reply.read().decode()
        connection.close()
        assert first.startswith(b"data: ")
        assert rest.endswith("data: [DONE]\n\n")
        assert json.loads(rest.split("data: ")[-2])["choices"][0]["finish_reason"] == "length"
        assert process.wait(120) == 0
        with pytest.raises(OSError):
            socket.create_connection((host, port), timeout=5)
        assert not any("Traceback" in line for line in lines), lines


@pytest.mark.slow
def test_serve_aborts_after_the_grace_period(folder):
    with server(folder, "--draft", "none", "--shutdown-timeout", "0", "--max-model-len", "500",
                "--log-interval", "0") as (process, host, port, _):
        connection, reply = post(host, port, {"prompt": "ab", "max_tokens": 490, "stream": True,
                                              "ignore_eos": True})
        reply.readline()
        process.send_signal(signal.SIGINT)
        rest = reply.read().decode()
        connection.close()
        end = json.loads(rest.split("data: ")[-2])["choices"][0]["finish_reason"]
        assert end == "abort", "0 seconds of grace are too few for 490 tokens"
        assert process.wait(120) == 0


@pytest.mark.parametrize(("options", "words"), [
    (["--draft", "ngam"], "did you mean 'ngram'"),
    (["--draft", "head"], "no trained head ships for 'nowhere'"),
    (["--draft", "none", "--k", "2"], "--k 2"),
    (["--k", "65"], "0..64"),
    (["--dtype", "fp16"], "bf16 or fp32"),
    (["--device", "tpu"], "cpu, cuda or auto"),
    (["--max-num-seqs", "0"], "--max-num-seqs is 0"),
    (["--max-queue", "-1"], "--max-queue is -1"),
    (["--shutdown-timeout", "-1"], "--shutdown-timeout is -1"),
    (["--per-request-spec-decode-metrics", "all"], "none, summary or detailed"),
    (["--port", "70000"], "from 0 to 65535"),
    (["--host", "no such host"], "no such host"),
    (["--threads", "0"], "--threads is 0"),
])
def test_wrong_options_end_with_one_line(options, words, monkeypatch, capsys):
    from specsim.commands import main

    monkeypatch.setattr(sys, "argv", ["specsim", "serve", "--model", "nowhere", *options])
    with pytest.raises(SystemExit) as caught:
        main()
    error = capsys.readouterr().err
    assert caught.value.code == 2
    assert words in error
    assert error.count("\n") == 1


def test_a_port_in_use_is_said_before_the_model_is_loaded(monkeypatch, capsys):
    from specsim.commands import main

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        monkeypatch.setattr(sys, "argv", ["specsim", "serve", "--model", "nowhere", "--port", port])
        with pytest.raises(SystemExit):
            main()
    assert f"port {port}" in capsys.readouterr().err


def test_missing_packages_come_with_the_way_to_install_them(monkeypatch, capsys):
    from specsim.commands import decoder_setup, main

    monkeypatch.setattr(decoder_setup, "find_spec", lambda name: None if name == "uvicorn" else 1)
    monkeypatch.setattr(sys, "argv", ["specsim", "serve"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == (
        "specsim: specsim serve needs uvicorn, which is not installed: "
        "pip install 'specsim-llm[decoder]'\n")


def test_a_taken_port_is_refused_before_the_model_is_looked_for(monkeypatch):
    def sought(*_, **__):
        raise AssertionError("the model was looked for before the port was tried")

    for name in ("find_folder", "load_model"):
        monkeypatch.setattr(f"specsim.decoder.models.{name}", sought)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(app, ["serve", "--port", str(port)])
    assert isinstance(result.exception, UsageError), result.exception
    assert f"cannot listen on 127.0.0.1 port {port}" in str(result.exception)
