"""The page's server: one socket on 127.0.0.1, a token of its own, until Ctrl-C; the page, and what
it asks for. Everything it gets is made here: markup in which every text is escaped, Plotly figures,
and texts to paste.

    GET  /         POST /predict   /details   /step   /share

Every request carries the token of the address that was printed. What is asked for is computed in a
thread of its own, one thing at a time: what the page has given up is not begun.
"""

import asyncio
import contextlib
import gc
import hmac
import secrets
import threading
import webbrowser
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import uvicorn
from pydantic import Field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from specsim.api.explain import run as explained
from specsim.api.predict import Prediction, predicted
from specsim.errors import SpecSimError, UsageError, one_line
from specsim.explore.fields import PINNED, Choice, beside, field_of, read
from specsim.explore.page import page_text
from specsim.options.analytic import ExplainOptions
from specsim.options.declare import declared
from specsim.report import explored
from specsim.report.blocks import Block, Charts
from specsim.report.doc import Doc
from specsim.report.explanation import explanation_section
from specsim.report.html.elements import join, tag
from specsim.report.html.page import Page
from specsim.report.predictions import axis
from specsim.report.verdict import load_words
from specsim.serve.bodies import Body
from specsim.serve.bodies import read as read_shape
from specsim.serve.errors import ApiError, answer, bad, handlers
from specsim.serve.listening import HostGuard, bind, host_names, url_of
from specsim.serve.streaming import read_object, unless_gone

REMEMBERED = 8  # predictions: the pinned one is asked for with every change
Answer = dict[str, object]


