"""Errors a user can cause. Every message names the value, the rule and the way out.

The command line prints the message on one line and exits with code 2.
"""

from collections.abc import Iterable


class SpecSimError(Exception):
    """Base of every error that a user's input can cause."""


def require(*rules: tuple[bool, str], error: type[SpecSimError] | None = None) -> None:
    """Raise `error` (UsageError) with the message of the first rule that does not hold."""
    for holds, message in rules:
        if not holds:
            raise (error or UsageError)(message)


class ProfileError(SpecSimError):
    """A hardware or engine profile is missing, malformed or out of range."""


class ModelConfigError(SpecSimError):
    """A model is unknown, or its config is incomplete or impossible."""


class FormatError(SpecSimError):
    """A file cannot be read as what it claims to be."""


class UsageError(SpecSimError):
    """Arguments contradict each other or break a rule of the engine asked for."""


class CapacityError(SpecSimError):
    """Weights, cache or state do not fit the device."""


class CalibrationError(SpecSimError):
    """The data given cannot support the fit asked for."""


class ServerError(SpecSimError):
    """A server cannot be reached, or answers what no such server should."""


def shown(value: object, limit: int = 60) -> str:
    """A value as an error shows it: one line, cut to a readable length."""
    if isinstance(value, int) and abs(value) > 10**30:
        return "an integer of more than 30 digits"
    try:
        text = " ".join(repr(value).split())
    except (ValueError, RecursionError):  # integers of over 4300 digits inside, endless nesting
        return f"a {type(value).__name__} too large to print"
    if len(text) <= limit:
        return text
    end = f"...{text[-1]}" if isinstance(value, str) else "..."
    return text[: limit - len(end)] + end


def closest(name: str, known: Iterable[str], most: int = 1) -> str:
    """"did you mean 'this'? " for up to `most` names that `name` is a misspelling of; '' where none
    is close."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=most)
    return f"did you mean {' or '.join(map(repr, near))}? " if near else ""


MAX_MESSAGE = 1000  # characters of an error line


def one_line(message: object) -> str:
    """An error as one line of readable length, whatever a name or path in it contains."""
    text = " ".join(str(message).split())
    text = "".join(ch if ch.isprintable() else ascii(ch)[1:-1] for ch in text)
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 3] + "..."
