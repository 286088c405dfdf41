"""Clients that keep connections open without using them lock nobody out, over real sockets."""

import asyncio
import socket
from contextlib import AsyncExitStack

import pytest

from live_server import Peer, complete, get, listening, post
from serve_helpers import make_engine, make_service, until
from specsim.errors import UsageError
from specsim.serve import connections, server
from specsim.serve.connections import _network
from specsim.serve.listening import bind
from specsim.serve.settings import ServeSettings

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
# What a client that does not go on has sent so far.
HALF_OPEN = {
    "nothing": b"",
    "half a head": HEAD,
    "half a body": HEAD + b"Content-Length: 100\r\n\r\n{",
    "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n40\r\n{",
    "a body for GET": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nx",
    "refused before its body": b"POST /v1/nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                               b"Content-Length: 9\r\n\r\nx",
    "an idle connection": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "half of a second head": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /h",
}
ENDPOINTS = ("/health", "/metrics", "/version", "/v1/models")


def service_of(model, tokenizer, closed=False, **settings):
    return make_service(make_engine(model, closed=closed), tokenizer, **settings)


@pytest.mark.parametrize("sent", HALF_OPEN)
def test_half_open_connections_lock_nobody_out(model, tokenizer, sent):
    """Three times the connections that fit, none of which goes on."""
    async def main():
        service = service_of(model, tokenizer, max_connections=40)
        async with listening(service) as (running, port), AsyncExitStack() as stack:
            for _ in range(120):
                stack.callback((await Peer.open(port, HALF_OPEN[sent])).close)
            for path in ENDPOINTS:
                assert (await get(port, path))[0] == 200
            assert (await complete(port))[0] == 200
            assert running.open_connections.count <= 40

    asyncio.run(main())


@pytest.mark.parametrize("sent", ["nothing", "half a head", "half a body", "half a chunk"])
def test_whoever_does_not_go_on_is_cut_off_in_time(model, tokenizer, monkeypatch, sent):
    monkeypatch.setattr(connections, "SWEEP_S", 0.05)
    monkeypatch.setattr(connections, "BODY_GRACE_S", 0.2)

    async def main():
        service = service_of(model, tokenizer, header_timeout_s=0.3, body_timeout_s=0.3)
        async with listening(service) as (running, port):
            peer = await Peer.open(port, HALF_OPEN[sent])
            answer = await peer.rest()
            assert answer == b"" or b" 408 " in answer
            assert ("body" in sent or "chunk" in sent) == (b" 408 " in answer)
            peer.close()
            await until(lambda: running.open_connections.count == 0)

    asyncio.run(main())


def test_a_head_that_drips_is_cut_off_too(model, tokenizer, monkeypatch):
    monkeypatch.setattr(connections, "SWEEP_S", 0.05)

    async def main():
        service = service_of(model, tokenizer, header_timeout_s=0.4)
        async with listening(service) as (_, port):
            peer = await Peer.open(port)

            async def drip():
                for byte in HEAD * 100:
                    peer.writer.write(bytes([byte]))
                    await asyncio.sleep(0.02)

            dripping = asyncio.create_task(drip())
            assert await peer.rest() == b""
            dripping.cancel()
            peer.close()

    asyncio.run(main())


def test_a_client_that_goes_on_is_not_cut_off(model, tokenizer, monkeypatch):
    """One connection, many requests, each within its limits, for many times the limits."""
    monkeypatch.setattr(connections, "SWEEP_S", 0.02)

    async def main():
        service = service_of(model, tokenizer, header_timeout_s=0.3, body_timeout_s=0.3,
                             write_timeout_s=0.3)
        async with listening(service) as (running, port):
            peer = await Peer.open(port)
            ask = post({"prompt": "ab", "max_tokens": 4, "temperature": 0}, close=False)
            for _ in range(12):
                peer.writer.write(ask[:30])
                await asyncio.sleep(0.05)
                peer.writer.write(ask[30:-5])
                await asyncio.sleep(0.05)
                peer.writer.write(ask[-5:])
                head = await peer.reader.readuntil(b"\r\n\r\n")
                assert b" 200 " in head
                length = int(head.lower().split(b"content-length: ")[1].split()[0])
                await peer.reader.readexactly(length)
            peer.close()
            assert running.open_connections.cut_off == 0

    asyncio.run(main())


