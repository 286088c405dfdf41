"""`specsim report`: results of other commands as one HTML file."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from specsim.commands import options as o

Files = Annotated[
    list[str],
    typer.Argument(help="Results of --json; - reads standard input.", metavar="RESULT.json..."),
]
Output = Annotated[
    str, typer.Option("--output", "-o", help="The HTML file to write; - for standard output.")
]
Title = Annotated[str | None, typer.Option("--title", help="Title of the page.")]


def register(app: typer.Typer) -> None:
    app.command(name="report")(report)


def report(
    files: Files,
    output: Output = "report.html",
    title: Title = None,
    profiles: o.Profiles = None,
) -> None:
    """Write one self-contained HTML page from results of --json: interactive charts with the
    numbers behind them, assumptions with their sources, commands to repeat. Opens offline."""
    from specsim.api.report import MAX_FILES, check_output, check_title, profiles_of, write_page
    from specsim.errors import UsageError
    from specsim.report.html.render import DEFAULT_TITLE, render
    from specsim.report.kinds import KINDS
    from specsim.report.saved import parse, read_text

    o.profile_folder(profiles)
    if len(files) > MAX_FILES:
        raise UsageError(f"{len(files)} results are given; a report shows at most {MAX_FILES}")
    if files.count("-") > 1:
        raise UsageError("- is given more than once; standard input can be read once")
    check_title(title)
    check_output(output, files)
    documents = []
    for path in files:
        if path == "-":
            name, text = "standard input", read_text("standard input", _stdin())
        else:
            name, text = Path(path).name or path, read_text(path)
        documents.append(parse(name, text, KINDS))
    words = ["specsim", "report", *files, "-o", output]
    words += ["--title", title] if title else []
    page = render(
        documents, profiles_of(documents, profiles), title or DEFAULT_TITLE, shlex.join(words)
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
