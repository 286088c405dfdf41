"""The connection to a server: where it is, and what may come from it. aiohttp underneath.

Only http and https; no redirects and no proxies from the environment, but for a /metrics that is
only read (`fetched`); answers are cut at fixed sizes.
A key is taken from an environment variable that the caller names and never leaves this module's
headers.
"""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from specsim.errors import ServerError, UsageError, require
from specsim.interrupts import held_back

if TYPE_CHECKING:
    import aiohttp

MAX_JSON_BYTES = 4_000_000
MAX_METRICS_BYTES = 32_000_000
MAX_ERROR_BYTES = 4096
MAX_REDIRECTS = 5
T = TypeVar("T")


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """asyncio.run, also where this thread has a running loop (a notebook): then in a thread of its
    own, and Ctrl-C cancels the work there as asyncio.run does here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(work)
    begun: list[asyncio.Task[T]] = []

    async def own() -> T:
        begun.append(asyncio.ensure_future(work))
        return await begun[0]

    main = threading.current_thread() is threading.main_thread()
    # The running loop's own handler would wait until this function returns.
    before = signal.signal(signal.SIGINT, signal.default_int_handler) if main else None
    with ThreadPoolExecutor(1) as other:
        ending = other.submit(asyncio.run, own())
        try:
            try:
                return ending.result()
            except KeyboardInterrupt:
                for task in begun:
                    task.get_loop().call_soon_threadsafe(task.cancel)
                return ending.result()
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            if before is not None:
                signal.signal(signal.SIGINT, before)


def _run(work: Coroutine[Any, Any, T]) -> T:
    """asyncio.run, in which Ctrl-C never leaves half a loop or a coroutine that was not begun:
    both would be told on standard error."""
    runner = asyncio.Runner()
    try:
        with held_back():
            runner.get_loop()
        return runner.run(work)
    finally:
        runner.close()
        work.close()


@dataclass(frozen=True, slots=True)
class Target:
    """A server. api_key_env: name of the environment variable that holds its key. connect_s,
    stall_s: how long a connection, and the next piece of an answer, may take; request_s: a whole
    answer."""

    url: str
    api_key_env: str = ""
    connect_s: float = 10.0
    stall_s: float = 60.0
    request_s: float = 600.0

    def __post_init__(self) -> None:
        shown = repr(self.url[:80])
        try:
            parts = urlsplit(self.url)
            port, host = parts.port, parts.hostname
        except ValueError:
            raise UsageError(f"--url {shown} is no address; write http://HOST:PORT") from None
        require(
            (parts.scheme in ("http", "https") and bool(host),
             f"--url {shown} must begin with http:// or https:// and name a host"),
            (not (parts.username or parts.password),
             "--url holds a user name or password; use --api-key-env instead"),
            (not (parts.query or parts.fragment),
             f"--url {shown} has a query; give the server's address only"),
            (port != 0, f"--url {shown} has port 0; name the port the server listens on"),
            (_possible_host(host or ""), f"--url {shown} names no possible host; correct it"),
            (not any(ord(ch) <= 32 or ord(ch) == 127 for ch in self.url),
             f"--url {shown} holds a space or control character; write it plainly"),
            *((0 < getattr(self, name) <= 86400,
               f"{name} is {getattr(self, name)}; it must be seconds, above 0, at most a day")
              for name in ("connect_s", "stall_s", "request_s")),
            (not self.api_key_env or bool(os.environ.get(self.api_key_env)),
             f"--api-key-env names {self.api_key_env[:60]!r}, which is not set; export it first"),
        )

    @property
    def base(self) -> str:
        """The address without a trailing slash or the API's own /v1."""
        return self.url.rstrip("/").removesuffix("/v1").rstrip("/")

    def headers(self) -> dict[str, str]:
        key = os.environ.get(self.api_key_env, "") if self.api_key_env else ""
        return {"Authorization": f"Bearer {key}"} if key else {}


def _possible_host(host: str) -> bool:
    try:
        host.encode("ascii" if ":" in host else "idna")
    except UnicodeError:  # parts that are empty or longer than 63 characters
        return False
    return True


