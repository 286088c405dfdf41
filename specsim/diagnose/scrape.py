"""One scrape of a server's /metrics over HTTP: GET only, bounded in size and time.

http and https only, no credentials in the URL, no redirect to another host; the environment's
proxies hold. A path of / stands for /metrics. What comes back is text for
`specsim.formats.metrics_text`.
"""

import urllib.parse
from dataclasses import dataclass

from specsim.client.http import fetched, run_to_end
from specsim.errors import FormatError, ServerError, UsageError

MAX_BYTES = 20_000_000
TIMEOUT_S = 5.0


class ScrapeError(FormatError):
    """A scrape that failed; the server may answer the next one."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """Text of /metrics with the moment it was taken (monotonic seconds, middle of the request)."""

    text: str
    at_s: float


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


def scrape(url: str, timeout_s: float = TIMEOUT_S) -> Scrape:
    """GET url (as `metrics_url` returns it). ScrapeError, on one line, for whatever fails, also an
    answer that is not whole after timeout_s."""
    try:
        raw, at_s = run_to_end(fetched(url, MAX_BYTES, timeout_s))
    except ServerError as error:
        raise ScrapeError(str(error)) from None
    try:
        return Scrape(raw.decode("utf-8"), at_s)
    except UnicodeDecodeError:
        raise ScrapeError(
            f"{url} answered something that is not UTF-8 text, so no /metrics; correct --url"
        ) from None
