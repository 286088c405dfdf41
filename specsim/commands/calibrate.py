"""`specsim calibrate`: a profile of your own, from records of `specsim measure` or from benchmarks.

Two forms. `specsim calibrate RECORDS... --base h200-sxm -o my.toml` fits a hardware profile on
kernel times. `specsim calibrate --from bench.json MODEL -o my-engine.toml` fits an engine's
overheads on a few points of one server (see `specsim.api.calibrate_bench`).
"""

import sys
from pathlib import Path

from specsim.commands.bind import command
from specsim.commands.output import text_of, write
from specsim.errors import UsageError
from specsim.options.measured import CalibrateCommand


@command(
    CalibrateCommand,
    "specsim calibrate measured.jsonl -o my-gpu.toml",
    "specsim calibrate --from plain.json --from spec.json qwen3-8b",
)
def calibrate(options: CalibrateCommand) -> None:
    """Fit a hardware or engine profile to measurements. A hardware profile to RECORDS of `specsim
    measure`, an engine profile to benchmark results (--from) of the MODEL that was served."""
    from specsim.report.doc import Doc

    given = options.inputs or []
    if options.from_ or options.plain or options.spec:
        if len(given) != 1:
            found = f"{len(given)} names" if given else "none"
            raise UsageError(
                f"--from needs the one model that was served, got {found}; write "
                "`specsim calibrate --from FILE MODEL`"
            )
        from specsim.api.calibrate_bench import fit_from
        from specsim.report.fewshot import fewshot_section

        fitted = fit_from(given[0], options)
        write(options, lambda: fitted, lambda: text_of(fewshot_section(Doc(fitted)), options))
        return
    if options.holdout:
        raise UsageError("--holdout judges a fit of --from files; give those, or leave it out")
    if not given:
        raise UsageError(
            "no records are given; name files of `specsim measure`, or benchmark results with "
            "--from FILE MODEL"
        )
    from specsim.api.calibrate_records import fit_records
    from specsim.report.progress import live_bar
    from specsim.report.records import records_section

    columns = ("{task.description}", "bar", "{task.percentage:>3.0f}%", "left")
    with live_bar(sys.stderr.isatty(), *columns, begin="reading") as update:
        result = fit_records([Path(name) for name in given], options, update and (
            lambda what, done, of: update(description=what, completed=done, total=of)))
    write(options, lambda: result, lambda: text_of(records_section(Doc(result)), options))
