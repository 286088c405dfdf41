"""Requests that no client should send: values of every field, framing, leaving at any moment. Each
is answered, refused in words or cut off, none is a fault of the server, and nothing stays open."""

import asyncio
import json
import random

import pytest

from live_server import Peer, complete, get, listening, post
from serve_helpers import make_engine, make_service, running, until
from specsim.serve.protocol import _OFF, ChatCall, CompletionCall

VALUES = (
    None, True, False, 0, 1, -1, 2, 2.5, -0.0, 1e-320, 1e308, 10**400, 1 << 31, 1 << 63, -(1 << 63),
    "", " ", "1", "x" * 2000, "\ud800", "\x00", "ü€𝕏", [], [[]], [1], [0.5], [True], ["a"], [None],
    [1 << 70], [[1], "a"], [[1], [2]], ["a"] * 200, {}, {"a": 1}, {"type": "text"}, [{}], [[[]]],
    {"include_usage": 1}, {"continuous_usage_stats": True},
    [{"role": "user"}], [{"role": 1, "content": "a"}], [{"role": "user", "content": [{}]}],
    [{"role": "user", "content": [{"type": "text", "text": 1}]}],
    [{"role": "\ud800", "content": "\udfff"}], [{"role": "x" * 999, "content": ""}],
)
ENDPOINTS = {
    "/v1/completions": (CompletionCall, {"prompt": "ab", "max_tokens": 2}),
    "/v1/chat/completions": (ChatCall, {"messages": [{"role": "user", "content": "a"}],
                                        "max_tokens": 2}),
}
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
BODY = b'{"prompt": "ab", "max_tokens": 2}'
SIZE = b"Content-Length: %d\r\n" % len(BODY)
CHUNKS = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
# Each ends so that no more can come: a server that waits longer hangs.
FRAMES = (
    b"\r\n\r\n\r\n", b"\x00" * 500, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"GET /\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"get /health HTTP/1.1\r\n\r\n",
    b"GET /health HTTP/1.1\r\n\r\n", b"GET  /health  HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET http://127.0.0.1/health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /%00%ff%zz/../../etc HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    HEAD + b"X: " + b"a" * 200_000 + b"\r\n\r\n", HEAD + b"X: 1\r\n" * 20_000 + b"\r\n",
    HEAD + b"X : 1\r\n" + SIZE + b"\r\n" + BODY, HEAD + b" folded\r\n" + SIZE + b"\r\n" + BODY,
    HEAD + b"X\x00: 1\r\n" + SIZE + b"\r\n" + BODY, HEAD + b"no colon\r\n\r\n" + BODY,
    HEAD + b"Host: 127.0.0.1\r\n" + SIZE + b"\r\n" + BODY, HEAD + SIZE + SIZE + b"\r\n" + BODY,
    HEAD + SIZE + b"Content-Length: 7\r\n\r\n" + BODY,
    *(HEAD + b"Content-Length: " + size + b"\r\n\r\n" + BODY for size in (
        b"-1", b"+33", b"0x21", b"1e2", b"", b"9" * 400, b"99999999999", b"7", b"33, 33",
        b"\xd9\xa3")),
    HEAD + SIZE + b"Transfer-Encoding: chunked\r\n\r\n" + BODY,
    HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + BODY,
    HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + BODY,
    *(CHUNKS + lie for lie in (
        b"-1\r\n" + BODY, b"zz\r\n" + BODY, b"ffffffffffffffffffff\r\n" + BODY, b"5\r\n" + BODY,
        b"0\r\n\r\n", b"21\r\n" + BODY, b"21;" + b"a" * 100_000 + b"\r\n" + BODY, b"0\r\nX" * 999,
        b"1\r\n{\r\n" * 5000 + b"0\r\n\r\n", b"21\r\n" + BODY + b"\r\n0\r\n\r\n")),
    HEAD + b"Expect: 100-continue\r\n" + SIZE + b"\r\n" + BODY,
    HEAD + b"Content-Encoding: gzip\r\n" + SIZE + b"\r\n" + BODY, HEAD + SIZE + b"\r\n" + BODY[:9],
    HEAD + b"Upgrade: websocket\r\nConnection: Upgrade\r\n" + SIZE + b"\r\n" + BODY,
    (HEAD + SIZE + b"\r\n" + BODY) * 30,
)


