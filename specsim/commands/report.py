"""`specsim report`: results of other commands as one HTML file."""

import shlex
import sys
from pathlib import Path

from specsim.commands.bind import command
from specsim.options.listing import ReportCommand


@command(ReportCommand)
def report(options: ReportCommand) -> None:
    """Write one self-contained HTML page from results of --json: interactive charts with the
    numbers behind them, assumptions with their sources, commands to repeat. Opens offline."""
    from specsim.api.report import MAX_FILES, check_output, check_title, profiles_of, write_page
    from specsim.errors import UsageError
    from specsim.options.values import profile_folder
    from specsim.report.html.render import DEFAULT_TITLE, render
    from specsim.report.kinds import KINDS
    from specsim.report.saved import parse, read_text

    folder, files, output = profile_folder(options.profiles), options.files, str(options.output)
    if len(files) > MAX_FILES:
        raise UsageError(f"{len(files)} results are given; a report shows at most {MAX_FILES}")
    if files.count("-") > 1:
        raise UsageError("- is given more than once; standard input can be read once")
    check_title(options.title)
    check_output(output, files)
    documents = []
    for path in files:
        if path == "-":
            name, text = "standard input", read_text("standard input", _stdin())
        else:
            name, text = Path(path).name or path, read_text(path)
        documents.append(parse(name, text, KINDS))
    words = ["specsim", "report", *files, "-o", output]
    words += ["--title", options.title] if options.title else []
    page = render(
        documents, profiles_of(documents, folder), options.title or DEFAULT_TITLE,
        shlex.join(words),
    )
    if output == "-":
        sys.stdout.write(page)
        return
    write_page(Path(output), page)
    count = f"{len(documents)} result{'s' if len(documents) > 1 else ''}"
    sys.stdout.write(f"wrote {output}: {count}, {len(page.encode()) / 1e6:.1f} MB\n")


def _stdin() -> bytes:
    from specsim.errors import UsageError
    from specsim.report.saved import MAX_BYTES

    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("- reads standard input; pipe a result into it: specsim ... --json |")
    return sys.stdin.buffer.read(MAX_BYTES + 1)
