"""The kinds of results that can be read back from their JSON, and what makes the blocks of each."""

from collections.abc import Callable

from specsim.errors import FormatError
from specsim.report.blocks import Section
from specsim.report.capacity import capacity_section
from specsim.report.comparison import comparison_section
from specsim.report.crossovers import crossover_section
from specsim.report.diagnosis import diagnosis_section
from specsim.report.doc import Doc
from specsim.report.explanation import explanation_section
from specsim.report.fewshot import fewshot_section
from specsim.report.fleet import fleet_section
from specsim.report.live import validation_section
from specsim.report.matrix import matrix_section
from specsim.report.mindrouter import mindrouter_section
from specsim.report.paretos import pareto_section
from specsim.report.policies import policies_section
from specsim.report.predictions import prediction_section
from specsim.report.quick import quick_section
from specsim.report.records import records_section
from specsim.report.saved import SavedResult
from specsim.report.scores import published_section
from specsim.report.simulation import simulation_section
from specsim.report.sweeps import sweep_section
from specsim.report.tuning import tuning_section

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
