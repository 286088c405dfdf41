"""From saved results to the page: a section each, then sources of the hardware and commands."""

from collections.abc import Mapping, Sequence

from specsim.hardware.profile import HardwareProfile
from specsim.report.blocks import Block, Charts, Command, Fold, Lines, Section, Verdict, verdicts
from specsim.report.catalogue import kernel_table, profile_values
from specsim.report.html.elements import tag
from specsim.report.html.page import Page
from specsim.report.kinds import KINDS, SavedResult, section_of
from specsim.report.predictions import side_by_side
from specsim.report.tables import Table

DEFAULT_TITLE = "Speculative decoding report"


def render(
    results: Sequence[SavedResult], profiles: Mapping[str, HardwareProfile] | None = None,
    title: str = DEFAULT_TITLE, command: str = "",
) -> str:
    """The report as HTML text, by kind of result, model and GPU in whatever order they are given.

    profiles: hardware profiles by the name that results give, for the sources of their figures.
    command: the command line that made the report. FormatError names the file and the place of a
    value that is not what it should be; UsageError if plotly is missing or the page too large."""
    page = Page(title)
    results = sorted(results, key=_place)
    sections = [section_of(saved) for saved in results]
    answers = _answers(sections)
    if answers and len(sections) > 1:
        page.add(Section("Verdicts", "Verdicts", answers))
        page.answered = True
    overview = side_by_side([saved.doc for saved in results if saved.kind == "prediction"])
    if overview is not None:
        page.add(Section("All predictions side by side", "Overview", [Charts([overview])]))
    for saved, section in zip(results, sections, strict=True):
        page.add(section, saved.doc.file)
    if profiles:
        page.add(_hardware(profiles))
    page.add(_commands(results, command))
    count = len(results)
    lead = tag("p", f"{count} {'result' if count == 1 else 'results'} of specsim. Every chart has "
                    "its numbers below it; nothing is fetched from a network.")
    return page.html(lead, None)


def _place(saved: SavedResult) -> tuple[int, str, str, str]:
    """Where a result stands on the page."""
    return (KINDS.index(saved.kind), saved.doc.words("model"), saved.doc.words("gpu"),
            saved.doc.file)


def _answers(sections: Sequence[Section]) -> list[Block]:
    """The verdict of each result with its command; an equal one once, under all their names."""
    found: list[tuple[Verdict, list[str]]] = []
    for section in sections:
        for answer in verdicts(section.blocks):
            name = f"{section.short}, {answer.about}" if answer.about else section.short
            names = next((names for known, names in found if known == answer), None)
            if names is None:
                found.append((answer, [name]))
            elif name not in names:
                names.append(name)
    return [block for answer, names in found
            for block in (Lines(["; ".join(names)], "lead"), answer)]


def _hardware(profiles: Mapping[str, HardwareProfile]) -> Section:
    """Figures of the hardware profiles with their sources."""
    blocks: list[Block] = [Lines([
        "Every prediction starts from these, as in this installation; assumed figures have no "
        "source for this very device."
    ], "lead")]
    for name, profile in profiles.items():
        blocks += [
            Table(["figure", "value", "source"], profile_values(profile), left=3,
                  title=f"{name}: {profile.title}"),
            Fold(f"Kernel efficiencies of {name}", [kernel_table(profile)]),
        ]
    return Section("Hardware: figures and their sources", "Hardware", blocks)


def _commands(results: Sequence[SavedResult], command: str) -> Section:
    """What to type to get the same again."""
    blocks: list[Block] = [
        Lines(["Quoted for a POSIX shell; add --json to get a result file."], "lead")
    ]
    for saved in results:
        words, name = saved.doc.text("command", ""), saved.doc.file
        blocks.append(
            Command(name, words) if words else
            Lines([f"{name} does not hold the command that made it."])
        )
    if command:
        blocks.append(Command("This report", command))
    return Section("Commands to repeat", "Commands", blocks)
