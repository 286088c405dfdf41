"""Loads against a server that behaves, and against servers that do not."""

import asyncio
import dataclasses
import os
import signal
import threading
import time

import pytest

from fake_server import FakeServer
from specsim.client.http import Target, refusal
from specsim.client.load import LiveLoad, drive
from specsim.client.prompts import Prompt
from specsim.client.stream import Sampling
from specsim.errors import ServerError, UsageError


async def _in_a_loop(work):
    return work()


# As in a script, and where the thread has a running loop already: a notebook, an async function.
CALLERS = {"plain": lambda work: work(), "in a loop": lambda work: asyncio.run(_in_a_loop(work))}
everywhere = pytest.mark.parametrize("call", CALLERS.values(), ids=CALLERS)


PROMPTS = tuple(Prompt(f"prompt {i}", 6 + i % 3) for i in range(9))


def run(server, prompts=PROMPTS, target=None, sampling=None, report=None, **load):
    load.setdefault("max_concurrency", 3)
    return drive(
        target or Target(server.url), LiveLoad(prompts, **load), sampling or Sampling(),
        report=report, sample_every_s=0.05,
    )


@everywhere
def test_a_closed_loop_keeps_its_clients_busy_and_never_more(call):
    with FakeServer().running() as server:
        found = call(lambda: run(server))
    assert server.most_open == 3
    assert [r.record.request_id for r in found.requests] == list(range(9))
    assert [r.record.output_tokens for r in found.requests] == [6 + i % 3 for i in range(9)]
    assert {r.record.prompt_tokens for r in found.requests} == {5}
    assert all(r.record.chunks == r.record.output_tokens for r in found.requests)
    assert len(server.bodies) == 10  # one warmed up
    assert found.model == "tiny" and found.version == "9.9.9" and not found.partial
    bench = found.bench()
    assert (bench.completed, bench.failed, bench.tokens_per_step) == (9, 0, 1.0)
    assert bench.server is not None and bench.server.gauges == "mean"
    assert 0.5 < bench.concurrency_mean <= 3.01
    for request in found.requests:
        record = request.record
        assert record.arrival_s < record.first_token_s <= record.last_token_s == record.end_s
        assert record.e2el_s >= record.ttft_s + sum(request.itls_s) - 1e-9


def test_an_open_loop_sends_at_its_times():
    times = (0.0, 0.05, 0.05, 0.2, 0.33)
    with FakeServer().running() as server:
        found = run(server, PROMPTS[:5], times_s=times, max_concurrency=0, rate=10.0)
    sent = [r.record.arrival_s for r in found.requests]
    assert all(0 <= s - t < 0.1 for s, t in zip(sent, times, strict=True)), sent
    gaps = [b - server.arrived[1] for b in server.arrived[1:]]  # at the server, one clock
    assert gaps[-1] == pytest.approx(0.33, abs=0.1)
    assert found.bench().load.kind == "open"


def test_drafts_are_counted_per_chunk_and_by_the_server():
    with FakeServer(per_chunk=3, max_tokens=10).running() as server:
        found = run(server, tuple(Prompt("x", 10) for _ in range(6)))
    assert {r.chunk_tokens for r in found.requests} == {(1, 3, 3, 3)}
    bench = found.bench()
    assert bench.tokens_per_step == 3.0
    assert bench.acceptance.acceptance_length == pytest.approx(3.0)
    assert bench.acceptance.per_position == (1.0, 1.0, 0.0)
    assert bench.draft_share == 1.0
    assert bench.acceptance.num_drafts == 18  # without the warm-up's


def test_without_metrics_the_run_goes_on_and_says_so():
    with FakeServer(metrics=False).running() as server:
        found = run(server)
    assert len(found.finished) == 9 and found.before is None
    assert any("no engine metrics" in text for text in found.warnings)


def test_a_server_without_counts_per_chunk_is_asked_for_less():
    with FakeServer("no-counts").running() as server:
        found = run(server)
    assert len(found.finished) == 9
    assert "continuous_usage_stats" not in server.bodies[-1]["stream_options"]
    assert found.requests[0].chunk_tokens == ()


def test_a_server_without_usage_counts_chunks_and_warns():
    with FakeServer("no-usage", faults_from=0).running() as server:
        found = run(server)
    assert [r.record.output_tokens for r in found.requests] == [6 + i % 3 for i in range(9)]
    assert any("no usage" in text for text in found.warnings)


def test_chat():
    with FakeServer().running() as server:
        found = run(server, sampling=Sampling(chat=True))
    assert server.bodies[-1]["messages"][0]["role"] == "user"
    assert all(r.record.chunks == r.record.output_tokens for r in found.requests)


@pytest.mark.parametrize("fault, status, words", [
    ("429", "rejected", "HTTP 429: queue is full"),
    ("500", "failed", "HTTP 500: oh no"),
    ("stall", "timeout", "stalled: nothing for 0.3 s after"),
    ("cut", "failed", "connection lost after"),
    ("half", "failed", "the stream ended early, after"),
    ("error", "failed", "engine died"),
    ("garbage", "failed", "not JSON"),
    ("huge", "failed", "event of more than"),
    ("abort", "failed", "aborted"),
    ("empty", "failed", "held no token"),
])
def test_what_goes_wrong_is_a_record_with_its_reason(fault, status, words):
    # The warm-up and the first requests are served well.
    with FakeServer(fault, faults_from=4).running() as server:
        found = run(server, PROMPTS[:6], target=Target(server.url, stall_s=0.3), max_concurrency=1)
    assert len(found.finished) == 3
    bad = [r.record for r in found.requests if r.record.status != "finished"]
    assert {r.status for r in bad} == {status}
    assert all(words in r.reason for r in bad), bad[0].reason
    assert sum(found.failures().values()) == 3
    bench = found.bench()
    assert (bench.completed, bench.failed) == (3, 3)


