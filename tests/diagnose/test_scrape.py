"""One GET, bounded in every way, and clear words for whatever a server does."""

import asyncio
import threading

import pytest

from diagnose_helpers import serving
from specsim.diagnose import scrape as module
from specsim.diagnose.scrape import ScrapeError, metrics_url, scrape
from specsim.errors import UsageError


@pytest.mark.parametrize(("given", "url"), [
    ("http://a:8000", "http://a:8000/metrics"),
    ("http://a:8000/", "http://a:8000/metrics"),
    ("http://a:8000/v1", "http://a:8000/metrics"),
    ("127.0.0.1:8000", "http://127.0.0.1:8000/metrics"),
    ("https://a/proxy/metrics?x=1", "https://a/proxy/metrics?x=1"),
    ("http://[::1]:80/metrics/", "http://[::1]:80/metrics"),
])
def test_urls_as_people_write_them(given, url):
    assert metrics_url(given) == url


@pytest.mark.parametrize(("given", "words"), [
    ("", "not an http"), ("ftp://a/metrics", "not an http"), ("file:///etc/passwd", "not an http"),
    ("http://", "not an http"), ("http://a:99999", "is no URL"), ("http://a:x", "is no URL"),
    ("http://u:p@a/", "user name"), ("http://a:0/", "port 0"), ("http://a b/", "space"),
    ("http://a/\nHost: b", "space or control"), ("http://[::1", "is no URL"),
    ("http://" + "é" * 80 + "/", "host name"),
])
def test_what_is_no_url_is_refused(given, words):
    with pytest.raises(UsageError, match=words) as caught:
        metrics_url(given)
    assert "\n" not in str(caught.value)


def test_it_only_gets_and_only_what_was_asked():
    with serving(lambda: "up 1\n") as (url, seen):
        assert scrape(metrics_url(url)).text == "up 1\n"
    assert seen == [("GET", "/metrics")]


@pytest.mark.parametrize(("answer", "words"), [
    ((404, {}, b"no"), "answered 404; SGLang needs --enable-metrics"),
    ((500, {}, b"no"), "answered 500"),
    ((200, {}, b"\xff\xfe"), "not UTF-8"),
    ((302, {"Location": "http://127.0.0.2:1/metrics"}, b""), "redirects to another host"),
    ((302, {"Location": "file:///etc/passwd"}, b""), "answered 302"),
    ((302, {"Location": "/metrics"}, b""), "answered 302"),
    ((200, {"Content-Length": "999"}, b"up 1\n"), "broke off"),
])
def test_answers_that_are_none(answer, words):
    with serving(lambda: answer) as (url, _), pytest.raises(ScrapeError, match=words) as caught:
        scrape(metrics_url(url), 60.0)
    assert "\n" not in str(caught.value)


def test_a_redirect_starts_from_the_address_that_was_redirected_to():
    """Of /metrics to /a/b/ and from there to ../c, which is /a/c; and in a running loop."""
    answers = iter([(302, {"Location": "/a/b/"}, b""), (302, {"Location": "../c"}, b""), "up 1\n"])

    async def caller(url):
        return scrape(metrics_url(url))

    with serving(lambda: next(answers)) as (url, seen):
        assert asyncio.run(caller(url)).text == "up 1\n"
    assert [path for _, path in seen] == ["/metrics", "/a/b/", "/a/c"]


def test_endless_and_slow_answers_end(monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    with serving(lambda: "x" * 5000) as (url, _), pytest.raises(ScrapeError, match="more than"):
        scrape(metrics_url(url))

    given_up = threading.Event()

    def slow():  # answers once nobody waits any more
        given_up.wait(60)
        return "up 1\n"

    with serving(slow) as (url, _):
        with pytest.raises(ScrapeError, match=r"did not answer within 0\.3 s"):
            scrape(metrics_url(url), 0.3)
        given_up.set()


def test_nobody_there():
    with serving(lambda: "") as (url, _):
        pass
    with pytest.raises(ScrapeError, match=r"cannot reach .*: Connection refused"):
        scrape(metrics_url(url), 60.0)
