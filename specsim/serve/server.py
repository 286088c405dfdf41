"""uvicorn around the application: one socket, signals, and an end that finishes what runs.

The first SIGINT or SIGTERM closes the listening socket and refuses new requests; running and
queued ones get shutdown_timeout_s to finish, then they end with finish_reason 'abort'. A second
signal stops at once.
"""

import asyncio
import contextlib
import logging
import math
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import cast

import uvicorn

from specsim.serve.app import Service, create_app
from specsim.serve.connections import LAST_BYTES_S, Connection, Connections
from specsim.serve.listening import BACKLOG

# An idle connection stays open this long: clients that send one request every few seconds would
# otherwise meet a connection that is just being closed.
KEEP_ALIVE_S = 75
# Files that are no connections: the model, libraries, logs, and what is accepted in one go.
OTHER_FILES = BACKLOG + 128
LEAST_CONNECTIONS = 1024


def allowed_connections(wanted: int) -> int:
    """How many of `wanted` connections this process may have open, its limit raised as far as it
    goes (where the system has such a limit)."""
    try:
        import resource
    except ImportError:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    need = wanted + OTHER_FILES
    if soft < need:
        soft = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(wanted, soft - OTHER_FILES))


class DrainingServer(uvicorn.Server):
    """uvicorn with `Connections`, whose signals drain the service and do not end the process by
    themselves. ready: called once connections are answered."""

    def __init__(self, service: Service, ready: Callable[[], None]) -> None:
        settings = service.settings
        wanted = settings.max_connections or max(LEAST_CONNECTIONS, 4 * service.capacity)
        self.open_connections = Connections(settings, allowed_connections(wanted),
                                            service.max_model_len)
        protocol = cast(type[asyncio.Protocol], partial(Connection, self.open_connections))
        super().__init__(uvicorn.Config(
            create_app(service), http=protocol, log_level="error", access_log=False, ws="none",
            lifespan="on", server_header=False, proxy_headers=False, backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=math.ceil(settings.shutdown_timeout_s + LAST_BYTES_S),
        ))
        self._service, self._ready = service, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        failed = asyncio.Event()
        self._service.when_failed.append(failed)
        self._loop = asyncio.get_running_loop()
        self._watch = self._loop.create_task(self._stop_when(failed))
        self._sweep = self._loop.create_task(self.open_connections.sweep())
        self._ready()

    async def _stop_when(self, failed: asyncio.Event) -> None:
        await failed.wait()
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.draining = True
        grace = self._service.settings.shutdown_timeout_s
        abort = self._loop.call_later(grace, self._service.thread.cancel_all)
        await super().shutdown(sockets)
        abort.cancel()
        self._watch.cancel()
        self._sweep.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn's handlers, but a signal that ended the server well is not raised again."""
        before = {s: signal.signal(s, self.handle_exit) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = True
        self.should_exit = self._service.draining = True


def serve(service: Service, sock: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until a signal or a failure of the engine, which raises RuntimeError.

    ready: called once connections are answered.
    """
    # asyncio warns of each client that has gone while its answer was being written.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    DrainingServer(service, ready).run(sockets=[sock])
    if service.thread.failure is not None:
        raise RuntimeError(f"the engine has failed: {service.thread.failure}")
