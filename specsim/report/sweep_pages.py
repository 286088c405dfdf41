"""Rows of a sweep while it runs: Parquet files of PAGE_ROWS finished tasks each.

They lie beside the file of all rows, in NAME.parts, in the order in which tasks ended. Each is
whole or not there: a sweep that is killed leaves them, one that ends puts the file in their place.
"""

from itertools import islice
from pathlib import Path

from specsim.files import told
from specsim.planning.sweep import Sweep
from specsim.planning.sweep_journal import Journal
from specsim.planning.sweep_run import rows_of
from specsim.report.export_rows import write_parquet
from specsim.report.sweeps import cells_of

PAGE_ROWS = 5000


class Pages:
    """Written from the journal: those of an earlier run are written anew, as they were."""

    def __init__(self, sweep: Sweep, journal: Journal, out: Path) -> None:
        self.sweep, self.journal = sweep, journal
        self.folder = out.with_name(out.name + ".parts")
        self.count = 0
        self._remove(len(journal.offsets) // PAGE_ROWS)

    def more(self) -> None:
        """Writes the pages that are full by now."""
        while len(self.journal.offsets) >= (self.count + 1) * PAGE_ROWS:
            first = self.count * PAGE_ROWS
            wanted = islice(self.journal.offsets, first, first + PAGE_ROWS)
            rows = [*cells_of(self.sweep, rows_of(self.sweep, self.journal, wanted))]
            write_parquet(rows, self._page(self.count))
            self.count += 1

    def end(self) -> None:
        """All rows are in the file."""
        self._remove(0)

    def _page(self, number: int) -> Path:
        return self.folder / f"rows-{number:05d}.parquet"

    def _remove(self, first: int) -> None:
        """Pages from a number on, and the folder once it is empty."""
        with told(self.folder):
            for path in sorted(self.folder.glob("rows-*.parquet*")):
                if path.name >= self._page(first).name:
                    path.unlink()
            if not first and self.folder.is_dir() and not any(self.folder.iterdir()):
                self.folder.rmdir()
