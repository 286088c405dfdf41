"""Where a server of this machine listens, and under which names it answers: without the decoder, so
that every server here can use it."""

import socket
from collections.abc import Iterable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from specsim.errors import UsageError
from specsim.serve.errors import ApiError

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Connections that the system accepts before the server has seen them.
BACKLOG = 128


def is_loopback(host: str) -> bool:
    return host in _LOOPBACK


def host_names(host: str) -> tuple[str, ...] | None:
    """Host headers to serve when bound to host: this machine's names, or any for other hosts."""
    return ("127.0.0.1", "localhost", "[::1]") if is_loopback(host) else None


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; UsageError when that is not possible. It listens from the beginning,
    since two servers could both be bound to a port until one listens: a client that comes while the
    model is loaded waits for its answer."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {host!r} is not an address of this machine: {error}") from None
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise UsageError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another --port or "
            "--host"
        ) from None
    return sock


def url_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class HostGuard:
    """Serves only requests whose Host header names this machine, so that a web page whose name has
    been pointed at 127.0.0.1 (DNS rebinding) cannot use a local server."""

    def __init__(self, app: ASGIApp, allowed: Iterable[str]) -> None:
        self._app, self._allowed = app, frozenset(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
            name = host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
            if name not in self._allowed:
                error = ApiError(400, f"Host {host[:100]!r} is not served here; use 127.0.0.1, or "
                                 "start the server with --host")
                await JSONResponse(error.body(), 400)(scope, receive, send)
                return
        await self._app(scope, receive, send)
