"""What is held against measurements: diagnose, watch, quick, calibrate, validate."""

import sys
from pathlib import Path

from specsim.commands.bind import Ended, command
from specsim.commands.output import (
    end_if_over,
    end_if_partial,
    finish,
    quiet,
    show,
    text_of,
    write,
)
from specsim.errors import UsageError
from specsim.files import check_writable, write_whole
from specsim.options.measured import (
    CalibrateCommand,
    DiagnoseCommand,
    QuickCommand,
    ValidateBenchCommand,
    ValidateLiveCommand,
    ValidatePublishedCommand,
    ValidateRecordsCommand,
    WatchCommand,
)


@command(
    DiagnoseCommand,
    "specsim diagnose result.json qwen3-8b --gpu h100-sxm",
    "specsim diagnose --url http://localhost:8000 qwen3-8b",
)
def diagnose(options: DiagnoseCommand) -> None:
    """Say what speculation does in a benchmark or a live server. With evidence and next
    steps."""
    from specsim.api.diagnose import run

    show(run(options), options)


@command(
    WatchCommand,
    "specsim watch --url http://localhost:8000 qwen3-8b --gpu h100-sxm",
)
def watch(options: WatchCommand) -> None:
    """Watch a live vLLM, SGLang or TensorRT-LLM server. Batch, acceptance, step time, and, with
    MODEL, whether speculation pays at this load and which k would. Only reads /metrics."""
    from specsim.api.watch import line_show, screen_show
    from specsim.api.watch import watch as run

    drawn = sys.stdout.isatty() and not options.once and not options.json_out
    run(options, screen_show(options.url) if drawn else line_show(options.json_out))


@command(
    QuickCommand,
    "specsim quick",
    "specsim quick http://gpu7:8000 --gpu h100-sxm --share answer.md",
)
def quick(options: QuickCommand) -> None:
    """Look at a live server, drive it for a minute, and judge it. Of vLLM or SGLang: whether
    speculation pays there, with which k, up to which load, and what to type.

    An idle server gets 1, then 4, then 8 clients; one that others use a single one; one where
    requests wait is only watched. Nothing is changed there.
    """
    from specsim.api.quick import run
    from specsim.report.doc import Doc
    from specsim.report.progress import words_line
    from specsim.report.quick import quick_markdown

    check_writable(options.share, "--share")
    with words_line(not quiet(options), "looking for the server") as tell:
        found = run(options, tell)
    show(found, options)
    sys.stdout.flush()
    if options.share is not None:
        write_whole(options.share, quick_markdown(Doc(found.document)))
    end_if_partial(found.partial, "the answer is of what was finished")
    if found.stopped:
        sys.stderr.write(f"specsim: ended early: {found.stopped}\n")
        raise Ended(1)


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
        from specsim.report.calibrations import fewshot_section

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
    from specsim.api.calibrate import fit_records
    from specsim.report.calibrations import records_section
    from specsim.report.progress import live_bar

    columns = ("{task.description}", "bar", "{task.percentage:>3.0f}%", "left")
    with live_bar(sys.stderr.isatty(), *columns, begin="reading") as update:
        result = fit_records([Path(name) for name in given], options, update and (
            lambda what, done, of: update(description=what, completed=done, total=of)))
    write(options, lambda: result, lambda: text_of(records_section(Doc(result)), options))


@command(
    ValidatePublishedCommand,
    "specsim validate published measurements.csv --rows",
)
def published(options: ValidatePublishedCommand) -> None:
    """Score every row of FILES that can be predicted. Counts the others by reason."""
    from specsim.api.validate_published import run

    found = run(options)
    show(found, options)
    limit = options.max_error
    if limit is not None:
        end_if_over(found.report.over(limit), f"above {limit:g}", len(found.report.scores))


@command(
    ValidateBenchCommand,
    "specsim validate bench result.json --model qwen3-8b --gpu h100-sxm",
)
def bench(options: ValidateBenchCommand) -> None:
    """Compare benchmark results with the prediction. Simulates the load of every run in FILES
    with the acceptance that was measured there, and puts the measured figures beside the
    predicted ones."""
    from specsim.api.validate_bench import run
    from specsim.options.values import paths_of

    check_writable(options.out, "--out", paths_of(options.files))
    finish(run(options), options, options.max_error)


@command(
    ValidateLiveCommand,
    "specsim validate live --url http://localhost:8000 qwen3-8b --concurrency 1,8",
    "specsim validate live --url http://gpu1:8000 qwen3-8b --pinned 2.5 --rate 1",
)
def live(options: ValidateLiveCommand) -> None:
    """Measure a live server and compare with the prediction. Drives the server at URL, simulates
    the same requests with the acceptance measured there, and puts the measured figures beside the
    predicted ones, with what explains the gap. Ctrl-C keeps what was finished."""
    from specsim.api.validate_live import run

    check_writable(options.out, "--out", [options.prompts, options.trace])
    finish(run(options, options.save_bench, bar=not quiet(options)), options, options.max_error)


@command(
    ValidateRecordsCommand,
    "specsim validate records measured.jsonl --gpu my-gpu.toml",
)
def records(options: ValidateRecordsCommand) -> None:
    """Predict every record of `specsim measure`. Points the profile was fitted on are shown
    apart."""
    from specsim.api.validate_records import run
    from specsim.options.values import paths_of

    check_writable(options.out, "--out", [*paths_of(options.files), options.report])
    finish(run(options), options, options.max_error)
