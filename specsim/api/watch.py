"""The loop of `specsim watch`: scrape, judge, show, wait. Ctrl-C ends it in peace."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

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
from specsim.report.watch_view import HISTORY, watch_line, watch_screen
from specsim.rows import printable

MOST_INTERVAL_S = 3600.0


Show = Callable[[Observation], None]


@contextmanager
def line_show(as_json: bool = False) -> Iterator[Show]:
    """One line each: words for pipes and logs, or a JSON object."""

    def show(seen: Observation) -> None:
        found = seen.to_dict()
        line = json_text(found) if as_json else printable(
            watch_line(found, time.strftime("%H:%M:%S")))
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    yield show


@contextmanager
def screen_show(url: str) -> Iterator[Show]:
    """A screen that is drawn over, on a terminal."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    shown: deque[dict[str, object]] = deque(maxlen=HISTORY)
    events: deque[str] = deque(maxlen=5)

    def show(seen: Observation) -> None:
        clock = time.strftime("%H:%M:%S")
        shown.append(seen.to_dict())
        if seen.event is not None:
            events.append(f"  {clock}  {seen.event.replace('_', ' ')}: {seen.message}")
        screen = watch_screen(list(shown), url, clock)
        said = ["", *events] if events else []
        text = printable("\n".join([screen, *said, "", "  Ctrl-C to stop"]))
        live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)

    with Live(console=Console(), auto_refresh=False, vertical_overflow="visible") as live:
        yield show


def watch(options: WatchCommand, shown: AbstractContextManager[Show]) -> None:
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
    with shown as show:
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
