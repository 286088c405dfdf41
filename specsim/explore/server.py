"""The page's server: one socket on 127.0.0.1, a token of its own, until Ctrl-C."""

import contextlib
import gc
import secrets
import threading
import webbrowser
from collections.abc import Callable, Iterator

import uvicorn

from specsim.explore.app import create_app
from specsim.explore.fields import Choice
from specsim.serve.listening import bind, url_of

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
    remembered prices that took up to 0.35 s, and found none."""
    on = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if on:
            gc.enable()
