"""`specsim report`: results of other commands as one HTML file."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specsim.commands import options as o

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specsim.hardware.profile import HardwareProfile
    from specsim.report.html.documents import Document

MAX_FILES = 40
MAX_TITLE = 200
MAX_PROFILES = 8

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
    from specsim.errors import UsageError
    from specsim.report.html.documents import parse, read_text
    from specsim.report.html.render import DEFAULT_TITLE, KINDS, render

    o.profile_folder(profiles)
    if len(files) > MAX_FILES:
        raise UsageError(f"{len(files)} results are given; a report shows at most {MAX_FILES}")
    if files.count("-") > 1:
        raise UsageError("- is given more than once; standard input can be read once")
    if title is not None and not 0 < len(title.strip()) <= MAX_TITLE:
        raise UsageError(f"--title must have 1 to {MAX_TITLE} characters, got {o.shown(title)}")
    _check_output(output, files)
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
        documents, _profiles(documents, profiles), title or DEFAULT_TITLE, shlex.join(words)
    )
    if output == "-":
        sys.stdout.write(page)
        return
    _write(Path(output), page)
    count = f"{len(documents)} result{'s' if len(documents) > 1 else ''}"
    sys.stdout.write(f"wrote {output}: {count}, {len(page.encode()) / 1e6:.1f} MB\n")


def _check_output(output: str, files: "Sequence[str]") -> None:
    """A result must not be overwritten by its report; bad paths are told before the work."""
    from specsim.errors import UsageError

    if output == "-":
        return
    path = Path(output)
    try:
        if not output.strip() or path.is_dir():
            raise UsageError(f"--output is {o.shown(output)}; name a file, e.g. report.html")
        if not path.resolve().parent.is_dir():
            raise UsageError(f"--output is in {path.parent}, which is no folder; make it first")
        same = [f for f in files if f != "-" and Path(f).resolve() == path.resolve()]
    except (OSError, ValueError) as error:
        raise UsageError(f"--output is {o.shown(output)}: {error}") from None
    if same:
        raise UsageError(f"--output is {o.shown(output)}, one of the results; name another file")


def _stdin() -> bytes:
    from specsim.errors import UsageError
    from specsim.report.html.documents import MAX_BYTES

    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("- reads standard input; pipe a result into it: specsim ... --json |")
    return sys.stdin.buffer.read(MAX_BYTES + 1)


def _profiles(
    documents: "Sequence[Document]", folder: str | None
) -> "dict[str, HardwareProfile]":
    """Profiles of the GPUs that the results name; one this installation lacks is left out."""
    from specsim.errors import SpecSimError
    from specsim.hardware.store import list_profiles, load_profile

    known = {entry.name for entry in list_profiles(folder)}
    found: dict[str, HardwareProfile] = {}
    for document in documents:
        for name in _gpu_names(document):
            # Only names: a path in a file from elsewhere is not followed.
            if name in known and name not in found and len(found) < MAX_PROFILES:
                try:
                    found[name] = load_profile(name, folder)
                except SpecSimError:
                    continue
    return found


def _gpu_names(document: "Document") -> list[str]:
    """GPUs that a result names: its own, those of its inputs, endpoints or cells."""
    node = document.node
    places = [node, node.get("inputs") if isinstance(node.get("inputs").value, dict) else node]
    for key in ("endpoints", "cells"):
        if isinstance(node.get(key).value, list):
            places += [item for item in node.get(key).items() if isinstance(item.value, dict)]
    values = [place.get("gpu").value for place in places]
    return [value for value in values if isinstance(value, str)]


def _write(path: Path, page: str) -> None:
    """The page, complete or not at all."""
    from specsim.errors import UsageError

    part = path.with_name(path.name + ".part")
    try:
        part.write_text(page, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