def test_a_request_that_takes_too_long():
    slow = FakeServer(step_s=0.2)
    late = pytest.raises(ServerError, match=r"first request .* took longer than 0.5 s")
    with slow.running() as server, late:
        run(server, target=Target(server.url, request_s=0.5))


def test_a_server_that_answers_nothing_at_all_is_an_error_with_reasons():
    with FakeServer("500").running() as server, pytest.raises(ServerError, match="oh no"):
        run(server)


def test_a_dead_server_and_a_foreign_one():
    with pytest.raises(ServerError, match=r"cannot reach http://127.0.0.1:9/"):
        run(None, target=Target("http://127.0.0.1:9"))
    with FakeServer("html").running() as server, pytest.raises(ServerError, match="list of models"):
        run(server)


def test_a_model_that_is_not_served():
    with FakeServer().running() as server, pytest.raises(UsageError, match="serves tiny"):
        drive(Target(server.url), LiveLoad(PROMPTS, max_concurrency=1), Sampling(), model="other")


def test_the_key_goes_into_the_header_and_nowhere_else(monkeypatch):
    monkeypatch.setenv("MY_KEY", "abc123")
    with FakeServer().running() as server:
        found = run(server, target=Target(server.url, "MY_KEY"))
    assert server.headers[-1]["Authorization"] == "Bearer abc123"
    assert "abc123" not in str(found.to_dict())


@pytest.mark.parametrize("url, words", [
    ("127.0.0.1:8000", "must begin with"), ("ftp://x", "must begin with"),
    ("http://", "name a host"),
    ("http://u:p@h", "user name or password"), ("http://h/?a=1", "query"), ("http://h:0", "port 0"),
    ("http://h:99999999", "no address"),
])
def test_addresses(url, words):
    with pytest.raises(UsageError, match=words):
        Target(url)


def test_addresses_with_the_apis_own_path():
    assert Target("http://h:1/v1/").base == Target("http://h:1").base == "http://h:1"
    with pytest.raises(UsageError, match="not set"):
        Target("http://h", "NO_SUCH_VARIABLE_HERE")


def test_loads_that_cannot_be():
    with pytest.raises(UsageError, match="0 requests"):
        LiveLoad((), max_concurrency=1)
    with pytest.raises(UsageError, match="closed loop"):
        LiveLoad(PROMPTS)
    with pytest.raises(UsageError, match="must not fall"):
        LiveLoad(PROMPTS[:2], (1.0, 0.5))
    with pytest.raises(UsageError, match="1 send times"):
        LiveLoad(PROMPTS[:2], (1.0,))


def test_counters_that_fall_are_said_and_not_used():
    with FakeServer(per_chunk=3).running() as server:
        found = run(server)
    restarted = dataclasses.replace(found, before=found.after, after=found.before)
    bench = restarted.bench()
    assert bench.acceptance is None and bench.completed == 9
    assert any("counters only grow" in text for text in bench.warnings)


def test_other_clients_of_the_server_are_noticed():
    with FakeServer().running() as server:
        first = run(server)
        second = run(server)
    both = dataclasses.replace(second, before=first.before)
    assert any("others use the server too" in text for text in both.bench().warnings)
    assert not any("others use" in text for text in second.bench().warnings)


@everywhere
def test_interrupting_keeps_what_was_finished(call):
    with FakeServer(step_s=0.02).running() as server:
        def stop(now):  # by the client: what the server has sent may still be on its way
            if now.ended == 3:
                os.kill(os.getpid(), signal.SIGINT)

        before = signal.getsignal(signal.SIGINT)
        found = call(lambda: run(server, tuple(Prompt("x", 8) for _ in range(200)),
                                 max_concurrency=2, report=stop))
    assert signal.getsignal(signal.SIGINT) is before
    assert found.partial
    assert 3 <= len(found.finished) < 50
    assert any(r.record.status == "unfinished" for r in found.requests)
    assert found.bench().completed == len(found.finished)


@pytest.mark.parametrize("url", [
    "http://" + "a" * 300 + ":80", "http://a..b", "http://host name", "http://h\x00",
])
def test_names_that_no_host_can_have(url):
    with pytest.raises(UsageError, match="--url"):
        Target(url)


@pytest.mark.parametrize("url", ["http://[::1]:8000", "http://127.0.0.1:1", "http://münchen.de"])
def test_names_that_hosts_can_have(url):
    assert Target(url).base == url


def test_what_a_refusal_means():
    assert refusal(401, '{"error": {"message": "bad key"}}') == (
        "HTTP 401: bad key; name its key with --api-key-env")
    assert refusal(307, "") == "HTTP 307; give the address it redirects to"
    assert refusal(500, "") == "HTTP 500"


@everywhere
@pytest.mark.parametrize("warmups", [1, 3])
def test_interrupting_the_warm_up_blames_nobody(warmups, call):
    """The server is not at fault, and nothing was finished that could be kept."""
    with FakeServer("stall", faults_from=warmups - 1).running() as server:
        def stop():
            while not server.open or len(server.bodies) < warmups:
                time.sleep(0.01)
            time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=stop)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            call(lambda: run(server, warmups=warmups))
        thread.join()
