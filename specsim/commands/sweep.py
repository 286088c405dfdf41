"""`specsim sweep`: many predictions or simulations, on one machine or a cluster, resumable."""

import sys
from typing import TYPE_CHECKING

from specsim.commands.bind import INTERRUPTED, Ended, command
from specsim.commands.output import check_drawing, quiet, text_of
from specsim.errors import SpecSimError
from specsim.options.sizing import SweepCommand

if TYPE_CHECKING:
    from specsim.planning.sweep_run import SweepRun


@command(
    SweepCommand,
    "specsim sweep --set model=qwen3-8b --set rate=2 --grid tp=1,2",
    "specsim sweep sweep.toml --out rows.csv",
    "specsim sweep sweep.toml --executor dask://HOST:8786 --out rows.parquet",
)
def sweep(options: SweepCommand) -> None:
    """Run every combination of a grid of options. What is finished is kept: the same command again
    goes on where it stopped.

    \b
    A file (more keys: docs/planning.md):
      [sweep]
      run = "predict"               # or "simulate"
      [fixed]
      model = "qwen3-8b"
      [grid]
      k = [1, 2, 3]
      concurrency = [1, 8, 64]
    """
    from specsim.api.sweep import running
    from specsim.report.sweeps import sweep_blocks, sweep_csv, sweep_head, sweep_json

    check_drawing(options)
    with running(options, bar=not quiet(options)) as found:
        # Rows are written as they are read: all of them need not fit in memory.
        if options.json_out:
            sys.stdout.writelines(sweep_json(found, options.rows))
        elif options.csv_out:
            sys.stdout.writelines(sweep_csv(found))
        else:
            out = None if options.out is None else str(options.out)
            sys.stdout.write(text_of(sweep_blocks(found, out), options) + "\n")
        sys.stdout.flush()
        if options.plot is not None:
            from specsim.report.doc import Doc
            from specsim.report.plots_file import write_picture
            from specsim.report.sweep_summary import summary_picture

            write_picture(summary_picture(Doc(sweep_head(found))), options.plot)
        _end(found)


def _end(found: "SweepRun") -> None:
    """The exit code, and on stderr why it is not 0."""
    if found.interrupted:
        where = "" if found.journal.path is None else "; the same command again goes on"
        sys.stderr.write(
            f"specsim: interrupted with {found.finished} of {found.sweep.count} tasks "
            f"finished{where}\n"
        )
        raise Ended(INTERRUPTED)
    if found.failed:
        first = next(iter(found.failures.items()))
        sys.stderr.write(
            f"specsim: {found.failed} of {found.sweep.count} tasks failed, the first with "
            f"{first[1]}; the same command again retries them\n"
        )
        raise Ended(1)
    if found.finished and found.refused == found.finished:
        error = next(found.rows())["error"]
        raise SpecSimError(f"every task was refused, the first because: {error}")
