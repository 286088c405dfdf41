"""JSON bodies in their declared shape; whatever is wrong ends as one 400 that names the field.

JSON has more values than the protocol: NaN and Infinity (which Python accepts), true where a
number belongs, numbers of thousands of digits, nesting thousands deep, halves of surrogate pairs.
"""

import json
from collections.abc import Mapping
from typing import Annotated, NoReturn, TypeVar

from pydantic import AfterValidator, BeforeValidator, ValidationError

from specsim.checked import Broken, Rule, SparseShape, dotted, problem_of
from specsim.jsonable import json_text
from specsim.serve.errors import ApiError, bad

A_STRING = "a string"
MAX_SHOWN = 80  # characters of a bad value that an error repeats


class Body(SparseShape):
    """An object of the protocol: null is the same as absent, unknown fields are ignored."""


def _whole(value: object) -> object:
    """2.0 is a whole number to JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]


def _encodable(value: str) -> str:
    if not valid_unicode(value):
        raise Broken(A_STRING)
    return value


Text = Annotated[str, AfterValidator(_encodable), Rule(A_STRING)]

B = TypeVar("B", bound=Body)


def parse_object(body: bytes) -> dict[str, object]:
    """The JSON object in a request body."""
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise bad("the body is nested too deeply") from None
    except ValueError as error:  # also bytes that are not UTF-8 and numbers that are too long
        raise bad(f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise bad(f"the body must be a JSON object, got {shown(value)}")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def read(shape: type[B], raw: Mapping[str, object], vocab_size: int = 0) -> B:
    """An object in its declared shape. vocab_size: what token ids are checked against."""
    try:
        return shape.model_validate(raw, context=vocab_size)
    except ValidationError as error:
        problem = problem_of(error, shape)
    value = None if problem.kind == "missing" else problem.value
    raise wrong(dotted(problem.place), value, problem.rule)


def shown(value: object) -> str:
    """A value as an error shows it, cut to a readable length."""
    text = json_text(value, default=str)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def wrong(name: str, value: object, rule: str) -> ApiError:
    if isinstance(value, str) and rule == A_STRING:
        return bad(f"{name} holds half of a surrogate pair; it must be valid Unicode", name)
    return bad(f"{name} is {shown(value)}; it must be {rule}", name)


def valid_unicode(text: str) -> bool:
    """Half a surrogate pair cannot be tokenised."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
