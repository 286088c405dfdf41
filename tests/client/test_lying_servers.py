"""What reads other people's servers ends in one line, in time and in bounded memory, whatever they
send: `watch` and `diagnose` (/metrics), `validate live` (models, metrics, streams), `quick`."""

import json
import resource
import time

import pytest
from thinned import diagonal, some
from typer.testing import CliRunner

from lying_server import LIES, lying
from specsim.client.http import Target
from specsim.client.load import LiveLoad, drive
from specsim.client.prompts import Prompt
from specsim.client.stream import Sampling
from specsim.commands import app
from specsim.diagnose import scrape as scraping
from specsim.errors import SpecSimError

MODELS = json.dumps({"data": [{"id": "m"}]}).encode()
MAX_GROWTH_KIB = 300_000


@pytest.fixture(autouse=True)
def bounded():
    """In a few seconds, and without taking what was sent into memory."""
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.monotonic() - started < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_GROWTH_KIB


@pytest.mark.parametrize("lie", LIES)
def test_watch(monkeypatch, lie):
    monkeypatch.setattr(scraping.scrape, "__defaults__", (0.4,))
    with lying(*LIES[lie]) as url:
        result = CliRunner().invoke(app, ["watch", "--url", url, "--once", "--json",
                                          "--interval", "0.2"])
    if lie == "numbers that are none":  # what is left of them is shown
        assert result.exception is None
        assert not {"NaN", "Infinity"} & set(result.output.replace(",", " ").split())
        return
    assert isinstance(result.exception, SpecSimError), repr(result.exception)
    assert "\n" not in str(result.exception)
    assert len(str(result.exception)) < 600


@pytest.mark.parametrize(
    ("lie", "path"), diagonal(LIES, ["/v1/models", "/metrics", "/v1/completions"]))
def test_the_load_of_validate_live(monkeypatch, lie, path):
    """path: where the server lies; it is honest before that."""
    from specsim.client import http

    monkeypatch.setattr(http.Connection.text, "__defaults__", (0.4,))
    before = {"/v1/models": MODELS, "/version": b"{}", "/metrics": b"a 1\n"}
    before.pop(path, None)
    with lying(*LIES[lie], before=before) as url:
        target = Target(url, connect_s=2, stall_s=0.4, request_s=0.8)
        with pytest.raises(SpecSimError) as caught:
            drive(target, LiveLoad((Prompt("a", 4),), max_concurrency=1), Sampling(),
                  sample_every_s=0.05)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("lie", some(LIES, 9))
def test_quick(monkeypatch, lie):
    """It lies about everything but its models and its version."""
    from specsim.client import http, look

    monkeypatch.setattr(http.Connection.text, "__defaults__", (0.4,))
    monkeypatch.setattr(look, "STALL_S", 0.4)
    monkeypatch.setattr(look, "REQUEST_S", 0.8)
    with lying(*LIES[lie], before={"/v1/models": MODELS, "/version": b"{}"}) as url:
        result = CliRunner().invoke(app, ["quick", url, "--seconds", "0.2", "--json"])
    if result.exit_code and not isinstance(result.exception, SystemExit):
        assert isinstance(result.exception, SpecSimError), repr(result.exception)
        assert len(str(result.exception)) < 600
        assert "\n" not in str(result.exception)
    else:
        assert json.loads(result.stdout)["kind"] == "quick"
