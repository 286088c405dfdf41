"""Progress on stderr: a bar for work of many equal parts, a line of words for other work."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[int, int], None]


@contextmanager
def task_bar(wanted: bool, unit: str) -> Iterator[Report | None]:
    """report(done, total) while the work goes on; None where nobody looks."""
    if not wanted:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn(unit), BarColumn(), MofNCompleteColumn(), Remaining())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(unit, total=None)

        def report(done: int, total: int) -> None:
            bars.update(bar, completed=done, total=total)

        yield report


@contextmanager
def words_line(wanted: bool, begin: str) -> Iterator[Callable[[str], None] | None]:
    """tell(words) while the work goes on, `begin` until then; None where nobody looks. Refreshed by
    hand: a thread that draws must not be there when workers are forked."""
    if not wanted:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(
        *columns, console=Console(stderr=True), transient=True, auto_refresh=False
    ) as bars:
        task = bars.add_task(begin, total=None)

        def tell(words: str) -> None:
            bars.update(task, description=words)
            bars.refresh()

        yield tell
