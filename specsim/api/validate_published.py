"""`specsim.validate_published`: published measurements beside their predictions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specsim.accuracy.score import read_rows, score_rows
from specsim.accuracy.scored import ScoreReport
from specsim.api.functions import named_function
from specsim.api.results import Result, flat
from specsim.jsonable import Key
from specsim.options.declare import repeat
from specsim.options.measured import ValidatePublishedOptions


@dataclass(frozen=True, repr=False)
class PublishedScores(Result):
    """Errors by quantity, as `overall`, by source and by set. report: with every judged value."""

    BLOCKS = "scores.published_section"

    report: ScoreReport
    rows_out: bool
    command: str

    rows = Key[int]()
    overall = sources = signs = coverage = sets = Key[dict[str, Any]]()
    skipped = Key[dict[str, int]]()
    judged = Key[list[dict[str, Any]]]()

    def to_dict(self) -> dict[str, object]:
        judged = [score.to_dict() for score in self.report.scores]
        return {**self.report.to_dict(), **({"judged": judged} if self.rows_out else {})}

    def to_rows(self) -> list[dict[str, object]]:
        """One flat row per judged value."""
        return [flat(score.to_dict()) for score in self.report.scores]


def run(options: ValidatePublishedOptions) -> PublishedScores:
    """Score every row of `files` that can be predicted; count the others by reason."""
    rows = [row for file in options.files for row in read_rows(Path(file))]
    report = score_rows(rows, keep_cases=False)
    return PublishedScores(report, options.rows_out, repeat(options))


validate_published = named_function(ValidatePublishedOptions, run)