def serve(model, tokenizer, work, over=running, **settings):
    engine = make_engine(model, max_num_seqs=2, max_model_len=128)
    service = make_service(engine, tokenizer, **settings)

    async def go():
        async with over(service) as client:
            await work(client, service)
            await until(lambda: not service.thread.num_open and not engine.has_work)

    asyncio.run(go())
    engine.check_integrity()


def tried(fields, values, model, tokenizer):
    async def work(client, service):
        for path, (_, body) in ENDPOINTS.items():
            for name in fields(path):
                for value in values:
                    reply = await client.post(path, body | {name: value})
                    assert reply.status in (200, 400, 404), (path, name, value, reply.body)
                    if reply.status != 200:
                        assert reply.json["error"]["message"].count("\n") == 0
                        assert len(reply.body) < 1000, (path, name, value)

    serve(model, tokenizer, work)


def fields_of(path):
    return [*ENDPOINTS[path][0].model_fields, *_OFF, "model"]


def test_values_of_some_fields(model, tokenizer):
    draw = random.Random(1)
    tried(lambda path: draw.sample(fields_of(path), 12), draw.sample(VALUES, 12), model, tokenizer)


@pytest.mark.slow
def test_every_value_of_every_field(model, tokenizer):
    tried(fields_of, VALUES, model, tokenizer)


async def _sent(port, data):
    """Statuses of what is answered to bytes after which the client ends its side."""
    peer = await Peer.open(port)
    try:
        peer.writer.write(data)
        if peer.writer.can_write_eof():
            peer.writer.write_eof()
        answer = await peer.rest()
    except ConnectionError:
        return []
    finally:
        peer.close()
    return [int(line.split()[1]) for line in answer.split(b"\r\n") if line[:5] == b"HTTP/"]


def framed(frames, model, tokenizer):
    async def work(live, service):
        for number, data in enumerate(frames):
            statuses = await _sent(live[1], data)
            assert all(s in (100, 200) or 400 <= s < 500 for s in statuses), (number, data[:200])
        assert (await get(live[1], "/health"))[0] == 200
        assert (await complete(live[1]))[0] == 200
        await until(lambda: not live[0].open_connections.count)

    serve(model, tokenizer, work, listening, header_timeout_s=1.0, body_timeout_s=1.0)


def test_frames_that_lie(model, tokenizer):
    framed(FRAMES, model, tokenizer)


def _damaged(draw):
    data = bytearray(post({"prompt": "ab", "max_tokens": 2, "stream": draw.random() < 0.5}))
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data))
        how = draw.randrange(4)
        if how == 0:
            data[at] = draw.randrange(256)
        elif how == 1:
            del data[at : at + draw.randint(1, 30)]
        elif how == 2:
            data[at:at] = draw.choice([b"\r\n", b"\x00", b"{", b"9", draw.randbytes(20)])
        else:
            data[at:at] = data[: draw.randint(1, len(data))]
    return bytes(data)


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_requests_that_are_damaged(count, model, tokenizer):
    draw = random.Random(count)
    framed([_damaged(draw) for _ in range(count)], model, tokenizer)


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_clients_that_leave_at_any_moment(count, model, tokenizer):
    """Before the body is whole, while it is tokenised, waits, is computed, or streams."""
    draw = random.Random(count)

    async def one(port):
        await asyncio.sleep(draw.uniform(0, count / 200))
        body = {"prompt": draw.choice(["ab", "ab " * 30, ["a", "b"]]), "n": draw.choice([1, 2]),
                "max_tokens": draw.choice([1, 30]), "stream": draw.random() < 0.5,
                "ignore_eos": True}
        data = post(body)
        peer = await Peer.open(port, data[: draw.choice([len(data), draw.randrange(len(data))])])
        await asyncio.sleep(draw.choice([0, 0.001, 0.02, 0.2]))
        if draw.random() < 0.5:
            await peer.reader.read(draw.randint(1, 300))
        peer.writer.transport.abort() if draw.random() < 0.5 else peer.close()

    async def work(live, service):
        await asyncio.wait_for(asyncio.gather(*(one(live[1]) for _ in range(count))), 120)
        await until(lambda: not service.thread.num_open and not live[0].open_connections.count)
        assert service._preparing == 0
        status, text = await complete(live[1])
        assert status == 200 and json.loads(text)["usage"]["completion_tokens"] == 4

    serve(model, tokenizer, work, listening, max_queue=20, header_timeout_s=1.0, body_timeout_s=1.0)
