"""Ctrl-C, held back for a moment."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_back() -> Iterator[None]:
    """SIGINT does not reach this thread, nor what it starts meanwhile, until the end; one that
    comes meanwhile is heard then. Nothing is held back where threads have no mask (Windows)."""
    mask = getattr(signal, "pthread_sigmask", None)
    if mask is None:
        yield
        return
    before = mask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        mask(signal.SIG_SETMASK, before)
