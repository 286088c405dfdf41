"""Writing a result in the form that was asked for: text, JSON or CSV."""

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from specsim.commands.bind import INTERRUPTED, Ended
from specsim.options.groups import (
    ComparisonOutOptions,
    JsonOptions,
    OutputOptions,
    PlotFileOptions,
)
from specsim.report.tables import to_csv, to_json
from specsim.rows import printable

if TYPE_CHECKING:
    from specsim.api.validation import Validation
    from specsim.options.analytic import DrawnOptions
    from specsim.report.blocks import Section
    from specsim.report.plots import Panel, Picture


class Shown(Protocol):
    """A result: what JSON holds, what a terminal shows."""

    def to_dict(self) -> dict[str, object]: ...
    def section(self) -> "Section": ...


def show(
    result: Shown, options: JsonOptions, rows: Callable[[], Iterable[dict[str, object]]] = list, *,
    text: Callable[[], str] | None = None,
    document: Callable[[], Mapping[str, object] | list[object]] | None = None,
) -> None:
    """Prints a result. rows: of CSV; text, document: where they are not the result's own."""
    def shown() -> str:
        return text() if text else text_of(result.section(), options)

    write(options, document or result.to_dict, shown, rows)


def text_of(section: "Section", options: JsonOptions) -> str:
    """Blocks at the width of the terminal, or as wide as they are with --wide."""
    from specsim.report.layout import coloured, terminal_width
    from specsim.report.text import section_text

    width = None if options.wide else terminal_width()
    return section_text(section, width, colour=coloured(sys.stdout))


def write(
    options: JsonOptions, document: Callable[[], Mapping[str, object] | list[object]],
    text: Callable[[], str], rows: Callable[[], Iterable[dict[str, object]]] = list,
) -> None:
    """Prints one of the three forms; only that one is made."""
    if options.json_out:
        shown = to_json(document())
    elif isinstance(options, OutputOptions) and options.csv_out:
        shown = to_csv(rows()).rstrip("\n")
    else:
        shown = text()
    sys.stdout.write(shown + "\n")


def show_drawn(
    result: Shown, options: "DrawnOptions", rows: Callable[[], Iterable[dict[str, object]]],
    picture: Callable[[], "Picture"], panel: Callable[[], "Panel | None"],
    document: Callable[[], dict[str, object]] | None = None,
) -> None:
    """Prints a result; `picture` is what --plot writes, `panel` what the terminal shows."""
    from specsim.report.plots_file import write_picture

    if options.plot is not None:
        write_picture(picture(), options.plot)

    def text() -> str:
        parts = [text_of(result.section(), options)]
        if not options.no_plot and (drawn := panel()) is not None:
            parts.append(terminal_plot(drawn))
        if options.plot is not None:
            parts.append(f"plot: {printable(str(options.plot))}")
        return "\n\n".join(parts)

    show(result, options, rows, text=text, document=document)


def quiet(options: JsonOptions) -> bool:
    """Whether nobody looks at progress: another form than text, or no terminal."""
    formed = options.json_out or (isinstance(options, OutputOptions) and options.csv_out)
    return formed or not (sys.stdout.isatty() and sys.stderr.isatty())


def end_if_partial(partial: bool, words: str = "") -> None:
    """The exit code of a run that Ctrl-C ended; its figures are printed."""
    if not partial:
        return
    if words:
        sys.stdout.flush()
        sys.stderr.write(f"specsim: interrupted; {words}\n")
    raise Ended(INTERRUPTED)


def finish(
    found: "Validation", options: ComparisonOutOptions, max_error: float | None
) -> None:
    """Prints a comparison with measurements, writes it, and ends with the exit code that Ctrl-C, a
    failed server or --max-error asks for."""
    show(found, options)
    sys.stdout.flush()
    if options.out is not None:
        # After the figures are shown: a full disk must not take them along.
        found.write(options.out)
    if isinstance(options, PlotFileOptions) and options.plot is not None:
        from specsim.report.doc import Doc
        from specsim.report.live import split_picture
        from specsim.report.plots_file import write_picture

        write_picture(split_picture(Doc(found.to_dict())), options.plot)
    end_if_partial(found.partial, "the figures are of what was finished")
    if found.stopped:
        sys.stderr.write(f"specsim: ended early: {found.stopped}; the points before it are kept\n")
        raise Ended(1)
    if max_error is not None:
        end_if_over(found.over(max_error), f"above {max_error:g}", found.values_judged())


def end_if_over(metrics: Sequence[str], limit: str, judged: int) -> None:
    """Exit code 1 where metrics are worse than a limit allows, or where none was judged: no value
    is no error of 0."""
    if metrics or not judged:
        sys.stdout.flush()
        said = f"median error {limit} in {', '.join(metrics)}" if judged else (
            "no value was judged, so --max-error has nothing to hold: see what was left out above")
        sys.stderr.write(f"specsim: {said}\n")
        raise Ended(1)


def terminal_plot(panel: "Panel") -> str:
    """The panel as wide as the terminal, in colour where there is one."""
    from specsim.report.layout import coloured
    from specsim.report.plots_text import panel_text

    width = min(110, shutil.get_terminal_size((78, 24)).columns)
    return panel_text(panel, max(50, width), colour=coloured(sys.stdout))
