"""`specsim report`: results of other commands as one HTML file."""

import shlex
import sys
from pathlib import Path

from specsim.commands.bind import command
from specsim.errors import UsageError
from specsim.files import write_whole
from specsim.options.listing import ReportCommand
from specsim.report.tables import printable
from specsim.units import counted


@command(
    ReportCommand,
    "specsim predict qwen3.6-27b --json > predict.json",
    "specsim report predict.json -o report.html",
)
def report(options: ReportCommand) -> None:
    """Write one HTML page from results of --json. Interactive charts with the numbers behind them,
    assumptions with their sources, commands to repeat. Opens offline."""
    from specsim.api.report import page_of

    files, output = options.files, str(options.output)
    if files.count("-") > 1:
        raise UsageError("- is given more than once; standard input can be read once")
    words = ["specsim", "report", *files, "-o", output]
    words += ["--title", options.title] if options.title else []
    given = [_stdin() if path == "-" else path for path in files]
    page = page_of(given, output, options.title, options.profiles, shlex.join(words))
    if output == "-":
        sys.stdout.write(page)
        return
    write_whole(Path(output), page)
    count = counted(len(files), "result")
    sys.stdout.write(f"wrote {printable(output)}: {count}, {len(page.encode()) / 1e6:.1f} MB\n")


def _stdin() -> bytes:
    from specsim.report.saved import MAX_BYTES

    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("- reads standard input; pipe a result into it: specsim ... --json |")
    return sys.stdin.buffer.read(MAX_BYTES + 1)
