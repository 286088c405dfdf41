"""Reading bodies and writing event streams, with an eye on whether the client is still there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from specsim.jsonable import json_text
from specsim.serve.bodies import parse_object
from specsim.serve.errors import ApiError

T = TypeVar("T")
# Of a body that is too large, up to this many bytes are read and dropped before the answer: a
# client that is still sending would otherwise see a broken connection instead of the reason.
MAX_DROPPED_BYTES = 16 << 20
DONE = b"data: [DONE]\n\n"


def event(value: Mapping[str, object]) -> bytes:
    return b"data: " + json_text(value, compact=True).encode() + b"\n\n"


async def read_object(
    request: Request, limit: int, timeout_s: float,
    way_out: str = "shorten it or raise --max-model-len",
) -> dict[str, object]:
    """The JSON object in a body; ApiError 415 for another kind, 413 beyond limit bytes, with the
    way out, 408 when it does not arrive in time, 400 for what is no such object."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # Also what keeps web pages from sending requests here without asking.
        raise ApiError(415, f"Content-Type is {kind!r}; send application/json")
    return parse_object(await _read_body(request, limit, timeout_s, way_out))


async def _read_body(request: Request, limit: int, timeout_s: float, way_out: str) -> bytes:
    try:
        async with asyncio.timeout(timeout_s):
            return await _read(request, limit, way_out)
    except TimeoutError:
        raise ApiError(
            408, f"the request body did not arrive within {timeout_s:g} seconds",
            headers={"Connection": "close"},
        ) from None


async def _read(request: Request, limit: int, way_out: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        size = int(request.headers.get("content-length", "0"))
    except ValueError:
        raise ApiError(400, "Content-Length is not a number") from None
    if size <= limit + MAX_DROPPED_BYTES:
        size = 0
        async for part in request.stream():
            size += len(part)
            if size <= limit:
                parts.append(part)
            elif size > limit + MAX_DROPPED_BYTES:
                break
    if size > limit:
        raise ApiError(
            413, f"the request body is larger than {limit} bytes; {way_out}",
            code="body_too_large", headers={"Connection": "close"},
        )
    return b"".join(parts)


async def gone(receive: Receive) -> None:
    """Returns when the client has closed its connection. Call after the body has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T:
    """The result of work; ClientDisconnect, with work cancelled, when the client leaves first."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(gone(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


class EventResponse(StreamingResponse):
    """Server-sent events from an iterator of encoded events, given up when the client leaves
    (starlette's own response watches for that only with some servers). on_close is called in every
    case, also when the iterator was never started."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], on_close: Callable[[], None]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self.stream_response(send))
        except ClientDisconnect:
            pass
        finally:
            self._on_close()
