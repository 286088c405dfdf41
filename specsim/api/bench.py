"""`specsim.read_bench`: results of foreign benchmark tools in one normal form."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

from specsim.api.results import Result, flat
from specsim.formats.bench import BenchRun, scan
from specsim.report.blocks import Section
from specsim.rows import rows_at


@dataclass(frozen=True, repr=False)
class BenchRuns(Result, Sequence[BenchRun]):
    """Runs read from files, in their order. skipped: (file, why) of what was no result."""

    runs: tuple[BenchRun, ...]
    skipped: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, place: Any) -> Any:
        return self.runs[place]

    def __iter__(self) -> Iterator[BenchRun]:
        return iter(self.runs)

    def to_dict(self, requests: bool = False) -> dict[str, object]:
        """As `specsim import --json`; requests: with every request."""
        skipped = [{"file": name, "reason": why} for name, why in self.skipped]
        return {"runs": [run.to_dict(requests=requests) for run in self.runs], "skipped": skipped}

    def to_rows(self) -> list[dict[str, object]]:
        """One flat row per run."""
        return [flat(run) for run in rows_at(self.to_dict(), "runs")]

    def section(self) -> Section:
        from specsim.report.imported import imported_section

        skipped = [{"file": name, "reason": why} for name, why in self.skipped]
        return imported_section(rows_at(self.to_dict(), "runs"), skipped)

    def __repr__(self) -> str:
        return f"<specsim.BenchRuns: {len(self.runs)} runs>"


def read_bench(*paths: str | PathLike[str], before: str | PathLike[str] | None = None) -> BenchRuns:
    """Read results of vllm bench, sglang, guidellm, aiperf and others, `/metrics` dumps, logs.

    paths: files or folders. before: an earlier `/metrics` dump; then only what was counted since is
    read. Raises `specsim.errors.FormatError` for a file that is none of them."""
    runs: list[BenchRun] = []
    skipped: list[tuple[str, str]] = []
    for path in paths:
        found = scan(fspath(path), None if before is None else fspath(before))
        runs += found.runs
        skipped += [(str(name), why) for name, why in found.skipped]
    return BenchRuns(tuple(runs), tuple(skipped))
