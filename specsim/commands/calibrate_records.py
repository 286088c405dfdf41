"""`specsim calibrate RECORDS...`: fit, write the files asked for, print what was found."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def run_records(
    files: list[Path], base: str, out: Path | None, report_file: Path | None,
    profiles: str | None, json_out: bool, statistic: str = "median",
) -> None:
    """Fit a profile to `files`. Raises SpecSimError for what cannot be read, fitted or written."""
    from specsim.api.calibrate_records import fit_records
    from specsim.report.records import records_text
    from specsim.report.tables import printable, to_json

    with _progress() as tell:
        result = fit_records(files, base, out, report_file, profiles, statistic, tell)
    sys.stdout.write((to_json(result) if json_out else printable(records_text(result))) + "\n")


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """A progress bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def tell(what: str, done: int, of: int) -> None:
            bar.update(task, description=what, completed=done, total=of)

        yield tell
