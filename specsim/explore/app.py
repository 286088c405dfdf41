"""The ASGI application: the page, and what it asks for.

    GET  /         POST /predict   /details   /step   /share

Every request carries the token of the address that was printed. What is asked for is computed in a
thread of its own, one thing at a time: what the page has given up is not begun.
"""

import asyncio
import contextlib
import gc
import hmac
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pydantic import Field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from specsim.errors import SpecSimError, one_line
from specsim.explore.answers import Answer, Answers
from specsim.explore.fields import Choice, field_of
from specsim.explore.page import page_text
from specsim.serve.bodies import Body, read
from specsim.serve.errors import ApiError, answer, bad, handlers
from specsim.serve.listening import HostGuard, host_names
from specsim.serve.streaming import read_object, unless_gone

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
            asked = read(Asked, raw)
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
