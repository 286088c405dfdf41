"""What asks many runs: capacity, fleet, sweep."""

import sys
from typing import TYPE_CHECKING

from specsim.commands.bind import INTERRUPTED, Ended, command
from specsim.commands.output import end_if_partial, quiet, show, show_drawn, text_of
from specsim.errors import SpecSimError
from specsim.options.sizing import CapacityCommand, FleetCommand, SweepCommand

if TYPE_CHECKING:
    from specsim.planning.sweep_run import SweepRun


@command(
    CapacityCommand,
    "specsim capacity qwen3.6-27b --rate 40 --slo ttft_p95=1,stream_tok_s_p10=30",
    "specsim capacity --scenario mindrouter-chat --users 180 --quick",
)
def capacity(options: CapacityCommand) -> None:
    """Find the largest load within latency objectives. By simulation, with speculation and without:
    what limits it, where to run, how many replicas a demand needs."""
    from specsim.api.capacity import run

    result = run(options, bar=not quiet(options))
    show(result, options, result.rows)
    end_if_partial(result.partial, "the figures are partial")


@command(
    FleetCommand,
    "specsim fleet fleet.toml --quick",
    "specsim fleet fleet.toml --quick --day --plot day.svg --export kubernetes",
)
def fleet(options: FleetCommand) -> None:
    """Place several models on a stock of GPUs. Which endpoints, how many replicas, tensor
    parallelism, draft length and request slots serve the models of a file on its GPUs, what happens
    when a replica fails, and what does not fit.

    \b
    A file (more keys: docs/capacity.md):
      [[gpus]]
      type = "h200-sxm"
      count = 10
      [[models]]
      name = "chat"
      model = "llama-3.1-8b"
      users = 400               # or rate = 5 (requests per second)
      slo = { ttft_p95 = 2 }
      profile = "office"        # for --day: or 24 numbers
    """
    from specsim.api.fleet import run
    from specsim.report.doc import Doc
    from specsim.report.fleet import day_panels, day_picture

    if options.plot is not None:
        options = options.but(day=True)
    result = run(options, bar=not quiet(options))
    if result.day is None or not result.day.models:
        show(result, options, result.to_rows)
    else:
        doc = Doc(result.to_dict())
        show_drawn(result, options, result.to_rows, lambda: day_picture(doc),
                   lambda: day_panels(doc.at("day"))[0])
    end_if_partial(result.partial, "not everything was simulated")


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
