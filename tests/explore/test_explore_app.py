"""The page's server: what it answers to whom, and that an answer is the prediction."""

import asyncio
import contextlib
import gc
import json
import random
import shlex
import socket
import sys
import urllib.request
from html.parser import HTMLParser
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("starlette")
pytest.importorskip("plotly")

import specsim
from specsim.commands import app as command_line
from specsim.errors import UsageError
from specsim.explore import fields
from specsim.explore.app import MAX_BODY_BYTES, _collected_when_asked, create_app
from specsim.options.declare import declared
from specsim.options.prediction import ExploreCommand, PredictOptions
from specsim.report.plots import Panel, Series

TOKEN = "a-token"
CHOICE = {"model": "llama-3.1-8b", "concurrency": "1,8"}
EVIL = "<img src=x onerror=owned()>"


def call(
    path: str, body: object = None, *, query: str = f"token={TOKEN}", host: str = "127.0.0.1:1",
    method: str | None = None, kind: str = "application/json", raw: bytes | None = None,
    app: Any = None,
) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of one request."""
    sent: list[dict[str, Any]] = []
    text = raw if raw is not None else json.dumps(body).encode() if body is not None else b""
    waiting = [{"type": "http.request", "body": text, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
        "method": method or ("GET" if body is None and raw is None else "POST"), "path": path,
        "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(b"host", host.encode()), (b"content-type", kind.encode()),
                    (b"content-length", str(len(text)).encode())],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 1),
    }
    asyncio.run((app or create_app(CHOICE, TOKEN))(scope, receive, send))
    head = sent[0]
    headers = {name.decode(): value.decode() for name, value in head["headers"]}
    return head["status"], headers, b"".join(part.get("body", b"") for part in sent[1:])


def answered(path: str, **body: object) -> dict[str, Any]:
    status, _, text = call(path, {"choice": CHOICE, **body})
    assert status == 200, text
    found: dict[str, Any] = json.loads(text)
    return found


def refused(path: str, **body: object) -> dict[str, Any]:
    status, _, text = call(path, {"choice": CHOICE, **body})
    assert status == 400
    found: dict[str, Any] = json.loads(text)["error"]
    return found


# --- who is answered --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"query": ""}, 403), ({"query": "token=a-toke"}, 403), ({"query": "token=%C3%BC"}, 403),
        ({"host": "evil.example"}, 400), ({"host": "evil.example:80"}, 400),
        ({"method": "POST"}, 405), ({"host": "localhost:9"}, 200), ({"host": "[::1]:9"}, 200),
    ],
)
def test_the_page_is_for_who_has_its_address(settings: dict[str, str], status: int) -> None:
    found, headers, _ = call("/", **settings)  # type: ignore[arg-type]
    assert found == status
    if status == 200:
        assert headers["x-frame-options"] == "DENY" and headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/predict", "/details", "/step", "/share"])
@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"query": "token=no"}, 403), ({"host": "evil.example"}, 400),
        ({"kind": "text/plain"}, 415),
        ({"raw": b"{"}, 400), ({"raw": b'{"choice": [1]}'}, 400), ({"raw": b"{}"}, 400),
        ({"raw": b'{"choice": {"k": 3}}'}, 400), ({"raw": b"x" * (MAX_BODY_BYTES + 1)}, 413),
    ],
)
def test_only_small_json_with_the_token_is_read(
    path: str, settings: dict[str, Any], status: int
) -> None:
    found, _, body = call(path, **{"raw": json.dumps({"choice": CHOICE}).encode(), **settings})
    assert found == status
    assert json.loads(body)["error"]["message"]


def test_other_paths_are_not_served() -> None:
    for path in ("/predictions", "/../etc/passwd", "/docs"):
        assert call(path)[0] == 404
    assert call("/predict")[0] == 405


# --- what is answered -------------------------------------------------------------------------


def test_an_answer_is_the_prediction() -> None:
    want = specsim.predict("llama-3.1-8b", concurrency="1,8").to_dict()
    assert answered("/details")["result"] == json.loads(json.dumps(want))
    found = answered("/predict")
    assert found["loads"] == ["1 client", "8 clients"]
    speedup = next(trace for trace in found["figures"]["chart1"]["data"] if "name" in trace)
    assert speedup["y"] == [point["speedup"] for point in want["points"]]  # type: ignore[attr-defined]
    assert len(found["figures"]) == 4 and "vllm serve" in found["above"]
    for title in ("What speculation gains", "TPOT", "TTFT", "Memory of one GPU"):
        assert f"<h3>{title}</h3>" in found["charts"]


def test_memory_rises_to_what_the_engine_may_use() -> None:
    found = answered("/predict", choice=CHOICE | {"concurrency": "1,64,100000"})
    (used,) = (t for t in found["figures"]["chart4"]["data"] if t.get("name") == "in use")
    share = found["figures"]["chart4"]["layout"]["shapes"][0]["y0"]
    assert used["y"] == sorted(used["y"]) and 0.9 * share < used["y"][-1] <= share


def test_a_pinned_deployment_has_the_load_of_the_form() -> None:
    pinned = {"model": "qwen3.6-27b", "concurrency": "3", "input_len": "77"}
    found = answered("/predict", choice=CHOICE | {"output_len": "50"}, pinned=pinned)
    names = [t["name"] for t in found["figures"]["chart2"]["data"] if "name" in t]
    assert names == ["chosen: with speculation", "chosen: plain", "pinned: with speculation",
                     "pinned: plain"]
    want = specsim.predict("qwen3.6-27b", concurrency="1,8", output_len=50)
    (curve,) = (t for t in found["figures"]["chart1"]["data"]
                if t.get("name") == "pinned: speedup")
    assert curve["y"] == [point.speedup for point in want.points]
    commands = answered("/share", pinned=pinned)["command"].splitlines()
    assert commands == ["specsim predict llama-3.1-8b --concurrency 1,8",
                        "specsim predict qwen3.6-27b --concurrency 1,8"]


def test_panels_of_two_kinds_of_loads_have_names_apart() -> None:
    from specsim.report.explored import _together

    one = Panel("TPOT", "x", "y", (Series("TPOT, a", [1], [1]),), levels=((1.0, "l"), (2.0, "m")))
    two = Panel("TPOT", "x", "y", (Series("TPOT, a", [1], [1]),), levels=((1.0, "l"), (3.0, "m")))
    both = _together({"A ": one, "B ": two})
    assert both is not None
    assert [s.label for s in both.series] == ["A a", "B a"]
    assert both.levels == ((1.0, "l"), (2.0, "A m"), (3.0, "B m"))
    assert _together({"A ": None, "B ": None}) is None


def test_steps_are_those_of_the_load() -> None:
    found = answered("/step", point=1)
    assert "8 x" in found["charts"] and list(found["figures"]) == ["step1", "step2", "step3"]
    assert refused("/step", point=2)["message"] == "there is no load 2; the prediction has 2"


def test_what_is_shared_gives_the_same_again() -> None:
    found = answered("/share")
    table = found["markdown"].split("\n\n")[2].splitlines()
    assert table[0].startswith("| clients | speedup |") and len(table) == 4
    assert {line.count("|") for line in table} == {table[0].count("|")}
    words = shlex.split(found["command"])[1:]
    printed = json.loads(CliRunner().invoke(command_line, [*words, "--json"]).output)
    assert printed == answered("/details")["result"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"k": "x"}, "k"), ({"k": "2.5"}, "k"), ({"tp": "-1"}, "tp"),
        ({"rate": "1"}, "concurrency"),
        ({"acceptance_rate": "0.7", "acceptance_length": "2"}, None), ({"model": "nobody"}, None),
        ({"gpu": "nothing"}, None), ({"draft_share": "7"}, "draft_share"),
    ],
)
def test_what_cannot_be_is_said_with_its_field(given: dict[str, str], field: str | None) -> None:
    error = refused("/predict", choice=CHOICE | given)
    assert field is None or error["param"] == field, error
    if "k" in given:  # the parser of the command line says it in other words
        assert error["message"] == f"--num-speculative-tokens is '{given['k']}'; it must be a " \
                                   "whole number"
        return
    words = [f"{declared(PredictOptions)[name].flag}={text}" for name, text in given.items()
             if name != "model"]
    done = CliRunner().invoke(command_line, [
        "predict", given.get("model", CHOICE["model"]), "--concurrency", "1,8", *words])
    assert error["message"] == " ".join(str(done.exception).split())


def test_names_are_text_everywhere() -> None:
    status, _, body = call("/", app=create_app({**CHOICE, "model": EVIL, "gpu": EVIL}, TOKEN))
    assert status == 200 and EVIL.encode() not in body and b"&lt;img" in body
    assert EVIL in refused("/predict", choice=CHOICE | {EVIL: "1"})["message"]
    assert fields.field_of(f"{EVIL} --img") is None


HOSTILE = (
    "", " ", "0", "-1", "1", "1.5", "1e400", "nan", "inf", "9" * 30, "9" * 5000, "1,2", "1,,2", "a",
    "true", "\x00", "\ud800", "\u202e\u0000", "ü𝕏", "\n", "-", "--help", "../x", "/dev/stdin", "{}",
    "a" * 5000, "=1", "%s", "<b>", "1:2:3", "h100-sxm", "ngram", "fp8", "none", "0.5", "8", "1,8",
)


@pytest.mark.parametrize("count", [60, pytest.param(1500, marks=pytest.mark.slow)])
def test_whatever_a_link_or_a_page_sends_is_answered_or_refused(count: int) -> None:
    """Fields with values at random, some of the wrong kind, and bodies of other shapes."""
    draw, app = random.Random(count), create_app(CHOICE, TOKEN)
    names = [*declared(PredictOptions), "x", "\ud800", ""]

    def choice() -> object:
        if draw.random() < 0.1:
            return draw.choice([None, [], "x", 1, {"k": 3}, {"k": None}, {"k": {}}, {"k": ["1"]}])
        return {**(CHOICE if draw.random() < 0.9 else {}),
                **{draw.choice(names): draw.choice(HOSTILE) for _ in range(draw.randint(0, 3))}}

    statuses = set()
    for _ in range(count):
        body = {"choice": choice(), "extra": 1}
        if draw.random() < 0.3:
            body["pinned"] = choice()
        if draw.random() < 0.3:
            body["point"] = draw.choice([0, 1, 2, -1, 1.5, 10**30, True, "1", None, [], 1e300])
        path = draw.choice(["/predict", "/details", "/step", "/share"])
        token = draw.choice([f"token={TOKEN}"] * 9 + ["token=%ff%00", "token=a&token=b", "x"])
        status, _, text = call(path, body, app=app, query=token)
        statuses.add(status)
        assert status in (200, 400, 403), (path, body, text)
        if status != 200:
            assert "\n" not in json.loads(text)["error"]["message"], (path, body, text)
    assert statuses == {200, 400, 403}


# --- the form ---------------------------------------------------------------------------------


class Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_every_option_of_predict_is_a_labelled_field() -> None:
    _, _, body = call("/", app=create_app(fields.start(ExploreCommand(k=2)), TOKEN))
    seen = Seen()
    seen.feed(body.decode())
    ids = [a["id"] for _, a in seen.tags if "id" in a]
    assert len(ids) == len(set(ids)), "an id stands twice"
    named = {a["name"]: a for t, a in seen.tags if t in ("input", "select") and "name" in a}
    assert sorted(named) == sorted(declared(PredictOptions))
    labels = {a.get("for") for t, a in seen.tags if t == "label"}
    for name, attributes in named.items():
        assert attributes["id"] in labels, name
        for told in (attributes["aria-describedby"] or "").split():
            assert told in ids, told
    assert named["k"]["value"] == "2" and named["model"]["value"] == fields.FIRST_MODEL
    assert named["concurrency"]["value"] == fields.FIRST_LOADS
    policy = next(a["content"] for t, a in seen.tags if a.get("http-equiv"))
    assert policy is not None and policy.endswith("connect-src 'self'")
    assert "unsafe-eval" not in policy


def test_a_choice_is_read_back_from_what_it_stands_for() -> None:
    given = {"model": "llama-3.1-8b", "k": "3", "method": "eagle3", "acceptance_rate": "0.5",
             "equal_lengths": "true", "rate": "1,2"}
    options = fields.read(given | {"tp": "  "})
    assert (options.k, options.acceptance_rate, options.equal_lengths) == (3, 0.5, True)
    assert fields.start(options) == given
    with pytest.raises(UsageError, match="'modell' is no option of predict; did you mean 'model'"):
        fields.read({"modell": "x"})


# --- the command ------------------------------------------------------------------------------


def test_it_serves_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address that is printed answers, and the browser is asked to open the same one."""
    import threading

    import uvicorn

    from specsim.explore.app import serve

    opened: list[str] = []
    told: list[str] = []
    started = threading.Event()
    servers: list[uvicorn.Server] = []
    made = uvicorn.Server.__init__

    def remember(self: uvicorn.Server, config: uvicorn.Config) -> None:
        made(self, config)
        servers.append(self)

    def tell(address: str) -> None:
        told.append(address)
        started.set()

    monkeypatch.setattr(uvicorn.Server, "__init__", remember)
    monkeypatch.setattr("webbrowser.open", opened.append)
    thread = threading.Thread(target=serve, args=(CHOICE, 0, True, tell))
    thread.start()
    assert started.wait(30)
    with contextlib.closing(urllib.request.urlopen(told[0], timeout=60)) as reply:
        assert reply.status == 200 and b"Explore speculative decoding" in reply.read()
    servers[0].should_exit = True
    thread.join(30)
    assert not thread.is_alive() and opened == told
    assert told[0].startswith("http://127.0.0.1:") and len(told[0].partition("token=")[2]) >= 32


def test_a_port_in_use_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(command_line, ["explore", "--no-browser", "--port", str(port)])
    assert isinstance(done.exception, UsageError) and "choose another --port" in str(done.exception)


def test_what_a_caller_froze_stays_frozen() -> None:
    gc.freeze()
    with _collected_when_asked():
        assert not gc.isenabled() and gc.get_freeze_count()
    assert gc.isenabled() and gc.get_freeze_count()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    found = __import__("specsim.commands.decoder_setup", fromlist=["find_spec"])
    monkeypatch.setattr(found, "find_spec", lambda name: None if name == "uvicorn" else object())
    done = CliRunner().invoke(command_line, ["explore", "--no-browser"])
    assert str(done.exception) == (
        "specsim explore needs uvicorn, which is not installed: pip install 'specsim-llm[explore]'"
    )
