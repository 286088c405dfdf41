"""A bar on stderr for work of many equal parts."""

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
