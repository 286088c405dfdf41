"""Connections: how long each may keep the server waiting, and which makes room for a new one.

A connection that waits for its client costs a file and some memory, and a client can open as many
as it likes. So each state in which the server waits has a time limit, one address may have half of
all connections, and when there are too many the oldest one that waits for its client, of the
address that has most, is cut off for the new one. A connection whose request is being answered is
never cut off for another: of those there are no more than requests that can be open, so /health and
/metrics always find a place.

uvicorn has a limit only for idle connections between requests; its protocol class is extended here.
"""

import asyncio
import contextlib
import ipaddress
from collections.abc import Iterable
from enum import Enum, auto
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from specsim.serve.settings import ServeSettings, body_limit

# Bodies that are being sent, all together, hold at most this.
MAX_BODY_BYTES = 128 << 20
LEAST_BODIES = 16
# After the server has closed a connection, its last bytes get this long to be read.
LAST_BYTES_S = 5.0
# The application answers 408 to a body that is late; what has not taken that answer is cut off.
BODY_GRACE_S = 5.0
SWEEP_S = 0.5


class Wait(Enum):
    """What a connection waits for."""

    HEAD = auto()  # the client to send a whole request head
    BODY = auto()  # the client to send the rest of a body
    CLOSE = auto()  # the client to take the last bytes
    NEXT = auto()  # the client to send another request
    READER = auto()  # the client to read what has been written
    ANSWER = auto()  # the server


class Connections:
    """All open connections of a server. most: how many there may be, most_per_address: of one
    address (of IPv6, one network of 64 bits)."""

    def __init__(self, settings: ServeSettings, most: int, max_model_len: int) -> None:
        self.most, self.most_per_address = most, max(1, most // 2)
        self.most_bodies = max(LEAST_BODIES, MAX_BODY_BYTES // body_limit(max_model_len))
        self._limits_s = {
            Wait.HEAD: settings.header_timeout_s,
            Wait.BODY: settings.body_timeout_s + BODY_GRACE_S,
            Wait.CLOSE: LAST_BYTES_S,
            Wait.READER: settings.write_timeout_s,
        }
        self._by_address: dict[str, dict[Connection, None]] = {}  # oldest first
        self._sending: dict[Connection, None] = {}  # bodies on their way, oldest first
        self.count = 0
        self.cut_off = 0  # so far, for any reason

    def opened(self, new: "Connection") -> None:
        """Take a connection in; one of its address or of the largest makes room if need be."""
        own = self._by_address.setdefault(new.address, {})
        own[new] = None
        self.count += 1
        if len(own) > self.most_per_address:
            self.cut(_first_to_go(own, new))
        elif self.count > self.most:
            largest = max(map(len, self._by_address.values()))
            self.cut(_first_to_go(
                next(own for own in self._by_address.values() if len(own) == largest), new))

    def received(self, connection: "Connection") -> None:
        """Bytes of a connection have been handled: keep count of the bodies on their way."""
        if connection.waits_for is not Wait.BODY:
            self._sending.pop(connection, None)
            return
        self._sending[connection] = None
        if len(self._sending) > self.most_bodies:
            self.cut(next(iter(self._sending)))

    def closed(self, connection: "Connection") -> None:
        self._sending.pop(connection, None)
        own = self._by_address.get(connection.address, {})
        if connection in own:
            del own[connection]
            self.count -= 1
        if not own:
            self._by_address.pop(connection.address, None)

    def cut(self, connection: "Connection") -> None:
        self.cut_off += 1
        self.closed(connection)  # its place is free at once
        connection.transport.abort()

    async def sweep(self) -> None:
        """Cut off, until cancelled, whoever has kept the server waiting too long."""
        loop = asyncio.get_running_loop()
        seen: dict[Connection, tuple[object, float]] = {}
        while True:
            await asyncio.sleep(SWEEP_S)
            now, before, seen = loop.time(), seen, {}
            for connection in [c for own in self._by_address.values() for c in own]:
                state = connection.waits_for
                key = (state, connection.progress)
                known, since = before.get(connection, (None, now))
                if known != key:
                    since = now
                seen[connection] = (key, since)
                if now - since > self._limits_s.get(state, now):
                    self.cut(connection)


def _first_to_go(connections: Iterable["Connection"], new: "Connection") -> "Connection":
    """The oldest that waits for its client, one with an answer under way last; else the new one."""
    reading = None
    for connection in connections:
        if connection is new or connection.waits_for is Wait.ANSWER:
            continue
        if connection.waits_for is not Wait.READER:
            return connection
        reading = reading or connection
    return reading or new


class Connection(H11Protocol):
    """uvicorn's connection, which also says what it waits for.

    progress: changes whenever the client has done what it was waited for. address: what the limit
    per address goes by.
    """

    def __init__(self, table: Connections, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._table = table
        self.progress = 0
        self.address = ""
        self._head_begun = True  # a new connection owes a head at once

    @property
    def waits_for(self) -> Wait:
        if self.transport.is_closing():
            return Wait.CLOSE
        if self.flow.write_paused:
            return Wait.READER
        if self.cycle is None or self.cycle.response_complete:
            return Wait.HEAD if self._head_begun else Wait.NEXT
        if self.cycle.more_body and not self.cycle.response_started:
            return Wait.BODY
        return Wait.ANSWER

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = _network(self.client[0] if self.client else "")
        self._table.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head_begun = True
        super().data_received(data)
        self._table.received(self)

    def on_response_complete(self) -> None:
        self.progress += 1
        self._head_begun = False
        super().on_response_complete()

    def resume_writing(self) -> None:
        self.progress += 1
        super().resume_writing()


def _network(host: str) -> str:
    """The part of an address that one client can be expected to have alone."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.version == 6 and not address.is_loopback:
            return str(ipaddress.ip_network((address, 64), strict=False))
    return host