class Answers:
    """What the page asks for; for one caller at a time."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], tuple[Prediction, Doc]] = OrderedDict()

    def forget(self) -> None:
        """Files that predictions rest on may have changed."""
        self._known.clear()

    def prediction(self, choice: Choice, pinned: Choice | None) -> Answer:
        """What changes at once: the verdict, the charts, what the loads are called."""
        found = self._named(choice, pinned, False)
        above, _ = _markup(explored.above(doc, name) for name, (_, doc) in found.items())
        charts, figures = _markup([[explored.charts(found)]])
        doc = next(iter(found.values()))[1]
        unit, key = axis(doc)
        loads = [load_words(point.number(key), unit) for point in doc.items("points")]
        return {"above": above, "charts": charts, "figures": figures, "loads": loads}

    def details(self, choice: Choice, pinned: Choice | None) -> Answer:
        """What may follow a moment later: all figures and assumptions, with the best draft length,
        which takes longest; result: what `specsim predict --json` prints."""
        found = self._named(choice, pinned, True)
        below, _ = _markup(explored.below(doc, name) for name, (_, doc) in found.items())
        return {"below": below, "result": next(iter(found.values()))[1].value}

    def step(self, choice: Choice, point: int) -> Answer:
        """Where the steps at one load of the prediction spend their time."""
        points = self._predicted(choice, False)[0].points
        if not 0 <= point < len(points):
            raise UsageError(f"there is no load {point}; the prediction has {len(points)}")
        options, theirs = read(choice), declared(ExplainOptions)
        given = {name: getattr(options, name) for name in options.model_fields_set & set(theirs)}
        running = str(max(1, round(points[point].running)))
        found = explained(ExplainOptions.of_values({**given, "concurrency": running}))
        section = explanation_section(Doc(found.to_dict()))
        charts, figures = _markup(
            [[block for block in section.blocks if isinstance(block, Charts)]], "step")
        return {"charts": charts, "figures": figures}

    def share(self, choice: Choice, pinned: Choice | None) -> Answer:
        """A table in Markdown, and the commands that give it again."""
        docs = [doc for _, doc in self._named(choice, pinned, True).values()]
        return {"markdown": explored.markdown(docs),
                "command": "\n".join(doc.text("command") for doc in docs)}

    def _named(
        self, choice: Choice, pinned: Choice | None, thorough: bool
    ) -> dict[str, tuple[Prediction, Doc]]:
        """The prediction, or both by the names that tell them apart."""
        found = self._predicted(choice, thorough)
        if pinned is None:
            return {"": found}
        try:
            other = self._predicted(beside(pinned, choice), thorough)
        except SpecSimError as error:
            raise UsageError(f"{PINNED}{error}") from error
        return {"chosen: ": found, PINNED: other}

    def _predicted(self, choice: Choice, thorough: bool) -> tuple[Prediction, Doc]:
        key = (thorough, *sorted(choice.items()))
        found = self._known.pop(key, None)
        if found is None:
            made = predicted(read(choice), search_k=thorough)
            found = made, Doc(made.to_dict())
        self._known[key] = found
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return found


def _markup(
    parts: Iterable[Sequence[Block | None]], charts: str = "chart"
) -> tuple[str, dict[str, dict[str, object]]]:
    """(blocks of deployments beside one another, the figures of their charts)."""
    page = Page("", charts)
    return join([tag("div", page.blocks(blocks)) for blocks in parts]), page.figures


MAX_BODY_BYTES = 64 << 10
BODY_TIMEOUT_S = 10.0
HEADERS = {
    "Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin",
}


class Asked(Body):
    """What the page sends: what its fields say, and those of the pinned deployment."""

    choice: dict[str, str]
    pinned: dict[str, str] | None = None
    point: int = Field(0, ge=0)


def create_app(start: Choice, token: str) -> ASGIApp:
    """The application. start: what the page's fields hold at first; token: what every request must
    say."""
    answers, thread = Answers(), ThreadPoolExecutor(1, "specsim-explore")

    def check(request: Request) -> None:
        given = request.query_params.get("token", "")
        if not hmac.compare_digest(given.encode(), token.encode()):
            raise ApiError(403, "the address has no valid token; open the one that specsim explore "
                                "printed")

    async def page(request: Request) -> Response:
        check(request)
        text = await asyncio.get_running_loop().run_in_executor(thread, _opened, answers, start)
        return HTMLResponse(text, headers=HEADERS)

    def route(path: str, make: Callable[[Asked], Answer]) -> Route:
        async def endpoint(request: Request) -> Response:
            check(request)
            raw = await read_object(request, MAX_BODY_BYTES, BODY_TIMEOUT_S, "shorten it")
            asked = read_shape(Asked, raw)
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(thread, make, asked)
            return JSONResponse(await unless_gone(request.receive, work), headers=HEADERS)

        return Route(path, endpoint, methods=["POST"])

    app = Starlette(
        routes=[
            Route("/", page),
            route("/predict", lambda a: answers.prediction(a.choice, a.pinned)),
            route("/details", lambda a: _settled(answers, a)),
            route("/step", lambda a: answers.step(a.choice, a.point)),
            route("/share", lambda a: answers.share(a.choice, a.pinned)),
        ],
        exception_handlers=handlers(HEADERS) | {SpecSimError: _refused, HTTPException: _http_error},
    )
    return HostGuard(app, host_names("127.0.0.1") or ())


def _opened(answers: Answers, start: Choice) -> str:
    """The page; and what it will ask for first is ready."""
    answers.forget()
    gc.collect()
    with contextlib.suppress(SpecSimError):
        answers.prediction(start, None)
    return page_text(start)


def _settled(answers: Answers, asked: Asked) -> Answer:
    """The details; then nobody waits, and what answers left behind can go."""
    found = answers.details(asked.choice, asked.pinned)
    gc.collect(1)  # what is young: prices that are remembered are not gone through again
    return found


async def _refused(_: Request, error: Exception) -> Response:
    """What the user of the page can correct, with the field where."""
    message = one_line(error)
    return answer(bad(message, field_of(message)), HEADERS)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = f"{request.method} {request.url.path[:100]} is not served here"
    return answer(ApiError(error.status_code, words), HEADERS)


TOKEN_BYTES = 24


def serve(start: Choice, port: int, browser: bool, told: Callable[[str], None]) -> None:
    """Serves the page until a signal. told: hears the address once it is answered. UsageError when
    the port cannot be had."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    with bind("127.0.0.1", port) as sock:
        address = f"{url_of(sock)}/?token={token}"
        server = uvicorn.Server(uvicorn.Config(
            create_app(start, token), log_level="warning", access_log=False, ws="none",
            lifespan="off", server_header=False, proxy_headers=False, timeout_graceful_shutdown=1,
        ))
        told(address)
        if browser:
            # The socket listens already: the browser waits for the server, not the other way round.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        # uvicorn ends well and then raises the signal again; Ctrl-C is how this ends.
        with contextlib.suppress(KeyboardInterrupt), _collected_when_asked():
            server.run(sockets=[sock])


@contextlib.contextmanager
def _collected_when_asked() -> Iterator[None]:
    """Python looks for garbage where the application says so, not in the middle of an answer: among
    remembered prices that took up to 0.35 s, and found none. What a caller froze stays frozen."""
    on, frozen = gc.isenabled(), gc.get_freeze_count()
    if not frozen:
        gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()
        if on:
            gc.enable()
