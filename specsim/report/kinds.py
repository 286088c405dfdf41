"""Results read back from their files: one JSON document of `specsim ... --json` each, read with
limits and told apart by its kind; and what makes the blocks of each kind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specsim.checked import json_value
from specsim.errors import FormatError, closest
from specsim.files import bytes_of, utf8
from specsim.report.blocks import Section
from specsim.report.calibrations import fewshot_section, records_section
from specsim.report.capacity import capacity_section
from specsim.report.comparison import comparison_section
from specsim.report.crossovers import crossover_section
from specsim.report.diagnosis import diagnosis_section
from specsim.report.doc import Doc
from specsim.report.explanation import explanation_section
from specsim.report.fleet import fleet_section
from specsim.report.live import validation_section
from specsim.report.matrix import matrix_section
from specsim.report.paretos import pareto_section
from specsim.report.policies import policies_section
from specsim.report.predictions import prediction_section
from specsim.report.quick import quick_section
from specsim.report.scores import mindrouter_section, published_section
from specsim.report.simulation import simulation_section
from specsim.report.sweeps import sweep_section
from specsim.report.tables import visible
from specsim.report.tuning import tuning_section

MAX_BYTES = 32_000_000


@dataclass(frozen=True, slots=True)
class SavedResult:
    """A result file."""

    kind: str
    doc: Doc


def read_text(path: str, raw: bytes | None = None) -> str:
    """The text of a file (raw: of what was read from standard input), with limits."""
    hint = "a result of specsim --json is smaller"
    if raw is None:
        raw = bytes_of(Path(path), MAX_BYTES, hint)
    if len(raw) > MAX_BYTES:
        raise FormatError(f"{path} is larger than {MAX_BYTES / 1e6:.0f} MB; {hint}")
    return utf8(raw, path, "give a result of specsim ... --json")


def parse(name: str, text: str, kinds: Sequence[str]) -> SavedResult:
    """The document in a text. FormatError where it is no JSON or of no known kind."""
    name = visible(name, 200)
    if not text.strip():
        raise FormatError(f"{name} is empty; give a result of specsim ... --json")
    value = json_value(text, name)
    if not isinstance(value, dict):
        raise FormatError(f"{name} holds no object; give a result of specsim ... --json")
    kind = value.get("kind")
    if kind not in kinds:
        known = ", ".join(kinds)
        if kind is None:
            raise FormatError(f"{name} has no kind that is known; a report shows {known}")
        hint = closest(str(kind), kinds)
        raise FormatError(f"{name}: kind is {str(kind)[:60]!r}; {hint}a report shows {known}")
    return SavedResult(str(kind), Doc(value, name))


SECTIONS: dict[str, Callable[[Doc], Section]] = {
    "prediction": prediction_section,
    "tune": tuning_section,
    "crossover": crossover_section,
    "explanation": explanation_section,
    "pareto": pareto_section,
    "comparison": comparison_section,
    "matrix": matrix_section,
    "simulation": simulation_section,
    "policies": policies_section,
    "capacity": capacity_section,
    "fleet": fleet_section,
    "sweep": sweep_section,
    "diagnosis": diagnosis_section,
    # Of records, or of benchmark files.
    "calibration": lambda doc: (records_section if doc.has("profile") else fewshot_section)(doc),
    "quick": quick_section,
    "validation": validation_section,
    "published": published_section,
    "mindrouter": mindrouter_section,
}
KINDS = tuple(SECTIONS)  # in the order of a page


def section_of(saved: SavedResult) -> Section:
    """The blocks of a saved result. FormatError names the file and the place of a value that is
    not what it must be."""
    try:
        return SECTIONS[saved.kind](saved.doc)
    except (ValueError, ArithmeticError, LookupError) as error:
        # Values that are each as they must be but do not fit together: lists of unequal length.
        raise FormatError(f"{saved.doc.file} does not fit together: {error}") from None
