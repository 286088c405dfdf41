"""The loop of `specsim watch`: scrape, judge, show, wait. Ctrl-C ends it in peace."""

import os
import sys
import time
from collections import deque
from typing import Protocol, Self

from specsim.api.deployment import build_request
from specsim.api.served import check_described, predictor_for
from specsim.diagnose.evidence import Evidence
from specsim.diagnose.expected import Predictor
from specsim.diagnose.scrape import ScrapeError, metrics_url, scrape
from specsim.diagnose.watching import FIRST, Observation, Observer, Watcher
from specsim.errors import FormatError, UsageError
from specsim.jsonable import json_text
from specsim.options.groups import DeploymentOptions
from specsim.options.measured import WatchCommand
from specsim.options.values import parse_duration
from specsim.report.tables import printable
from specsim.report.watch_view import HISTORY, watch_line, watch_screen

MOST_INTERVAL_S = 3600.0


class Show(Protocol):
    """Where observations go."""

    def __enter__(self) -> object: ...
    def __exit__(self, *_: object) -> None: ...
    def __call__(self, seen: Observation) -> None: ...


class LineShow:
    """One line each: words for pipes and logs, or a JSON object."""

    def __init__(self, as_json: bool = False) -> None:
        self._as_json = as_json

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, seen: Observation) -> None:
        found = seen.to_dict()
        line = json_text(found) if self._as_json else printable(
            watch_line(found, time.strftime("%H:%M:%S")))
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class ScreenShow:
    """A screen that is drawn over, on a terminal."""

    def __init__(self, url: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._url = url
        self._seen: deque[dict[str, object]] = deque(maxlen=HISTORY)
        self._events: deque[str] = deque(maxlen=5)
        self._live = Live(console=Console(), auto_refresh=False, vertical_overflow="visible")

    def __enter__(self) -> "ScreenShow":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, seen: Observation) -> None:
        from rich.text import Text

        clock = time.strftime("%H:%M:%S")
        self._seen.append(seen.to_dict())
        if seen.event is not None:
            self._events.append(f"  {clock}  {seen.event.replace('_', ' ')}: {seen.message}")
        screen = watch_screen(list(self._seen), self._url, clock)
        events = ["", *self._events] if self._events else []
        text = printable("\n".join([screen, *events, "", "  Ctrl-C to stop"]))
        self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)


def watch(options: WatchCommand, show: Show) -> None:
    """Watch until the time is up or Ctrl-C. SpecSimError for misuse, or when the server cannot be
    read at the start; later failures are shown and the next scrape is tried."""
    model = None if options.model is None else str(options.model)
    check_described(model, options)
    interval, window = options.interval, options.window
    if not interval <= window <= MOST_INTERVAL_S:
        if "window" in options.typed:
            raise UsageError(
                f"--window is {window:g}; it must be from --interval ({interval:g}) to "
                f"{MOST_INTERVAL_S:g} seconds"
            )
        window = interval
    end = None if options.for_ is None else parse_duration(options.for_, "--for")
    if options.once and end is not None:
        raise UsageError("--once and --for both say when to stop; give one of them")
    url = metrics_url(options.url)
    if model is not None:
        _check_deployment(model, options)
    notes: list[str] = []

    def make(evidence: Evidence) -> Predictor | None:
        return predictor_for(model, options, evidence, notes)

    observer = Observer(Watcher(url, window), make)
    start = time.monotonic()
    seen = observer.see(0.0, scrape(url))
    _say(notes)
    with show:
        try:
            if not options.once:
                show(seen)
            next_s = start + interval
            while end is None or next_s - start <= end + 1e-9:
                time.sleep(max(0.0, next_s - time.monotonic()))
                at_s = time.monotonic() - start
                try:
                    seen = observer.see(at_s, scrape(url, min(5.0, max(1.0, interval))))
                except (ScrapeError, FormatError) as error:
                    seen = observer.unreachable(at_s, str(error))
                show(seen)
                if options.once and seen.state != FIRST:
                    return
                # a slow scrape skips beats instead of hurrying after them
                next_s += interval * (1 + max(0.0, time.monotonic() - next_s) // interval)
        except KeyboardInterrupt:
            return
        except BrokenPipeError:
            # The reader of a pipe went away (`| head`): nobody is left to watch for.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check_deployment(model: str, options: WatchCommand) -> None:
    """Refuse what cannot be before the server is asked: model, GPU, weights, sizes."""
    asked = DeploymentOptions.of(options).but(model=model, engine=options.engine or "vllm")
    build_request(asked.plain())


def _say(notes: list[str]) -> None:
    for text in dict.fromkeys(notes):
        sys.stderr.write(f"specsim: note: {text}\n")
