"""Errors as OpenAI's clients expect them: a status and {"error": {message, type, param, code}}."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response


@dataclass(eq=False)
class ApiError(Exception):
    """status: HTTP status. param: the field at fault. code: a short machine-readable word."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, object]:
        if self.status == 429:
            kind = "rate_limit_error"
        elif self.status >= 500:
            kind = "server_error"
        else:
            kind = "invalid_request_error"
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


def bad(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param, code)


def answer(error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse(error.body(), error.status, headers={**(headers or {}), **error.headers})


def handlers(headers: Mapping[str, str] | None = None) -> dict[Any, Any]:
    """What an application answers to exceptions. headers: of every answer."""
    async def refused(_: Request, error: ApiError) -> Response:
        return answer(error, headers)

    async def left(_: Request, __: Exception) -> Response:
        return Response(status_code=499)  # nobody reads this; it is the usual word for it in a log

    async def bug(_: Request, error: Exception) -> Response:
        return answer(ApiError(500, f"internal error: {type(error).__name__}"), headers)

    return {ApiError: refused, ClientDisconnect: left, Exception: bug}
