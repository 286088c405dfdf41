"""The server on a real socket, inside the test's event loop, and clients that misbehave."""

import asyncio
import json
from contextlib import asynccontextmanager

from serve_helpers import TIMEOUT_S
from specsim.serve.listening import bind
from specsim.serve.server import DrainingServer


@asynccontextmanager
async def listening(service):
    """(the server, its port) while it serves."""
    ready = asyncio.Event()
    with bind("127.0.0.1", 0) as sock:
        server = DrainingServer(service, ready.set)
        task = asyncio.create_task(server.serve(sockets=[sock]))
        await asyncio.wait_for(ready.wait(), TIMEOUT_S)
        try:
            yield server, sock.getsockname()[1]
        finally:
            service.engine.open()
            server.should_exit = server.force_exit = True
            await asyncio.wait_for(task, TIMEOUT_S)


class Peer:
    """A client's end of a connection."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port, sent=b"", limit=1 << 16):
        peer = cls(*await asyncio.open_connection("127.0.0.1", port, limit=limit))
        peer.writer.write(sent)
        await peer.writer.drain()
        return peer

    async def rest(self):
        """Whatever still comes, until the server closes or cuts the connection."""
        try:
            return await asyncio.wait_for(self.reader.read(), TIMEOUT_S)
        except ConnectionError:
            return b""

    def cut(self):
        return self.reader.at_eof() or self.reader.exception() is not None

    def close(self):
        self.writer.close()


def post(body, path="/v1/completions", close=True):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n{'Connection: close' if close else 'X: y'}\r\n\r\n"
            ).encode() + data


async def get(port, path):
    """(status, body) of a GET by a client that behaves."""
    peer = await Peer.open(port, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                                 "Connection: close\r\n\r\n".encode())
    head, _, body = (await peer.rest()).partition(b"\r\n\r\n")
    peer.close()
    return (int(head.split()[1]) if head else 0), body


async def complete(port, **body):
    """(status, answer) of a completion by a client that behaves."""
    peer = await Peer.open(port, post({"prompt": "ab", "max_tokens": 4} | body))
    head, _, text = (await peer.rest()).partition(b"\r\n\r\n")
    peer.close()
    return (int(head.split()[1]) if head else 0), text
