"""Progress on stderr: a bar for work of many equal parts, a line of words for other work."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Report = Callable[[int, int], None]


@contextmanager
def live_bar(
    wanted: bool, *columns: str, begin: str = "", total: float | None = None,
    transient: bool = True, threaded: bool = True, **fields: Any,
) -> Iterator[Callable[..., None] | None]:
    """update(completed=, total=, description=, ...) while it goes on; None where nobody looks.

    columns: `bar`, `count` ('3/10'), `left` and `time` (until the end, since the start), `spinner`,
    or a text with `{task.description}` and fields. begin: the description until the first update.
    threaded: drawn by a thread, which must not be there when workers are forked."""
    if not wanted:
        yield None
        return
    from rich import progress
    from rich.console import Console

    known = {
        "bar": progress.BarColumn, "count": progress.MofNCompleteColumn,
        "left": progress.TimeRemainingColumn, "time": progress.TimeElapsedColumn,
        "spinner": progress.SpinnerColumn,
    }
    made = [known[name]() if name in known else progress.TextColumn(name) for name in columns]
    with progress.Progress(
        *made, console=Console(stderr=True), transient=transient, auto_refresh=threaded
    ) as bars:
        task = bars.add_task(begin, total=total, **fields)
        yield lambda **news: bars.update(task, refresh=not threaded, **news)


@contextmanager
def task_bar(wanted: bool, unit: str) -> Iterator[Report | None]:
    """report(done, total) while the work goes on; None where nobody looks."""
    with live_bar(wanted, unit, "bar", "count", "left") as update:
        yield update and (lambda done, total: update(completed=done, total=total))


@contextmanager
def words_line(wanted: bool, begin: str) -> Iterator[Callable[[str], None] | None]:
    """tell(words) while the work goes on, `begin` until then; None where nobody looks."""
    columns = ("spinner", "{task.description}", "time")
    with live_bar(wanted, *columns, begin=begin, threaded=False) as update:
        yield update and (lambda words: update(description=words))