def test_requests_that_are_answered_are_not_cut_off_for_others(model, tokenizer):
    """A stream goes on while its address opens far more connections than it may."""
    async def main():
        service = service_of(model, tokenizer, closed=True, max_connections=20)
        async with listening(service) as (running, port), AsyncExitStack() as stack:
            stream = await Peer.open(port, post(
                {"prompt": "ab", "max_tokens": 20, "stream": True, "ignore_eos": True}))
            await until(lambda: service.thread.num_open == 1)
            for _ in range(60):
                stack.callback((await Peer.open(port, HEAD)).close)
            assert running.open_connections.count <= 10, "half of all, for one address"
            service.engine.open()
            assert (await stream.rest()).rstrip().endswith(b"data: [DONE]\n\n\r\n0")
            stream.close()

    asyncio.run(main())


def test_bodies_on_their_way_are_few(model, tokenizer, monkeypatch):
    """They hold memory: the oldest makes room."""
    async def main():
        service = service_of(model, tokenizer)
        async with listening(service) as (running, port), AsyncExitStack() as stack:
            running.open_connections.most_bodies = 5
            peers = [await Peer.open(port, HALF_OPEN["half a body"]) for _ in range(12)]
            for peer in peers:
                stack.callback(peer.close)
            await until(lambda: running.open_connections.count == 5)
            assert [peer.cut() for peer in peers] == [True] * 7 + [False] * 5
            assert (await complete(port))[0] == 200

    asyncio.run(main())


@pytest.mark.slow
def test_a_reader_that_does_not_read_is_cut_off_and_its_request_stopped(
    model, tokenizer, monkeypatch
):
    monkeypatch.setattr(connections, "SWEEP_S", 0.05)

    async def main():
        service = service_of(model, tokenizer, write_timeout_s=0.4)
        async with listening(service) as (running, port):
            for sock in running.servers[0].sockets:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            raw = socket.socket()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            raw.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(raw, ("127.0.0.1", port))
            # A stream of many answers: more bytes than the buffers between the two ends take.
            await loop.sock_sendall(raw, post(
                {"prompt": ["ab"] * 32, "n": 4, "max_tokens": 200, "stream": True,
                 "ignore_eos": True, "stream_options": {"continuous_usage_stats": True}}))
            await until(lambda: service.thread.num_open == 128)
            assert (await complete(port))[0] == 200
            await until(lambda: running.open_connections.count == 0)
            await until(lambda: service.thread.num_open == 0)
            assert running.open_connections.cut_off == 1
            raw.close()

    asyncio.run(main())


def test_one_ipv6_network_is_one_client():
    assert _network("2001:db8:1:2:3::4") == _network("2001:db8:1:2:ffff::1") == "2001:db8:1:2::/64"
    assert _network("2001:db8:1:3::4") != _network("2001:db8:1:2::4")
    assert (_network("::1"), _network("10.0.0.1"), _network("")) == ("::1", "10.0.0.1", "")


def test_connections_fit_into_the_limit_of_open_files(monkeypatch):
    resource = pytest.importorskip("resource")
    limits = [(300, 800)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.append(new))
    assert server.allowed_connections(400) == 400
    assert limits[-1] == (400 + server.OTHER_FILES, 800)
    assert server.allowed_connections(4000) == 800 - server.OTHER_FILES
    assert limits[-1] == (800, 800)


def test_two_servers_cannot_have_one_port():
    """The second is told at once, before it loads a model: the first listens from the start."""
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port}"):
            bind("127.0.0.1", port)
    bind("127.0.0.1", port).close()


@pytest.mark.parametrize("name", ["header_timeout_s", "body_timeout_s", "write_timeout_s"])
def test_time_limits_are_above_zero(name):
    with pytest.raises(UsageError, match=name):
        ServeSettings("m", **{name: 0.0})


