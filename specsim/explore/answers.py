"""Predictions as what the page shows. Everything it gets is made here: markup in which every text
is escaped, Plotly figures, and texts to paste."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from specsim.api.explain import run as explained
from specsim.api.predict import Prediction, predicted
from specsim.errors import SpecSimError, UsageError
from specsim.explore.fields import PINNED, Choice, beside, read
from specsim.options.analytic import ExplainOptions
from specsim.options.declare import declared
from specsim.report import explored
from specsim.report.blocks import Block, Charts
from specsim.report.doc import Doc
from specsim.report.explanation import explanation_section
from specsim.report.html.elements import join, tag
from specsim.report.html.page import Page
from specsim.report.predictions import axis
from specsim.report.verdict import load_words

REMEMBERED = 8  # predictions: the pinned one is asked for with every change
Answer = dict[str, object]


class Answers:
    """What the page asks for; for one caller at a time."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], tuple[Prediction, Doc]] = OrderedDict()

    def forget(self) -> None:
        """Files that predictions rest on may have changed."""
        self._known.clear()

    def prediction(self, choice: Choice, pinned: Choice | None) -> Answer:
        """What changes at once: the verdict, the charts, what the loads are called."""
        found = self._named(choice, pinned, False)
        above, _ = _markup(explored.above(doc, name) for name, (_, doc) in found.items())
        charts, figures = _markup([[explored.charts(found)]])
        doc = next(iter(found.values()))[1]
        unit, key = axis(doc)
        loads = [load_words(point.number(key), unit) for point in doc.items("points")]
        return {"above": above, "charts": charts, "figures": figures, "loads": loads}

    def details(self, choice: Choice, pinned: Choice | None) -> Answer:
        """What may follow a moment later: all figures and assumptions, with the best draft length,
        which takes longest; result: what `specsim predict --json` prints."""
        found = self._named(choice, pinned, True)
        below, _ = _markup(explored.below(doc, name) for name, (_, doc) in found.items())
        return {"below": below, "result": next(iter(found.values()))[1].value}

    def step(self, choice: Choice, point: int) -> Answer:
        """Where the steps at one load of the prediction spend their time."""
        points = self._predicted(choice, False)[0].points
        if not 0 <= point < len(points):
            raise UsageError(f"there is no load {point}; the prediction has {len(points)}")
        options, theirs = read(choice), declared(ExplainOptions)
        given = {name: getattr(options, name) for name in options.model_fields_set & set(theirs)}
        running = str(max(1, round(points[point].running)))
        found = explained(ExplainOptions.of_values({**given, "concurrency": running}))
        section = explanation_section(Doc(found.to_dict()))
        charts, figures = _markup(
            [[block for block in section.blocks if isinstance(block, Charts)]], "step")
        return {"charts": charts, "figures": figures}

    def share(self, choice: Choice, pinned: Choice | None) -> Answer:
        """A table in Markdown, and the commands that give it again."""
        docs = [doc for _, doc in self._named(choice, pinned, True).values()]
        return {"markdown": explored.markdown(docs),
                "command": "\n".join(doc.text("command") for doc in docs)}

    def _named(
        self, choice: Choice, pinned: Choice | None, thorough: bool
    ) -> dict[str, tuple[Prediction, Doc]]:
        """The prediction, or both by the names that tell them apart."""
        found = self._predicted(choice, thorough)
        if pinned is None:
            return {"": found}
        try:
            other = self._predicted(beside(pinned, choice), thorough)
        except SpecSimError as error:
            raise UsageError(f"{PINNED}{error}") from error
        return {"chosen: ": found, PINNED: other}

    def _predicted(self, choice: Choice, thorough: bool) -> tuple[Prediction, Doc]:
        key = (thorough, *sorted(choice.items()))
        found = self._known.pop(key, None)
        if found is None:
            made = predicted(read(choice), search_k=thorough)
            found = made, Doc(made.to_dict())
        self._known[key] = found
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return found


def _markup(
    parts: Iterable[Sequence[Block | None]], charts: str = "chart"
) -> tuple[str, dict[str, dict[str, object]]]:
    """(blocks of deployments beside one another, the figures of their charts)."""
    page = Page("", charts)
    return join([tag("div", page.blocks(blocks)) for blocks in parts]), page.figures