class Connection:
    """An open session with one server."""

    def __init__(self, target: Target, session: "aiohttp.ClientSession") -> None:
        self.target = target
        self.session = session

    async def text(self, path: str, limit: int, timeout_s: float = 10.0) -> tuple[int, str]:
        """(status, body) of a GET; ServerError where nothing comes, or more than `limit` bytes."""
        async with _got(self.session, self.target.base + path, timeout_s) as reply:
            return reply.status, (await _body(reply, limit)).decode("utf-8", "replace")

    async def models(self) -> list[str]:
        """Names the server serves. ServerError if it is not there or speaks another language."""
        status, body = await self.text("/v1/models", MAX_JSON_BYTES)
        if status != 200:
            raise ServerError(
                f"{self.target.base}/v1/models answered {status}; an OpenAI-compatible server is "
                f"expected there{_HINTS.get(status, '')}"
            )
        try:
            names = [item["id"] for item in json.loads(body)["data"]]
            if not all(isinstance(name, str) for name in names):
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ServerError(
                f"{self.target.base}/v1/models did not answer a list of models; an "
                "OpenAI-compatible server is expected there"
            ) from None
        if not names:
            raise ServerError(f"{self.target.base} serves no model")
        return names

    async def version(self) -> str:
        """What /version says, '' where there is none."""
        value = (await self.told("/version")).get("version")
        return value[:60] if isinstance(value, str) else ""

    async def told(self, path: str) -> dict[str, object]:
        """The JSON object that a GET answers; an empty one for any other answer and for none."""
        try:
            status, body = await self.text(path, MAX_JSON_BYTES)
            found = json.loads(body) if status == 200 else None
        except (ServerError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @asynccontextmanager
    async def post(
        self, path: str, body: Mapping[str, object]
    ) -> "AsyncIterator[aiohttp.ClientResponse]":
        """A streamed POST; the caller reads `content`."""
        async with self.session.post(
            self.target.base + path, json=body, allow_redirects=False
        ) as reply:
            yield reply


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Connection]:
    """A session with the target's time limits."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(
        total=target.request_s, sock_connect=target.connect_s, sock_read=target.stall_s
    )
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=connector, headers=target.headers(), trust_env=False
    ) as session:
        yield Connection(target, session)


async def fetched(url: str, limit: int, timeout_s: float) -> tuple[bytes, float]:
    """What a GET answers, and the moment in the middle of it (monotonic seconds); by the proxies of
    the environment, with redirects within the host (from / to /metrics/, say) followed. timeout_s:
    of an answer, also of one that trickles in. ServerError."""
    import aiohttp

    headers = {
        "Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity", "User-Agent": "specsim"
    }
    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
    address, left, start = url, MAX_REDIRECTS, time.monotonic()
    async with aiohttp.ClientSession(headers=headers) as session:
        while True:
            async with _got(session, address, timeout_s, proxy) as reply:
                address = urljoin(address, reply.headers.get("Location", ""))
                there = urlsplit(address)
                moved = 300 <= reply.status < 400 and there.scheme in ("http", "https")
                if moved and there.netloc != parts.netloc:
                    raise ServerError(
                        f"{url} redirects to another host; give its address instead"
                    )
                if moved and left:
                    left -= 1
                    continue
                if reply.status >= 300:
                    hint = _METRICS_HINTS.get(
                        reply.status, "give the address of a server's /metrics")
                    raise ServerError(f"{url} answered {reply.status}; {hint}")
                return await _body(reply, limit), (start + time.monotonic()) / 2


@asynccontextmanager
async def _got(
    session: "aiohttp.ClientSession", address: str, timeout_s: float, proxy: str | None = None
) -> "AsyncIterator[aiohttp.ClientResponse]":
    """The answer to a GET, no redirect followed. ServerError where nothing comes, not in time, or
    not all of it."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with session.get(
            address, timeout=timeout, allow_redirects=False, proxy=proxy
        ) as reply:
            yield reply
    except TimeoutError:
        raise ServerError(
            f"{address} did not answer within {timeout_s:g} s; is the server up and not overloaded?"
        ) from None
    except aiohttp.ClientPayloadError:
        raise ServerError(f"{address} broke off its answer") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: no name
        raise ServerError(unreachable(address, error)) from None


async def _body(reply: "aiohttp.ClientResponse", limit: int) -> bytes:
    try:
        await reply.content.readexactly(limit + 1)
    except asyncio.IncompleteReadError as end:
        return end.partial
    raise ServerError(f"{reply.url} answered more than {limit} bytes")


def unreachable(address: str, error: BaseException) -> str:
    """A failed connection in words."""
    if isinstance(error, TimeoutError):
        return f"{address} did not answer in time; is the server up and not overloaded?"
    cause = getattr(error, "os_error", None)  # not of a name or certificate, which have own numbers
    plain = isinstance(cause, ConnectionError) or type(cause) is OSError
    number = getattr(cause, "errno", None) if plain else None
    words = os.strerror(number) if number else str(error)
    reason = " ".join(words.split())[:160] or type(error).__name__
    return f"cannot reach {address}: {reason}; start the server or correct --url"


_METRICS_HINTS = {
    404: "SGLang needs --enable-metrics", 401: "it asks for credentials", 403: "it refuses"
}
_HINTS = {401: "; name its key with --api-key-env", 403: "; name its key with --api-key-env"}


def refusal(status: int, body: str) -> str:
    """An HTTP error in words: the status and the server's own message."""
    text = body
    try:
        raw = json.loads(body)
        inner = raw.get("error", raw)
        text = str(inner.get("message", inner)) if isinstance(inner, dict) else str(inner)
    except (ValueError, AttributeError, RecursionError):
        pass
    text = " ".join(text.split())[:200]
    hint = "; give the address it redirects to" if 300 <= status < 400 else _HINTS.get(status, "")
    return f"HTTP {status}" + (f": {text}" if text else "") + hint
