"""From result documents to the page: a section each, then sources of the hardware and commands."""

from collections.abc import Callable, Mapping, Sequence

from specsim.hardware.profile import HardwareProfile
from specsim.report.html.capacity import capacity
from specsim.report.html.charts import Curve, curves
from specsim.report.html.comparison import mindrouter, published, validation
from specsim.report.html.documents import Document
from specsim.report.html.elements import Child, escape, fold, join, number, table, tag, times
from specsim.report.html.explanation import explanation
from specsim.report.html.findings import calibration, diagnosis
from specsim.report.html.fleets import fleet, matrix
from specsim.report.html.page import Page
from specsim.report.html.planning import crossover, pareto, sweep
from specsim.report.html.prediction import load_of, prediction
from specsim.report.html.simulation import simulation
from specsim.report.html.tuning import tune

Section = Callable[[Page, Document], None]
SECTIONS: dict[str, Section] = {
    "prediction": prediction,
    "simulation": simulation,
    "explanation": explanation,
    "tune": tune,
    "crossover": crossover,
    "capacity": capacity,
    "pareto": pareto,
    "fleet": fleet,
    "matrix": matrix,
    "sweep": sweep,
    "calibration": calibration,
    "diagnosis": diagnosis,
    "validation": validation,
    "published": published,
    "mindrouter": mindrouter,
}
KINDS = tuple(SECTIONS)
DEFAULT_TITLE = "Speculative decoding report"


def render(
    documents: Sequence[Document],
    profiles: Mapping[str, HardwareProfile] | None = None,
    title: str = DEFAULT_TITLE,
    command: str = "",
) -> str:
    """The report as HTML text.

    profiles: hardware profiles by the name that documents give, for the sources of their figures.
    command: the command line that made the report. FormatError names the file and the place of a
    value that is not what it should be; UsageError if plotly is missing or the page too large."""
    page = Page(title)
    predictions = [item for item in documents if item.kind == "prediction"]
    if len(predictions) > 1:
        _overview(page, predictions)
    for document in documents:
        SECTIONS[document.kind](page, document)
    if profiles:
        _hardware(page, profiles)
    _commands(page, documents, command)
    count = len(documents)
    lead = tag("p", f"{count} {'result' if count == 1 else 'results'} of specsim. Every chart has "
                    "its numbers below it; nothing is fetched from a network.")
    return page.html(lead, None)


def _overview(page: Page, documents: Sequence[Document]) -> None:
    """Speedups of several predictions in one chart, where their loads are of one kind."""
    found = []
    for document in documents:
        points = document.node.get("points").items()
        if points:
            found.append((document, load_of(points), points))
    kinds = {title for _, (title, _, _), _ in found}
    if len(found) < 2 or len(kinds) > 1:
        return
    title = kinds.pop()
    items, rows = [], []
    for i, (document, (_, _, x), points) in enumerate(found):
        node = document.node
        name = f"{node.get('model').text()}, {node.get('gpu').text('-')}, " + (
            f"{node.get('method').text('-')} k = {number(node.get('k').maybe())}"
        )
        speeds = [point.get("speedup").maybe() for point in points]
        items.append(Curve(name, x, speeds, style=i))
        rows += [[name, number(a), times(b)] for a, b in zip(x, speeds, strict=True)]
    every = [v for item in items for v in item.x if v]
    log = len(every) > 2 and max(every) > 8 * min(every)
    page.section(
        "All predictions side by side", "Overview",
        page.chart(
            "Speedup", f"Over the {title}; above 1 speculation pays.",
            curves(items, title, "speedup", log_x=log, level=(1.0, "break-even")),
            ["prediction", title, "speedup"], rows,
        ),
    )


def _hardware(page: Page, profiles: Mapping[str, HardwareProfile]) -> None:
    """Figures of the hardware profiles with their sources."""
    blocks: list[Child] = []
    for name, profile in profiles.items():
        values = {
            "mem_bytes": f"{profile.mem_bytes / 1e9:.1f} GB",
            "mem_bytes_per_s": f"{profile.mem_bytes_per_s / 1e12:.3g} TB/s",
            **{f"flops.{key}": f"{v / 1e12:.4g} TFLOP/s" for key, v in profile.flops.items()},
            "link_bytes_per_s": f"{profile.link_bytes_per_s / 1e9:.0f} GB/s",
            "allreduce_latency_s": f"{profile.allreduce_latency_s * 1e6:.1f} us",
        }
        rows = [
            [field, value, "assumed" if profile.is_assumed(field) else "sourced",
             profile.sources.get(field, "-")]
            for field, value in values.items()
        ]
        kernels = [
            [item.name, "assumed" if item.assumed else "measured", item.source]
            for item in profile.kernels.values()
        ]
        blocks += [
            tag("h3", f"{name}: {profile.title}"),
            table(["figure", "value", "kind", "source"], rows,
                  "As in this installation of specsim", left=4),
            fold(f"Kernel efficiencies of {name}",
                 table(["table", "kind", "source"], kernels, "Efficiencies", left=3)),
        ]
    page.section(
        "Hardware: figures and their sources", "Hardware",
        tag("p", "Every prediction starts from these; assumed figures have no source for this "
                 "very device.", class_="lead"),
        blocks,
    )


def _commands(page: Page, documents: Sequence[Document], command: str) -> None:
    """What to type to get the same again."""
    blocks: list[Child] = []
    for document in documents:
        typed = document.node.get("command")
        words = typed.text("") if not typed.missing else ""
        blocks.append(tag("h3", document.name))
        if words:
            blocks.append(tag("pre", tag("code", words)))
        else:
            blocks.append(tag("p", "This file does not hold the command that made it."))
    if command:
        blocks += [tag("h3", "This report"), tag("pre", tag("code", escape(command)))]
    page.section(
        "Commands to repeat", "Commands",
        tag("p", "Quoted for a POSIX shell; add --json to get a result file.", class_="lead"),
        join(blocks),
    )
