"""One scrape of a server's /metrics over HTTP: GET only, bounded in size and time.

http and https only, no credentials in the URL, no redirect to another host; the standard
library's proxy settings hold. A path of / stands for /metrics. What comes back is text for
`specsim.formats.metrics_text`.
"""

import contextlib
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http.client import (
    HTTPConnection,
    HTTPException,
    HTTPMessage,
    HTTPResponse,
    HTTPSConnection,
)
from typing import IO

from specsim.errors import FormatError, UsageError

MAX_BYTES = 20_000_000
TIMEOUT_S = 5.0


class ScrapeError(FormatError):
    """A scrape that failed; the server may answer the next one."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """Text of /metrics with the moment it was taken (monotonic seconds, middle of the request)."""

    text: str
    at_s: float
    took_s: float


def metrics_url(text: str) -> str:
    """The URL of /metrics that the user means; UsageError for what is none."""
    raw = text.strip()
    shown = ascii(raw if len(raw) <= 80 else raw[:77] + "...")
    if "://" not in raw and raw and not raw.startswith("/"):
        raw = "http://" + raw
    try:
        parts = urllib.parse.urlsplit(raw)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"--url {shown} is no URL ({error}); write http://HOST:PORT") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"--url {shown} is not an http or https address; write http://HOST:PORT (its /metrics "
            "is read)"
        )
    if parts.username is not None or parts.password is not None:
        raise UsageError("--url holds a user name or password; give an address without them")
    if any(ord(char) <= 32 or ord(char) == 127 for char in raw):
        raise UsageError(f"--url {shown} holds a space or control character; write it plainly")
    if port == 0:
        raise UsageError(f"--url {shown} has port 0; give the port that the server listens on")
    path = parts.path.rstrip("/") or ""
    if path in ("", "/v1"):
        path = "/metrics"
    try:
        host = parts.netloc.encode("idna" if not parts.netloc.isascii() else "ascii").decode()
    except UnicodeError:
        raise UsageError(f"--url {shown} has a host name that is none") from None
    quoted = urllib.parse.quote(path, safe="/%:@!$&'()*+,;=~-._")
    return urllib.parse.urlunsplit((parts.scheme, host, quoted, parts.query, ""))


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows redirects within the host only (from / to /metrics/, say)."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str,
        headers: HTTPMessage, newurl: str,
    ) -> urllib.request.Request | None:
        there = urllib.parse.urlsplit(newurl)
        if there.scheme in ("http", "https") and there.netloc == req.host:
            return super().redirect_request(req, fp, code, msg, headers, newurl)
        fp.close()
        raise ScrapeError(f"{req.full_url} redirects to another host; give its address instead")


class _Deadline:
    """A limit on a whole exchange: http.client's own is on each wait, and a server that sends a
    byte now and then, or one "100 Continue" after the other, never meets it."""

    def __init__(self, timeout_s: float) -> None:
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(timeout_s, self._end)
        self._timer.daemon = True
        self.passed = False

    def __enter__(self) -> "_Deadline":
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _end(self) -> None:
        self.passed = True
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def handlers(self) -> list[urllib.request.BaseHandler]:
        """Openers of connections that end with the deadline."""
        sockets = self._sockets

        class Plain(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                sockets.append(self.sock)

        class Secure(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                sockets.append(self.sock)

        class ForHttp(urllib.request.HTTPHandler):
            def http_open(self, req: urllib.request.Request) -> HTTPResponse:
                return self.do_open(Plain, req)

        class ForHttps(urllib.request.HTTPSHandler):
            def https_open(self, req: urllib.request.Request) -> HTTPResponse:
                return self.do_open(Secure, req)

        return [ForHttp(), ForHttps(), _SameHost()]


def scrape(url: str, timeout_s: float = TIMEOUT_S) -> Scrape:
    """GET url (as `metrics_url` returns it). ScrapeError, on one line, for whatever fails.

    The time limit covers the whole answer, also one that trickles in.
    """
    request = urllib.request.Request(
        url, headers={"Accept": "text/plain;version=0.0.4", "User-Agent": "specsim"}, method="GET"
    )
    start = time.monotonic()
    deadline = _Deadline(timeout_s)
    opener = urllib.request.build_opener(*deadline.handlers())
    late = ScrapeError(f"{url} did not finish its answer within {timeout_s:g} s")
    try:
        with deadline, opener.open(request, timeout=timeout_s) as answer:
            raw = bytearray()
            while chunk := answer.read1(65536):
                raw += chunk
                if len(raw) > MAX_BYTES:
                    raise ScrapeError(f"{url} answered more than {MAX_BYTES // 10**6} MB; "
                                      "that is no /metrics")
            if deadline.passed:
                raise late
            if answer.length:  # bytes that were announced and never came
                raise ScrapeError(f"{url} broke off its answer")
    except ScrapeError:
        raise
    except urllib.error.HTTPError as error:
        hint = {404: "; SGLang needs --enable-metrics", 401: "; it asks for credentials",
                403: "; it refuses"}.get(error.code, "; give the address of a server's /metrics")
        with error:
            raise ScrapeError(f"{url} answered {error.code}{hint}") from None
    except TimeoutError:
        raise ScrapeError(f"{url} did not answer within {timeout_s:g} s; is it up?") from None
    except (urllib.error.URLError, OSError, HTTPException, ValueError) as error:
        if deadline.passed:
            raise late from None
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            raise ScrapeError(f"{url} did not answer within {timeout_s:g} s; is it up?") from None
        words = getattr(reason, "strerror", None) or str(reason) or type(error).__name__
        raise ScrapeError(
            f"{url} cannot be reached: {' '.join(str(words).split())[:200]}; start the server or "
            "correct --url"
        ) from None
    end = time.monotonic()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ScrapeError(
            f"{url} answered something that is not UTF-8 text, so no /metrics; correct --url"
        ) from None
    return Scrape(text, (start + end) / 2, end - start)
